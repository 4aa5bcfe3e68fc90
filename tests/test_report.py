"""A run's folder can be read by people and programs, and hostile model text stays text wherever it is shown."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rlvr import registry
from rlvr.report import embed, summary
from rlvr.report.compare import late, write_comparison
from rlvr.report.html import write_report
from rlvr.report.plot import plot
from rlvr.report.sides import distinct
from rlvr.report.sink import JsonlSink, ParquetSink
from rlvr.report.store import RowRecord, RunInfo, columns, read_rows, read_run, rollout_files
from rlvr.report.svg import Chart, Series, draw, smooth, thin, ticks
from rlvr.report.text import visible

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'>&lt;<!--\u2028\u202e\x1b[31m{{ 7 * 7 }}\ud800"


def info(folder: Path, **changes: object) -> RunInfo:
    run = RunInfo(folder, "first try", "tiny", "grpo,dapo", 20, "slot  piece\nloss  clipped", 7, 1000.0)
    return replace(run, **changes)  # type: ignore[arg-type]


def row(step: int = 1, **changes: object) -> RowRecord:
    told = RowRecord(
        step=step,
        task="sum-1",
        group="g0",
        rollout="r0",
        episode="e0",
        prompt="2 + 2?",
        response="so 4",
        answer="4",
        extracted="4",
        verdict="right",
        score=1.0,
        reason="equal",
        status="finished",
        source="fresh",
        reward=1.0,
        length=3,
        parts={"format": 0.5},
        pieces=["so", " ", "4"],
        token_ids=[5, 6, 7],
        streams={"advantage": np.array([0.5, math.nan, -2.0]), "entropy": np.array([0.1, 0.2, 0.3])},
    )
    return replace(told, **changes)  # type: ignore[arg-type]


def make_run(folder: Path, steps: int, evil: str = "", ended: bool = True) -> Path:
    run = info(folder, title="try" + evil, model="m" + evil, method="grpo" + evil, plan="loss" + evil)
    sinks = [JsonlSink(), ParquetSink()]
    for sink in sinks:
        sink.start(run)
        for step in range(1, steps + 1):
            rows = [
                row(
                    step,
                    rollout=f"r{i}{evil}",
                    task=f"t{evil}",
                    prompt="p" + evil,
                    response=f"so{evil} 4",
                    answer="4" + evil,
                )
                for i in range(2)
            ]
            rows = [
                replace(r, pieces=["so" + evil, " ", "4"], extracted=evil or "4", reason="equal" + evil) for r in rows
            ]
            sink.groups(step, [replace(r, parts={"format" + evil: 1.0}) for r in rows])
            told = {
                "reward/mean": step / steps,
                f"reward/format{evil}/mean": 0.5,
                "sampler/gap": 0.0,
                f"odd{evil}": 1.0,
            }
            sink.step(step, told | {"optim/grad_norm": math.nan if step == 2 else 1.0, "group/frac_mixed": 0.5})
        sink.note("saved" + evil)
        if ended:
            sink.end("finished")
    (folder / "recipe.toml").write_text(f'model = "m" # {visible(evil)}', encoding="utf-8")
    return folder


class Page(HTMLParser):
    """Counts elements and collects attributes and script texts, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words = ""
        self._script: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self._script = dict(attrs) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts.append((self._script, data))
        self.words += data

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    @property
    def data(self) -> dict:
        return json.loads(next(text for attrs, text in self.scripts if attrs.get("id") == "data"))


def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_metrics_are_one_object_a_line_and_never_hold_nan(tmp_path: Path) -> None:
    sink = JsonlSink()
    sink.start(info(tmp_path))
    sink.step(1, {"reward/mean": np.float32(0.5), "optim/grad_norm": math.inf, "loss/policy": math.nan})
    text = (tmp_path / "metrics.jsonl").read_text()  # flushed: the run is still going

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    line = json.loads(text, parse_constant=refuse)
    assert (line["step"], line["reward/mean"], line["optim/grad_norm"], line["loss/policy"]) == (1, 0.5, None, None)
    run = read_run(tmp_path)
    assert run.nulls == {"optim/grad_norm": (1,), "loss/policy": (1,)}
    assert math.isnan(run.get("loss/policy")[0])
    assert run.status is None
    assert run.start["seed"] == 7


