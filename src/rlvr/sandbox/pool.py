"""`LocalSandbox`: a warm pool of contained workers on this machine, and the report on what contains them.

The walls, from the outside in: namespaces (own users, mounts, process ids, network, a root that holds only the
interpreter's libraries, a private folder of bounded size), Landlock (files by allow list), seccomp (system calls by
allow list), and always hard limits on time, memory, files and output. The strongest combination that this machine
allows is found by trying; then a probe tries to get out, and if anything works, the sandbox refuses to run.

Where namespaces are forbidden (most containers) the other two hold alone, with these differences: no fork for
submissions, the private folder is flat and its size is watched instead of bounded (files that are deleted but open can
hold another open_files x folder / 4), and the existence of other files can be seen, though nothing of them read.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.sandbox.job import Job, Limits, Outcome, Result, SandboxUnavailable
from rlvr.sandbox.wire import tree_of

LAYERS = ("namespaces", "landlock", "seccomp")
START_SECONDS = 60.0  # a fresh interpreter takes 0.1; a cold disk under load takes long
FAREWELL_SECONDS = 0.5  # in which a zygote ends by itself
GRACE_SECONDS = 15.0  # beyond a job's own limit, which the zygote enforces, before the zygote itself is given up

# Makes the package importable without its __init__, which imports numpy; the zygote stays small and knows no more.
_BOOTSTRAP = """import sys, types
for name in "rlvr", "rlvr.sandbox":
    module = types.ModuleType(name)
    module.__path__ = [sys.argv[2] + "/" + name.replace(".", "/")]
    sys.modules[name] = module
