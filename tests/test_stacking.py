"""A stack's text means what it says, is never evaluated, and is answered with sentences where it is wrong."""

from pathlib import Path

import pytest

from rlvr import registry
from rlvr.method import Contradiction, Method
from rlvr.methods.grpo import grpo
from rlvr.stacking import Call, StackError, build_method, parameters, parse_call, parse_stack, read_stack

PAPERS = """
from dataclasses import dataclass
from typing import Literal
from rlvr.loss.bounds import Clip
from rlvr.loss.ratio import Ratio
from rlvr.method import Method

def wide(method, high: float = 0.3, low: float = 0.2):
    return method.firm("wide", bounds=Clip(low, high))

def wider(method, high: float = 0.9):
    return method.firm("wider", bounds=Clip(0.2, high))

def rows(method, level: Literal["row", "token"] = "row", names: tuple[str, ...] = ()):
    return method.prefer("rows", ratio=Ratio(level))

def demanding(method, gain: float):
    return method

def broken(method):
    return 3
"""


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "papers.py").write_text(PAPERS)
    monkeypatch.chdir(tmp_path)
    return f"{tmp_path / 'papers.py'}"


def problems(text, settings=None):
    with pytest.raises(StackError) as caught:
        read_stack(text, settings)
    return str(caught.value)


# ---- reading ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("grpo", [("grpo", {})]),
        (" grpo , dapo ( clip_high = 0.28 ) ", [("grpo", {}), ("dapo", {"clip_high": 0.28})]),
        ("a(x=-1e-3,y=None,z=True),b", [("a", {"x": -0.001, "y": None, "z": True}), ("b", {})]),
        ("a(x=(2, 5), y=[1], z={'k': 1})", [("a", {"x": (2, 5), "y": [1], "z": {"k": 1}})]),
        ("a(x='b,c(d)', y=\"it's\")", [("a", {"x": "b,c(d)", "y": "it's"})]),
        (r"a(x='a\'b,c'),d", [("a", {"x": "a'b,c"}), ("d", {})]),
        ("my files/p.py:paper(x=1),../q.py:r", [("my files/p.py:paper", {"x": 1}), ("../q.py:r", {})]),
        ("a()", [("a", {})]),
    ],
)
def test_what_a_text_says(text, calls):
    assert parse_stack(text) == [Call(name, settings) for name, settings in calls]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a name is missing"),
        ("grpo,,dapo", "a name is missing"),
        ("grpo,", "a name is missing"),
        ("grpo dapo", "'grpo dapo' is not a name"),
        ("dapo(0.28)", "arguments are given by name"),
        ("dapo(**{'a': 1})", "arguments are given by name"),
        ("dapo(high=0.28", "is not closed"),
        ("dapo(high=)", "cannot be read"),
        ("dapo(a=1)(b=2)", "cannot be read"),
        ("dapo(a=1)+x(b=2)", "cannot be read"),
        ("dapo(level=token)", "write level='token'"),
        ("dapo(on=true)", "write on=True"),
        ("dapo(a=open('f'))", "is not a literal"),
        ("dapo(a=[x for x in (1,)])", "is not a literal"),
        ("dapo(" + "(" * 9000 + ")" * 9000 + ")", "cannot be read"),
        ("dapo(a=" + "-" * 9000 + "1)", "dapo"),
    ],
)
def test_a_text_that_cannot_be_read_is_answered_with_a_short_sentence(text, says):
    with pytest.raises(StackError) as caught:
        parse_stack(text)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_text_is_never_evaluated(tmp_path):
    target = tmp_path / "written"
    with pytest.raises(StackError):
        parse_stack(f"a(x=__import__('pathlib').Path({str(target)!r}).touch())")
    assert not target.exists()


def test_every_item_that_cannot_be_read_is_told():
    with pytest.raises(StackError) as caught:
        parse_stack("a(1),b(2),c")
    assert len(caught.value.problems) == 2


def test_a_call_prints_as_it_is_written():
    assert str(parse_call("dapo( high = 0.28,name='x' )")) == "dapo(high=0.28, name='x')"


# ---- against what is registered --------------------------------------------------------------------------
def test_parameters_are_read_without_importing(papers):
    Path("torchless.py").write_text("import no_such_module\ndef p(method, a: int, *, b: str = 'x', c=None): ...\n")
    assert parameters("method", "torchless.py:p") == [
        ("method", "", None),
        ("a", "int", None),
        ("b", "str", "'x'"),
        ("c", "", "None"),
    ]


