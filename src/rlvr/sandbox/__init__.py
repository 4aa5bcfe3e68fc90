"""A sandbox for hostile Python: warm, contained from the inside, and questioned from the outside.

    with LocalSandbox() as sandbox:
        outcome = sandbox.run(Job("def f(x): return x * x", calls=(Call("f", (7,)),)))
    outcome.results[0]  # Result(kind='value', text='49')

What may be expected of a submission never enters its process: results come out as data and are compared here, type by
type. `print(rlvr.sandbox.report())` says which walls this machine has. `rlvr.sandbox.remote` is for other machines.
"""

from rlvr.sandbox.job import Call, Job, Limits, Outcome, Result, Sandbox, SandboxUnavailable, Step
from rlvr.sandbox.pool import LocalSandbox, Report, report

__all__ = [
    "Call", "Job", "Limits", "LocalSandbox", "Outcome", "Report", "Result", "Sandbox",
    "SandboxUnavailable", "Step", "report",
]  # fmt: skip
