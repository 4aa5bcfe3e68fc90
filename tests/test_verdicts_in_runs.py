"""What verifiers do to a real run of the bundled model: hangs, crashes, nan, noise, parts that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlvr.cli import main
from rlvr.loop import Stopped, with_parts
from rlvr.method import Method
from rlvr.methods.grpo import grpo
from rlvr.pack import pack
from rlvr.plan import Running
from rlvr.recipe import load_recipe
from rlvr.records import Chain, Group, Origin, Rollout, Task, Verdict
from rlvr.reward.pays import Part, Pays
from rlvr.run import Run, train
from rlvr.verify.verifier import VerifierBroken

SMALL = ("steps=3", "prompts_per_step=4", "group_size=4", "max_tokens=12", "eval.problems=0", "doctor=false")
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(source: str) -> str:
        (tmp_path / "judge.py").write_text(textwrap.dedent(source))
        return f"{tmp_path / 'judge.py'}:f"

    return write


def run(folder: Path, verifier: str, *sets: str) -> Run:
    chosen = load_recipe("quickstart", [*SMALL, f"verifier={verifier}", *sets])
    return train(chosen, folder, sinks=["jsonl", "parquet"])


def metrics(folder: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# Which of the sixteen answers of a step fail is decided by a count that outlives the process, for some of these end it.
SHAKY = """
    import math, os, time
    from pathlib import Path
    count = Path(__file__).with_suffix(".count")

    def f(answer, gold):
        n = int(count.read_text()) if count.exists() else 0
        count.write_text(str(n + 1))
        if n % 8 == 3:
            {fault}
        return float(n % 2)
"""
FAULTS = {
    "hangs": ("time.sleep(3600)", "timeout"),
    "holds the interpreter": ("__import__('re').match('(a+)+$', 'a' * 60 + '!')", "timeout"),
    "crashes": ("os.kill(os.getpid(), 11)", "verifier_error: its process ended by itself (signal 11)"),
    "exits": ("os._exit(0)", "verifier_error: its process ended by itself (status 0)"),
    "raises": ("raise ValueError('odd')", "verifier_error: ValueError: odd"),
    "returns nan": ("return math.nan", "verifier_error: nan of type float was returned, not a finite number"),
    "returns None": ("return None", "no_verdict"),
    "calls sys.exit": ("raise SystemExit(0)", "verifier_error: SystemExit: 0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_goes_on_with_counted_unknowns(write: Write, tmp_path: Path, fault: str) -> None:
    code, reason = FAULTS[fault]
    done = run(tmp_path / "run", f"{write(SHAKY.format(fault=code))}(seconds=0.5)", "unknown_limit=0.2")
    assert (done.summary["status"], done.summary["steps"]) == ("finished", 3)
    told = metrics(tmp_path / "run")
    assert [m["verdict/unknown"] for m in told] == [2 / 16] * 3
    assert [m["verdict/right"] for m in told] == [6 / 16] * 3  # of eight answers the odd ones but for the fourth
    lost = done.rollouts(verdict="unknown")
    assert len(lost) == 4  # two a step, in the first and the last, which are written
    assert {row.reason for row in lost} == {reason}
    assert all(m["reward/mean"] == pytest.approx(6 / 14) for m in told)  # they leave every mean


def test_a_verifier_that_hangs_for_ever_ends_the_run_long_before_its_step_is_over(write: Write, tmp_path: Path) -> None:
    spec = write("import time\ndef f(answer, gold):\n    time.sleep(3600)\n")
    done = run(tmp_path / "run", f"{spec}(seconds=0.2, most_timeouts=5)", "unknown_limit=1.0")
    status = done.summary["status"]
    assert status.startswith(f"stopped: step 1: {spec} gave no verdict within 0.2 s, 5 times on end")
    assert "`most_timeouts`, now 5" in status
    assert (tmp_path / "run" / "model").is_dir()  # what was learned is kept
    with pytest.raises(VerifierBroken, match="`most_timeouts`, now 5"):  # in the first evaluation nothing was learned
        run(tmp_path / "other", f"{spec}(seconds=0.2, most_timeouts=5)", "unknown_limit=1.0", "eval.problems=2")


def test_what_a_verifier_prints_does_not_flood_the_terminal(write: Write, tmp_path: Path) -> None:
    spec = write("def f(answer, gold):\n    print('looking at', answer)\n    return 1.0\n")
    command = [
        sys.executable,
        "-c",
        "from rlvr.cli import main; main()",
        "train",
        "quickstart",
        "--set",
        f"verifier={spec}",
        "--out",
        "run",
    ]
    command += [x for setting in SMALL for x in ("--set", setting)]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert shown.stdout.count("looking at") == 0
    assert shown.stderr.count("prints: looking at") == 5
    assert shown.stderr.count("its further output is not shown") == 1


# Parts


def group(*parts: Mapping[str, float], known: bool = True) -> Group:
    rows: list[Rollout] = []
    for i in range(len(parts)):
        chain = Chain(Task("t", "p"), f"r{i}", 0)
        chain.add([1, 3], Origin.PROMPT)
        chain.add([4, 2], Origin.POLICY)
        rows.append(chain.end("finished"))
    label = "right" if known else "unknown"
    verdicts = {row.episode: Verdict(label, float(known), parts=p) for row, p in zip(rows, parts)}
    return Group("g", Task("t", "p"), tuple(rows), verdicts)


def weighing(*names: str) -> Running:
    method: Method = grpo()
    return method.plan(8, reward=(Pays(), *(Part(name, 0.5) for name in names))).at({})


def test_a_part_that_only_some_verdicts_have_pays_where_it_is() -> None:
    batch = with_parts(pack([group({"digits": 2.0}, {}, {"digits": -1.0})]), weighing("digits"), 1)
    assert Part("digits")(batch)["digits"].tolist() == [2.0, 0.0, -1.0]
    logp = {name: batch["behavior_logp"].nan_to_num(0.0) for name in ("old_logp", "behavior_logp")}
    assert weighing("digits").credit(batch.with_(logp))["reward"].tolist() == [2.0, 1.0, 0.5]


def test_a_part_that_no_verdict_has_is_misspelt_at_first_and_absent_later() -> None:
    batch = pack([group({"digits": 2.0, "raw": 1.0}, {})])
    with pytest.raises(Stopped, match=r"step 1: no verdict has the part 'digts' .* the verdicts have: digits, raw\."):
        with_parts(batch, weighing("digts"), 1)
    assert Part("digts")(with_parts(batch, weighing("digts"), 2))["digts"].tolist() == [0.0, 0.0]
    with pytest.raises(Stopped, match=r"the part 'a', 'b' .*: no parts"):
        with_parts(pack([group({}, {})]), weighing("a", "b"), 1)
    nothing_known = pack([group({}, {}, known=False)])
    assert Part("a")(with_parts(nothing_known, weighing("a"), 1))["a"].tolist() == [0.0, 0.0]


PARTS = """
    def f(answer, gold):
        told = {"score": answer.endswith("1")}
        return {**told, "digits": 1.0} if "1" in answer else told
