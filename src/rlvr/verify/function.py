"""Verifiers that are a user's own function. Call shapes and results: see `calls`.

`function` runs `path.py:f` in a killable worker, `Closure` runs a function of this process in a thread, under a
deadline.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from rlvr.records import Rollout, Task, Verdict
from rlvr.registry import load_path, register
from rlvr.verify.calls import Item, Kind, call, item_from_json, item_of, item_to_json, kind_of, verdict_to_json
from rlvr.verify.heard import Heard
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import VerifierBroken, unknown
from rlvr.verify.worker import Handler, Worker, WorkerFailed

MOST_OVERSTAYS = 8  # threads that a run may abandon; each goes on using a core and its memory


@register("verifier", "function")
@dataclass(frozen=True, slots=True)
class Function:
    """The function `f` of a file, as `path.py:f`: right iff what it returns is above `right_above`.

    It runs in a fresh process. A call over `seconds` is killed and that item is `unknown` ("timeout"), the others are
    judged; a TRL function, called once for the batch, gets `seconds` for the whole batch. `most_timeouts` calls on end
    that time out stop the run. An exception, nan, inf or another type is `unknown` ("verifier_error: ..."), None is
    `unknown` ("no_verdict"). Task fields reach it as JSON. A class is called without arguments and gives the function.
    The first lines that it prints are shown.

    Raises VerifierBroken, by `prepare` or at the first call, where the file cannot be loaded or `f` has none of the
    known call shapes.
    """

    path: str
    right_above: float = 0.0
    seconds: float = 10.0  # ours: far above any honest check, a minute's loss for six bad items
    most_timeouts: int = MOST_TIMEOUTS
    _worker: Worker = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)
    _source: str = field(init=False, repr=False)  # digest of the file

    def __post_init__(self) -> None:
        _check(self.right_above, self.seconds)
        file, _, name = self.path.rpartition(":")
        where = Path(file).expanduser().resolve()
        if not where.is_file() or not name:
            raise ValueError(f"verifier {self.path!r}: there is no file {where}; write path.py:function")
        settings = {"path": f"{where}:{name}", "right_above": self.right_above}
        object.__setattr__(self, "_patience", Patience(self.path, self.seconds, self.most_timeouts))
        object.__setattr__(self, "_worker", Worker("rlvr.verify.function:open_function", settings))
        object.__setattr__(self, "_source", hashlib.sha256(where.read_bytes()).hexdigest()[:12])

    @property
    def fingerprint(self) -> str:
        name = Path(self.path).name
        return f"function(path={name!r}, right_above={self.right_above!r}, seconds={self.seconds!r}) of {self._source}"

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.judge_many([(text, task)])[0]

    def prepare(self) -> None:
        self._worker.start()

    def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
        together = self._worker.start()["kind"] == "trl"
        records = [_encoded(item_of(what, task)) for what, task in items]
        verdicts: list[Verdict] = [unknown("bad_gold: the task's fields are not JSON")] * len(items)
        sound = [i for i, record in enumerate(records) if record is not None]
        for batch in [sound] if together and sound else [[i] for i in sound]:
            question = f"[{','.join(records[i] or '' for i in batch)}]"
            for i, verdict in zip(batch, self._ask(question, [items[i][1].id for i in batch])):
                verdicts[i] = verdict
        return verdicts

    def _ask(self, question: str, ids: Sequence[str]) -> list[Verdict]:
        try:
            verdicts = [Verdict(**record) for record in self._worker.ask(question, self.seconds)]
        except TimeoutError:
            self._patience.overran(_listed(ids))
            return [unknown("timeout")] * len(ids)
        except WorkerFailed as error:
            verdicts = [unknown(str(error))] * len(ids)
        self._patience.answered()
        for id, verdict in zip(ids, verdicts):
            if verdict.reason.startswith("verifier_error"):
                told = f"task {id}: {self.path} gave no verdict: {verdict.reason}"
                self._patience.heard.failed(":".join(verdict.reason.split(":")[:2]), told)
        return verdicts


def open_function(settings: Mapping[str, Any]) -> tuple[dict[str, str], Handler]:
    """The worker's side of `Function`."""
    path = settings["path"]
    sys.path.insert(0, str(Path(path.rpartition(":")[0]).parent))  # a file may import its neighbours
    function = load_path(path)
    if inspect.isclass(function):
        function = function()
    kind = kind_of(function)

    def answer(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        items = [item_from_json(record) for record in records]
        return [verdict_to_json(v) for v in call(function, kind, items, settings["right_above"])]

    return {"kind": kind}, answer


@dataclass(frozen=True, slots=True)
class Closure:
    """A function of this process, such as a notebook's, judged as `function` is, but in a thread.

    A thread cannot be killed: one that overstays `seconds` is abandoned, its item is `unknown` ("timeout"), and the
    eighth raises VerifierBroken. A function that holds the interpreter lock for ever (one hopeless `re` match does)
    cannot be overtaken at all; in a file, as `path.py:f`, it can.
    """

    function: Callable[..., Any]
    right_above: float = 0.0
    seconds: float = 10.0
    _kind: Kind = field(init=False, repr=False)
    _abandoned: list[threading.Thread] = field(init=False, repr=False, compare=False, default_factory=list)
    _heard: Heard = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.right_above, self.seconds)
        object.__setattr__(self, "_kind", kind_of(self.function))
        object.__setattr__(self, "_heard", Heard(self._name))

    @property
    def fingerprint(self) -> str:
        settings = f"right_above={self.right_above!r}, seconds={self.seconds!r}"
        return f"closure({self._name}, {settings}) of {_digest(self.function)}"

    @property
    def _name(self) -> str:
        return str(getattr(self.function, "__qualname__", type(self.function).__qualname__))

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.judge_many([(text, task)])[0]

    def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
        asked = [item_of(what, task) for what, task in items]
        batches = [asked] if self._kind == "trl" and asked else [[item] for item in asked]
        return [verdict for batch in batches for verdict in self._within_deadline(batch)]

    def _within_deadline(self, items: Sequence[Item]) -> list[Verdict]:
        done: list[list[Verdict]] = []
        thread = threading.Thread(
            target=lambda: done.append(call(self.function, self._kind, items, self.right_above)), daemon=True
        )
        thread.start()
        thread.join(self.seconds)
        if done:
            return done[0]
        ids = [item.task.id for item in items]
        if not thread.is_alive():
            return [unknown("verifier_error: its thread ended without a verdict")] * len(ids)
        self._abandoned.append(thread)
        self._heard.failed("timeout", f"task {_listed(ids)}: {self._name} took over {self.seconds:g} s; no verdict")
        if len(self._abandoned) >= MOST_OVERSTAYS:
            raise VerifierBroken(
                f"the reward function {self._name} overstayed its {self.seconds:g} s {MOST_OVERSTAYS} times, last on"
                f" task {_listed(ids)}; a thread cannot be killed. Put the function into a file and name it as"
                " path.py:function: it then runs in a process that can be; or give it more `seconds`"
            )
        return [unknown("timeout")] * len(ids)


def _check(right_above: float, seconds: float) -> None:
    if not isinstance(right_above, int | float) or right_above != right_above:
        raise ValueError(f"right_above is a number that a right answer's value exceeds, not {right_above!r}")
    if not (isinstance(seconds, int | float) and 0 < seconds < float("inf")):
        raise ValueError(f"seconds is the time that one call may take, above 0, not {seconds!r}")


def _encoded(item: Item) -> str | None:
    try:
        return json.dumps(item_to_json(item))
    except (TypeError, ValueError):
        return None


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def _digest(function: Callable[..., Any]) -> str:
    """A short name of a function's code and defaults; what it closes over is not looked into."""
    code = getattr(function, "__code__", None)
    state = _code(code) if code is not None else type(function).__qualname__
    return hashlib.sha256(f"{state}{getattr(function, '__defaults__', None)!r}".encode()).hexdigest()[:12]


def _code(code: CodeType) -> str:
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
