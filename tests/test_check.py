"""`rlvr check`: what is no paper gets a sentence with its file and line; a broken law gets the paper's name."""

from pathlib import Path

import pytest

from rlvr.cli import main

PIECE = """
from dataclasses import dataclass
from rlvr.method import Method

@dataclass(frozen=True)
class Piece:
    needs = ("advantage",)
    def __call__(self, batch):
        return {back}

def mine(method: Method, a: int = 1) -> Method:
    return method.firm("mine", reshape=Piece())
"""


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["check", *arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(end.value.code or 0), out + err


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def mine(method:\n    return method", "own.py, line 1 is not Python: '(' was never closed"),
        ("import sys\nsys.exit(0)\ndef mine(method): return method", "own.py, line 2 ends the program"),
        ("x = 1\n{}['a']\ndef mine(method): return method", "own.py, line 2 fails: KeyError: 'a'"),
        ("import no_such_thing\ndef mine(method): return method", "own.py, line 1 fails: ModuleNotFoundError"),
        ("mine = None\ndef other(method): return method", "no function or class 'mine' at its top level; it has other"),
        ("def mien(method): return method", "did you mean 'mien'?"),
        ("def mine(method): return None", "own.py:mine returned NoneType; a paper is a function"),
        (
            "def mine(): return 3",
            "own.py:mine: TypeError: mine() takes 0 positional arguments but 1 was given; a paper",
        ),
        ("def mine(method):\n    return nowhere", "NameError: name 'nowhere' is not defined (own.py, line 2)"),
        ("def mine(method, x): return method", "mine needs x"),
    ],
)
def test_what_is_no_paper_is_told_in_a_sentence(source: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(source)
    code, told = checked(capsys, "own.py:mine")
    assert code == 2
    assert said in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own.py", "own.py is a file; say which of its functions, as in own.py:own"),
        ("dapoo", "did you mean 'dapo'"),
        ("dapo,rloo", "'dapo,rloo' is not a name"),
        ("own.py:mine", "own.py:mine: the file cannot be read"),
    ],
)
def test_names_that_are_none(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = checked(capsys, name)
    assert code == 2
    assert said in told


@pytest.mark.parametrize(
    ("neutral", "said"),
    [
        ("", "own.py:mine states no `neutral`"),
        ("neutral = 3", "own.py:mine states a `neutral` that does not say which stack it `equals`"),
        ("neutral = {'equals': 'grpoo'}", "did you mean 'grpo'"),
        ("neutral = {'equals': 'grpo', 'at': 1}", "with at, which mean nothing there"),
        ("neutral = {'equals': 'grpo', 'input': 'nowhere'}", "states the neutral input 'nowhere', which is a function"),
        ("neutral = {'equals': 'grpo', 'settings': {'b': 2}}", "own.py:mine(b=2): TypeError: mine() got an unexpected"),
        ("neutral = {'equals': 'grpo'}", "own.py:mine makes no difference at its defaults either"),
    ],
)
def test_neutral_statements_are_told_by_the_papers_name(
    neutral: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PIECE.format(back='batch["advantage"]') + neutral)
    code, told = checked(capsys, "own.py:mine")
    assert code == 1
    assert said in told
    assert "rlvr_user_" not in told


def test_a_piece_that_fails_breaks_its_laws_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(PIECE.format(back="None") + "neutral = {'equals': 'grpo'}")
    code, told = checked(capsys, "own.py:mine")
    assert code == 1
    assert "BROKEN  finiteness\n        mine's reshape Piece returned None" in told
    assert "BROKEN  neutrality\n        mine's reshape Piece returned None" in told


def test_a_plan_that_cannot_be_made_is_a_broken_law(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(PIECE.format(back="None").replace('("advantage",)', '("advantages",)'))
    code, told = checked(capsys, "own.py:mine")
    assert code == 1
    assert "BROKEN  plan\n        mine: Piece needs advantages" in told


def test_settings_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = checked(capsys, "dapo(clip_high=0.3)")
    assert code == 0
    assert "Clip(low=0.2, high=0.3)" in told