def test_a_paper_that_takes_anything_is_not_checked(papers):
    Path("free.py").write_text("def p(method, **settings): return method\n")
    assert parameters("method", "free.py:p") is None
    assert read_stack("free.py:p(whatever=1)")[-1].settings == {"whatever": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grop", "did you mean 'grpo'"),
        ("grpo(clip_hig=0.3)", "did you mean 'clip_high'? It takes clip_low=0.2, clip_high=0.2, eps=1e-06"),
        ("grpo(clip_high='wide')", "wanted float"),
        ("grpo(clip_high=True)", "wanted float"),
        ("grpo,grpo", "grpo stands 2 times"),
        ("papers.py:wide,papers.py:wide(high=0.4)", "wide stands 2 times"),
        ("papers.py:wid", "defines no function"),
        ("nowhere.py:wide", "cannot be read"),
        ("broken.py:wide", "line 1 is not Python"),
        ("papers.py:demanding", "needs gain"),
        ("papers.py:rows(level='word')", "wanted Literal['row', 'token']"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(papers, text, says):
    Path("broken.py").write_text("def wide(:\n")
    assert says in problems(text)


def test_settings_come_from_the_text_and_from_the_recipe(papers):
    calls = read_stack("papers.py:wide(high=0.5)", {"wide": {"low": 0.1}, "grpo": {"eps": 1e-4}})
    assert [(c.short, c.settings) for c in calls] == [("grpo", {"eps": 1e-4}), ("wide", {"low": 0.1, "high": 0.5})]


def test_saying_one_setting_twice_is_allowed_only_when_both_agree(papers):
    assert read_stack("grpo(eps=1e-4)", {"grpo": {"eps": 1e-4}}) == [Call("grpo", {"eps": 1e-4})]
    assert "eps is 0.001 in the stack and 0.0001 in papers.grpo" in problems("grpo(eps=1e-3)", {"grpo": {"eps": 1e-4}})


def test_settings_of_a_paper_outside_the_stack_are_refused_by_name():
    assert "dapo is not in the stack (grpo)" in problems("grpo", {"dapo": {"clip_high": 0.3}})


def test_all_problems_are_told_with_the_place_where_each_was_said(papers):
    with pytest.raises(StackError) as caught:
        read_stack("grpo(clip=1)", {"grpo": {"clap": 1}, "dapo": {}})
    assert {p.keys[0] for p in caught.value.problems} == {"method", "papers.grpo.clap", "papers.dapo"}


# ---- building --------------------------------------------------------------------------------------------
def test_the_text_builds_what_the_functions_build():
    assert build_method("grpo(clip_high=0.28)") == grpo(clip_high=0.28)


def test_grpo_is_implied_and_order_does_not_matter(papers):
    stacks = ["papers.py:wide,papers.py:rows", "papers.py:rows,papers.py:wide", "papers.py:rows,grpo,papers.py:wide"]
    a, b, c = (build_method(text) for text in stacks)
    assert a == b == c
    assert a.papers == ["grpo", "rows", "wide"]


def test_a_stack_that_names_a_base_gets_no_other(papers):
    Path("base.py").write_text(
        "from rlvr.loss.ratio import Ratio\nfrom rlvr.method import Method\n"
        "def plain(method: Method = Method()):\n    return method.base('plain', ratio=Ratio('row'))\n"
    )
    assert build_method("base.py:plain").papers == ["plain"]


def test_lists_become_tuples_for_pieces_are_hashed(papers):
    assert read_stack("papers.py:rows(names=['a', ['b']])")[-1].settings == {"names": ("a", ("b",))}


def test_a_value_that_a_piece_refuses_names_the_paper(papers):
    with pytest.raises(StackError, match=r"grpo\(clip_low=2\): clip_low lies in \[0, 1\]"):
        build_method("grpo(clip_low=2)")


def test_a_contradiction_stays_one(papers):
    method = build_method("papers.py:wide,papers.py:wider")
    with pytest.raises(Contradiction, match="wide and wider both define the bounds"):
        method.plan()


def test_what_is_no_paper_is_refused(papers):
    with pytest.raises(StackError, match="returned int; a paper is a function"):
        build_method("papers.py:broken")


def test_a_paper_registered_by_hand_can_be_stacked_with_settings(monkeypatch):
    def by_hand(method: Method, strength: float = 1.0, *, tag: str = "") -> Method:
        return method

    monkeypatch.setitem(registry._things["method"], "by_hand", by_hand)
    assert read_stack("by_hand(strength=2)")[-1].settings == {"strength": 2}
    assert "takes strength=1.0, tag=''" in problems("by_hand(weight=2)")
    with pytest.raises(registry.UnknownName):
        parameters("method", "by_foot")
