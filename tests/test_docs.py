"""What the documentation says is so: its blocks run, its links lead somewhere, its names exist.

Fenced blocks of a page run in order, in an empty folder. The word behind the language says what a block is:

    python my.py          a file of that name (toml, json too); without a name, python runs
    bash                  runs and succeeds;  bash refused: exits with 2;  bash broken: exits with 1;  bash no-run
    text printed          its lines come, in this order, in what the block before printed;  text seen: measured once
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rlvr import registry

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.M | re.S)
CODES = {"": 0, "broken": 1, "refused": 2}


class Block(NamedTuple):
    language: str
    info: str
    body: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def play(page: Path, folder: Path) -> list[str]:
    """Run a page's blocks in a folder; what each of the executed ones printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    printed: list[str] = []
    for language, info, body in blocks(page):
        if "." in info:
            (folder / info).write_text(body, encoding="utf-8")
        elif (language == "bash" and info != "no-run") or language == "python":
            command = ["bash", "-ec", body] if language == "bash" else [sys.executable, "-c", body]
            done = subprocess.run(
                command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert done.returncode == CODES[info], f"{page.name}: {body}\n{done.stdout}"
            printed.append(done.stdout)
        elif info == "printed":
            rest = iter(printed[-1].splitlines())
            missing = [line for line in body.splitlines() if line not in rest]
            assert not missing, f"{page.name} says that this is printed: {missing[0]!r}; it was\n{printed[-1]}"
    return printed


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


# ---- pages run -------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_tutorial_101_learns_the_better_habit_and_its_measurements_agree(tmp_path):
    printed = play(ROOT / "docs/tutorials/101_train_and_read_the_report.md", tmp_path)
    before, after = re.search(r"mean@8  (0\.\d+) .*->  (0\.\d+)", printed[0]).groups()
    assert float(after) > float(before) + 0.2
    first, last = re.findall(r"step \d+: (\d+)% of 256", printed[3])
    assert int(first) < 50 < int(last)
    assert f"mean@8  {after}   95%" in printed[-1]  # rlvr eval finds what the run found
    told = metrics(tmp_path / "runs/first")
    assert [m["step"] for m in told] == list(range(1, 13))
    assert told[0]["reward/mean"] == metrics(tmp_path / "runs/dapo")[0]["reward/mean"]
    for page in ("runs/first/report.html", "comparison.html"):
        assert (tmp_path / page).stat().st_size > 10_000
    unexplained = {name for m in told for name in m} - set(filter(explained, {name for m in told for name in m}))
    assert not unexplained


@pytest.mark.slow
def test_tutorial_102_adds_a_paper_that_does_what_it_says(tmp_path):
    import torch

    from rlvr.batch import Batch

    play(ROOT / "docs/tutorials/102_add_a_paper.md", tmp_path)
    piece = registry.load_path(f"{tmp_path / 'w_reinforce.py'}:LessPraise")(0.1)
    batch = Batch.pack(torch.tensor([1, 2]), advantage=torch.tensor([2.0, -3.0, 0.0], dtype=torch.float64))
    assert piece(batch).tolist() == pytest.approx([0.2, -3.0, 0.0])
    assert len(metrics(tmp_path / "runs/w")) == 4
    assert (tmp_path / "test_my_paper.py").is_file()


@pytest.mark.slow
def test_a_verifier_and_tasks_of_ones_own_are_used_by_a_run(tmp_path):
    play(ROOT / "docs/add_your_own.md", tmp_path)
    (one, _) = metrics(tmp_path / "runs/verifier")
    assert one["reward/mean"] == pytest.approx(one["reward/correctness/mean"] + one["reward/digits/mean"])
    assert 0.05 < one["reward/digits/mean"] < 0.101  # a tenth of the share that is a number
    before = json.loads((tmp_path / "runs/made/eval.json").read_text())
    assert before["problems"] == 8
    for run in ("runs/file", "runs/made"):
        assert [m["verdict/unknown"] for m in metrics(tmp_path / run)] == [0, 0]


@pytest.mark.slow
def test_the_readme_and_the_pages_of_verifiers_and_of_the_sandbox_run(tmp_path):
    play(ROOT / "README.md", tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert len(metrics(run)) == 10
    play(ROOT / "docs/verifiers.md", tmp_path)
    play(ROOT / "docs/sandbox.md", tmp_path)


# ---- names -----------------------------------------------------------------------------------------------
def code(page: Path) -> Iterator[str]:
    """Fenced blocks and inline code of a page."""
    text = page.read_text(encoding="utf-8")
    yield from (body for _, _, body in FENCE.findall(text))
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_verb_and_every_key_exists(page):
    from rlvr.cli import app
    from rlvr.recipe import settings

    verbs = {c.name for c in app.registered_commands} | {g.name for g in app.registered_groups}
    keys = {s.key for s in settings()}
    for text in code(page):
        assert set(re.findall(r"(?<!from )\brlvr ([a-z]+)", text)) <= verbs
        for key in re.findall(r"--set ([\w.]+)=", text):
            assert key in keys or key.partition(".")[0] in ("papers", "parts", "tasks", "chat", "teacher"), key


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_and_every_named_file_is_there(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, heading = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{page.name}: {target}"
        if heading:
            assert heading in {slug(line) for line in re.findall(r"^#+ (.+)$", there.read_text(), re.M)}, target
    for named in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", text):
        assert (ROOT / named).is_file() or (ROOT / "src/rlvr" / named).is_file(), f"{page.name}: {named}"


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def named_in_table(page: Path, head: str) -> set[str]:
    """Inline code in the first column of the table with this first heading."""
    rows = page.read_text(encoding="utf-8").split(f"| {head} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_lists_of_papers_and_verbs_are_whole():
    from rlvr.cli import app

    assert named_in_table(ROOT / "README.md", "paper") == {e.name for e in registry.index("method")}
    assert named_in_table(ROOT / "docs/verifiers.md", "name") <= {e.name for e in registry.index("verifier")}
    verbs = {f"rlvr {c.name}" for c in (*app.registered_commands, *app.registered_groups)}
    assert named_in_table(ROOT / "README.md", "verb") == verbs


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for page in PAGES for extra in re.findall(r'"\.\[(\w+)\]"', page.read_text())}
    assert named <= set(extras)
    assert "dev" in named


# ---- metrics ---------------------------------------------------------------------------------------------
def explained(name: str) -> bool:
    patterns = named_in_table(ROOT / "docs/metrics.md", "name")
    return any(re.fullmatch(re.sub(r"<\w+>", "[^/]+", pattern), name) for pattern in patterns)


def test_every_metric_of_the_source_is_in_the_glossary():
    told = {
        name
        for file in (ROOT / "src/rlvr").rglob("*.py")
        for name in re.findall(r'"([a-z_]+/[a-z_]+)": Tally', file.read_text(encoding="utf-8"))
    }
    assert {"policy/clip_frac", "sampler/gap", "critic/error"} <= told
    assert not {name for name in told if not explained(name)}


def test_verifiers_that_the_page_spells_out_can_be_built(tmp_path, monkeypatch):
    from rlvr.verify.spec import verifier_from

    monkeypatch.chdir(tmp_path)
    Path("checks.py").write_text("def f(answer, gold):\n    return answer == gold\n")
    specs = re.findall(r'^verifier = "(.+)"$', (ROOT / "docs/verifiers.md").read_text(), re.M)
    assert len(specs) == 3
    for spec in specs:
        assert verifier_from(spec).fingerprint