"""


def test_runs_with_parts(write: Write, tmp_path: Path) -> None:
    done = run(tmp_path / "run", write(PARTS), "parts.digits=0.5", "prompts_per_step=16")
    assert done.summary["status"] == "finished"
    rows = done.rollouts()
    assert {row.parts.get("digits") for row in rows} == {1.0, None}
    other = run(tmp_path / "other", write(PARTS), "parts.digts=0.5", "prompts_per_step=16")
    assert "no verdict has the part 'digts'" in other.summary["status"]
    assert "the verdicts have: digits, raw" in other.summary["status"]


# Before a run


SOURCES = {
    "good": "def f(answer, gold):\n    return 1.0\n",
    "one parameter": "def f(answer):\n    return 1.0\n",
    "missing module": "import no_such_module_anywhere\n",
    "exits": "import sys\nsys.exit(0)\n",
    "ends at once": "import os\nos._exit(0)\n",
}


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize(
    ("source", "spec", "says"),
    [
        ("good", "{}:g", "has no 'g'"),
        ("good", "{}.missing.py:f", "there is no file"),
        ("good", "{}:f(secs=2)", "did you mean 'seconds'"),
        ("good", "{}:f(seconds=0)", "seconds is the time"),
        ("good", "{}:f(most_timeouts=0)", "most_timeouts is the number"),
        ("one parameter", "{}:f", "write f(answer, gold)"),
        ("one parameter", "last_box(inner='{}:f')", "write f(answer, gold)"),
        ("missing module", "{}:f", "line 1 fails: ModuleNotFoundError"),
        ("exits", "{}:f", "line 2 ends the program"),
        ("ends at once", "{}:f", "its process ended by itself (status 0)"),
        ("good", "code(remote='no-such-command')", "no-such-command cannot be started"),
    ],
)
def test_a_verifier_that_cannot_work_is_said_before_there_is_a_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], source: str, spec: str, says: str, dry: bool
) -> None:
    (tmp_path / "judge.py").write_text(SOURCES[source])
    named = spec.format(tmp_path / "judge.py")
    more = ["--dry-run"] if dry else ["--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as end:
        main(["train", "quickstart", "--set", f"verifier={named}", *more])
    assert end.value.code in (1, 2)
    told = capfd.readouterr().err
    assert says in told
    assert "Traceback" not in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_users_exit_is_not_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where nobody looks for it: in a function that makes tasks, while it runs."""
    file = tmp_path / "mine.py"
    file.write_text("import sys\n\ndef f(n=4, split='train'):\n    sys.exit(0)\n")
    with pytest.raises(SystemExit) as end:
        main(["train", "quickstart", "--set", f"tasks={file}:f", "--out", str(tmp_path / "run")])
    assert end.value.code == 1
    assert "mine.py, line 4 ends the program" in capfd.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
