"""What a sandbox is asked and what it answers. Any back end, local or remote, is a `Sandbox`: one method over these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Status = Literal["finished", "timeout", "killed", "over_limit", "failed"]


class SandboxUnavailable(RuntimeError):
    """Nothing on this machine contains hostile code; the sentence says what is missing and what would work."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one job may use. Its share of everything ends with it."""

    seconds: float = 10.0  # wall time; ours: the usual limits of contest problems, with room for a loaded machine
    memory: int = 1 << 30  # bytes of address space, threads included; several processes share it equally
    output: int = 4 << 20  # bytes of standard output, of standard error and of results, each
    folder: int = 64 << 20  # bytes in its private folder
    open_files: int = 64
    processes: int = 1  # above 1 it may fork, where namespaces bound the whole tree


@dataclass(frozen=True, slots=True)
class Call:
    """Call `function`, a name of the submitted module, with plain values (see `wire`).

    "Solution.f" makes a `Solution` and calls its method; "f" does so too where the module has no `f` but a class
    `Solution` with one.
    """

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a test program that runs in a process of its own and reaches the submission by messages only.

    "setup": run it; "check": run it, it passes if it raises nothing; "value": an expression whose value comes out.
    """

    kind: Literal["setup", "check", "value"]
    code: str


@dataclass(frozen=True, slots=True)
class Job:
    """One submission: Python source, run as a script (neither calls nor steps), or as a module that is asked things."""

    code: str
    stdin: bytes = b""
    calls: tuple[Call, ...] = ()
    steps: tuple[Step, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one call or step.

    kind: "value", text is its canonical text; "foreign", text is its type; "raised", text is what; "passed" or
    "failed", of a check; "import_failed" and "unsendable": the test program itself imports what is not there, or passes
    what is no plain value; "broken", alone: the submission does not load.
    """

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job.

    "finished" (by itself, with exit_code), "timeout", "killed" (a signal: memory, a crash of the interpreter),
    "over_limit" (output or folder) are the submission's own; "failed" is the machine's: there is no verdict.
    """

    status: Status
    exit_code: int = 0
    results: tuple[Result, ...] = ()  # one for each call or step that came to an end, in order
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    detail: str = ""  # e.g. "signal 11", "stdout", "broken TypeError: ..."


class Sandbox(Protocol):
    """Runs hostile Python. Threads may call it at once."""

    def run(self, job: Job) -> Outcome:
        """What came of the job. Raises SandboxUnavailable where nothing would contain it."""
        ...
