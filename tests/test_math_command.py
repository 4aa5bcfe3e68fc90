"""`rlvr verify`, and the verifiers as reward functions of TRL and verl."""

from __future__ import annotations

import inspect
import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from rlvr.cli.verify_command import BadRequest, verify
from rlvr.registry import UnknownName
from rlvr.verify.adapters import compute_score, trl_reward


class Said(NamedTuple):
    code: int
    out: str


@pytest.fixture
def rlvr_verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verify)

    def run(*arguments: str) -> Said:
        code = app(list(arguments), standalone_mode=False) or 0
        return Said(code, capsys.readouterr().out)

    return run


# rlvr verify


def test_the_command_says_the_verdict_and_its_grounds(rlvr_verify: Any) -> None:
    said = rlvr_verify("--gold", "1/2", "--answer", "So it is $\\boxed{0.5}$.")
    assert said.code == 0
    told = dict(line.split(None, 1) for line in said.out.splitlines() if not line.startswith(" "))
    assert told["verdict"] == "right"
    assert told["reason"] == "equal"
    assert told["extracted"] == "0.5"
    assert told["found"] == "box"
    assert told["compared"] == "a decimal beside a number"
    assert told["verifier"].startswith("math(mode='flexible'")


@pytest.mark.parametrize(
    ("arguments", "verdict", "reason"),
    [
        (["--gold", "42", "--answer", "The answer is 42."], "right", "equal"),
        (["--gold", "42", "--answer", "The answer is 42.", "--mode", "strict"], "wrong", "no_answer"),
        (["--gold", "42", "--answer", "\\boxed{43}", "--mode", "strict"], "wrong", "different"),
        (["--gold", "18", "--answer", "#### 18", "--verifier", "hash_marker"], "right", "equal"),
        (["--gold", "5", "--answer", "5 cm", "--verifier", "math(units='strict')"], "wrong", "different"),
        (["--gold", "5", "--answer", "5", "--verifier", "math(units='strict')", "--mode", "whole"], "right", "equal"),
        (["--gold", "\\frac{1}{", "--answer", "5"], "unknown", "bad_gold"),
    ],
)
def test_the_command_for_programs(rlvr_verify: Any, arguments: list[str], verdict: str, reason: str) -> None:
    told = json.loads(rlvr_verify(*arguments, "--json").out)
    assert (told["verdict"], told["reason"]) == (verdict, reason)
    assert told["score"] == float(verdict == "right")