from rlvr.sandbox.zygote import main
main()"""


@dataclass(frozen=True, slots=True)
class Report:
    """What contains submissions here. `str()` is for people."""

    active: tuple[str, ...]  # of LAYERS
    missing: Mapping[str, str]  # layer -> why it is not there
    escapes: tuple[str, ...]  # what the probe could do all the same; the sandbox refuses if it is anything

    def __str__(self) -> str:
        lines = [f"{name:10} {'on' if name in self.active else 'off: ' + self.missing[name]}" for name in LAYERS]
        verdict = f"NOT CONTAINED, a submission can {', '.join(self.escapes)}" if self.escapes else "contained"
        return "\n".join([*lines, "limits     on", verdict])


def report() -> Report:
    """Try what contains submissions on this machine. Raises SandboxUnavailable off Linux."""
    with LocalSandbox(workers=1) as sandbox:
        return sandbox.report()


class LocalSandbox:
    """Runs jobs in forks of warm zygotes, at most `workers` at once (default: one for each core, up to four).

    paths: folders from which submissions may also import, such as a site-packages; they see the standard library only.
    warm: modules to import beforehand, such as numpy. without: layers not to use.
    Nothing starts before the first job. Close it, or leave it to the garbage collector or the interpreter's end.
    """

    def __init__(
        self,
        workers: int | None = None,
        paths: Sequence[str] = (),
        warm: Sequence[str] = (),
        without: Collection[str] = (),
    ):
        unknown = set(without) - set(LAYERS)
        if unknown:
            raise ValueError(f"there is no layer {unknown.pop()!r}; layers are {', '.join(LAYERS)}")
        self.workers = workers or min(4, os.cpu_count() or 1)
        self._settings = {"paths": [str(Path(p).resolve()) for p in paths], "warm": list(warm)}
        self._missing = dict.fromkeys(without, "switched off")
        self._report: Report | None = None
        self._settling = threading.Lock()
        self._slots: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for _ in range(self.workers):
            self._slots.put(_Worker(self._settings))

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, job: Job) -> Outcome:
        """What came of the job. Waits for a free worker. Raises SandboxUnavailable where nothing would contain it."""
        layers = self.prepare(job.limits.processes)
        worker = self._slots.get()
        try:
            return worker.run(job, layers)
        finally:
            self._slots.put(worker)

    def report(self) -> Report:
        """Which layers are active, found out on the first call."""
        with self._settling:
            if self._report is None:
                worker = self._slots.get()
                try:
                    self._report = self._settle(worker)
                finally:
                    self._slots.put(worker)
            return self._report

    def close(self) -> None:
        """End the workers. Waits for jobs that run."""
        for worker in [self._slots.get() for _ in range(self.workers)]:
            worker.stop()
            self._slots.put(worker)

    def prepare(self, processes: int = 1) -> Sequence[str]:
        """The layers that contain jobs of so many processes. Raises SandboxUnavailable where nothing would."""
        found = self._report or self.report()
        if found.escapes:
            why = "; ".join(f"{name}: {reason}" for name, reason in found.missing.items())
            raise SandboxUnavailable(
                f"nothing here contains hostile code: it could {', '.join(found.escapes)} ({why}). Run on Linux 5.13 or"
                " newer where Landlock or user namespaces are allowed (Docker's default profile allows Landlock), or"
                " give the verifier another Sandbox"
            )
        if processes > 1 and "namespaces" not in found.active:
            raise SandboxUnavailable(
                f"a job of {processes} processes needs namespaces, which are off here ({found.missing['namespaces']});"
                " set processes=1"
            )
        return found.active

    def _settle(self, worker: _Worker) -> Report:
        """From the strongest combination to the weakest, the first that can be put on; and whether it holds."""
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable(
                f"the sandbox needs Linux (this is {sys.platform}): run there, in a virtual machine or a container, or"
                " give the verifier another Sandbox"
            )
        missing = dict(self._missing)
        layers = [name for name in LAYERS if name not in missing]
        while True:
            failed, why, escapes = worker.probe(layers)
            if not failed:
                return Report(tuple(layers), missing, tuple(escapes))
            if failed not in layers:
                raise SandboxUnavailable(f"the sandbox does not start: {why}")
            layers.remove(failed)
            missing[failed] = why


class _Worker:
    """One zygote, started when it is needed and again after it died."""

    def __init__(self, settings: Mapping[str, Any]):
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._finalizer: weakref.finalize | None = None

    def run(self, job: Job, layers: Sequence[str]) -> Outcome:
        limits = job.limits
        calls = [[c.function, tree_of(list(c.args)), tree_of(dict(c.kwargs))] for c in job.calls]
        question = {"code": job.code, "calls": calls}
        files = [_file(json.dumps(question).encode()), _file(job.stdin), _file(), _file(), _file()]
        if job.steps:
            files += [_file(json.dumps([[s.kind, s.code] for s in job.steps]).encode()), _file()]
        try:
            reply = self._ask(_order(limits), files, layers)
            stdout, stderr, result = (_content(files[i], limits.output) for i in (2, 3, 4))
            answers = _content(files[6], limits.output) if job.steps else result
        finally:
            for descriptor in files:
                os.close(descriptor)
        status, code, detail = reply["status"], reply.get("code", 0), reply.get("detail", "")
        if status == "finished":
            full = [name for name, got in (("stdout", stdout), ("stderr", stderr), ("results", answers)) if got is None]
            if full:
                status, detail = "over_limit", full[0]
            elif code < 0:
                status, detail = "killed", f"signal {-code}"
        if result and result.startswith(b"broken "):
            detail = detail or result[:300].decode("ascii", "replace").strip()
        return Outcome(
            status,
            code,
            _results(answers or b"", len(job.calls) + len(job.steps) + 1),
            stdout or b"",
            stderr or b"",
            reply.get("seconds", 0.0),
            detail,
        )

    def probe(self, layers: Sequence[str]) -> tuple[str, str, list[str]]:
        """(layer that cannot be put on, why, []) or ("", "", what a job could do outside)."""
        hello = self.start(layers)
        if "failed" in hello:
            return hello["failed"], hello["why"], []
        with (
            tempfile.TemporaryDirectory(prefix="rlvr-probe-") as outside,
            socket.create_server(("127.0.0.1", 0)) as port,
            socket.socket(socket.AF_UNIX) as abstract,
        ):
            os.chmod(outside, 0o777)
            abstract.bind(f"\0rlvr-probe-{os.getpid()}-{threading.get_ident()}")
            abstract.listen()
            question = {
                "outside": f"{outside}/written",
                "port": port.getsockname()[1],
                "abstract": abstract.getsockname().decode(),
                "trainer": os.getpid(),
            }
            files = [_file(json.dumps(question).encode()), *[_file() for _ in range(4)]]
            try:
                reply = self._ask({**_order(Limits()), "probe": True}, files, layers)
                if reply["status"] != "finished" or reply["code"] != 0:
                    self.stop()
                    weakest = "namespaces" if "namespaces" in layers else ""
                    return weakest or "probe", reply.get("detail") or f"the probe ended with {reply}", []
                return "", "", json.loads(_content(files[4], 10_000) or b"null")
            finally:
                for descriptor in files:
                    os.close(descriptor)

    def start(self, layers: Sequence[str]) -> dict[str, Any]:
        """A zygote with these layers: {"ready": layers}, or {"failed": layer, "why": text} and no process."""
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = None if "namespaces" in layers else tempfile.mkdtemp(prefix="rlvr-box-")
        settings = {**self._settings, "layers": list(layers), "folder": folder}
        environment = {
            "PYTHONHASHSEED": "0",  # the same submission meets the same order of sets every time
            "LC_ALL": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        }
        self._process = subprocess.Popen(
            # Not -I, which would ignore the hash seed; -s -S -P and a bare environment keep out the same things.
            [sys.executable, "-s", "-S", "-P", "-c", _BOOTSTRAP, json.dumps(settings), str(Path(__file__).parents[2])],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        self._finalizer = weakref.finalize(self, _end, self._process, ours, folder, os.getpid())
        ours.settimeout(START_SECONDS)
        try:
            message = ours.recv(4096)
        except OSError:
            message = b""
        if not message:
            os.killpg(self._process.pid, signal.SIGKILL)
            said = self._process.communicate()[1].decode(errors="replace").strip()
        hello = json.loads(message) if message else {"failed": "start", "why": said.splitlines()[-1] if said else "?"}
        if "failed" in hello:
            self.stop()
        return dict(hello)

    def stop(self) -> None:
        """Kill the zygote and with it whatever it started."""
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._control = self._finalizer = None

    def _ask(self, order: Mapping[str, Any], files: Sequence[int], layers: Sequence[str]) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            hello = self.start(layers)
            if "failed" in hello:
                return {"status": "failed", "detail": f"{hello['failed']}: {hello['why']}"}
        control = self._control
        assert control is not None
        try:
            control.settimeout(order["seconds"] + GRACE_SECONDS)
            socket.send_fds(control, [json.dumps(order).encode()], files)
            message = control.recv(4096)
        except OSError as error:  # a timeout too
            self.stop()
            return {"status": "failed", "detail": f"the sandbox gave no answer: {error}"}
        except BaseException:  # Ctrl-C: a late answer must not be taken for the next job's
            self.stop()
            raise
        if not message:
            self.stop()
            return {"status": "failed", "detail": "the sandbox process ended"}
        return dict(json.loads(message))


def _order(limits: Limits) -> dict[str, Any]:
    names = ("seconds", "memory", "output", "folder", "open_files", "processes")
    return {name: getattr(limits, name) for name in names}


def _file(content: bytes = b"") -> int:
    """A file in memory, at its start. Files cannot fill up and block like pipes, and are as new as the attempt."""
    descriptor = os.memfd_create("rlvr", os.MFD_CLOEXEC)
    at = 0
    while at < len(content):
        at += os.pwrite(descriptor, content[at : at + (1 << 30)], at)
    return descriptor


def _content(descriptor: int, most: int) -> bytes | None:
    """What was written; None if it is more than `most` bytes."""
    size = os.fstat(descriptor).st_size
    return None if size > most else os.pread(descriptor, size, 0)


def _results(written: bytes, most: int) -> tuple[Result, ...]:
    """The first `most` lines; one that is not ended was cut off with its process."""
    lines = (line.decode("ascii", "replace").partition(" ") for line in written.split(b"\n", most)[:-1])
    return tuple(Result(kind, text) for kind, _, text in lines)


def _end(process: subprocess.Popen[bytes], control: socket.socket, folder: str | None, owner: int) -> None:
    control.close()
    if os.getpid() != owner:
        return  # a fork of the trainer ends; the zygote is not its own
    deadline, ended = time.monotonic() + FAREWELL_SECONDS, os.WEXITED | os.WNOHANG | os.WNOWAIT
    while process.returncode is None and not os.waitid(os.P_PID, process.pid, ended) and time.monotonic() < deadline:
        time.sleep(0.002)  # the guard, told by the closed socket, clears its zygote away: an orphan is init's work
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # before wait(), while the number cannot belong to anybody else
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
