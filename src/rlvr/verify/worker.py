"""A process of its own that answers questions and can be killed: where user functions and user patterns run.

The trainer holds a `Worker`; the process is a fresh interpreter running this module, never a fork of the trainer.
Both sides exchange length-prefixed JSON over private pipes, never pickle. Of what the process prints the first lines
are shown (`heard`). An answer that comes too late, or a process that dies, costs that one question: the next one starts
a new process.

Question: JSON text. Answer: {"ok": value}, {"error": reason} (the handler failed), {"broken": sentence} (it cannot be
built).
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from typing import IO, Any

from rlvr.verify.heard import Heard, listen
from rlvr.verify.verifier import VerifierBroken, error_reason

START_SECONDS = 120.0  # to import what the user's file imports; torch alone may take twenty on a cold disk
_HEAD = struct.Struct(">Q")

Handler = Callable[[Any], Any]  # a question -> its answer, both JSON


class WorkerFailed(RuntimeError):
    """The question has no answer: the process died or the handler raised. The text is a verdict's reason."""


class Worker:
    """One killable process. `handler` = "module:function", called there as function(settings) -> (hello, Handler).

    Calls from several threads wait for each other. Nothing starts before the first call.
    """

    def __init__(self, handler: str, settings: Mapping[str, Any]):
        self.handler, self.settings = handler, dict(settings)
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._hello: Any = None
        self._heard = Heard(self._who())
        self._finalizer: weakref.finalize | None = None

    def start(self) -> Any:
        """What the handler said when it was built; starts the process where none runs. Raises VerifierBroken."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "rlvr.verify.worker", self.handler],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is the trainer's; and grandchildren die with the group
                )
                self._finalizer = weakref.finalize(self, _kill, self._process, os.getpid())
                assert self._process.stderr is not None
                its_output = os.dup(self._process.stderr.fileno())
                threading.Thread(target=listen, args=(its_output, self._heard), daemon=True).start()
                try:
                    self._hello = self._exchange(json.dumps(self.settings), START_SECONDS)
                except TimeoutError:
                    raise VerifierBroken(f"{self._who()} did not load within {START_SECONDS:g} s") from None
                except WorkerFailed as error:
                    raise VerifierBroken(f"{self._who()} cannot be loaded: {error}") from None
            return self._hello

    def ask(self, question: str, seconds: float) -> Any:
        """The answer to a question (JSON text). Raises TimeoutError, WorkerFailed, and VerifierBroken as `start`."""
        with self._lock:
            self.start()
            return self._exchange(question, seconds)

    def stop(self) -> int | None:
        """Kill the process and all that it started; its exit status."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or self._finalizer is None:
                return None
            self._finalizer()
            return process.returncode

    def _exchange(self, question: str, seconds: float) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + seconds
        try:
            body = question.encode()
            _write(process.stdin.fileno(), _HEAD.pack(len(body)) + body, deadline)
            (length,) = _HEAD.unpack(_read(process.stdout.fileno(), _HEAD.size, deadline))
            reply = json.loads(_read(process.stdout.fileno(), length, deadline))
        except (BrokenPipeError, EOFError):
            status = self.stop()
            what = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
            raise WorkerFailed(f"verifier_error: its process ended by itself ({what})") from None
        except BaseException:  # the pipe may hold half a message; Ctrl-C comes through here too
            self.stop()
            raise
        if "broken" in reply:
            self.stop()
            raise VerifierBroken(f"{self._who()} cannot be loaded: {reply['broken']}")
        if "error" in reply:
            raise WorkerFailed(reply["error"])
        return reply["ok"]

    def _who(self) -> str:
        return str(self.settings.get("path", self.handler))


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the trainer ends; the worker is not its own
    try:
        os.killpg(process.pid, signal.SIGKILL)  # before wait(), while the number cannot belong to anybody else
    except ProcessLookupError:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _ready(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _write(descriptor: int, data: bytes, deadline: float) -> None:
    os.set_blocking(descriptor, False)
    view = memoryview(data)
    while view:
        _ready(descriptor, select.POLLOUT, deadline)
        view = view[os.write(descriptor, view) :]


def _read(descriptor: int, length: int, deadline: float) -> bytes:
    pieces: list[bytes] = []
    while length:
        _ready(descriptor, select.POLLIN, deadline)
        piece = os.read(descriptor, min(length, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def serve(handler: str) -> None:
    """The worker's side: build the handler, then answer until the trainer closes the pipe."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() must not eat a question
    os.dup2(2, 1)  # print() must not write an answer
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    module, _, name = handler.partition(":")
    try:
        hello, answer = getattr(importlib.import_module(module), name)(_receive(source))
    except (Exception, SystemExit) as error:
        if os.environ.get("RLVR_DEBUG"):
            traceback.print_exc()
        kind = "" if type(error).__module__.startswith("rlvr.") else f"{type(error).__name__}: "
        _send(sink, {"broken": f"{kind}{error}"})
        return
    _send(sink, {"ok": hello})
    while (question := _receive(source)) is not None:
        try:
            reply = {"ok": answer(question)}
        except (Exception, SystemExit) as error:
            reply = {"error": error_reason(error)}
        _send(sink, reply)


def _receive(source: IO[bytes]) -> Any:
    head = source.read(_HEAD.size)
    return json.loads(source.read(_HEAD.unpack(head)[0])) if len(head) == _HEAD.size else None


def _send(sink: IO[bytes], reply: Any) -> None:
    body = json.dumps(reply).encode()
    sink.write(_HEAD.pack(len(body)) + body)
    sink.flush()


def _die_with(parent: int) -> None:
    """A trainer that was killed outright closes no pipe that a busy function would notice."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
