"""A task file is read exactly, or refused with file, line, id and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.records import Task
from rlvr.registry import get
from rlvr.tasks import DataError
from rlvr.tasks.jsonl import jsonl

GOOD = '{"prompt": "2+2=", "answer": "4"}'


def refusal(tmp_path: Path, *lines: str | bytes) -> str:
    """The message for a file `t.jsonl` of these lines, with the folder cut off."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    with pytest.raises(DataError) as caught:
        jsonl(file)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_rows_become_tasks(tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    rows = [
        {"prompt": "1+1=", "answer": "2"},
        {"prompt": chat, "answer": 4, "id": "four", "verifier": "numeric", "meta": {"steps": 1}},
        {"prompt": "list them", "answer": [1, 2.5, None], "id": 7},
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert jsonl(file) == (
        Task("sums:1", "1+1=", "2", made_by="sums.jsonl"),
        Task("four", tuple(chat), 4, "numeric", made_by="sums.jsonl", meta={"steps": 1}),
        Task("7", "list them", [1, 2.5, None], made_by="sums.jsonl"),
    )
    assert get("tasks", "jsonl") is jsonl
    assert [t.id for t in jsonl(str(file), limit=2)] == ["sums:1", "four"]


def test_marks_line_ends_and_blank_lines_are_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    separator = "\u2028"  # ends a line for Python's str, not for JSON
    text = f'\r\n{{"prompt": "a{separator}b", "answer": "é"}}\r\n  \r\n{GOOD}\r\n'
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [(t.id, t.prompt, t.answer) for t in jsonl(file)] == [
        ("t:2", f"a{separator}b", "é"),
        ("t:4", "2+2=", "4"),
    ]


def test_limit_leaves_later_rows_alone(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(f"{GOOD}\nnot json\n", encoding="utf-8")
    assert len(jsonl(file, limit=1)) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"prompt": "a"', "not JSON: Expecting ',' delimiter at column 15; one line holds one whole object"),
        ("[1, 2]", "is a list; a line holds one object {...} (a JSON array must be unpacked)"),
        ('"a"', "is a text; a line holds one object {...}"),
        ('{"answer": "b", "id": "x"}', "(id 'x'): `prompt` is missing"),
        ('{"prompt": "a", "id": "x"}', "(id 'x'): `answer` is missing"),
        ('{"prompt": " ", "answer": "b", "id": "x"}', "(id 'x'): `prompt` is empty"),
        ('{"prompt": 3, "answer": "b"}', "`prompt` is a number; write a text or a list of messages"),
        ('{"prompt": [], "answer": "b"}', "`prompt` is an empty list; write at least one message"),
        ('{"prompt": "a", "answer": null, "id": "x"}', "(id 'x'): `answer` is null; write the gold"),
        ('{"prompt": "a", "answer": ""}', "`answer` is empty text; write the gold"),
        ('{"prompt": "a", "answer": []}', "`answer` is an empty list; write the gold"),
        ('{"prompt": "a", "answer": "b", "id": true}', "`id` is true or false; write a text or an integer"),
        ('{"prompt": "a", "answer": "b", "id": ""}', "`id` is empty text; write a text or an integer"),
        ('{"prompt": "a", "answer": "b", "meta": [1]}', "`meta` is a list; write an object"),
        ('{"prompt": "a", "answer": "b", "verifier": 3}', "`verifier` is a number; write a verifier's name"),
        ('{"question": "a", "answer": "b", "id": "q"}', "(id 'q'): `question` is called `prompt` here"),
        ('{"prompt": "a", "solution": "b"}', "`solution` is called `answer` here"),
        ('{"prompt": "a", "ground_truth": "b"}', "`ground_truth` is called `answer` here"),
        ('{"prompt": "a", "answer": "b", "info": {}}', "`info` is called `meta` here"),
        (
            '{"prompt": "a", "reward_model": {"ground_truth": "b"}}',
            "`reward_model.ground_truth` is called `answer` here",
        ),
        ('{"prompt": "a", "answer": "b", "data_source": "s"}', "name the verifier in `verifier`"),
        ('{"promt": "a", "answer": "b"}', "`promt` is not known; did you mean `prompt`?"),
        ('{"prompt": "a", "answer": "b", "zebra": 1}', "`zebra` is not known; what only you read goes into `meta`"),
        ('{"prompt": "a", "answer": NaN}', "NaN is not a JSON value; write a number or a text"),
        ('{"prompt": "a", "answer": "b", "meta": {"x": -Infinity}}', "-Infinity is not a JSON value"),
        ('{"prompt": "a", "answer": 1e999}', "1e999 is too large for a number; write a text"),
        ('{"prompt": "a", "answer": ' + "7" * 5000 + "}", "an integer of 5000 digits is too long; write a text"),
        ('{"prompt": "a", "answer": 1, "answer": 2}', "key `answer` appears twice in one object"),
        ("[" * 100_000, "nested too deeply to be read"),
        ('{"prompt": "\\ud800", "answer": "b"}', "half a surrogate pair"),
        (b'{"prompt": "\xe9t\xe9", "answer": "b"}', "byte 13 of the line is not UTF-8; save the file as UTF-8"),
        ('{"prompt": ["hi"], "answer": "b"}', '`prompt[0]` is a text; write {"role": "user", "content": "..."}'),
        (
            '{"prompt": [{"role": "bot", "content": "a"}], "answer": "b"}',
            '`prompt[0].role` is "bot"; write one of system',
        ),
        ('{"prompt": [{"content": "a"}], "answer": "b"}', "`prompt[0].role` is null; write one of system"),
        ('{"prompt": [{"role": "user"}], "answer": "b"}', "`prompt[0].content` is null; write a text"),
        (
            '{"prompt": [{"role": "user", "content": ""}], "answer": "b"}',
            "`prompt[0].content` is empty text; write a text",
        ),
        (
            '{"prompt": [{"from": "user", "value": "a"}], "answer": "b"}',
            "`prompt[0].from` is not known; it is called `role`",
        ),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_id(tmp_path: Path, line: str | bytes, problem: str) -> None:
    message = refusal(tmp_path, GOOD, "", line)
    assert message.startswith(("1 problem in t.jsonl:\n  t.jsonl:3", "2 problems in t.jsonl:\n  t.jsonl:3"))
    assert problem in message


def test_a_misnamed_column_is_one_problem_not_two(tmp_path: Path) -> None:
    message = refusal(tmp_path, '{"problem": "a", "final_answer": "b"}')
    assert message == (
        "2 problems in t.jsonl:\n"
        '  t.jsonl:1: `problem` is called `prompt` here (or say prompt = { column = "problem" })\n'
        '  t.jsonl:1: `final_answer` is called `answer` here (or say answer = { column = "final_answer" })'
    )


def test_ids_differ_even_from_those_given_by_line(tmp_path: Path) -> None:
    row = '{"prompt": "a", "answer": "b", "id": "x"}'
    assert "t.jsonl:3 (id 'x'): id 'x' is taken by line 1" in refusal(tmp_path, row, GOOD, row)
    named = '{"prompt": "a", "answer": "b", "id": "t:2"}'
    assert "t.jsonl:2: id 't:2' is taken by line 1" in refusal(tmp_path, named, GOOD)


def test_many_problems_are_listed_together_and_capped(tmp_path: Path) -> None:
    message = refusal(tmp_path, *['{"prompt": "a"}'] * 50)
    assert message.startswith("20 problems in t.jsonl; stopped after 20, there may be more:\n")
    assert message.count("`answer` is missing") == 20
    assert "t.jsonl:20:" in message


def test_no_file_and_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: cannot be read \(No such file or directory\)"):
        jsonl(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="Is a directory"):
        jsonl(tmp_path)
    assert "t.jsonl: holds no rows; a row is e.g. " in refusal(tmp_path, "", "  ")
