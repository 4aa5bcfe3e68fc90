"""Overlong filtering: rows that hit a length limit are not trained on.

They still stand in their group's baseline: they were sampled and judged. Source: DAPO (arXiv 2503.14476), section 3.4.
"""

from __future__ import annotations

from rlvr.loss.weights import NotTruncated
from rlvr.method import Method
from rlvr.registry import register

fills = ("row_weight",)
paper = "DAPO, arXiv 2503.14476"
neutral = {"input": "nothing_truncated", "equals": "grpo"}


@register("method")
def mask_truncated(method: Method) -> Method:
    """Leaves truncated rows out of the loss and of its denominators."""
    return method.firm("mask_truncated", row_weight=NotTruncated())
