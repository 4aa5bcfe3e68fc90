"""What runs inside a contained process: the submission, or the test program that questions it from a second process.

Nothing here decides a verdict. The submission shares its process with this harness and can bend all of it; what it can
make of that is a message with a value, and values are compared outside, by those who know what is expected. The test
program knows it too, so it runs apart: the two talk over pipes, and only plain values and handles cross.

Submission's side, messages by JSON: ["get", handle, name], ["call", handle, args, kwargs], ["do", handle, name, args].
Answers: {"ok": tree, "args": trees of arguments that the call changed}, {"raised": [type, text]}.
"""

from __future__ import annotations

import atexit
import builtins
import importlib
import json
import os
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

from rlvr.sandbox.wire import Foreign, Tree, encode, tree_of, value_of

_HEAD = struct.Struct(">I")
_LONGEST_MESSAGE = 16 << 20
_DONE_BY_NAME = ("__getitem__", "__len__", "__contains__", "__iter__", "__str__", "__repr__")


def read_all(descriptor: int) -> bytes:
    """A file's content, from its start."""
    pieces, at = [], 0
    while piece := os.pread(descriptor, 1 << 20, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


class Channel:
    """Length-prefixed JSON over two pipe ends."""

    def __init__(self, source: int, sink: int):
        self.source, self.sink = source, sink

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        view = memoryview(_HEAD.pack(len(body)) + body)
        while view:
            view = view[os.write(self.sink, view) :]

    def receive(self) -> Any:
        """Raises EOFError at the end, ValueError for what is no message."""
        (length,) = _HEAD.unpack(self._exactly(_HEAD.size))
        if length > _LONGEST_MESSAGE:
            raise ValueError(f"a message of {length} bytes")
        return json.loads(self._exactly(length))

    def _exactly(self, length: int) -> bytes:
        pieces = []
        while length:
            piece = os.read(self.source, min(length, 1 << 20))
            if not piece:
                raise EOFError
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)


def _report(result: int, kind: str, text: str = "") -> None:
    view = memoryview(f"{kind} {text}".replace("\n", " ").encode("ascii", "backslashreplace") + b"\n")
    while view:
        view = view[os.write(result, view) :]


def _described(error: BaseException) -> tuple[str, str]:
    """(type's name, what it says); both come from hostile code."""
    try:
        return str(type(error).__name__)[:100], str(error)[:200]
    except BaseException:
        return "Exception", ""


def _said(error: BaseException) -> str:
    return ": ".join(_described(error))


def run_submission(job: dict[str, Any], result: int, channel: Channel | None) -> int:
    """Run the code, then as the job asks: nothing more (a script), its calls, or what the channel says. Exit code."""
    script = channel is None and not job["calls"]
    module = types.ModuleType("__main__" if script else "solution")
    sys.modules[module.__name__], module.__file__ = module, "solution.py"
    sys.argv = ["solution.py"]
    try:
        exec(compile(job["code"], "solution.py", "exec"), module.__dict__)  # what a sandbox is for
    except SystemExit as end:
        if script:
            return _end_script(end)
        _report(result, "broken", "SystemExit")
        return 1
    except BaseException as error:
        traceback.print_exc()
        _report(result, "broken", _said(error))
        return (script and _end_script(None)) or 1
    if script:
        return _end_script(None)
    for function, args, kwargs in job["calls"]:
        _report(result, *_called(module, function, args, kwargs))
    if channel is not None:
        _answer(module, channel)
    return 0


def _end_script(end: SystemExit | None) -> int:
    """What an interpreter does at the end of a script: wait for threads, run exit functions, flush."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    code = None if end is None else end.code
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return 0 if code is None else code & 0xFF if isinstance(code, int) else 1


def _called(module: types.ModuleType, function: str, args: Tree, kwargs: Tree) -> tuple[str, str]:
    try:
        value = _function(module, function)(*value_of(args), **value_of(kwargs))
        return "value", encode(value)
    except Foreign as foreign:
        return "foreign", str(foreign)
    except BaseException as error:
        return "raised", _said(error)


def _function(module: types.ModuleType, name: str) -> Callable[..., Any]:
    owner, _, method = name.rpartition(".")
    if not owner and not hasattr(module, name) and hasattr(getattr(module, "Solution", None), name):
        owner, method = "Solution", name
    return getattr(getattr(module, owner)(), method) if owner else getattr(module, method)


def _answer(module: types.ModuleType, channel: Channel) -> None:
    """Serve the test program until it hangs up."""
    things: list[Any] = [module]

    def keep(thing: Any) -> Tree:
        things.append(thing)
        return {"h": len(things) - 1}

    def tree(value: Any) -> Tree:
        return tree_of(value, keep)

    def handle(question: list[Any]) -> dict[str, Any]:
        operation, thing, *rest = question
        if operation == "get":
            value = getattr(things[thing], rest[0]) if thing else _function(module, rest[0])
            if isinstance(value, types.ModuleType):
                return {"module": value.__name__}
            return {"ok": tree(value)}
        if operation == "do":
            method, args = rest[0], [value_of(x, things.__getitem__) for x in rest[1]]
            if method not in _DONE_BY_NAME:
                raise AttributeError(method)
            value = getattr(type(things[thing]), method)(things[thing], *args)
            return {"ok": tree(list(value) if method == "__iter__" else value)}
        args, kwargs = [value_of(x, things.__getitem__) for x in rest[0]], value_of(rest[1], things.__getitem__)
        value = things[thing](*args, **kwargs)
        after = [tree(x) if isinstance(x, list | dict | set | bytearray) else None for x in args]
        return {"ok": tree(value), "args": [None if new == old else new for new, old in zip(after, rest[0])]}

    while True:
        try:
            question = channel.receive()
        except EOFError:
            return
        try:
            reply = handle(question)
        except BaseException as error:
            reply = {"raised": _described(error)}
        channel.send(reply)


# The test program's side


class SubmissionRaised(Exception):
    """The submission raised something that is no exception of Python's own, or ended."""


