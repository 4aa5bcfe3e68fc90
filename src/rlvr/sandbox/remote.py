"""A sandbox behind a command: on another machine, in a container, or in whatever else the command leads into.

    Code(sandbox=Remote(["ssh", "box", "python", "-m", "rlvr.sandbox.remote"]))
    verifier = "code(remote='docker run -i --rm --network=none my-image python -m rlvr.sandbox.remote')"

At the other end this module runs jobs in its own `LocalSandbox`, so the walls are those of Linux there; what the
command adds comes on top. A line of JSON goes each way for a job. The other end is trusted to judge nothing: expected
values do not travel, and what comes back is data.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rlvr.sandbox.job import Call, Job, Limits, Outcome, Result, Sandbox, SandboxUnavailable, Step
from rlvr.sandbox.wire import tree_of, value_of

GRACE_SECONDS = 60.0  # beyond a job's own limit: a container may have to start, a network may be slow
LONGEST_LINE = 64 << 20  # of an answer: three outputs at the default limit are a third of it


class Remote:
    """Runs jobs through `workers` processes of a command, each of which serves one at a time.

    A process that dies or gives no answer in time costs its job ("failed": no verdict) and is started anew. Raises
    SandboxUnavailable where the command cannot be started, and where nothing contains submissions at the other end.
    """

    def __init__(self, command: Sequence[str], workers: int = 4):
        self.command, self.workers = list(command), workers
        self._ends: queue.LifoQueue[_End] = queue.LifoQueue()
        for _ in range(workers):
            self._ends.put(_End(self.command))

    def run(self, job: Job) -> Outcome:
        end = self._ends.get()
        try:
            return end.run(job)
        finally:
            self._ends.put(end)

    def prepare(self) -> None:
        outcome = self.run(Job("print(6 * 7)"))
        if outcome.stdout != b"42\n":
            raise SandboxUnavailable(f"{' '.join(self.command)} runs nothing: {outcome.detail or outcome}")


class _End:
    def __init__(self, command: Sequence[str]):
        self.command = command
        self._link: socket.socket | None = None
        self._finalizer: weakref.finalize | None = None

    def run(self, job: Job) -> Outcome:
        try:
            answer = json.loads(self._exchange(line_of(job), job.limits.seconds + GRACE_SECONDS))
            if "unavailable" in answer:
                raise SandboxUnavailable(f"at the other end of {' '.join(self.command)}: {answer['unavailable']}")
            return outcome_of(answer)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # TimeoutError is an OSError
            self.stop()
            return Outcome("failed", detail=f"{self.command[0]} gave no outcome: {type(error).__name__}: {error}"[:300])
        except BaseException:  # Ctrl-C: a late answer must not be taken for the next job's
            self.stop()
            raise

    def stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._link = self._finalizer = None

    def _exchange(self, line: bytes, seconds: float) -> bytes:
        link = self._link or self._start()
        deadline = time.monotonic() + seconds
        link.settimeout(seconds)
        link.sendall(line)
        pieces, size = list[bytes](), 0
        while not pieces or not pieces[-1].endswith(b"\n"):
            link.settimeout(max(0.001, deadline - time.monotonic()))
            piece = link.recv(1 << 20)
            size += len(piece)
            if not piece or size > LONGEST_LINE:
                raise OSError("it ended" if not piece else "its answer is too long")
            pieces.append(piece)
        return b"".join(pieces)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            ends = theirs.fileno()
            process = subprocess.Popen(self.command, stdin=ends, stdout=ends, start_new_session=True)
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(f"{self.command[0]} cannot be started: {error.strerror}") from None
        finally:
            theirs.close()
        self._link = ours
        self._finalizer = weakref.finalize(self, _end, process, ours, os.getpid())
        return ours


def _end(process: subprocess.Popen[bytes], link: socket.socket, owner: int) -> None:
    link.close()
    if os.getpid() != owner:
        return  # a fork of the trainer ends; the command is not its own
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- what travels ----------------------------------------------------------------------------------------
def line_of(job: Job) -> bytes:
    told = {
        "code": job.code,
        "stdin": base64.b64encode(job.stdin).decode(),
        "calls": [[c.function, tree_of(list(c.args)), tree_of(dict(c.kwargs))] for c in job.calls],
        "steps": [[s.kind, s.code] for s in job.steps],
        "limits": asdict(job.limits),
    }
    return json.dumps(told).encode() + b"\n"


def job_of(line: bytes) -> Job:
    told = json.loads(line)
    calls = tuple(Call(name, tuple(value_of(args)), value_of(kwargs)) for name, args, kwargs in told["calls"])
    steps = tuple(Step(kind, code) for kind, code in told["steps"])
    return Job(told["code"], base64.b64decode(told["stdin"]), calls, steps, Limits(**told["limits"]))


def answer_of(outcome: Outcome) -> dict[str, Any]:
    streams = {name: base64.b64encode(getattr(outcome, name)).decode() for name in ("stdout", "stderr")}
    return {**asdict(replace(outcome, stdout=b"", stderr=b"")), **streams}


def outcome_of(answer: dict[str, Any]) -> Outcome:
    results = tuple(Result(r["kind"], r["text"]) for r in answer["results"])
    streams = {name: base64.b64decode(answer[name]) for name in ("stdout", "stderr")}
    return Outcome(**{**answer, **streams, "results": results})


# ---- the other end ---------------------------------------------------------------------------------------
def serve(sandbox: Sandbox) -> None:
    """A line of JSON for each line of standard input, until it ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        try:
            answer = answer_of(sandbox.run(job_of(line)))
        except SandboxUnavailable as error:
            answer = {"unavailable": str(error)}
        out.write(json.dumps(answer).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    from rlvr.sandbox.pool import LocalSandbox

    with LocalSandbox(workers=1) as box:
        serve(box)
