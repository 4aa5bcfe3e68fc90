"""Tasks from a file: one JSON object a line, with `prompt` and `answer`, and optionally `id`, `verifier` and `meta`.

    {"prompt": "How many legs have 3 cats?", "answer": "12", "id": "legs-1", "meta": {"steps": 1}}

A file is read whole or not at all: the rows that are wrong are listed together (at most 20), each with its line and
id and what to write instead, so that a file is mended in one go and no row is ever dropped in silence.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError

KNOWN = ("prompt", "answer", "id", "verifier", "meta")
ROLES = ("system", "developer", "user", "assistant", "tool")
MOST = 20  # problems in one error
# What TRL, verl, verifiers, ShareGPT and common sets call these columns.
FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(["question", "problem", "query", "instruction", "input", "messages", "conversations"], "prompt"),
    **dict.fromkeys(["solution", "ground_truth", "gold", "target", "label", "final_answer", "reward_model"], "answer"),
    **dict.fromkeys(["uid", "uuid", "index", "idx", "example_id", "task_id"], "id"),
    **dict.fromkeys(["info", "extra_info", "metadata"], "meta"),
}
ELSEWHERE: Mapping[str, str] = {
    "reward_model": "`reward_model.ground_truth` is called `answer` here",
    "data_source": 'name the verifier in `verifier`; the origin of a row goes into `meta`, e.g. {"data_source": ...}',
    "completion": "a demonstration goes into `meta`; the gold is called `answer`",
    "chosen": "pairs for preference training are not tasks",
    "rejected": "pairs for preference training are not tasks",
}


@register("tasks", "jsonl")
def jsonl(path: str | Path, limit: int | None = None) -> tuple[Task, ...]:
    """The tasks of a file, in its order; the first `limit` of them if given (rows behind are not looked at).

    `prompt` is text, or a list of chat messages {"role", "content"}; `answer` any JSON value that says something
    (text, number, true/false, list, object). A row without `id` is called "<file stem>:<line>". Blank lines and a
    byte-order mark are skipped.

    Raises DataError: no such file, no rows, or rows that cannot be used, each with file, line and id.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); `path` is a file of one JSON object a line"
        ) from None
    tasks: list[Task] = []
    problems: list[str] = []
    line_of: dict[str, int] = {}
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if len(problems) >= MOST or (limit is not None and len(tasks) >= limit):
            break
        if not raw.strip():
            continue
        row, found = _parse(raw)
        id = f"{path.stem}:{line}"
        where = f"{path}:{line}"
        if not found:
            found = _faults(row)
            if _is_id(row.get("id")):
                id = str(row["id"])
                where += f" (id {id!r})"
            if id in line_of:
                found.append(f"id {id!r} is taken by line {line_of[id]}; ids must differ")
            line_of.setdefault(id, line)
        if found:
            problems += [f"{where}: {problem}" for problem in found]
            continue
        tasks.append(_task(row, id, path.name))
    if problems:
        more = f"; stopped after {MOST}, there may be more" if len(problems) >= MOST else ""
        count = "1 problem" if len(problems) == 1 else f"{min(len(problems), MOST)} problems"
        raise DataError(f"{count} in {path}{more}:\n  " + "\n  ".join(problems[:MOST]))
    if not tasks:
        raise DataError(f'{path}: holds no rows; write one object a line, e.g. {{"prompt": "2+2=", "answer": "4"}}')
    return tuple(tasks)


def _task(row: Mapping[str, Any], id: str, made_by: str) -> Task:
    prompt = row["prompt"]
    return Task(
        id,
        prompt if isinstance(prompt, str) else tuple(prompt),
        row["answer"],
        row.get("verifier"),
        made_by=made_by,
        meta=row.get("meta", {}),
    )


def _parse(raw: bytes) -> tuple[dict[str, Any], list[str]]:
    """(row, []) or ({}, [what is wrong])."""
    try:
        row = READ.decode(raw.decode("utf-8").strip())
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        return {}, [f"byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8"]
    except UnicodeEncodeError:
        return {}, ["half a surrogate pair (\\ud800..\\udfff) stands alone in a text; write the whole character"]
    except json.JSONDecodeError as error:
        return {}, [f"not JSON: {error.msg} at column {error.colno}; one line holds one whole object"]
    except RecursionError:
        return {}, ["nested too deeply to be read"]
    except ValueError as error:  # from the hooks of READ
        return {}, [str(error)]
    if not isinstance(row, dict):
        return {}, [
            f"is {_kind(row)}; a line holds one object {{...}}"
            + " (a JSON array must be unpacked)" * isinstance(row, list)
        ]
    return row, []


def _faults(row: Mapping[str, Any]) -> list[str]:
    strangers = {key: _meant(key) for key in row if key not in KNOWN}
    found = [_stranger(key, meant, row) for key, meant in strangers.items()]
    for key in ("prompt", "answer"):
        if key not in row and key not in strangers.values():
            found.append(f"`{key}` is missing")
    if "prompt" in row:
        found += _prompt_faults(row["prompt"])
    if "answer" in row and (row["answer"] is None or row["answer"] == "" or row["answer"] in ([], {})):
        found.append(f"`answer` is {_kind(row['answer'])}; write the gold that a verifier compares with")
    if "id" in row and not _is_id(row["id"]):
        found.append(f"`id` is {_kind(row['id'])}; write a text or an integer, or leave it out")
    if not isinstance(row.get("meta", {}), dict):
        found.append(f"`meta` is {_kind(row['meta'])}; write an object")
    if "verifier" in row and not (isinstance(row["verifier"], str) and row["verifier"].strip()):
        found.append(f"`verifier` is {_kind(row['verifier'])}; write a verifier's name, or leave it out")
    return found


def _prompt_faults(prompt: Any) -> list[str]:
    if isinstance(prompt, str):
        return [] if prompt.strip() else ["`prompt` is empty"]
    if not isinstance(prompt, list):
        return [f"`prompt` is {_kind(prompt)}; write a text or a list of messages"]
    found = [] if prompt else ["`prompt` is an empty list; write at least one message"]
    for i, message in enumerate(prompt):
        where = f"prompt[{i}]"
        if not isinstance(message, dict):
            found.append(f'`{where}` is {_kind(message)}; write {{"role": "user", "content": "..."}}')
            continue
        for key in [k for k in message if k not in ("role", "content")]:
            called = {"from": "; it is called `role` here", "value": "; it is called `content` here"}.get(key, "")
            found.append(f"`{where}.{key}` is not known{called}")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES and ("role" in message or "from" not in message):
            found.append(f"`{where}.role` is {json.dumps(role)}; write one of {', '.join(ROLES)}")
        blank = not (isinstance(content, str) and content.strip())
        if blank and ("content" in message or "value" not in message):
            found.append(f"`{where}.content` is {_kind(content)}; write a text")
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
    if key.lower() in FOREIGN:
        return f"`{key}` is called `{meant}` here"
    return f"`{key}` is not known; did you mean `{meant}`?"


def _is_id(x: object) -> bool:
    return (isinstance(x, str) and bool(x.strip())) or (isinstance(x, int) and not isinstance(x, bool))


def _kind(x: object) -> str:
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


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        twice = next(k for i, (k, _) in enumerate(pairs) if k in [earlier for earlier, _ in pairs[:i]])
        raise ValueError(f"key `{twice}` appears twice in one object")
    return out


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a JSON value; write a number or a text")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is too large for a number; write a text")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 600:  # well below the length at which Python refuses to convert
        raise ValueError(f"an integer of {len(digits)} digits is too long; write a text")
    return int(digits)


READ = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
