"""A verifier in a process of its own, asked pair by pair, each under a deadline, and killed where it overstays.

One line of JSON a question, one line a reply, both ways over pipes, so that the process may be any interpreter with
any libraries. Questions are sent some ahead; a process that is killed or dies costs the one question it was at.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

AHEAD = 32  # questions sent before their turn; ours
START_SECONDS = 120.0  # to import what the verifier imports; sympy may take ten on a busy machine


class NotAudited(RuntimeError):
    """The verifier cannot be asked at all; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `outcome`: "accept", "reject" or "failure" (it did not judge: see `reason`)."""

    outcome: str
    reason: str
    cpu: float  # seconds of the asked process and its children; nan where it was killed
    wall: float

    @property
    def killed(self) -> bool:
        """Whether the process had to be ended, or ended by itself. Its own "timeout" is an answer like others."""
        return math.isnan(self.cpu)


class Asked:
    """A running verifier. `command` is started as it is; its first line says what it is, as JSON."""

    def __init__(self, command: Sequence[str], seconds: float):
        self.command, self.seconds = list(command), seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._unsent = bytearray()  # whose front can be taken off without copying the rest
        self._buffer = b""
        self.hello: dict[str, Any] = {}
        self._start()

    def ask(self, questions: Iterable[tuple[str, str]]) -> Iterator[Reply]:
        """A reply for each (gold, text), in order. Raises NotAudited where the process cannot be started again."""
        coming = iter(questions)
        sent: deque[bytes] = deque()
        done = False
        while True:
            while not done and len(sent) < AHEAD:
                try:
                    gold, text = next(coming)
                except StopIteration:
                    done = True
                    break
                sent.append(json.dumps([gold, text]).encode() + b"\n")
                self._unsent += sent[-1]
            if not sent:
                return
            reply = self._read()
            sent.popleft()
            if reply.killed:
                self.close()
                self._start()
                self._unsent = bytearray().join(sent)
            yield reply

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise NotAudited(f"{self.command[0]} cannot be started: {error.strerror}") from None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._unsent, self._buffer = bytearray(), b""
        line = self._line(START_SECONDS)
        if line is None:
            self.close()
            raise NotAudited(f"{' '.join(self.command)} did not start within {START_SECONDS:g} s, or ended at once")
        self.hello = json.loads(line)
        if "absent" in self.hello:
            self.close()
            raise NotAudited(self.hello["absent"])

    def _read(self) -> Reply:
        began = time.perf_counter()
        line = self._line(self.seconds)
        took = time.perf_counter() - began
        if line is None:
            late = took >= self.seconds
            return Reply("failure", "timeout" if late else "died", float("nan"), took)
        outcome, reason, cpu, wall = json.loads(line)
        return Reply(outcome, reason, cpu, wall)

    def _line(self, seconds: float) -> bytes | None:
        """The next line, while questions are sent on; None where it does not come in time or the process ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source, sink, until = self._process.stdout.fileno(), self._process.stdin.fileno(), time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                return None
            readable, writable, _ = select.select([source], [sink] if self._unsent else [], [], left)
            if writable:
                try:
                    del self._unsent[: os.write(sink, self._unsent[: 1 << 16])]
                except BrokenPipeError:
                    self._unsent.clear()
            if readable:
                piece = os.read(source, 1 << 16)
                if not piece:
                    return None
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
