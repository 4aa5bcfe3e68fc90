"""`rlvr explain`: values instead of how a dataclass makes them, recipes, and the nearest name for what is none."""

import json
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.registry import describe, index, read_source
from rlvr.verify.spec import verifier_from


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(["explain", *arguments])
    out, err = capsys.readouterr()
    return out + err


def test_a_default_that_a_factory_makes_is_shown_as_its_value(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from dataclasses import dataclass, field\n@dataclass\nclass Own:\n    a: list = field(default_factory=list)\n"
        "    b: int = field(default=3, repr=False)\n    c: dict = field(default_factory=lambda: {'x': 1})\n"
        "    d: int = field(repr=False)\n    e: float = 1.5\n"
    )
    (entry,) = read_source("verifier", file, "own", every=True)
    assert entry.signature == "(a: list = list(), b: int = 3, c: dict = {'x': 1}, d: int, e: float = 1.5)"
    assert not [e.name for e in index("verifier") if "field(" in e.signature]
    assert "inner: Verifier = Plain()" in describe("verifier", "regex").signature


def test_a_recipe_is_explained_by_name_and_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = explained(capsys, "quickstart")
    assert said.startswith("quickstart (recipe)\n\nThe quickstart: ")
    assert "rlvr train quickstart --dry-run" in said
    file = tmp_path / "mine.toml"
    file.write_text(
        '# Mine: a try.\ntasks = "running_sums"\nlr = 1e-4\nmax_tokens = 64\n[papers.grpo]\nclip_high = 0.3\n'
    )
    (told,) = json.loads(explained(capsys, str(file), "--json"))
    set_ = {s["key"]: s["value"] for s in told["settings"]}  # max_tokens = 64 is the default
    assert set_ == {"lr": "0.0001", "tasks": '{name = "running_sums"}', "papers": "{grpo = {clip_high = 0.3}}"}


@pytest.mark.parametrize(
    ("name", "near"),
    [("quickstrt", "did you mean quickstart?"), ("numericc", "numeric"), ("adventage", "advantage or row_advantage")],
)
def test_what_is_no_name_is_answered_with_the_nearest_each_once(
    name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert near in explained(capsys, name)


def test_a_verifier_says_which_setting_it_lacks() -> None:
    with pytest.raises(
        ValueError, match=r"verifier 'regex' needs pattern: write regex\(pattern=\.\.\.\); rlvr explain regex"
    ):
        verifier_from("regex")


def test_new_takes_the_words_that_list_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in (("task", "my_sums"), ("paper", "my_idea")):
        with pytest.raises(SystemExit) as end:
            main(["new", kind, name, "--out", str(tmp_path)])
        assert not end.value.code
        assert (tmp_path / f"{name}.py").is_file()
