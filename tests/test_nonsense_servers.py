"""Servers that answer nonsense during whole runs, as judge, as verifier and as teacher: the run goes on, and what was
not answered is counted and teaches nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlvr.cli import main
from rlvr.engine.teacher import ServedTeacher, TeacherBroken
from rlvr.evaluate.unknown import no_verdict
from rlvr.judges.judge import JudgeBroken
from rlvr.judges.models import PROBE, ServedJudge
from rlvr.recipe import RecipeError, load_recipe
from rlvr.records import Task
from rlvr.run import Run, train
from rlvr.server import LONGEST_PAUSE, Server, ServerAbsent, ServerFailed, ServerRefuses, Threads, retried
from rlvr.verify.llm_judge import Endpoint, LlmJudge
from rlvr.verify.verifier import VerifierBroken

SMALL = ("steps=3", "prompts_per_step=4", "group_size=4", "max_tokens=12", "eval.problems=0", "doctor=false")
MEBIBYTE = b" " * (1 << 20)


def answered(question: dict[str, Any], logp: Any = -0.5, content: Any = None) -> bytes:
    """A good reply: every token has this log-prob, or the judge finds no fault."""
    if "prompt" in question:
        told = [None, *[logp] * len(question["prompt"])]
        return json.dumps({"choices": [{"text": None, "logprobs": {"token_logprobs": told}}]}).encode()
    verdict = '{"verdict": "right", "reason": "so"}'
    steps = '{"first_mistake": null}'
    said = content or (steps if "first_mistake" in question["messages"][0]["content"] else verdict)
    return json.dumps({"choices": [{"message": {"content": said}}]}).encode()


def framed(body: bytes, status: str = "200 OK", length: int | None = None, *headers: str) -> bytes:
    lines = [f"HTTP/1.0 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def fifty_megabytes() -> Iterator[bytes]:
    yield framed(b"", length=50 << 20)
    yield from [MEBIBYTE] * 50


def drip() -> Iterator[bytes]:
    yield framed(b"", length=100)
    for _ in range(100):
        time.sleep(0.05)
        yield b" "


# Each is what a question gets to hear.
NONSENSE: dict[str, Callable[[dict[str, Any]], bytes | Iterator[bytes]]] = {
    "500": lambda q: framed(b"oops", "500 Oops"),
    "a status in colours": lambda q: framed(b"", "503 \x1b[31m\xff"),
    "400": lambda q: framed(b"{}", "400 Too long"),
    "html": lambda q: framed(b"<html>Bad gateway</html>", "200 OK", None, "Content-Type: text/html"),
    "half": lambda q: framed(answered(q)[:-9]),
    "less than was said": lambda q: framed(answered(q)[:-3], length=len(answered(q))),
    "no choices": lambda q: framed(b'{"choices": []}'),
    "null": lambda q: framed(b'{"choices": [{"message": {"content": null}, "text": "", "logprobs": null}]}'),
    "no utf-8": lambda q: framed(b'{"choices": "\xff\xfe"}'),
    "half a letter": lambda q: framed(answered(q, "\ud800", '"\ud800 \x1b[31m"')),
    "nested for ever": lambda q: framed(b"[" * 200_000),
    "an endless number": lambda q: framed(answered(q, -(10**400), "1" * 400)),
    "nan": lambda q: framed(answered(q, math.nan, '{"first_mistake": NaN}')),
    "infinite": lambda q: framed(answered(q, math.inf, '{"verdict": Infinity, "reason": ""}')),
    "other numbers of tokens": lambda q: framed(answered({**q, "prompt": [1, 2]} if "prompt" in q else q, -0.5, "{}")),
    "50 MB": lambda q: fifty_megabytes(),
    "no end of headers": lambda q: b"HTTP/1.0 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "a redirect to itself": lambda q: framed(b"", "302 Found", None, "Location: /v1/completions"),
    "no http": lambda q: b"hello\r\n\r\n",
    "nothing": lambda q: b"",
    "drips": lambda q: drip(),
    "hangs": lambda q: iter([]),
}


class Nonsense:
    """Answers its first question, and of the others every second one; the rest hears all of NONSENSE in turn."""

    def __init__(self) -> None:
        self.n, self.bad, lock = 0, 0, threading.Lock()
        self.over = threading.Event()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    served.n += 1
                    kind = None if served.n % 2 else list(NONSENSE)[served.bad % len(NONSENSE)]
                    served.bad += kind is not None
                if kind is None:  # another type of content is no fault
                    said: Any = framed(answered(question), "200 OK", None, "Content-Type: text/plain; charset=klingon")
                else:
                    said = NONSENSE[kind](question)
                for piece in [said] if isinstance(said, bytes) else said:
                    self.wfile.write(piece)
                    self.wfile.flush()
                if kind == "hangs":
                    served.over.wait(60)

            def log_message(self, *args: Any) -> None:
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *args: Any) -> None:
                pass  # a client that listens no longer

        self.http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nonsense]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    served = Nonsense()
    thread = threading.Thread(target=lambda: served.http.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield served
    served.over.set()
    served.http.shutdown()
    served.http.server_close()
    thread.join()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that takes every connection and says nothing."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def run(folder: Path, *sets: str) -> tuple[Run, list[dict[str, Any]]]:
    done = train(load_recipe("quickstart", [*SMALL, *sets]), folder, sinks=["jsonl", "parquet"])
    return done, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def where(role: str, url: str) -> list[str]:
    return [f"{role}.model=m", f"{role}.url={url}", f"{role}.seconds=0.5", f"{role}.retries=0"]


# ---- whole runs ----------------------------------------------------------------------------------------------
def test_a_verifier_that_hears_nonsense_counts_unknowns_and_pays_nothing_for_them(
    server: Nonsense, tmp_path: Path
) -> None:
    """48 answers; the server finds every answer right to which it says anything of sense. Empty ones are not asked."""
    named = f"llm_judge(url='{server.url}', model='m', seconds=0.5, retries=0)"
    done, told = run(tmp_path / "run", f"verifier={named}", "unknown_limit=1.0")
    assert done.summary["status"].startswith("finished")
    assert 48 >= server.n >= 2 * len(NONSENSE)
    count = {label: sum(16 * m[f"verdict/{label}"] for m in told) for label in ("right", "wrong", "unknown")}
    assert count == {"right": server.n - server.bad, "wrong": 48 - server.n, "unknown": server.bad}
    for m in told:  # an unknown is not a zero
        assert m["reward/mean"] == pytest.approx(m["verdict/right"] / (1 - m["verdict/unknown"]))


def test_a_judge_that_hears_nonsense_is_counted(server: Nonsense, tmp_path: Path) -> None:
    done, told = run(tmp_path / "run", "method=cliff", *where("judge", server.url), "judge.failed_limit=1.0")
    assert done.summary["status"].startswith("finished")
    assert sum(m["judge/calls"] for m in told) == server.n - 1  # one at the start
    assert all(0 < m["judge/failed"] < 1 for m in told)


def test_a_teacher_that_hears_nonsense_is_unknown_row_by_row(server: Nonsense, tmp_path: Path) -> None:
    done, told = run(tmp_path / "run", "method=opdvr", *where("teacher", server.url), "unknown_limit=1.0")
    assert done.summary["status"].startswith("finished")
    assert server.bad >= len(NONSENSE)
    assert sum(16 * m["teacher/unknown"] for m in told) == server.bad


def test_without_a_limit_of_ones_own_nonsense_ends_the_run_in_a_sentence(server: Nonsense, tmp_path: Path) -> None:
    done = train(load_recipe("quickstart", [*SMALL, "method=opdvr", *where("teacher", server.url)]), tmp_path / "run")
    assert "step 1: the teacher m" in done.summary["status"]
    assert "no word on 8 of the last 16 rows" in done.summary["status"]


# ---- numbers and words ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [-(10**400), 10**400])
def test_an_integer_beyond_all_floats_is_no_log_prob(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    top = [None, {"token_id:3": n}, {"token_id:4": -1.0}]
    for told, named in (([None, n, -1.0], []), ([None, -1.0, -1.0], top)):
        reply = {"choices": [{"text": "", "logprobs": {"token_logprobs": told, "top_logprobs": named}}]}
        said = json.dumps(reply).encode()
        monkeypatch.setattr(Server, "post", lambda *args, said=said: said)
        teacher = ServedTeacher("m", Server("http://x/v1", "K", 5.0), retries=0, unknown_limit=1.0)
        assert teacher.told([[1, 2, 3]], 1 if named else 0) == [None]


def test_what_a_server_wrote_into_a_reason_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"errors": 2, "samples": 4, "reasons": {"judge_error: \ud800\x1b[31mno": 1, "timeout": 1}}
    assert no_verdict(told) == "2 of 4 answers had no verdict: judge_error: no (1); timeout (1)"


def test_an_error_cannot_repaint_the_terminal(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def post(*args: Any) -> bytes:
        raise ServerFailed("the server said 500 \x1b[2J")

    monkeypatch.setattr(Server, "post", post)
    sets = [x for s in (*SMALL, "method=cliff", *where("judge", silent)) for x in ("--set", s)]
    with pytest.raises(SystemExit):
        main(["train", "quickstart", *sets, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert "does not judge: the server said 500 ␛[2J" in said
    assert "\x1b" not in said


# ---- keys and addresses --------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["s3c\nret", "s3c ret", "s3cret…"])
def test_a_key_that_no_header_takes_is_refused_and_not_shown(
    silent: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    for ask, fault in (
        (lambda: Server(silent, "MY_KEY", 1.0).post("x", {}), ServerRefuses),
        (lambda: LlmJudge(silent, "m", key="MY_KEY")("7", Task("t", "?", "7")), VerifierBroken),
        (lambda: ServedJudge(Endpoint(silent, "m", key="MY_KEY")).check([]), JudgeBroken),
        (lambda: ServedTeacher("m", Server(silent, "MY_KEY", 1.0)).logp([[1, 2]]), TeacherBroken),
    ):
        with pytest.raises(fault, match="the environment variable MY_KEY holds a space") as caught:
            ask()
        assert "s3c" not in str(caught.value)


def test_white_space_around_a_key_is_no_part_of_it(server: Nonsense, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret\r\n")
    assert LlmJudge(server.url, "m")("7", Task("t", "?", "7")).label == "right"


@pytest.mark.parametrize("url", ["http://me:s3cret@localhost/v1", "http://local host/v1", "http://localhost/v 1"])
def test_an_address_that_no_request_can_use_is_refused_at_the_start(url: str) -> None:
    for role in ("teacher", "judge"):
        with pytest.raises(RecipeError, match="is no address"):
            load_recipe("quickstart", where(role, url))
    with pytest.raises(ValueError, match="an address and a model"):
        Endpoint(url, "m")


# ---- time ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("asked", "waits"), [(7.0, 7.0), (999.0, LONGEST_PAUSE), (None, 0.5)])
def test_only_the_server_says_how_long_to_wait(
    monkeypatch: pytest.MonkeyPatch, asked: float | None, waits: float
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("rlvr.server.time.sleep", waited.append)

    def busy() -> None:
        failed = ServerFailed("the judge's reply is not the JSON that was asked for: retry after 30")
        failed.pause = asked
        raise failed

    with pytest.raises(ServerFailed):
        retried(busy, 1)
    assert waited == [waits]


def test_a_proxy_that_drips_has_no_more_time_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for a tunnel before there is anything that TLS could speak through."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()
        for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")

        def drip() -> None:
            with listener.accept()[0] as client, contextlib.suppress(OSError):
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.0 200 OK\r\nX: ")
                while not stop.wait(0.05):
                    client.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        threading.Timer(5.0, stop.set).start()
        began = time.monotonic()
        with pytest.raises(ServerAbsent, match=r"no reply within 0\.5 s"):
            Server("https://judge.invalid/v1", "K", 0.5).post("x", {})
        assert time.monotonic() - began < 2
        stop.set()
        thread.join()


def test_whoever_stops_waiting_is_not_held_by_what_is_still_asked() -> None:
    """One call fails; the others would take ten seconds."""
    done = threading.Event()

    def call(n: int) -> int:
        if n == 0:
            raise ServerRefuses("no")
        done.wait(10)
        return n

    began = time.monotonic()
    with pytest.raises(ServerRefuses):
        Threads(4).map(call, range(40))
    assert time.monotonic() - began < 2
    done.set()
    assert Threads(4).map(lambda n: n * n, range(40)) == [n * n for n in range(40)]


EXITS = """
import sys, asyncio, signal
from rlvr.engine.teacher import ServedTeacher
from rlvr.judges.models import PROBE, ServedJudge
from rlvr.records import Task
from rlvr.server import Server
from rlvr.verify.llm_judge import Endpoint, LlmJudge

