"""A user's own reward function: call shapes, what its values mean, and that it cannot hang or kill the trainer."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr.records import Origin, Rollout, Task, Verdict
from rlvr.verify import function as function_module
from rlvr.verify import worker as worker_module
from rlvr.verify.calls import kind_of
from rlvr.verify.function import Closure, Function
from rlvr.verify.judge import judge
from rlvr.verify.patience import MOST_TIMEOUTS
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import VerifierBroken

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/field_reports.jsonl").read_text("utf-8").splitlines())
}


def tasks(n: int, **meta: Any) -> list[Task]:
    return [Task(f"task{i}", f"What is {i}?", str(i), made_by="toy", meta={"level": i, **meta}) for i in range(n)]


def items(n: int) -> list[tuple[str, Task]]:
    return [(t.answer, t) for t in tasks(n)]


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put source into a file; the path of its function f."""

    def write(source: str, name: str = "reward.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(source))
        return f"{tmp_path / name}:f"

    return write


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def eventually(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


# Cases from the field


def test_an_exception_is_no_verdict_for_that_row_alone() -> None:
    expected = CASES["S01"]["expected"]

    def f(answer: str, gold: str) -> float:
        if gold == "2":
            raise ValueError("row 2 is odd")
        return 0.0 if gold == "3" else 1.0

    verdicts = judge(verifier_from(f), items(4))
    assert [v.label for v in verdicts] == ["right", "right", "unknown", "wrong"]
    assert verdicts[2].reason == "verifier_error: ValueError: row 2 is odd"
    assert "raw" not in verdicts[2].parts  # not zero: nothing
    assert sum(not v.known for v in verdicts) == expected["counter_errors"]


def test_a_call_that_sleeps_for_ever_costs_its_own_item_alone(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    assert CASES["S05"]["expected"]["other_three_scored"]
    spec = write("""
        import time
        def f(answer, gold):
            if gold == "1":
                time.sleep(10**6)
            return answer == gold
    """)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "rlvr.verify"):
        verdicts = judge(Function(spec, seconds=1.0), items(CASES["S05"]["input"]["batch"]))
    assert [(v.label, v.reason) for v in verdicts] == [("right", "above"), ("unknown", "timeout")] + [
        ("right", "above")
    ] * 2
    assert "task1" in caplog.text
    assert "task0" not in caplog.text
    assert time.monotonic() - began < 15


# Call shapes


def test_the_call_shape_is_read_from_parameter_names() -> None:
    assert kind_of(lambda answer, gold: 0) == "answer_gold"
    assert kind_of(lambda a, b, task: 0) == "answer_gold"
    assert kind_of(lambda text, task: 0) == "verifier"
    assert kind_of(lambda prompts, completions, **kw: 0) == "trl"
    assert kind_of(lambda data_source, solution_str, ground_truth, extra_info=None: 0) == "verl"
    for f in (lambda answer: 0, lambda: 0, lambda a, b, c: 0, lambda *args: 0, lambda a, b, *, c: 0):
        with pytest.raises(TypeError, match=r"write .*\(answer, gold\)"):
            kind_of(f)


def test_a_plain_function_sees_answer_gold_and_task() -> None:
    seen = []
    Closure(lambda answer, gold, task: seen.append((answer, gold, task.meta["level"])))("four", tasks(5)[4])
    Closure(lambda text, task: seen.append((text, task.answer)))("four", tasks(5)[4])
    assert seen == [("four", "4", 4), ("four", "4")]


CHAT = Task("chat", ({"role": "user", "content": "Say 1"},), "1", meta={"solution": "one"})


def test_a_trl_function_is_called_once_with_every_column_as_a_list(write: Write) -> None:
    spec = write("""
        calls = 0
        def f(prompts, completions, completion_ids, answer, level, **columns):
            global calls
            calls += 1
            assert calls == 1 and columns["id"] == ["task0", "task1", "task2"], columns
            assert prompts[1] == "What is 1?" and completion_ids == [[], [], []]
            return [1.0, None, 0.0] if level == [0, 1, 2] and completions == answer else None
    """)
    expected = [("right", "above"), ("unknown", "no_verdict"), ("wrong", "not_above")]
    assert [(v.label, v.reason) for v in judge(Function(spec), items(3))] == expected


def test_a_trl_function_gets_messages_for_a_chat_and_the_sampled_ids() -> None:
    seen: dict[str, Any] = {}

    def f(completions: list[Any], **columns: list[Any]) -> list[float]:
        seen.update(columns, completions=completions)
        return [1.0] * len(completions)

    ids, kinds = [7, 8, 9, 10], [Origin.PROMPT, Origin.TEMPLATE, Origin.POLICY, Origin.POLICY]
    turn = np.array([-1, -1, 0, 0], np.int16)
    row = Rollout("r", "chat", "r", "policy", 0, np.array(ids), np.array(kinds), turn, {}, (), text="one")
    judge(verifier_from(f), [(row, CHAT), ("0", tasks(1)[0])])
    assert seen["completions"] == [[{"role": "assistant", "content": "one"}], "0"]
    assert seen["prompts"] == [[{"role": "user", "content": "Say 1"}], "What is 0?"]
    assert seen["completion_ids"] == [[9, 10], []]
    assert seen["solution"] == ["one", None]
    assert seen["level"] == [None, 0]


def test_a_trl_function_that_fails_or_miscounts_gives_no_verdicts() -> None:
    def fails(completions: list[str]) -> list[float]:
        raise RuntimeError("no paper")

    assert [v.reason for v in judge(verifier_from(fails), items(2))] == ["verifier_error: RuntimeError: no paper"] * 2
    short = judge(verifier_from(lambda completions: [1.0]), items(2))
    assert short[0].reason == "verifier_error: ValueError: 1 values were returned for 2 completions"
    scalar = judge(verifier_from(lambda completions: 1.0), items(2))
    assert scalar[1].reason == "verifier_error: TypeError: a list of 2 values was wanted, float was returned"
    asks = judge(verifier_from(lambda completions, colour: [1.0]), items(1))
    assert asks[0].reason.startswith("verifier_error: TypeError: there is no column 'colour'; the tasks have answer, ")


def test_an_async_function_is_waited_for() -> None:
    async def f(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        return [float(c == a) for c, a in zip(completions, answer)]

    assert [v.label for v in judge(verifier_from(f), [*items(2), ("x", tasks(1)[0])])] == ["right", "right", "wrong"]


def test_verls_compute_score_keeps_its_extra_numbers() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> dict[str, Any]:
        assert (data_source, ground_truth, extra_info) == ("gsm8k", "0", {"level": 0, "data_source": "gsm8k"})
        return {"score": -1.0, "acc": False, "length": 12, "pred": "zero", "note": "text", "bad": math.nan}

    verdict = Closure(compute_score)("zero", tasks(1, data_source="gsm8k")[0])
    assert (verdict.label, verdict.score, verdict.extracted) == ("wrong", 0.0, "zero")
    assert verdict.parts == {"raw": -1.0, "acc": 0.0, "length": 12.0}
    assert Closure(lambda solution_str, ground_truth: solution_str == ground_truth)("0", tasks(1)[0]).label == "right"


# What values mean


@pytest.mark.parametrize(
    ("value", "label", "score"),
    [
        (True, "right", 1.0), (False, "wrong", 0.0), (1, "right", 1.0), (0.25, "right", 0.25), (0.0, "wrong", 0.0),
        (7.5, "right", 1.0), (-2, "wrong", 0.0), (np.float32(0.5), "right", 0.5), (np.bool_(True), "right", 1.0),
        (np.array([1.0]), "right", 1.0), ({"score": 0.5}, "right", 0.5), ({"score": True, "x": 3}, "right", 1.0),
    ],
)  # fmt: skip
def test_a_value_above_zero_is_right(value: Any, label: str, score: float) -> None:
    verdict = Closure(lambda answer, gold: value)("x", tasks(1)[0])
    assert (verdict.label, verdict.score) == (label, score)
    assert verdict.parts["raw"] == float(value["score"] if isinstance(value, dict) else np.asarray(value).item())


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "1", [1.0], {"acc": 1}, np.ones(2), 10**400, object(), {"score": "1"}, 1j]
)
def test_a_value_that_is_no_number_is_no_verdict(value: Any) -> None:
    verdict = Closure(lambda answer, gold: value)("x", tasks(1)[0])
    assert verdict.label == "unknown"
    assert verdict.reason.startswith("verifier_error: ")
    assert len(verdict.reason) < 350


def test_none_says_no_verdict() -> None:
    assert Closure(lambda answer, gold: None)("x", tasks(1)[0]).reason == "no_verdict"
    assert Closure(lambda answer, gold: {"score": None})("x", tasks(1)[0]).reason == "no_verdict"


def test_the_border_can_be_moved_and_the_value_stays() -> None:
    for value, label in [(0.3, "wrong"), (0.5, "wrong"), (0.500001, "right")]:
        verdict = Closure(lambda answer, gold, v=value: v, right_above=0.5)("x", tasks(1)[0])
        assert (verdict.label, verdict.score, verdict.parts) == (label, value, {"raw": value})
    for bad in (math.nan, "0"):
        with pytest.raises(ValueError, match="right_above is a number"):
            Closure(lambda answer, gold: 0, right_above=bad)  # type: ignore[arg-type]


def test_a_verdict_passes_as_it_is(write: Write) -> None:
    said = Verdict("wrong", 0.25, "half", "7", {"a": 1.0}, 0.5, "mine")
    assert judge(Closure(lambda answer, gold: said), items(1)) == [said]
    spec = write("""
        from rlvr.records import Verdict
        def f(text, task):
            return Verdict("wrong", 0.25, "half", "7", {"a": 1.0}, 0.5, "mine")
    """)
    assert judge(Function(spec), items(1)) == [said]


# The worker


def test_a_class_is_made_once_and_files_import_their_neighbours(write: Write, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("GOLD = '1'\n")
    spec = write("""
        import neighbour
        class f:
            made = 0
            def __init__(self):
                f.made += 1
            def __call__(self, text, task):
                assert f.made == 1
                return text == neighbour.GOLD
    """)
    assert [v.label for v in judge(Function(spec), items(2))] == ["wrong", "right"]


def test_printing_reading_and_odd_text_leave_the_protocol_alone(
    write: Write, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    spec = write("""
        import os, subprocess, sys
        print("on import", flush=True)
        def f(answer, gold):
            subprocess.run(["echo", "from a child"])
            os.write(1, b'{"ok": []}')
            print("y" * 200_000, flush=True)
            assert sys.stdin.read() == ""
            return answer == gold
    """)
    odd = ["\x00\n\u2028", "\ud800 alone", "𝔸" * 100, ""]
    verdicts = judge(Function(spec), [(text, Task("t", "p", text)) for text in odd])
    assert [v.label for v in verdicts] == ["right"] * 4
    assert capfd.readouterr().out == ""
    assert eventually(lambda: "its further output is not shown" in caplog.text)
    shown = [m.partition(" prints: ")[2] for m in caplog.messages[:5]]
    long = ('{"ok": []}' + "y" * 200)[:200]
    assert shown == ["on import", "from a child", long, "from a child", long]
    assert len(caplog.messages) == 6


def test_megabytes_go_both_ways(write: Write) -> None:
    spec = write("""
        def f(answer, gold):
            return {"score": len(answer) == 10_000_000, "pred": answer}
    """)
    (verdict,) = judge(Function(spec), [("x" * 10_000_000, Task("t", "p", "x"))])
    assert (verdict.label, verdict.extracted) == ("right", "x" * 1000)


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        ("raise SystemExit(0)", "verifier_error: SystemExit: 0"),
        ("sys.exit('bye')", "verifier_error: SystemExit: bye"),
        ("os._exit(0)", "verifier_error: its process ended by itself (status 0)"),
        ("os.kill(os.getpid(), 11)", "verifier_error: its process ended by itself (signal 11)"),
        ("os.close(1); 1 / 0", "verifier_error: ZeroDivisionError: division by zero"),
        ("raise ValueError('x' * 999)", "verifier_error: ValueError: " + "x" * 200),
    ],
)
def test_a_dying_call_costs_its_own_item_alone(write: Write, death: str, reason: str) -> None:
    spec = write(f"""
        import os, sys
        def f(answer, gold):
            if gold == "1":
                {death}
            return answer == gold
    """)
    verdicts = judge(Function(spec), items(3))
    assert [v.label for v in verdicts] == ["right", "unknown", "right"]
    assert verdicts[1].reason == reason


def test_a_function_that_holds_the_interpreter_is_killed_with_its_children(write: Write, tmp_path: Path) -> None:
    spec = write(f"""
        import os, re, subprocess
        def f(answer, gold):
            child = subprocess.Popen(["sleep", "600"])
            open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
            return re.match("(a+)+$", "a" * 5000 + "!")
    """)
    (verdict,) = judge(Function(spec, seconds=1.0), items(1))
    assert verdict.reason == "timeout"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert eventually(lambda: not any(alive(pid) for pid in pids))
    assert not Path(f"/proc/{pids[0]}").exists()  # reaped: no zombie is left


def test_a_timeout_of_a_batch_function_leaves_the_batch_without_verdicts(write: Write) -> None:
    spec = write("""
        import time
        def f(completions, **columns):
            time.sleep(600)
    """)
    assert [v.reason for v in judge(Function(spec, seconds=0.5), items(2))] == ["timeout"] * 2


def test_gold_that_is_no_json_is_the_golds_fault(write: Write) -> None:
    spec = write("def f(answer, gold):\n    return answer == gold\n")
    verdicts = judge(Function(spec), [("1", Task("t", "p", object())), ("1", Task("u", "p", "1"))])
    assert [v.label for v in verdicts] == ["unknown", "right"]
    assert verdicts[0].reason.startswith("bad_gold")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("def f(answer: return 1", r"reward.py, line 1.* not Python"),
        ("def g(answer, gold):\n    return 1", "has no 'f'"),
        ("def f(answer):\n    return 1", r"f\(answer\) cannot be called as a reward function; write f\(answer, gold\)"),
        ("import sys\nsys.exit(0)", "reward.py, line 2 ends the program"),
        ("raise SystemExit(2)", "reward.py, line 1 ends the program"),
        ("import json\n\njson.loads('{')", "reward.py, line 3 fails: JSONDecodeError"),
        ("import os; os._exit(0)", "status 0"),
        ("import os; os._exit(3)", r"status 3"),
    ],
)
def test_a_file_that_cannot_work_stops_the_run_with_a_sentence(
    write: Write, source: str, says: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    verifier = Function(write(source))
    for ask in (verifier.prepare, lambda: judge(verifier, items(1))):
        with pytest.raises(VerifierBroken, match=says) as broken:
            ask()
        assert "\n" not in str(broken.value)
    assert "Traceback" not in capfd.readouterr().err + caplog.text


def test_a_file_that_never_loads_stops_the_run(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "START_SECONDS", 1.0)
    with pytest.raises(VerifierBroken, match="did not load within 1 s"):
        judge(Function(write("while True: pass")), items(1))


def test_one_worker_serves_many_threads(write: Write) -> None:
    verifier = Function(
        write("import os\ndef f(answer, gold):\n    return {'score': answer == gold, 'pid': os.getpid()}\n")
    )
    said: list[Verdict] = []
    threads = [threading.Thread(target=lambda: said.extend(judge(verifier, items(20)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [v.label for v in said] == ["right"] * 80
    assert len({v.parts["pid"] for v in said}) == 1


def test_the_worker_goes_with_its_verifier(write: Write) -> None:
    verifier = Function(write("import os\ndef f(answer, gold):\n    return os.getpid()\n"))
    pid = int(verifier("x", tasks(1)[0]).parts["raw"])
    assert alive(pid)
    del verifier
    assert eventually(lambda: not alive(pid))


TRAINER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from rlvr.records import Task
from rlvr.verify.function import Function
from rlvr.verify.judge import judge
verifier = Function(sys.argv[1], seconds=600.0)
try:
    judge(verifier, [("x", Task("t", "p", "x"))])
except KeyboardInterrupt:
    print("stopped by hand", flush=True)
"""
BUSY = """
    import os
    def f(answer, gold):
        open(__file__ + ".pid", "w").write(str(os.getpid()))
        while True:
            pass
"""


def busy_trainer(spec: str) -> tuple[subprocess.Popen[str], int]:
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, spec], stdout=subprocess.PIPE, text=True)
    note = Path(spec.removesuffix(":f") + ".pid")
    assert eventually(lambda: note.exists() and note.read_text() != "", 20)
    return trainer, int(note.read_text())


def test_ctrl_c_stops_the_trainer_and_the_worker(write: Write) -> None:
    trainer, pid = busy_trainer(write(BUSY))
    trainer.send_signal(signal.SIGINT)
    assert trainer.communicate(timeout=60)[0] == "stopped by hand\n"
    assert eventually(lambda: not alive(pid))


def test_a_busy_worker_does_not_outlive_a_killed_trainer(write: Write) -> None:
    trainer, pid = busy_trainer(write(BUSY))
    trainer.kill()
    trainer.communicate(timeout=60)
    assert eventually(lambda: not alive(pid))


# Patience and noise


def test_a_verifier_that_never_answers_in_time_stops_the_run(write: Write) -> None:
    spec = write("import time\ndef f(answer, gold):\n    time.sleep(60)\n")
    verifier = Function(spec, seconds=0.2, most_timeouts=3)
    assert [v.reason for v in judge(verifier, items(2))] == ["timeout"] * 2
    with pytest.raises(VerifierBroken) as broken:
        judge(verifier, items(5))  # the first of these is the third on end
    sentence = "within 0.2 s, 3 times on end, last on task task0"
    for part in (spec, sentence, "`seconds`, now 0.2", "`most_timeouts`, now 3"):
        assert part in str(broken.value)
    assert Function(spec).most_timeouts == MOST_TIMEOUTS == 20


def test_one_answer_in_between_sets_the_count_of_timeouts_back(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    spec = write("""
        import time
        def f(answer, gold):
            if int(gold) % 3 == 2:
                raise ValueError("odd")  # unknown as well, but no timeout
            time.sleep(60 if int(gold) % 3 else 0)
            return True
    """)
    slow = [item for item in items(24) if int(item[1].answer) % 3 == 1]
    answered = [items(1)[0], items(3)[2]]
    mixed = [x for i in range(8) for x in (slow[i], answered[i % 2])]
    found = judge(Function(spec, seconds=0.3, most_timeouts=2), mixed)
    assert [v.reason == "timeout" for v in found] == [True, False] * 8
    assert sum("took over 0.3 s" in m for m in caplog.messages) == 5  # then it is only counted
    assert sum("further failures" in m for m in caplog.messages) == 1


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_patience_is_a_number(write: Write, most: Any) -> None:
    with pytest.raises(ValueError, match="most_timeouts is the number"):
        Function(write("def f(answer, gold): return 1"), most_timeouts=most)


def test_a_search_that_never_ends_stops_the_run_too() -> None:
    verifier = verifier_from("regex(pattern='(?:a+)+(b)', seconds=0.3, most_timeouts=2)")
    endless = ("a" * 60, tasks(1)[0])
    assert [v.reason for v in judge(verifier, [endless, ("aab", Task("t", "p", "b")), endless])] == [
        "timeout", "equal", "timeout",
    ]  # fmt: skip
    with pytest.raises(VerifierBroken, match=r"regex '\(\?:a\+\)\+\(b\)' gave no verdict within 0.3 s, 2 times on end"):
        judge(verifier, [endless])


def test_prints_of_this_process_are_heard_once(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def loud(answer: str, gold: str) -> bool:
        print("judging", answer, end="\n\n")
        return answer == gold

    class Loud:
        fingerprint = "loud()"

        def __call__(self, text: str, task: Task) -> Verdict:
            print("text", text)
            return Verdict("right", 1.0)

    for verifier in (Closure(loud), Loud()):
        caplog.clear()
        for _ in range(3):
            assert [v.label for v in judge(verifier, items(100))] == ["right"] * 100
        assert [m.partition(" prints: ")[2][-1:] for m in caplog.messages[:5]] == ["0", "1", "2", "3", "4"]
        assert len(caplog.messages) == 6
    print("mine again")
    assert capsys.readouterr().out == "mine again\n"


def test_threads_that_judge_at_once_give_standard_output_back() -> None:
    def slow(answer: str, gold: str) -> bool:
        print("x")
        time.sleep(0.005)
        return True

    threads = [threading.Thread(target=lambda: judge(Closure(slow), items(10))) for _ in range(6)]
    out = sys.stdout
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is out


def test_failures_of_one_kind_are_shown_five_times(caplog: pytest.LogCaptureFixture) -> None:
    class Fails:
        fingerprint = "fails()"

        def __call__(self, text: str, task: Task) -> Verdict:
            raise (KeyError if int(text) % 2 else ValueError)(text)

    assert [v.label for v in judge(Fails(), items(100))] == ["unknown"] * 100
    assert sum("ValueError" in m for m in caplog.messages) == sum("KeyError" in m for m in caplog.messages) == 5


# Closures


def test_a_closure_that_overstays_is_given_up_and_the_eighth_stops_the_run(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    def patient(answer: str, gold: str) -> bool:
        return answer == "quick" or release.wait(60)

    verifier = Closure(patient, seconds=0.05)
    slow = [("slow", task) for task in tasks(7)]
    verdicts = judge(verifier, [*slow, ("quick", tasks(1)[0])])
    assert [v.reason for v in verdicts] == ["timeout"] * 7 + ["above"]
    assert "task4" in caplog.text
    assert "task6" not in caplog.text  # five are enough to see what it is
    with pytest.raises(RuntimeError, match=r"overstayed its 0\.05 s 8 times, last on task task0; .*path\.py:function"):
        judge(verifier, [("slow", tasks(1)[0])])
    release.set()
    assert function_module.MOST_OVERSTAYS == 8


def test_a_closures_system_exit_is_no_verdict() -> None:
    assert Closure(lambda answer, gold: sys.exit(1))("x", tasks(1)[0]).reason == "verifier_error: SystemExit: 1"


def test_ctrl_c_interrupts_a_closure() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        interrupted_closure()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted_closure() -> None:
    def slow(answer: str, gold: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        judge(Closure(slow), items(1))
    assert time.monotonic() - began < 3


def test_fingerprints_follow_settings_and_code(write: Write) -> None:
    a, b = Closure(lambda answer, gold: answer == gold), Closure(lambda answer, gold: answer != gold)
    assert a.fingerprint != b.fingerprint
    assert a.fingerprint != Closure(a.function, right_above=0.5).fingerprint
    one = Function(write("def f(answer, gold):\n    return 1\n"))
    two = Function(write("def f(answer, gold):\n    return 2\n"))
    assert one.path == two.path
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "10"])
def test_a_deadline_is_a_time(seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds is the time"):
        Closure(lambda answer, gold: 1, seconds=seconds)
