"""Tasks from a file: one JSON object a line, with `prompt` and `answer`, and optionally `id`, `verifier` and `meta`.

    {"prompt": "How many legs have 3 cats?", "answer": "12", "id": "legs-1", "meta": {"steps": 1}}

Files with the columns of TRL, verl and verifiers are read as they are; `rows` says how.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError
from rlvr.tasks.rows import Raw, kind, options_from, read_rows


@register("tasks", "jsonl")
def jsonl(
    path: str | Path,
    limit: int | None = None,
    prompt: str | dict[str, str] | None = None,
    answer: dict[str, str] | None = None,
    id: dict[str, str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of a file, in its order; the first `limit` of them if given (rows behind are not looked at).

    `prompt` is text, or a list of chat messages {"role", "content"}; `answer` any JSON value that says something
    (text, number, true/false, list, object). A row without `id` is called "<file stem>:<line>". Blank lines and a
    byte-order mark are skipped.

    Other columns: prompt = { column = "question" } or a text with {question} in it, id = { column = "uid" },
    answer = { column = "solution", after = "####" } (also `before`, or a `regex` whose group is the gold). All columns
    then stay in `meta`.

    Raises DataError: no such file, no rows, or rows that cannot be used, each with file, line and id.
    """
    path, options = Path(path), options_from(prompt, answer, id)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); `path` is a file of one JSON object a line"
        ) from None
    return read_rows(_rows(path, data), str(path), path.name, options, limit)


def _rows(path: Path, data: bytes) -> Iterator[Raw]:
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if raw.strip():
            columns, faults = _parse(raw)
            yield Raw(columns, f"line {line}", f"{path}:{line}", f"{path.stem}:{line}", tuple(faults))


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
            f"is {kind(row)}; a line holds one object {{...}}"
            + " (a JSON array must be unpacked)" * isinstance(row, list)
        ]
    return row, []


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