who, url = sys.argv[1:]
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C does
signal.setitimer(signal.ITIMER_REAL, 0.5)
if who == "judge":
    asyncio.run(ServedJudge(Endpoint(url, "m", seconds=20.0)).ask(PROBE, 0))
elif who == "teacher":
    ServedTeacher("m", Server(url, "K", 20.0)).logp([[1, 2]] * 16)
else:
    LlmJudge(url, "m", seconds=20.0).judge_many([("7", Task("t", "?", "7"))] * 16)
"""


@pytest.mark.parametrize("who", ["judge", "teacher", "verifier"])
def test_ctrl_c_does_not_wait_for_a_server(silent: str, who: str) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", EXITS, who, silent], capture_output=True, text=True, timeout=120)
    assert "KeyboardInterrupt" in done.stderr
    assert time.monotonic() - began < 15


# ---- what is not there, and the cache ------------------------------------------------------------------------
def test_a_server_that_is_not_there_is_told_from_one_that_is_slow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/v1"
    judge = LlmJudge(url, "m", retries=0, most_timeouts=2)
    judge("7", Task("t", "?", "7"))
    with pytest.raises(VerifierBroken, match=r"2 times on end \(the server cannot be reached: .*refused"):
        judge("7", Task("t", "?", "7"))


def test_a_verdict_that_cannot_be_kept_is_a_verdict(
    server: Nonsense, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "cache")
    assert LlmJudge(server.url, "m", cache=folder)("7", Task("t", "?", "7")).label == "right"
    judge = ServedJudge(Endpoint(server.url, "m", cache=folder, retries=1))
    assert asyncio.run(judge.ask(PROBE, 0)).value is None
    assert [m for m in caplog.messages if "cannot be written (Not a directory)" in m] == [
        f"the cache {folder} cannot be written (Not a directory): what a judge says is used, and paid for again"
    ]


def test_a_disk_that_fills_leaves_nothing_half_kept(
    server: Nonsense, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlvr.report.store.os.replace", full)
    assert LlmJudge(server.url, "m", cache=str(tmp_path / "cache"))("7", Task("t", "?", "7")).label == "right"
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