class Unsendable(Exception):
    """The test program passes what is no plain value: its own fault."""


class Remote:
    """Something that lives in the submission's process. It equals nothing but itself, however it is defined there."""

    def __init__(self, channel: Channel, handle: int):
        self.__dict__["_channel"], self.__dict__["_handle"] = channel, handle

    def _ask(self, *question: Any) -> Any:
        try:
            self._channel.send(question)
            reply = self._channel.receive()
            if "raised" in reply:
                raised, text = reply["raised"]
                kind = getattr(builtins, raised, None)
                if isinstance(kind, type) and issubclass(kind, Exception) and kind is not AssertionError:
                    raise kind(text)
                raise SubmissionRaised(f"{raised}: {text}")
            return reply
        except (EOFError, BrokenPipeError):
            raise SubmissionRaised("the submission's process ended") from None

    def _value(self, tree: Tree) -> Any:
        return value_of(tree, lambda handle: Remote(self._channel, int(handle)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        reply = self._ask("get", self._handle, name)
        if reply.get("module") in sys.stdlib_module_names:
            return importlib.import_module(reply["module"])  # the genuine one, not what the submission calls so
        return self._value(reply["ok"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trees = [_tree_of(x) for x in args]
        reply = self._ask("call", self._handle, trees, _tree_of(kwargs))
        for mine, new in zip(args, reply["args"]):
            if new is not None:
                _refill(mine, self._value(new))
        return self._value(reply["ok"])

    def _do(self, method: str, *args: Any) -> Any:
        return self._value(self._ask("do", self._handle, method, [_tree_of(x) for x in args])["ok"])

    def __getitem__(self, key: Any) -> Any:
        return self._do("__getitem__", key)

    def __len__(self) -> int:
        return int(self._do("__len__"))

    def __contains__(self, item: Any) -> bool:
        return bool(self._do("__contains__", item))

    def __iter__(self) -> Any:
        return iter(self._do("__iter__"))

    def __str__(self) -> str:
        return str(self._do("__str__"))

    def __repr__(self) -> str:
        return str(self._do("__repr__"))

    def __bool__(self) -> bool:
        return True


def _tree_of(value: Any) -> Tree:
    return tree_of(value, lambda x: {"h": x._handle} if isinstance(x, Remote) else _unsendable(x))


def _unsendable(value: Any) -> Tree:
    raise Unsendable(f"a test passes {type(value).__name__} to the submission; only plain values can be passed")


def _refill(mine: Any, new: Any) -> None:
    """An argument that the submission changed in place changes here too."""
    if type(mine) is not type(new):
        return
    if isinstance(mine, list | bytearray):
        mine[:] = new
    else:
        mine.clear()
        mine.update(new)


def _imports(code: str) -> bool:
    """Whether a statement imports something that is not the submission."""
    return code.startswith(("import ", "from ")) and not code.startswith(("import solution", "from solution "))


def run_steps(steps: list[list[str]], result: int, channel: Channel) -> int:
    """Run a test program statement by statement; report every check and value, and its own faults.

    Names that it does not define are remote. After a statement of its setup that failed nothing more is run.
    """
    submission = Remote(channel, 0)

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            if hasattr(builtins, name):
                return getattr(builtins, name)
            try:
                self[name] = found = getattr(submission, name)
            except AttributeError:
                raise NameError(f"name {name!r} is not defined") from None
            return found

    sys.modules["solution"] = submission  # type: ignore[assignment]
    names = Names(__name__="tests", __builtins__=builtins.__dict__)
    for kind, code in steps:
        try:
            if kind == "value":
                _report(result, "value", encode(eval(compile(code, "tests.py", "eval"), names)))
                continue
            exec(compile(code, "tests.py", "exec"), names)
        except Unsendable as fault:
            _report(result, "unsendable", str(fault))
            return 1
        except BaseException as error:
            if isinstance(error, ImportError) and _imports(code):
                _report(result, "import_failed", str(error))
                return 1
            if kind == "setup":
                return 1
            _report(result, "raised" if kind == "value" else "failed", _said(error))
        else:
            if kind == "check":
                _report(result, "passed")
    return 0