def test_a_resumed_run_writes_each_step_once(tmp_path: Path) -> None:
    for told in ([1, 2, 3, 4], [3, 4, 5]):  # the second session resumes from a checkpoint after step 2
        sinks = [JsonlSink(), ParquetSink()]
        for sink in sinks:
            sink.start(info(tmp_path))
            for step in told:
                sink.step(step, {"reward/mean": step * len(told)})
                sink.groups(step, [row(step)])
            if told[0] == 1:
                with (tmp_path / "metrics.jsonl").open("a") as file:
                    file.write('{"step": 5, "rew')  # killed while writing
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]
    run = read_run(tmp_path)
    assert run.get("reward/mean").tolist() == [4, 8, 9, 12, 15]
    assert run.skipped == 0
    assert list(rollout_files(tmp_path)) == [1, 2, 3, 4, 5]


def test_rollout_files_of_a_dropped_future_go_when_the_run_resumes(tmp_path: Path) -> None:
    for told in ([1, 2, 3, 4], [2]):
        sink = ParquetSink()
        sink.start(info(tmp_path))
        for step in told:
            sink.groups(step, [row(step)])
    assert list(rollout_files(tmp_path)) == [1, 2]
    assert [p.name for p in sorted((tmp_path / "rollouts").iterdir())] == ["step-00001.parquet", "step-00002.parquet"]


def test_parquet_has_readable_columns_beside_aligned_streams(tmp_path: Path) -> None:
    sink = ParquetSink()
    sink.start(info(tmp_path))
    bare = row(3, rollout="r1", pieces=None, token_ids=None, streams={}, parts={}, reward=None, extracted=None)
    sink.groups(3, [row(3), bare, row(3, rollout="r2", parts={"rubric": 2.0})])
    table = pq.read_table(tmp_path / "rollouts" / "step-00003.parquet").to_pydict()
    assert table["prompt"] == ["2 + 2?"] * 3
    assert table["part/format"] == [0.5, None, None]
    assert table["part/rubric"] == [None, None, 2.0]
    assert table["token/piece"] == [["so", " ", "4"], None, ["so", " ", "4"]]
    assert table["token/id"] == [[5, 6, 7], None, [5, 6, 7]]
    assert table["token/advantage"][0][::2] == [0.5, -2.0]
    assert math.isnan(table["token/advantage"][0][1])
    assert (table["reward"], table["extracted"]) == ([1.0, None, 1.0], ["4", None, "4"])
    first, second, third = read_rows(tmp_path / "rollouts" / "step-00003.parquet")
    assert first.streams["entropy"] == pytest.approx([0.1, 0.2, 0.3])
    assert (second.pieces, second.token_ids, dict(second.streams), dict(second.parts)) == (None, None, {}, {})
    assert (third.rollout, dict(third.parts), list(third.token_ids)) == ("r2", {"rubric": 2.0}, [5, 6, 7])


def test_a_stream_of_the_wrong_length_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'r0': entropy has 2 values for 3 tokens"):
        row(streams={"entropy": np.zeros(2)})


def test_columns_sort_steps_and_keep_the_last_telling() -> None:
    steps, series = columns([{"step": 2, "a": 1}, {"step": 1, "b": None}, {"step": 2, "a": 3}])
    assert steps.tolist() == [1, 2]
    assert math.isnan(series["a"][0])
    assert series["a"][1] == 3


