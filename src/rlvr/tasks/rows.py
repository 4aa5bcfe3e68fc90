"""From a row of columns to a Task: the one reader behind `jsonl`, `parquet` and `hub`.

Which column is the prompt and which is the gold is told by the source's options, or seen by the names of the columns:

    ours         prompt, answer [, id, verifier, meta] and nothing else: an unknown column is a mistake
    TRL          prompt, answer | solution | ground_truth, and any others
    verl         prompt, reward_model {ground_truth}, and any others (data_source, ability, extra_info)
    verifiers    question | prompt, answer, info | task

Two columns that could both be it are an error, never a guess. A foreign shape is said in `Task.made_by`. Columns keep
their names in `meta`, where reward functions of those libraries look for them; the ones that hold the gold are listed
under "gives_away", which keeps them from everything but verifiers.

A source is read whole or not at all: the rows that are wrong are listed together (at most 20), each with its place and
id and what to write instead, so that a file is mended in one go and no row is ever dropped in silence.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.records import GIVES_AWAY, Task
from rlvr.tasks import DataError

KNOWN = ("prompt", "answer", "id", "verifier", "meta")
ROLES = ("system", "developer", "user", "assistant", "tool")
MOST = 20  # problems in one error
PROMPTS = ("prompt", "question")  # columns that are a prompt by their name
GOLDS = {c: c for c in ("answer", "solution", "ground_truth")} | {"reward_model": "reward_model.ground_truth"}
# What common sets call these columns.
FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(["question", "problem", "query", "instruction", "input", "messages", "conversations"], "prompt"),
    **dict.fromkeys(["solution", "ground_truth", "gold", "target", "label", "final_answer", "reward_model"], "answer"),
    **dict.fromkeys(["uid", "uuid", "index", "idx", "example_id", "task_id", "unique_id"], "id"),
    **dict.fromkeys(["info", "extra_info", "metadata"], "meta"),
}
ELSEWHERE: Mapping[str, str] = {
    "reward_model": "`reward_model.ground_truth` is called `answer` here",
    "data_source": 'name the verifier in `verifier`; the origin of a row goes into `meta`, e.g. {"data_source": ...}',
    "completion": "a demonstration goes into `meta`; the gold is called `answer`",
    "chosen": "pairs for preference training are not tasks",
    "rejected": "pairs for preference training are not tasks",
}
_SLOT = re.compile(r"\{([A-Za-z_][\w.]*)\}")


@dataclass(frozen=True, slots=True)
class Raw:
    """A row as it came, or what is wrong with it."""

    columns: Mapping[str, Any]
    place: str  # "line 3"
    where: str  # "sums.jsonl:3"
    id: str  # for a row that has none
    faults: tuple[str, ...] = ()


class Fault(ValueError):
    """What is wrong with one row."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A column, `outer.inner` where it holds objects; or of its text what stands behind the last `after` and before the
    first `before`, or the last match of `regex`: its group `answer`, else its first."""

    column: str
    after: str | None = None
    before: str | None = None
    regex: re.Pattern[str] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def whole(self) -> bool:
        return self.after is None and self.before is None and self.regex is None

    def of(self, row: Mapping[str, Any]) -> Any:
        value = _value(row, self.column)
        if self.whole:
            return value
        if not isinstance(value, str):
            raise Fault(f"`{self.column}` is {kind(value)}; after, before and regex read a text")
        for mark in (self.after, self.before):
            if mark is not None and mark not in value:
                raise Fault(f"`{self.column}` has no {mark!r} in it")
        if self.after is not None:
            value = value.rpartition(self.after)[2]
        if self.before is not None:
            value = value.partition(self.before)[0]
        if self.regex is not None:
            last = deque(self.regex.finditer(value), maxlen=1)
            if not last:
                raise Fault(f"`{self.column}` has no match of {self.regex.pattern!r} in it")
            value = last[0]["answer" if "answer" in self.regex.groupindex else 1] or ""
        return value.strip()


@dataclass(frozen=True, slots=True)
class Template:
    """A text with `{column}` in it. Texts are put in as they are, other values as JSON; other braces stay."""

    text: str
    column = "prompt"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(_SLOT.findall(self.text))

    def of(self, row: Mapping[str, Any]) -> str:
        def filled(slot: re.Match[str]) -> str:
            value = _value(row, slot[1])
            if value is None:
                raise Fault(f"`{slot[1]}` is null, but the prompt is made of it")
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return _SLOT.sub(filled, self.text)


@dataclass(frozen=True, slots=True)
class Options:
    """What a source was told about its columns."""

    prompt: Template | Pick | None = None  # a Pick without a column: the column is seen by its name
    answer: Pick | None = None
    id: Pick | None = None


def options_from(
    prompt: str | Mapping[str, str] | None, answer: Mapping[str, str] | None, id: Mapping[str, str] | None
) -> Options:
    """A source's arguments as Options. Raises DataError for what cannot be followed."""
    if not isinstance(prompt, str):
        return Options(_pick("prompt", prompt), _pick("answer", answer), _pick("id", id))
    if not _SLOT.search(prompt):
        raise DataError(
            f"prompt = {prompt!r} has no {{column}} in it, so every task would ask the same; write e.g. "
            '"{question} Think first.", or { column = "question" } for a column as it is'
        )
    return Options(Template(prompt), _pick("answer", answer), _pick("id", id))


