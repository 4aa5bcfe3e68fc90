"""RLOO, REINFORCE leave-one-out: the reward against the mean of the group's other rows.

    A_i = r_i - mean of r_j over j != i in the group

Source: "Back to Basics" (arXiv 2402.14740), eq. 5. The paper takes one plain policy-gradient step a batch; here GRPO's
clipped loss stays, which has the same gradient on policy and holds when a batch is used for several updates.
"""

from __future__ import annotations

from rlvr.advantage.group import LeaveOneOut
from rlvr.method import Method
from rlvr.registry import register

fills = ("advantage",)
paper = "Back to Basics: REINFORCE-style optimization for RLHF, arXiv 2402.14740"
# In a group of two, r_i - r_j is what the spread of the two divides out.
neutral = {"input": "twins", "equals": "grpo(eps=0.0)"}


@register("method")
def rloo(method: Method) -> Method:
    """The reward against the mean of the group's other rows, without division by a spread."""
    return method.firm("rloo", advantage=LeaveOneOut())