def test_sinks_have_names_and_the_report_needs_no_torch() -> None:
    assert {"jsonl", "parquet", "line", "screen"} <= set(registry.names("sink"))
    assert registry.get("sink", "jsonl") is JsonlSink
    code = "import sys\nfrom rlvr.report import html, compare, plot, screen\nprint('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_hostile_text_adds_no_element_and_no_script(tmp_path: Path) -> None:
    extras = {
        "eval.json": {"before": {"set": {"mean@8": [0.1, 0.0, 0.2]}}, "after": {"set": {"mean@8": [0.5, 0.4, 0.6]}}},
        "solved.json": {
            "prompt": "p",
            "answer": "4",
            "before": {"text": "3", "extracted": None},
            "after": {"text": "4"},
        },
    }
    pages = []
    for name, evil in (("calm", ""), ("evil", EVIL)):
        folder = make_run(tmp_path / name, 3, evil)
        for file, value in extras.items():
            text = json.dumps(value).replace('"p"', json.dumps("p" + evil)).replace('"4"', json.dumps("4" + evil))
            (folder / file).write_text(text.replace('"set"', json.dumps("set" + evil)))
        pages.append(page_of(write_report(folder)))
    calm, evil_page = pages
    assert evil_page.tags == calm.tags
    assert evil_page.tags["img"] == 0
    assert not [name for name, _ in evil_page.attributes if name.startswith("on")]
    assert not [value for name, value in evil_page.attributes if name in ("src", "href") and value != "#main"]
    assert len(evil_page.scripts) == 3
    assert "alert(1)" in evil_page.words  # shown, not run
    assert "{{ 7 * 7 }}" in evil_page.words
    assert "\u202e" not in (tmp_path / "evil" / "report.html").read_text(encoding="utf-8")


def test_the_page_lets_only_its_own_scripts_run_and_fetches_nothing(tmp_path: Path) -> None:
    page = page_of(write_report(make_run(tmp_path, 2)))
    policy = next(v for k, v in page.attributes if k == "content" and v and "default-src" in v)
    assert "default-src 'none'" in policy
    for attrs, text in page.scripts:
        if "type" not in attrs:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_the_island_gives_back_exactly_what_went_in() -> None:
    value = {"a": ["</script>", "<!--", "&amp;", "\u2028\u2029", "\\u003c", "你好"], "b": None, "c": 0.25}
    text = str(embed.island(value))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_the_page_holds_groups_rows_and_tokens(tmp_path: Path) -> None:
    data = page_of(write_report(make_run(tmp_path, 3))).data["rollouts"]
    assert [step["step"] for step in data["steps"]] == [1, 2, 3]
    group = data["steps"][0]["groups"][0]
    assert (group["kind"], group["prompt"], group["answer"], len(group["rows"])) == ("solved", "p", "4", 2)
    told = group["rows"][0]
    three = np.frombuffer(base64.b64decode(told["tokens"]), np.uint8).reshape(-1, 3)
    where = three[:, 0] + 256 * three[:, 1].astype(int)
    assert [data["vocabulary"][i] for i in where] == [[5, "so"], [6, " "], [7, "4"]]
    advantage = embed.unpack(told["streams"]["advantage"], 3)
    assert advantage[[0, 2]].tolist() == [0.5, -2.0]
    assert math.isnan(advantage[1])


@pytest.mark.parametrize("steps", [0, 1, 2, 13])
@pytest.mark.parametrize("ended", [True, False])
def test_a_page_can_be_made_at_any_time(tmp_path: Path, steps: int, ended: bool) -> None:
    folder = make_run(tmp_path, steps, ended=ended)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 14, "reward/me')
    page = page_of(write_report(folder, tmp_path / "other.html"))
    assert len(page.data["rollouts"]["steps"]) == min(steps, 8)
    assert ("Finished" in page.words) == ended
    assert "could not be read" not in page.words  # a line that is being written is no fault
    if steps == 0 and not ended:
        assert "No step has been recorded yet" in page.words
    if steps >= 2:
        assert "optim/grad_norm was not a finite number in 1 step, first in step 2" in page.words


