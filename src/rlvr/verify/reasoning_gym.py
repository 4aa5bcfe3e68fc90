"""The `reasoning_gym` verifier: a family's own scorer, in a process that can be killed.

Some scorers read an answer with Python's `eval` or with sympy's parser, which is built on it. What a policy writes is
hostile, so the process has another `eval`: it takes literals, arithmetic and the common functions, and nothing else.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import LONGEST_ANSWER, SHOWN, error_reason, fingerprint, right, unknown, wrong
from rlvr.verify.worker import Handler, Worker, WorkerFailed

MEMORY = 8 << 30  # bytes of addresses; ours: numpy and sympy take two, "a" * 10**11 in an answer must not take all


@register("verifier", "reasoning_gym")
@dataclass(frozen=True, slots=True)
class ReasoningGym:
    """The score of the task's reasoning-gym family for what stands in the last <answer>...</answer> (another `tag`, or
    "": the whole text). Needs tasks made by `reasoning_gym`, and pip install 'rlvr[gym]'.

    Score 1 is right; a score between is wrong and pays in proportion (many families give 0.01 for anything at all).
    Reasons: "equal", "partial", "different", "no_answer", "over_limit"; "unparsable": the scorer fails on this answer
    but not on the gold. `unknown`: "timeout" (over `seconds`; `most_timeouts` on end stop the run), "bad_gold",
    "verifier_error".
    """

    tag: str = "answer"
    seconds: float = 10.0
    most_timeouts: int = MOST_TIMEOUTS
    _worker: Worker = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_worker", Worker("rlvr.verify.reasoning_gym:open_scorers", {}))
        object.__setattr__(self, "_patience", Patience("reasoning_gym", self.seconds, self.most_timeouts))

    @property
    def fingerprint(self) -> str:
        return fingerprint("reasoning_gym", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        answer = self._find(text)
        if not answer:
            return wrong("no_answer")
        if len(answer) > LONGEST_ANSWER:
            return wrong("over_limit")
        try:
            entry = {"question": task.prompt, "answer": task.answer, "metadata": task.meta["metadata"]}
            question = json.dumps([task.meta["family"], task.meta["config"], _marked(entry), answer])
        except (KeyError, TypeError, ValueError):
            return unknown("bad_gold")
        try:
            told = self._worker.ask(question, self.seconds)
        except TimeoutError:
            self._patience.overran(task.id)
            return unknown("timeout", answer)
        except WorkerFailed as error:
            self._patience.answered()
            return unknown(str(error), answer)
        self._patience.answered()
        if "failed" in told:
            return wrong("unparsable", answer) if told["gold_passes"] else unknown(told["failed"], answer)
        score = told["score"]
        if not 0.0 <= score <= 1.0:
            return unknown(f"verifier_error: the score {score} is not in [0, 1]", answer)
        if score == 1.0:
            return right(answer)
        return Verdict("wrong", score, "partial" if score else "different", answer[:SHOWN])

    def _find(self, text: str) -> str:
        if not self.tag:
            return text.strip()
        end = text.rfind(f"</{self.tag}>")
        start = text.rfind(f"<{self.tag}>", 0, max(end, 0))
        return text[start + len(self.tag) + 2 : end].strip() if 0 <= start < end else ""


def _marked(x: Any) -> Any:
    """JSON that remembers tuples: some scorers compare with them."""
    if isinstance(x, tuple):
        return {"(tuple)": [_marked(y) for y in x]}
    if isinstance(x, list):
        return [_marked(y) for y in x]
    return {key: _marked(y) for key, y in x.items()} if isinstance(x, dict) else x


def _unmarked(x: Any) -> Any:
    if isinstance(x, list):
        return [_unmarked(y) for y in x]
    if isinstance(x, dict):
        return tuple(map(_unmarked, x["(tuple)"])) if "(tuple)" in x else {k: _unmarked(y) for k, y in x.items()}
    return x


# ---- the worker's side -----------------------------------------------------------------------------------
def open_scorers(settings: Mapping[str, Any]) -> tuple[None, Handler]:
    """Reads [family, config, entry, answer], answers {"score": ...} or {"failed": reason, "gold_passes": bool}."""
    try:
        from reasoning_gym.factory import create_dataset
    except ImportError as error:
        raise RuntimeError(f"reasoning-gym is missing ({error}); pip install 'rlvr[gym]'") from None
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    builtins.eval = careful_eval

    @lru_cache(maxsize=32)
    def scorer(family: str, config: str) -> Callable[[str, dict[str, Any]], float]:
        return create_dataset(family, seed=0, size=1, **json.loads(config)).score_answer

    def answer(question: list[Any]) -> dict[str, Any]:
        family, config, entry, text = question
        entry = _unmarked(entry)
        score = scorer(family, json.dumps(config))
        try:
            value = float(score(text, entry))
            return {"score": value} if math.isfinite(value) else {"failed": str(value), "gold_passes": False}
        except Exception as error:
            return {"failed": error_reason(error), "gold_passes": _passes(score, entry)}

    return None, answer


def _passes(score: Callable[[str, dict[str, Any]], float], entry: dict[str, Any]) -> bool:
    try:
        return entry["answer"] is not None and float(score(entry["answer"], entry)) > 0
    except Exception:
        return False


_eval = builtins.eval
_NODES = (
    *(ast.Expression, ast.Constant, ast.Load, ast.List, ast.Tuple, ast.Set, ast.Dict),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
)
_CALLED = {
    *("Integer", "Float", "Rational", "Symbol", "sqrt", "exp", "log", "ln", "Abs", "factorial"),
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
}


def careful_eval(source: Any, namespace: dict[str, Any] | None = None, local: Mapping[str, Any] | None = None) -> Any:
    """`eval` of literals, arithmetic and calls of mathematical functions. Raises ValueError for anything else."""
    if not isinstance(source, str):
        raise ValueError("only texts are evaluated here")
    tree = ast.parse(source.strip(), mode="eval")
    for node in ast.walk(tree):
        if not _is_careful(node):
            raise ValueError(f"{type(node).__name__} is not evaluated here")
    return _eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}} if namespace is None else namespace, local)


def _is_careful(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not node.keywords and isinstance(node.func, ast.Name) and node.func.id in _CALLED
    if isinstance(node, ast.Name):
        return not node.id.startswith("_")
    return isinstance(node, _NODES)