def test_the_answer_may_come_from_standard_input(rlvr_verify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("So it is \\boxed{7}.\n"))
    assert json.loads(rlvr_verify("--gold", "7", "--answer", "-", "--json").out)["extracted"] == "7"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["--gold", "5"], BadRequest, "give --gold and --answer"),
        ([], BadRequest, "give --gold and --answer"),
        (["--gold", "5", "--answer", "5", "--jsonl", "x"], BadRequest, "leave --gold and --answer out"),
        (["--gold", "5", "--answer", "5", "--mode", "sloppy"], ValueError, "mode is one of strict, flexible"),
        (["--gold", "5", "--answer", "5", "--mode", "strict", "--verifier", "exact"], BadRequest, "only math has one"),
        (["--gold", "5", "--answer", "5", "--verifier", "mth"], UnknownName, "did you mean 'math'"),
        (["--jsonl", "/nonexistent/file"], FileNotFoundError, "/nonexistent/file"),
    ],
)
def test_a_wrong_request_says_what_would_work(
    rlvr_verify: Any, arguments: list[str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        rlvr_verify(*arguments)
    assert says in str(raised.value)


def test_a_file_is_judged_line_by_line_in_order(rlvr_verify: Any, tmp_path: Path) -> None:
    lines = [
        b'{"gold": "1/2", "answer": "0.5", "id": "a"}',
        b"nonsense",
        b"",
        b'{"gold": 5}',
        b'{"gold": 5, "answer": "I get 5.", "mode": "strict", "id": 7}',
        b'{"gold": 5, "answer": "I get 5."}',
        b"[1]",
        b'{"gold": "5", "answer": "\xff"}',
        b'{"gold": true, "answer": "5"}',
        b'{"gold": "5", "answer": "5", "verifier": "mth"}',
        b'{"gold": "B", "answer": "The answer is (B).", "verifier": "choice"}',
        b'{"gold": "", "answer": "5"}',
        b'{"gold": "5", "answer": 5}',
    ]
    file = tmp_path / "answers.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    said = rlvr_verify("--jsonl", str(file))
    told = [json.loads(line) for line in said.out.splitlines()]
    assert said.code == 1  # some lines could not be judged
    assert [t["line"] for t in told] == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    verdicts = {t["line"]: t["verdict"] for t in told}
    assert verdicts == {
        1: "right", 2: None, 4: None, 5: "wrong", 6: "right", 7: None, 8: None, 9: None, 10: None, 11: "right",
        12: "unknown", 13: None,
    }  # fmt: skip
    errors = {t["line"]: t["error"] for t in told if "error" in t}
    assert errors[2].startswith("line 2: it is not JSON")
    assert errors[4] == "line 4: 'answer' is missing; a line has gold and answer"
    assert errors[7].startswith("line 7: a line is an object such as")
    assert errors[8] == "line 8: it is not UTF-8"
    assert errors[9] == "line 9: 'gold' is a text or a number, not bool"
    assert "did you mean 'math'" in errors[10]
    assert errors[13] == "line 13: 'answer' is a text, not int"
    assert [t["id"] for t in told if "id" in t] == ["a", 7]


def test_a_file_of_good_lines_is_no_failure(rlvr_verify: Any, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"gold": "5", "answer": "6"}\n' * 3, encoding="utf-8")
    said = rlvr_verify("--jsonl", str(file), "--mode", "whole")
    assert said.code == 0
    assert [json.loads(line)["verdict"] for line in said.out.splitlines()] == ["wrong"] * 3


# TRL


def test_trl_gets_a_number_for_each_completion_and_none_without_a_verdict() -> None:
    completions = ["\\boxed{0.5}", "\\boxed{0.6}", "no idea", "\\boxed{5}"]
    rewards = trl_reward(
        prompts=["?"] * 4, completions=completions, completion_ids=[[1]] * 4, answer=["1/2", "1/2", "1/2", "\\frac{"]
    )
    assert rewards == [1.0, 0.0, 0.0, None]


def test_trl_conversations_and_other_names_of_the_gold_column() -> None:
    chat = [{"role": "assistant", "content": "I get"}, {"role": "assistant", "content": "\\boxed{7}"}]
    for column in ("answer", "solution", "ground_truth", "gold"):
        assert trl_reward(completions=[chat, [], "7"], **{column: ["7", "7", 7]}) == [1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match=r"call it answer, solution, ground_truth, gold \(it has: label\)"):
        trl_reward(completions=["7"], label=["7"])
    with pytest.raises(ValueError, match="1 completions came with 2 right answers"):
        trl_reward(completions=["7"], answer=["7", "8"])


def test_a_column_of_the_dataset_names_the_verifier() -> None:
    completions, golds = ["The answer is (B).", "It is 7.", "It is 7."], ["B", "7", "7"]
    specs = ["choice", None, "math(mode='strict')"]
    assert trl_reward(completions=completions, answer=golds, verifier=specs) == [1.0, 1.0, 0.0]
    assert trl_reward(completions=["It is 7."], answer=["7"], verifier="math(mode='last_box')") == [0.0]
    assert inspect.signature(trl_reward).parameters["completions"]  # how TRL calls it: by name
    assert trl_reward.__name__ == "trl_reward"  # what TRL logs it as


# verl


def test_verl_gets_the_same_keys_whatever_happens() -> None:
    right = compute_score("math", "So \\boxed{0.5}.", "1/2", {"index": 3})
    assert right == {"score": 1.0, "acc": True, "pred": "0.5", "reason": "equal", "known": True}
    wrong = compute_score("math", "So \\boxed{0.6}.", "1/2")
    assert wrong == {"score": 0.0, "acc": False, "pred": "0.6", "reason": "different", "known": True}
    unjudged = compute_score("math", "So \\boxed{0.5}.", None)
    assert unjudged == {"score": 0.0, "acc": False, "pred": "", "reason": "bad_gold", "known": False}
    assert compute_score("math", "", "1/2")["reason"] == "no_answer"


def test_verl_may_name_the_verifier_and_wrap_the_gold() -> None:
    assert compute_score("m", "The answer is (B).", {"ground_truth": "B"}, {"verifier": "choice"})["score"] == 1.0
    assert compute_score("m", "It is 7.", "7", {"verifier": "math(mode='strict')"}, sandbox_url=None)["score"] == 0.0
    missing = compute_score("m", "7", "7", {"verifier": "mth"})
    assert not missing["known"]
    assert "did you mean 'math'" in missing["reason"]