def test_a_page_needs_metrics_or_rollouts_or_a_recipe_and_not_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        write_report(tmp_path)
    (tmp_path / "recipe.toml").write_text('model = "tiny"\nmethod = "grpo"')
    assert "tiny" in page_of(write_report(tmp_path)).words
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-00001.parquet").write_bytes(b"half a file")
    (tmp_path / "eval.json").write_text("[")
    words = page_of(write_report(tmp_path)).words
    assert "step-00001.parquet could not be read" in words
    assert "eval.json is not JSON" in words


def test_a_page_is_bounded_in_steps_groups_and_tokens(tmp_path: Path) -> None:
    sink = ParquetSink()
    sink.start(info(tmp_path))
    for step in range(1, 12):
        sink.groups(step, [row(step, group=f"g{i}", rollout=f"r{i}") for i in range(50)])
    told = embed.rollouts(tmp_path, tokens=8 * 3 * 10)  # 10 rows of 3 tokens in each of 8 steps
    assert [s["step"] for s in told["steps"]] == [1, 2, 4, 5, 7, 8, 10, 11]
    assert told["files"] == 11
    for step in told["steps"]:
        rows = [r for g in step["groups"] for r in g["rows"]]
        assert (len(step["groups"]), step["of"], sum("tokens" in r for r in rows)) == (40, 50, 10)
        assert all("text" in r for r in rows if "tokens" not in r)


def test_packed_streams_keep_four_digits_and_what_is_missing() -> None:
    values = np.array([0.0, -1.5, math.pi, 1e-7, -2.5e8, math.nan, math.inf], np.float32)
    back = embed.unpack(embed.pack(values), len(values))
    assert back[:5] == pytest.approx(values[:5].astype(float), rel=2**-16)  # 15 bits after the point, rounded
    many = np.geomspace(1e-30, 1e30, 999)
    assert embed.unpack(embed.pack(many), 999) == pytest.approx(many, rel=2**-15.9)
    assert np.isnan(back[5:]).all()
    assert embed.pack(np.full(4, 0.25)) == 0.25
    assert embed.pack(np.full(4, math.nan)) is None


def test_a_group_is_mixed_only_by_known_verdicts() -> None:
    rows = [row(verdict=v) for v in ("right", "wrong", "unknown")]
    assert embed.kind_of(rows) == "mixed"
    assert embed.kind_of(rows[::2]) == "solved"
    assert embed.kind_of(rows[1:]) == "failed"
    assert embed.kind_of(rows[2:]) == "unknown"


def test_a_change_is_told_with_its_error() -> None:
    y = np.array([0, 1, 2] * 10 + [10, 11, 12] * 10, float)  # ends: six values of mean 1 and 11, sample variance 0.8
    moved = summary.change(y)
    assert moved is not None
    assert (moved.first, moved.last, moved.window) == (1, 11, 6)
    assert moved.error == pytest.approx(math.sqrt(2 * 0.8 / 6))
    assert summary.change(np.array([math.nan])) is None


def test_an_evaluation_is_better_only_when_intervals_lie_apart() -> None:
    told = {
        "before": {"s": {"mean@8": [0.2, 0.1, 0.3]}},
        "after": {"s": {"mean@8": [0.4, 0.31, 0.5], "pass@8": [1, 1, 1]}},
    }
    first, second = summary.evaluations(told)
    assert first.words.startswith("better")
    assert (second.before, second.words) == (None, "measured once")
    overlapping = summary.Evaluation("s", "mean@8", (0.2, 0.1, 0.3), (0.4, 0.3, 0.5))
    assert overlapping.words.startswith("not told apart")


def test_a_reader_is_warned_of_missing_verdicts(tmp_path: Path) -> None:
    sink = JsonlSink()
    sink.start(info(tmp_path))
    for step in range(1, 9):
        sink.step(step, {"verdict/right": 5, "verdict/wrong": 4, "verdict/unknown": 1, "group/frac_mixed": 0.04})
    warned = " ".join(summary.cautions(read_run(tmp_path)))
    assert "10% of late episodes had no verdict" in warned
    assert "Only 4.0% of late groups were mixed" in warned