def _pick(what: str, given: Mapping[str, str] | None) -> Pick | None:
    if given is None:
        return None
    known = ("column", "after", "before", "regex")
    if not isinstance(given, Mapping):
        raise DataError(f'{what} = {given!r} is no table; write {what} = {{ column = "{given}" }}')
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
            raise DataError(f"{what} = {{ {key} = ... }} is not known; {hint}")
        if not (isinstance(value, str) and value):
            raise DataError(f"{what}.{key} = {value!r} must be a text")
    if "regex" in given and ("after" in given or "before" in given):
        raise DataError(f"{what} has both a regex and a mark (after, before); one of them finds it")
    pattern = None
    if "regex" in given:
        try:
            pattern = re.compile(given["regex"])
        except re.error as error:
            raise DataError(f"{what}.regex = {given['regex']!r} is no pattern: {error}") from None
        if not pattern.groups:
            raise DataError(f"{what}.regex = {given['regex']!r} has no group; put parentheses around what you want")
    return Pick(given.get("column", ""), given.get("after"), given.get("before"), pattern)


# ---- which column is what --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Reading:
    """How every row of a source is read."""

    prompt: Template | Pick
    answer: Pick
    id: Pick
    shape: str = ""  # "TRL", "verl", "verifiers"; "" for ours, and where options said it all
    strict: bool = True  # a column that nobody knows is a mistake

    @property
    def gives_away(self) -> tuple[str, ...]:
        """Columns that hold the gold, or that these libraries put it into as well."""
        held = dict.fromkeys([self.answer.column.partition(".")[0], "reward_model", "extra_info", "info"])
        return tuple(c for c in held if c not in GIVES_AWAY)

    @property
    def used(self) -> set[str]:
        """Columns that need not be kept, for the task holds them elsewhere."""
        whole = {p.column for p in (self.prompt, self.answer, self.id) if p == Pick(p.column)}
        return {"verifier", "meta"} | whole & {"prompt", "answer", "id"}


def reading_of(columns: Iterable[str], options: Options) -> Reading:
    """How rows with these columns are read. Raises Fault where two readings are possible, or one would give the gold
    away."""
    names = list(columns)
    prompt, answer, id = options.prompt, options.answer, options.id or Pick("id")
    told = options != Options()
    asks, golds = [c for c in PROMPTS if c in names], [c for c in GOLDS if c in names]
    others = [c for c in names if c not in ("prompt", "answer", "id")]
    # no other library has these two columns, rightly spelt or not
    marked = any(difflib.get_close_matches(c, ("verifier", "meta"), 1, 0.8) for c in others)
    ours = Reading(Pick("prompt"), Pick("answer"), Pick("id"))
    if not told and (not others or marked or not asks or not golds):
        return ours
    shape = ""
    if prompt is None or not prompt.columns[0]:
        if len(asks) > 1:
            raise Fault('`prompt` and `question` could both be the prompt; say which: prompt = { column = "prompt" }')
        prompt = _with_column(prompt, asks[0] if asks else "prompt")
        shape = "verifiers" if prompt.column == "question" else ""
    if answer is None or not answer.column:
        if len(golds) > 1:
            both = " and ".join(f"`{c}`" for c in golds)
            raise Fault(f'{both} could all be the gold; say which: answer = {{ column = "{golds[0]}" }}')
        answer = _with_column(answer, GOLDS[golds[0]] if golds else "answer")
        if answer.column != "answer":
            shape = "verl" if "." in answer.column else "TRL"
    if not told and not shape:
        shape = "verifiers" if {"info", "task"} & set(names) else "TRL"
    if id.column == "":
        id = _with_column(id, "id")
    for column in prompt.columns:
        if column.partition(".")[0] in (answer.column.partition(".")[0], *GIVES_AWAY):
            raise Fault(f"the prompt is made of `{column}`, which gives the answer away; leave it out of `prompt`")
    return Reading(prompt, answer, id, shape, strict=False)


