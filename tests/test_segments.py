"""Text is cut into steps as people would cut it, and tokens follow without being made again."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlvr.records import Chain, Group, Origin, Rollout, Task
from rlvr.rollout.segments import Pieces, Wrote, cut, first_tokens

TEXT = "1. Two plus 2.5 is 4.5. Then stop!\n\n```py\nx = 1\n\ny = 2. z\n```\nSo, it is 10,000; done. 7#8"
CODE = "```py\nx = 1\n\ny = 2. z\n```\n"


class Words:
    """A tokenizer of three characters a token: id n is TEXTS[n]."""

    def __init__(self, *texts: str):
        self.texts = texts

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        said = [self.texts[i] for i in ids]
        ends = np.cumsum([len(x) for x in said]).tolist()
        return "".join(said), [(end - len(x), end) for end, x in zip(ends, said)]


def pieces(text: str, by: Any) -> list[str]:
    return [text[start:end] for start, end in cut(text, by)]


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("paragraph", [TEXT[: TEXT.index("```")], TEXT[TEXT.index("```") :]]),
        (
            "line",
            ["1. Two plus 2.5 is 4.5. Then stop!\n\n", CODE, TEXT[TEXT.index("So,") :]],
        ),
        (
            "sentence",
            [
                *("1. Two plus 2.5 is 4.5. ", "Then stop!\n\n", CODE),
                *("So, it is 10,000; done. ", "7#8"),
            ],
        ),
        (
            "clause",
            [
                *("1. Two plus 2.5 is 4.5. ", "Then stop!\n\n", CODE),
                *("So, ", "it is 10,000; ", "done. ", "7", "#8"),
            ],
        ),
        ("auto", [TEXT[: TEXT.index("```")], TEXT[TEXT.index("```") :]]),
    ],
)
def test_a_text_is_cut_at_borders_of_one_level(by: Any, wanted: list[str]) -> None:
    assert pieces(TEXT, by) == wanted


def test_auto_takes_the_coarsest_level_that_parts() -> None:
    assert pieces("a.\n\nb. c\nd", "auto") == ["a.\n\n", "b. c\nd"]
    assert pieces("7+5=1\n1*3=3\n#3", "auto") == ["7+5=1\n", "1*3=3\n", "#3"]
    assert pieces("One. Two, three.", "auto") == ["One. ", "Two, three."]
    assert pieces("10,19#19", "auto") == ["10,", "19", "#19"]
    assert pieces("just this", "auto") == ["just this"]
    assert pieces(" \n ", "auto") == pieces("", "line") == []


@pytest.mark.parametrize("by", ["auto", "paragraph", "line", "sentence", "clause"])
def test_pieces_are_the_whole_text_in_order_and_none_is_blank(by: Any) -> None:
    for text in (TEXT, "\n\n a. \n\n\n b, \n", "```\nnever closed\n\nhere", "...!!!", "#", "1. 2. 3. x", "、。。a"):
        assert "".join(pieces(text, by)) == text
        assert all(piece.strip() for piece in pieces(text, by))


@pytest.mark.parametrize("hostile", ["." * 200_000, '."' * 100_000, "\n" * 200_000, "#" * 200_000, "1, " * 60_000])
def test_hostile_texts_are_cut_in_linear_time(hostile: str) -> None:
    for by in ("auto", "sentence", "clause"):
        assert "".join(pieces(hostile, by)) in (hostile, "")


def test_a_token_on_a_border_belongs_to_what_comes_after() -> None:
    """Tokens 0-2, 2-5, 5-5, 5-6: characters 0, 1, 2, 4, 5 begin at tokens 0, 0, 1, 1, 3; nothing begins at 6."""
    spans = [(0, 2), (2, 5), (5, 5), (5, 6)]
    assert first_tokens(spans, [0, 1, 2, 4, 5, 6]) == [0, 0, 1, 1, 3, 4]


def chain(ids: Sequence[int], origins: Sequence[Origin], parent: Rollout | None = None, fork_at: int = 0) -> Rollout:
    made = Chain(Task("t", "?"), "r", 0, parent=parent, fork_at=fork_at)
    for id, origin in zip(ids, origins):
        made.add([id], origin)
    return made.end("finished")


def test_start_flags_stand_at_the_policys_own_tokens() -> None:
    """A prompt, `a. b`, a tool's word, `. c`: sentences begin at a, at b, and at c; a border inside a token moves to
    its beginning."""
    words: Any = Words("p", "a. ", "b", "tool", ". c", "x. y", "z")
    P, Y, E = Origin.PROMPT, Origin.POLICY, Origin.ENVIRONMENT
    row = chain([0, 1, 2, 3, 4], [P, Y, Y, E, Y])
    assert Pieces("sentence").of(row, words).tolist() == [0, 1, 1, 0, 1]
    straddles = chain([0, 5, 6], [P, Y, Y])  # "x. yz": y begins inside the token of x
    assert Pieces("sentence").of(straddles, words).tolist() == [0, 1, 0]
    fork = chain([2], [Y], parent=row, fork_at=2)  # after the parent's "a. "
    assert Pieces("sentence").of(fork, words).tolist() == [0, 1, 1]
    group = Group("g", Task("t", "?"), (row, straddles))
    world: Any = type("World", (), {"renderer": words})
    told = asyncio.run(Pieces("sentence")(group, world))
    assert [flags.tolist() for flags in told["sentence/start"]] == [[0, 1, 1, 0, 1], [0, 1, 0]]
    assert Pieces("sentence").gives == ("sentence/start",)


def test_flags_and_text_agree_on_a_real_tokenizer() -> None:
    from rlvr.engine.load import load_model
    from rlvr.engine.renderer import Renderer

    nano = load_model("nano")
    renderer = Renderer(nano.tokenizer, nano.stop_ids)
    text = "10,19,34#34"
    ids = [*renderer.response(text)]
    row = chain(ids, [Origin.POLICY] * len(ids))
    wrote = Wrote.of(row, renderer)
    assert wrote.text == text
    flags = Pieces("clause").of(row, renderer)
    shown = ["".join(x) for x in np.split(np.array(renderer.pieces(ids)), np.flatnonzero(flags)[1:])]
    assert [re.sub(r"<.*", "", x) for x in shown] == ["10,", "19,", "34", "#34"]