def test_smoothing_leaves_a_straight_line_and_skips_gaps() -> None:
    y = np.arange(40.0)
    y[20] = math.nan
    curve = smooth(y)
    assert curve is not None
    assert curve[5:15] == pytest.approx(y[5:15])
    assert curve[20] == pytest.approx(20)
    assert smooth(np.zeros(11)) is None


def test_thinning_averages_neighbours() -> None:
    got = thin(Series("a", np.arange(6), np.array([0, 2, math.nan, 4, math.nan, math.nan])), 3)
    assert got.y[:2].tolist() == [1, 4]
    assert math.isnan(got.y[2])


def test_one_spike_does_not_flatten_a_chart() -> None:
    y = np.tile([1.0, 2.0], 50)
    y[7] = 1e6
    marks = [e.text for e in ET.fromstring(draw(Chart("norm", (Series("norm", np.arange(100), y),)))).iter() if e.text]
    assert {"1", "2"} <= set(marks)
    assert not [m for m in marks if "k" in m or "e" in m]


def test_ticks_are_round() -> None:
    assert ticks(0, 1) == [0, 0.5, 1]
    assert ticks(0.013, 0.047) == [0.02, 0.03, 0.04]
    assert ticks(0, 400) == [0, 100, 200, 300, 400]


def test_a_chart_puts_values_where_they_belong() -> None:
    """Two points, 0 at step 0 and 1 at step 10, in a stack: the frame is 44..372 wide and 8..146 high."""
    series = Series("solved", np.array([0, 10]), np.array([0.0, 1.0]))
    svg = draw(Chart("Groups", (series,), kind="stack", form="percent"))
    path = next(e for e in ET.fromstring(svg).iter() if e.tag.endswith("path"))
    assert path.attrib["d"] == "M44.0 146.0L372.0 8.0L372.0 146.0L44.0 146.0Z"


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.nan], [0.0, 0.0], [-1e300, 1e300], [1e-12, math.inf]])
@pytest.mark.parametrize("log", [True, False])
def test_every_chart_is_well_formed(values: list[float], log: bool) -> None:
    svg = draw(Chart("a < b & c", (Series(EVIL, np.arange(len(values)), np.array(values, float)),), log=log))
    root = ET.fromstring(svg)
    assert not any(word in svg for word in ("nan", "inf "))
    assert root.attrib["aria-label"].startswith("a < b & c")


def test_a_plot_is_one_svg_from_a_folder_or_from_records(tmp_path: Path) -> None:
    records = [{"step": i, "reward/mean": i / 10, "mine": -i} for i in range(10)]
    picture = plot(records, ["mine"])
    assert ET.fromstring(picture._repr_html_()).tag.endswith("svg")
    assert "mine" in picture.svg
    assert "Mean reward" in plot(make_run(tmp_path, 3)).svg
    with pytest.raises(KeyError, match="no metric 'yours' was recorded; there are: mine, reward/mean"):
        plot(records, ["yours"])
    with pytest.raises(ValueError, match="no finite metric"):
        plot([])


def test_late_means_by_hand() -> None:
    mean, error = late(np.array([9, 9, 9, 9, 9, 9, 1, 3], float))
    assert (mean, error) == (2, pytest.approx(1))  # sample deviation sqrt(2) over the root of two values


def test_a_comparison_overlays_runs_and_tells_the_difference(tmp_path: Path) -> None:
    for name, level in (("one", 0.2), ("two", 0.7)):
        sink = JsonlSink()
        sink.start(info(tmp_path / name))
        for step in range(1, 9):
            sink.step(step, {"reward/mean": level + 0.01 * (step % 2)})
    page = page_of(write_comparison([tmp_path / "one", tmp_path / "two"], tmp_path / "both.html"))
    assert [len(c["series"]) for c in page.data["charts"]] == [2]
    assert "+0.5" in page.words
    assert distinct([Path("/a/x/run"), Path("/a/y/run")]) == ["x/run", "y/run"]
    with pytest.raises(ValueError, match="2 to 6 runs, got 1"):
        write_comparison([tmp_path / "one"], tmp_path / "both.html")