def _with_column(pick: Template | Pick | None, column: str) -> Pick:
    if isinstance(pick, Pick):
        return Pick(column, pick.after, pick.before, pick.regex)
    return Pick(column)


# ---- rows to tasks ---------------------------------------------------------------------------------------
def read_rows(
    raws: Iterable[Raw],
    source: str,
    made_by: str,
    options: Options,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of rows in their order; the first `limit` of them if given (rows behind are not looked at).

    source: how messages call it. columns: where all rows have the same ones; otherwise the first row decides how all
    are read, and what the others lack is said of each.

    Raises DataError: columns or rows that cannot be used, or none.
    """
    reading = None
    if columns is not None:
        reading = _decide(columns, options, source)
        lacking = _lacking(columns, reading)
        if lacking:
            raise DataError(f"{source} has the columns {', '.join(columns)}:\n  " + "\n  ".join(lacking))
    tasks: list[Task] = []
    problems: list[str] = []
    place_of: dict[str, str] = {}
    for raw in raws:
        if len(problems) >= MOST or (limit is not None and len(tasks) >= limit):
            break
        row, id, where, found = raw.columns, raw.id, raw.where, list(raw.faults)
        if not found:
            reading = reading or _decide(row, options, where)
            task, found = _read(row, reading, made_by)
            given = _id(row, reading)
            if _is_id(given):
                id = str(given)
                where += f" (id {id!r})"
            if id in place_of:
                found.append(f"id {id!r} is taken by {place_of[id]}; ids must differ")
            place_of.setdefault(id, raw.place)
        if found:
            problems += [f"{where}: {problem}" for problem in found]
        else:
            tasks.append(Task(id, **task))
    if problems:
        more = f"; stopped after {MOST}, there may be more" if len(problems) >= MOST else ""
        count = "1 problem" if len(problems) == 1 else f"{min(len(problems), MOST)} problems"
        raise DataError(f"{count} in {source}{more}:\n  " + "\n  ".join(problems[:MOST]))
    if not tasks:
        raise DataError(f'{source}: holds no rows; a row is e.g. {{"prompt": "2+2=", "answer": "4"}}')
    return tuple(tasks)


def _decide(columns: Iterable[str], options: Options, where: str) -> Reading:
    try:
        return reading_of(columns, options)
    except Fault as fault:
        raise DataError(f"{where}: {fault}") from None


def _lacking(columns: Sequence[str], reading: Reading) -> list[str]:
    """What is wrong with the columns that all rows have."""
    if reading.strict:
        return _stranger_faults(dict.fromkeys(columns))
    wanted = [*reading.prompt.columns, *reading.answer.columns]
    return [f"`{c}` is missing" for c in wanted if c not in columns and c.partition(".")[0] not in columns]


def _read(row: Mapping[str, Any], reading: Reading, made_by: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of a Task but its id, and what is wrong with the row."""
    found = _stranger_faults(row) if reading.strict else []
    prompt = answer = None
    try:
        prompt = reading.prompt.of(row)
        found += _prompt_faults(prompt, reading.prompt.column)
    except Fault as fault:
        found += [] if reading.strict else [str(fault)]
    try:
        answer = reading.answer.of(row)
        if answer is None or answer == "" or answer in ([], {}):
            found.append(f"`{reading.answer.column}` is {kind(answer)}; write the gold that a verifier compares with")
    except Fault as fault:
        found += [] if reading.strict else [str(fault)]
    given = _id(row, reading)
    if given is not ABSENT and not _is_id(given):
        found.append(f"`{reading.id.column}` is {kind(given)}; write a text or an integer, or leave it out")
    meta, verifier = row.get("meta", {}), row.get("verifier", ABSENT)
    if not isinstance(meta, dict):
        found.append(f"`meta` is {kind(meta)}; write an object")
    if verifier is not ABSENT and not (isinstance(verifier, str) and verifier.strip()):
        found.append(f"`verifier` is {kind(verifier)}; write a verifier's name, or leave it out")
    if found:
        return {}, found
    if not reading.strict:
        kept = {c: v for c, v in row.items() if c not in reading.used}
        twice = sorted(meta.keys() & kept.keys())
        if twice:
            return {}, [f"`{twice[0]}` is a column and stands in `meta` as well"]
        hidden = [c for c in reading.gives_away if c in kept]
        meta = {**meta, **kept} | ({"gives_away": hidden} if hidden else {})
    return {
        "prompt": prompt if isinstance(prompt, str) else tuple(prompt or ()),
        "answer": answer,
        "verifier": None if verifier is ABSENT else verifier,
        "made_by": f"{made_by} ({reading.shape} columns)" if reading.shape else made_by,
        "meta": meta,
    }, []


ABSENT: Any = object()


def _id(row: Mapping[str, Any], reading: Reading) -> Any:
    try:
        return reading.id.of(row)
    except Fault:
        return ABSENT


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise Fault(f"`{column}` is missing")
        value = value[part]
    return value


# ---- what is wrong ---------------------------------------------------------------------------------------
def _stranger_faults(row: Mapping[str, Any]) -> list[str]:
    """Columns that are not ours, and ours that are missing."""
    strangers = {key: _meant(key) for key in row if key not in KNOWN}
    found = [_stranger(key, meant, row) for key, meant in strangers.items()]
    missing = [key for key in ("prompt", "answer") if key not in row and key not in strangers.values()]
    return found + [f"`{key}` is missing" for key in missing]


def _prompt_faults(prompt: Any, name: str) -> list[str]:
    if isinstance(prompt, str):
        return [] if prompt.strip() else [f"`{name}` is empty"]
    if not isinstance(prompt, list):
        return [f"`{name}` is {kind(prompt)}; write a text or a list of messages"]
    found = [] if prompt else [f"`{name}` is an empty list; write at least one message"]
    for i, message in enumerate(prompt):
        where = f"{name}[{i}]"
        if not isinstance(message, dict):
            found.append(f'`{where}` is {kind(message)}; write {{"role": "user", "content": "..."}}')
            continue
        for key in [k for k in message if k not in ("role", "content")]:
            called = {"from": "; it is called `role` here", "value": "; it is called `content` here"}.get(key, "")
            found.append(f"`{where}.{key}` is not known{called}")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES and ("role" in message or "from" not in message):
            found.append(f"`{where}.role` is {json.dumps(role)}; write one of {', '.join(ROLES)}")
        blank = not (isinstance(content, str) and content.strip())
        if blank and ("content" in message or "value" not in message):
            found.append(f"`{where}.content` is {kind(content)}; write a text")
    return found


def _meant(key: str) -> str | None:
    """The known key that an unknown one stands for, as far as one can tell."""
    near = difflib.get_close_matches(key, KNOWN, 1)
    return FOREIGN.get(key.lower()) or (near[0] if near else None)


def _stranger(key: str, meant: str | None, row: Mapping[str, Any]) -> str:
    if key in ELSEWHERE:
        return f"`{key}` is not known: {ELSEWHERE[key]}"
    if meant is None or meant in row:
        return f"`{key}` is not known; what only you read goes into `meta`"
    if key.lower() not in FOREIGN:
        return f"`{key}` is not known; did you mean `{meant}`?"
    say = f' (or say {meant} = {{ column = "{key}" }})' if meant != "meta" else ""
    return f"`{key}` is called `{meant}` here{say}"


def _is_id(x: object) -> bool:
    return (isinstance(x, str) and bool(x.strip())) or (isinstance(x, int) and not isinstance(x, bool))


def kind(x: object) -> str:
    """What a value is, for a message."""
    if x is None:
        return "null"
    if isinstance(x, bool):
        return "true or false"
    if isinstance(x, int | float):
        return "a number"
    name = "text" if isinstance(x, str) else "list" if isinstance(x, list) else "object"
    if not x:
        return {"text": "empty text", "list": "an empty list", "object": "an empty object"}[name]
    return "an object" if name == "object" else f"a {name}"


# ---- tables ----------------------------------------------------------------------------------------------
def table_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of an Arrow table as JSON values. A null stands for what is absent in `id`, `verifier`, `meta` and in the
    messages of a chat, where a table has no other way to leave something out."""
    for row in rows:
        out = {name: _json(value) for name, value in row.items()}
        for name in ("id", "verifier", "meta"):
            if name in out and out[name] is None:
                del out[name]
        for name in PROMPTS:
            if isinstance(out.get(name), list):
                out[name] = [_without_nulls(m) if isinstance(m, dict) else m for m in out[name]]
        yield out


def _without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None or key in ("role", "content")}


def _json(x: Any) -> Any:
    """nan and infinity are null, bytes are told by their number; dates, decimals and the like are text."""
    if x is None or isinstance(x, str | bool | int):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {str(key): _json(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_json(value) for value in x]
    if isinstance(x, bytes):
        return f"<{len(x)} bytes>"
    return x.isoformat() if hasattr(x, "isoformat") else str(x)
