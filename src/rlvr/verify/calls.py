"""How a user's reward function is called, and how a verdict is read from what it returns.

Four call shapes, told apart by parameter names:

    f(answer, gold) or f(answer, gold, task)      our own; any names
    f(text, task)                                 a verifier's; the second parameter is called `task`
    f(prompts, completions, completion_ids, **columns) -> list      TRL's; once for a whole batch
    compute_score(data_source, solution_str, ground_truth, extra_info)      verl's

Each may return a bool, a number, None (no verdict), a Verdict, or a dict with "score" and further named numbers.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from rlvr.records import Origin, Rollout, Task, Verdict
from rlvr.verify.verifier import SHOWN, error_reason, unknown, words

Kind = Literal["answer_gold", "verifier", "trl", "verl"]


@dataclass(frozen=True, slots=True)
class Item:
    """One question to a user's function."""

    text: str
    task: Task
    ids: tuple[int, ...] = ()  # from the first sampled token on; empty where only a text is judged


def item_of(what: Rollout | str, task: Task) -> Item:
    if isinstance(what, str):
        return Item(what, task)
    first = int((what.origin == Origin.POLICY).argmax()) if (what.origin == Origin.POLICY).any() else len(what.ids)
    return Item(words(what), task, tuple(what.ids[first:].tolist()))


def kind_of(function: Callable[..., Any]) -> Kind:
    """The function's call shape. Raises TypeError with the shapes that there are."""
    parameters = inspect.signature(function).parameters
    if "completions" in parameters:
        return "trl"
    if "solution_str" in parameters:
        return "verl"
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) >= 2 and positional[1].name == "task":
        given = {positional[0].name, "task"}
        kind: Kind = "verifier"
    else:
        given = {p.name for p in positional[:2]} | {"task"}
        kind = "answer_gold"
    needed = {
        p.name for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if len(positional) < 2 or not needed <= given:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"{name}{inspect.signature(function)} cannot be called as a reward function; write {name}(answer, gold),"
            f" {name}(answer, gold, task), {name}(text, task), TRL's {name}(completions, **columns) or verl's"
            f" {name}(data_source, solution_str, ground_truth, extra_info)"
        )
    return kind


def call(function: Callable[..., Any], kind: Kind, items: Sequence[Item], right_above: float) -> list[Verdict]:
    """A verdict for each item. Whatever the function raises or returns wrongly becomes `unknown` with its reason."""
    if kind != "trl":
        return [_call_one(function, kind, item, right_above) for item in items]
    try:
        results = _finished(function(**_columns(function, items)))
        if not hasattr(results, "__len__") or isinstance(results, str | Mapping):
            raise TypeError(f"a list of {len(items)} values was wanted, {type(results).__name__} was returned")
        if len(results) != len(items):
            raise ValueError(f"{len(results)} values were returned for {len(items)} completions")
        results = list(results)
    except (Exception, SystemExit) as error:
        return [unknown(error_reason(error))] * len(items)
    return [_read(result, right_above) for result in results]


def _call_one(function: Callable[..., Any], kind: Kind, item: Item, right_above: float) -> Verdict:
    task = item.task
    try:
        if kind == "verifier":
            result = function(item.text, task)
        elif kind == "verl":
            offered = {
                "data_source": task.meta.get("data_source", task.made_by),
                "solution_str": item.text,
                "ground_truth": task.answer,
                "extra_info": task.meta.get("extra_info", dict(task.meta)),
            }
            result = function(**_accepted(function, offered))
        elif "task" in inspect.signature(function).parameters:
            result = function(item.text, task.answer, task=task)
        else:
            result = function(item.text, task.answer)
        return _read(_finished(result), right_above)
    except (Exception, SystemExit) as error:
        return unknown(error_reason(error))


def _columns(function: Callable[..., Any], items: Sequence[Item]) -> dict[str, list[Any]]:
    """TRL's arguments: texts for text prompts, message lists for chats, and every column of the tasks as a list."""
    chats = [not isinstance(item.task.prompt, str) for item in items]
    columns: dict[str, list[Any]] = {
        name: [item.task.meta.get(name) for item in items]
        for name in dict.fromkeys(name for item in items for name in item.task.meta)
    }
    columns |= {"id": [item.task.id for item in items], "answer": [item.task.answer for item in items]}
    columns["prompts"] = [list(i.task.prompt) if chat else i.task.prompt for i, chat in zip(items, chats)]
    columns["completions"] = [
        [{"role": "assistant", "content": item.text}] if chat else item.text for item, chat in zip(items, chats)
    ]
    columns["completion_ids"] = [list(item.ids) for item in items]
    return _accepted(function, columns)


def _accepted(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """What of this the function takes. Raises TypeError naming an argument that nobody has."""
    parameters = inspect.signature(function).parameters.values()
    for p in parameters:
        if p.default is p.empty and p.name not in offered and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"there is no column {p.name!r}; the tasks have {', '.join(sorted(offered))}")
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(offered)
    return {p.name: offered[p.name] for p in parameters if p.name in offered}


def _finished(result: Any) -> Any:
    """The result of an `async def`, or the result itself."""
    if not inspect.isawaitable(result):
        return result

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _read(result: Any, right_above: float) -> Verdict:
    """The verdict in a returned value: right iff it is above `right_above`; the raw value stays in parts["raw"]."""
    if isinstance(result, Verdict):
        return result
    extracted, parts = None, {}
    if isinstance(result, Mapping):
        if "score" not in result:
            return unknown(
                f"verifier_error: a dict without 'score' was returned (it has {', '.join(map(str, result))})"
            )
        parts = {
            str(name): value for name, x in result.items() if name != "score" and (value := _number(x)) is not None
        }
        extracted = result["pred"][:SHOWN] if isinstance(result.get("pred"), str) else None  # verl's name
        result = result["score"]
    if result is None:
        return unknown("no_verdict", extracted)
    value = _number(result)
    if value is None:
        shown = repr(result)[:200]
        return unknown(
            f"verifier_error: {shown} of type {type(result).__name__} was returned, not a finite number", extracted
        )
    is_right = value > right_above
    score = value if 0.0 <= value <= 1.0 else float(is_right)
    label: Literal["right", "wrong"] = "right" if is_right else "wrong"
    return Verdict(label, score, "above" if is_right else "not_above", extracted, {"raw": value, **parts})


def _number(x: Any) -> float | None:
    """A bool, a number, or an array or tensor of one number, as a finite float; else None."""
    if hasattr(x, "item") and not isinstance(x, int | float):
        try:
            x = x.item()
        except (RuntimeError, TypeError, ValueError):  # more than one element
            return None
    if not isinstance(x, int | float):
        return None
    try:
        value = float(x)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def item_to_json(item: Item) -> dict[str, Any]:
    task = item.task
    return {
        "text": item.text,
        "ids": list(item.ids),
        "task": {
            "id": task.id,
            "prompt": task.prompt,
            "answer": task.answer,
            "made_by": task.made_by,
            "meta": dict(task.meta),
        },
    }


def item_from_json(record: Mapping[str, Any]) -> Item:
    task = dict(record["task"])
    if isinstance(task["prompt"], list):
        task["prompt"] = tuple(task["prompt"])
    return Item(record["text"], Task(**task), tuple(record["ids"]))


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {f.name: getattr(verdict, f.name) for f in fields(verdict)} | {"parts": dict(verdict.parts)}
