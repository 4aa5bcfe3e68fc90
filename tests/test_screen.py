"""The live screen and the plain log say what they are told, in the room there is, and model text stays text."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from rlvr.report.screen import Board, ScreenSink, stage_times
from rlvr.report.sink import LineSink, make_sinks, unknown_share
from rlvr.report.store import RowRecord, RunInfo
from rlvr.report.text import clock, number, percent, plain, shares, short, sparkline, visible

EVIL = (
    "[bold red]loud[/] \x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link \x9b2J "
    "\u202egnp\u2066 a\rb\nc\x00 \ue000"
)
METRICS = {
    "reward/mean": 0.412,
    "group/frac_solved": 0.25,
    "group/frac_mixed": 0.5,
    "group/frac_failed": 0.25,
    "verdict/right": 30,
    "verdict/wrong": 60,
    "verdict/unknown": 10,
    "length/mean": 312.4,
    "length/truncated": 0.041,
    "policy/entropy": 1.234,
    "policy/clip_frac": 0.02,
    "sampler/gap": 0.00012,
    "optim/grad_norm": math.nan,
    "perf/tokens_per_s": 12345.0,
    "time/rollout": 6.0,
    "time/update": 3.0,
    "time/verify": 1.0,
    "time/total": 10.0,
}


def row(verdict: str = "right", text: str = "so it is 4", status: str = "finished") -> RowRecord:
    got = None if verdict == "unknown" else text
    told = (
        1,
        "sum" + text,
        "g",
        "r",
        "e",
        "2 + 2? " + text,
        text,
        "4" + text,
        got,
        verdict,
        1.0,
        "equal",
        status,
        "fresh",
        1.0,
        9,
    )
    return RowRecord(*told)


def board(steps: int = 25, text: str = "") -> Board:
    """25 of 100 steps, one every 4 seconds, the last 100 seconds after the start."""
    run = RunInfo(Path("runs/first" + text), "first" + text, "tiny" + text, "grpo" + text, 100, "", 0, started=1000.0)
    out = Board(run, now=1100.0)
    for step in range(1, steps + 1):
        out.add(
            step, METRICS | {"reward/mean": 0.412 * step / 25, "time/" + (text or "rollout"): 6.0}, 1000.0 + 4 * step
        )
    out.examples = {"right": row("right", "yes" + text), "wrong": row("wrong", "no" + text)}
    out.notes = ["saved" + text]
    return out


def printed(shown: Board, width: int, height: int = 24) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, record=True, color_system=None, legacy_windows=False
    )
    console.print(shown)
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 120, 60, 40, 20, 8])
@pytest.mark.parametrize("text", ["", EVIL, "漢字" * 40, "🧑‍🚀 e\u0301" * 30], ids=["calm", "evil", "wide", "joined"])
def test_nothing_wraps_at_any_width(width: int, text: str) -> None:
    assert max(line.cell_len for line in board(text=text).lines(width)) <= width
    lines = printed(board(text=text), width)
    assert len(lines) <= 23
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) == len(board(text=text).lines(width, 23))  # a wrapped line would count twice


def test_one_screen_answers_at_80_columns() -> None:
    lines = printed(board(), 80)
    text = "\n".join(lines)
    for words in (
        "first  tiny · grpo  runs/first",
        "reward      0.412",
        "solved 25%  mixed 50%  failed 25%",
        "no verdict  10%",
        "truncated   4.1%",
        "tokens/s    12.3k",
        "clipped     2.0%",
        "grad norm   –",
        "sampler gap 1.2e-4",
        "█ rollout 60%  ▓ update 30%  ▒ verify 10%",
        "✓ right sumyes: wanted 4yes, got yes (equal, reward 1, 9 tokens)",
        "✗ wrong sumno",
        "note        saved",
    ):
        assert words in text, words


def test_progress_and_time_left_by_hand() -> None:
    """75 steps at 4 s are 5 minutes; the words take 34 of 80 cells, so the bar has 46, of which a quarter is 11."""
    line = printed(board(), 80)[1]
    assert line == "━" * 11 + "─" * 35 + " 25/100  25%  1:40 gone  5:00 left"
    assert math.isnan(board(steps=1).remaining())


def test_model_text_can_neither_paint_nor_move_nor_turn() -> None:
    text = "\n".join(printed(board(text=EVIL), 120))
    assert "[bold red]loud[/] red link gnp a b c" in text  # markup shown as it was written
    assert not [c for c in text if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\ue000")]
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(board(text=EVIL))
    assert "\x1b[31m" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;31mloud" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_low_screen_keeps_the_numbers_and_drops_the_examples() -> None:
    lines = printed(board(), 80, height=14)
    assert len(lines) <= 13
    assert "reward      0.412" in "\n".join(lines)
    assert "✗" not in "\n".join(lines)


def test_a_screen_before_the_first_step() -> None:
    shown = Board(RunInfo(Path("x"), "first", "tiny", "grpo", 0, "", 0, 1000.0), now=1000.0)
    assert "reward      –" in "\n".join(printed(shown, 80))


def test_the_live_screen_starts_and_ends(tmp_path: Path) -> None:
    stream = io.StringIO()
    sink = ScreenSink(stream)
    sink.start(RunInfo(tmp_path, "first", "tiny", "grpo", 3, "", 0, 1000.0))
    sink.groups(1, [row()])
    sink.step(1, METRICS)
    sink.note("saved [red]x[/]")
    sink.end("finished")
    assert "0.412" in stream.getvalue()
    assert "saved [red]x[/]" in stream.getvalue()
    assert "finished after" in stream.getvalue()


def test_without_a_terminal_there_is_one_line_a_step_and_examples_now_and_then() -> None:
    stream = io.StringIO()
    (sink,) = make_sinks(["terminal"], every=2, stream=stream)
    assert isinstance(sink, LineSink)
    sink.start(RunInfo(Path("x"), "first" + EVIL, "tiny", "grpo", 100, "", 0, 1000.0))
    for step in (1, 2):
        sink.groups(step, [row("right", EVIL), row("wrong"), row("wrong", status="truncated"), row("unknown")])
        sink.step(step, METRICS)
    sink.end("stopped")
    lines = stream.getvalue().split("\n")
    assert (
        len(lines) == 1 + 1 + 1 + 9 + 1 + 1
    )  # title, two steps, three examples of three lines, the end, the last newline
    assert lines[1].startswith(
        "step   1/100  reward 0.412  unknown 10%  solved 25%  mixed 50%  failed 25%  length 312  cut 4.1%"
    )
    assert [line[2:9] for line in lines[3:12:3]] == ["✓ right", "✗ wrong", "… trunc"]
    assert not [c for c in stream.getvalue() if c != "\n" and (ord(c) < 32 or c == "\u202e")]


def test_a_log_that_knows_only_ascii_does_not_stop_the_run() -> None:
    raw = io.BytesIO()
    sink = LineSink(io.TextIOWrapper(raw, encoding="ascii"), every=1)
    sink.groups(1, [row(text="漢字")])
    sink.step(1, METRICS)
    assert b"reward 0.412" in raw.getvalue()


def test_a_terminal_gets_the_live_screen() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    kinds = [type(sink).__name__ for sink in make_sinks(stream=Terminal())]
    assert kinds == ["JsonlSink", "ParquetSink", "ScreenSink"]


def test_sparklines_by_hand() -> None:
    assert sparkline(range(8), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([0, math.nan, 1], 10) == "▁ █"
    assert sparkline([3, 3], 5) == "▄▄"
    assert sparkline([0.5], 5, low=0, high=1) == "▅"
    assert sparkline([math.nan, math.inf], 5) == "  "
    assert sparkline([], 5) == sparkline([1], 0) == ""


def test_shares_by_hand() -> None:
    assert shares([1, 1, 1], 10) == [4, 3, 3]
    assert shares([0.5, 0.25, 0.25], 8) == [4, 2, 2]
    assert shares([math.nan, -1, 2], 5) == [0, 0, 5]
    assert shares([0, 0], 5) == [0, 0]


def test_numbers_for_people() -> None:
    assert [number(v) for v in (0, 0.12345, 12.345, 123.4, 9999, -0.5)] == ["0", "0.123", "12.3", "123", "9999", "-0.5"]
    assert [number(v) for v in (12345, 999_499, 1e6, 1.2e-6, math.inf)] == ["12.3k", "999k", "1.0e6", "1.2e-6", "–"]
    assert [percent(v) for v in (0, 0.041, 0.1, 1, math.nan)] == ["0.0%", "4.1%", "10%", "100%", "–"]
    assert [clock(v) for v in (5, 100, 3723, 90000, math.nan)] == ["5s", "1:40", "1:02:03", "1d 01h", "–"]


def test_plain_is_one_harmless_line() -> None:
    assert plain(EVIL) == "[bold red]loud[/] red link gnp a b c"
    assert plain("\x1b]52;c;never ended") == "52;c;never ended"
    assert plain("\x9d" * 200_000) == ""  # in linear time


def test_visible_names_what_it_removes() -> None:
    assert visible("a\r\nb\tc\x1b\u202e\x7f\x85\ud800") == "a\nb\tc␛⟨U+202E⟩␡⟨U+0085⟩⟨U+D800⟩"
    assert visible("👩‍🚀 می‌خواهم") == "👩‍🚀 می‌خواهم"  # joiners belong to the script


def test_short_keeps_both_ends_and_the_width() -> None:
    assert short("a" * 50 + "z" * 50, 13, tail=0.5) == "aaaaa … zzzzz"
    assert short("漢" * 50, 13, tail=0.5) == "漢漢 … 漢漢"
    assert short("  short \n text ", 13) == "short text"


def test_unknown_share_from_counts_or_shares() -> None:
    assert unknown_share({"verdict/right": 3, "verdict/wrong": 5, "verdict/unknown": 2}) == 0.2
    assert unknown_share({"verdict/right": 0.5, "verdict/wrong": 0.5}) == 0
    assert math.isnan(unknown_share({}))


def test_sums_of_stages_are_not_stages() -> None:
    assert list(stage_times(METRICS).items()) == [("rollout", 6.0), ("update", 3.0), ("verify", 1.0)]
