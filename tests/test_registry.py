"""Names are found by reading source: all of them, without importing any, and treated alike."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr import registry
from rlvr.registry import BrokenFile, UnknownName, describe, get, index, load_path, names, read_source, register
from rlvr.stacking import parameters

EVERY = [(kind, entry.name) for kind in registry.KINDS for entry in index(kind)]
METHODS = [entry.name for entry in index("method")]


def test_the_index_knows_what_each_kind_has():
    assert {"grpo"} <= set(names("method"))
    assert {"hash_marker", "numeric", "countdown"} <= set(names("verifier"))
    assert {"running_sums", "modular_chains", "choice", "countdown", "jsonl"} <= set(names("tasks"))
    assert {"jsonl", "parquet", "line", "screen"} <= set(names("sink"))


def test_reading_the_index_imports_nothing_of_it():
    code = "import sys; from rlvr import registry\n"
    code += "for kind in registry.KINDS:\n  for name in registry.names(kind): registry.describe(kind, name)\n"
    code += "print([m for m in sys.modules if m in ('torch', 'transformers') or m.startswith('rlvr.methods')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_entry_says_what_it_is_and_can_be_had(kind, name):
    entry = describe(kind, name)
    assert len(entry.summary) > 10, f"{entry.module}: {name} has no docstring"
    thing = get(kind, name)
    assert (thing.__module__, callable(thing)) == (entry.module, True)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_reading_finds_just_what_importing_registers(kind):
    for entry in index(kind):
        importlib.import_module(entry.module)
    built_in = {name for name, thing in registry._things[kind].items() if thing.__module__.startswith("rlvr.")}
    assert built_in == {entry.name for entry in index(kind)}


@pytest.mark.parametrize("name", METHODS)
def test_every_paper_states_its_source_and_the_slots_that_it_fills(name):
    """`fills` is read by `explain`; what a paper really sets must agree with it."""
    entry = describe("method", name)
    assert entry.constants.get("paper"), f"{entry.module} states no paper"
    paper = get("method", name)
    base = get("method", "grpo")
    known = parameters("method", name)
    assert known is not None
    assert known[0].name == "method"
    needed = [p.name for p in known[1:] if p.default is None]
    assert not needed, "every setting of a paper has a default"
    placed = (paper() if known[0].default else paper(base())).placed - (
        frozenset() if name == "grpo" else base().placed
    )
    assert {p.slot for p in placed} <= set(entry.constants["fills"])


@pytest.mark.parametrize("name", METHODS)
def test_a_paper_can_start_a_stack_just_when_it_is_a_base(name):
    known = parameters("method", name)
    placed = get("method", name)(get("method", "grpo")()).placed
    sets_base = any(p.strength == "base" and p.paper == name for p in placed)
    assert (known[0].default is not None) == sets_base


# ---- names that are not there ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("method", "gpro", "'grpo'"),
        ("tasks", "running_sum", "did you mean 'running_sums'"),
        ("tasks", "zzzzzz", "there are: choice, countdown"),
        ("method", "nowhere.py:paper", "there is no file nowhere.py"),
    ],
)
def test_an_unknown_name_is_answered_with_known_ones(kind, name, says):
    with pytest.raises(UnknownName) as caught:
        get(kind, name)
    assert says in str(caught.value)


def test_an_unknown_kind_lists_the_kinds():
    with pytest.raises(ValueError, match="kinds are method, verifier"):
        register("methd")


# ---- a user's own ----------------------------------------------------------------------------------------
def test_a_file_gives_the_thing_that_it_defines_and_runs_once(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import pathlib\nlog = pathlib.Path(__file__).with_suffix('.log')\n"
        "log.write_text(log.read_text() + 'x' if log.exists() else 'x')\ndef paper(method, a=1): ...\n"
    )
    first = load_path(f"{file}:paper")
    assert first is get("method", f"{file}:paper")
    assert (tmp_path / "own.log").read_text() == "x"
    with pytest.raises(UnknownName, match="did you mean 'paper'"):
        load_path(f"{file}:papr")


def test_a_file_that_fails_is_run_again_next_time(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("1 / 0\n")
    with pytest.raises(BrokenFile, match=r"own\.py, line 1 fails: ZeroDivisionError: division by zero"):
        load_path(f"{file}:f")
    file.write_text("def f(): return 7\n")
    assert load_path(f"{file}:f")() == 7


def test_a_users_file_is_described_without_running_it(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        '"""About."""\nraise SystemExit\ndef paper(method, a: float = 1.5):\n    """Mine.\n\n    a: how much."""\n'
    )
    entry = describe("method", f"{file}:paper")
    assert (entry.summary, entry.line, entry.signature) == ("Mine.", 3, "(method, a: float=1.5)")


def test_two_things_cannot_have_one_name(monkeypatch):
    monkeypatch.setitem(registry._things, "method", dict(registry._things["method"]))

    @register("method", "doubly")
    def one(method): ...

    assert register("method", "doubly")(one) is one
    with pytest.raises(ValueError, match="registered twice"):

        @register("method", "doubly")
        def two(method): ...


def test_installed_names_are_known_beside_ours(monkeypatch, tmp_path):
    (tmp_path / "their_package.py").write_text(
        'def theirs(method, x: int = 3):\n    """From a package."""\n    return method\n'
    )
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlvr.method]\ntheirs = their_package:theirs\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "theirs" in names("method")
    assert describe("method", "theirs").summary == "From a package."
    assert "their_package" not in sys.modules
    assert get("method", "theirs")("m") == "m"
    assert parameters("method", "theirs")[1:] == [("x", "int", "3")]


# ---- reading ---------------------------------------------------------------------------------------------
def test_what_can_be_read_of_a_file(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(
        '"""Module words."""\nfills = ("bounds",)\ntwo = 1 + 1\ncomputed = print("run")\n'
        '@register("method", "other_name")\ndef paper(method, low: float | None = None): ...\n'
        '@register("method")\n@dataclass\nclass thing:\n    """Words.\n\n    More."""\n    a: int = 1\n'
        "    b: ClassVar = 2\n"
        '@register("verifier")\ndef v(): ...\n'
    )
    entries = {e.name: e for e in read_source("method", file, "m")}
    assert set(entries) == {"other_name", "thing"}
    assert entries["other_name"].signature == "(method, low: float | None=None)"
    assert entries["other_name"].doc == "Module words."
    assert entries["thing"].signature == "(a: int = 1)"
    assert (entries["thing"].summary, entries["thing"].doc) == ("Words.", "Words.\n\nMore.")
    assert entries["thing"].constants == {"fills": ("bounds",)}


def test_signatures_can_be_read_as_python():
    for kind, name in EVERY:
        ast.parse(f"def f{describe(kind, name).signature}: ...")
        assert Path(importlib.import_module(describe(kind, name).module).__file__).is_file()
