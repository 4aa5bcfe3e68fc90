"""The process that sandbox workers are forked from: `python -c BOOTSTRAP` of the pool, never a fork of the trainer.

It contains itself as far as a parent can (namespaces), warms up the modules that submissions use, and then, one job at
a time, forks a process that gives up the rest and runs. It never reads a job: those are files whose descriptors it
hands on, so nothing of one submission is in the memory of the next. It enforces the wall clock and reports how the
process ended; it looks into nothing that the submission wrote.

Three processes: the guard, which the pool started and which ends with it; the zygote, its child; the job's one or two.

Control socket (descriptor 0), one JSON message each way: limits, with descriptors
[job, stdin, stdout, stderr, result] and [steps, result] where there is a test program, and back {"status", ...}.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import importlib
import json
import math
import os
import platform
import random
import resource
import select
import shutil
import signal
import site
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from rlvr.sandbox import inside, kernel

# Not asyncio, hashlib and their kin: what they pull in makes every fork a fifth slower, and few need it.
WARM = [
    "abc", "array", "ast", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "heapq", "io", "itertools", "json", "math", "numbers", "operator", "queue",
    "random", "re", "statistics", "string", "struct", "textwrap", "threading", "time", "traceback", "types", "typing",
]  # fmt: skip
LIBRARIES = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store"]
OTHERS = ["/etc/ld.so.cache", "/usr/share/zoneinfo", "/etc/localtime"]
DEVICES = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
NOBODY = 65534  # whom jobs of root run as
THREADS = 64  # that a submission may start; ours
WATCH_SECONDS = 0.02  # between two looks at a folder whose size nothing else bounds


def main() -> None:
    """Entry point; argv[1] is a JSON object of settings, see `pool`."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    sys.path += settings["paths"]
    for name in [*WARM, *settings["warm"]]:
        importlib.import_module(name)
    site.setquit()  # exit() and quit(), which -S leaves out
    try:
        zygote = Zygote(settings, control, null)
    except LayerMissing as missing:
        control.send(json.dumps({"failed": missing.layer, "why": str(missing)}).encode())
        return
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            zygote.serve()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    control.close()
    while os.getppid() == parent and os.waitpid(child, os.WNOHANG) == (0, 0):
        signal.sigtimedwait([signal.SIGCHLD], 1.0)
    if os.getppid() != parent:  # the trainer was killed
        os.kill(child, signal.SIGKILL)
        if settings["folder"]:
            shutil.rmtree(settings["folder"], ignore_errors=True)


class LayerMissing(Exception):
    """The kernel does not give this layer; the text says why."""

    def __init__(self, layer: str, why: str):
        super().__init__(why)
        self.layer = layer


class Zygote:
    """State of the process: which layers it put on, and what its children need."""

    def __init__(self, settings: dict[str, Any], control: socket.socket, null: int):
        self.control, self.null = control, null
        self.layers: list[str] = settings["layers"]
        self.folder: str = settings["folder"] or kernel.FOLDER
        self.size = 0  # of the mounted folder
        self.uid: int | None = None  # that a job changes to
        self.pids = self.rules = -1  # descriptors: own pid namespace, Landlock's rules
        self.filters: list[bytes] = []  # without and with fork
        readable, hidden = _paths(settings["paths"])
        machine = platform.machine()
        if "seccomp" in self.layers:
            if machine not in kernel.MACHINES:
                raise LayerMissing("seccomp", f"there is no table of system calls for {machine}")
            self.filters = [kernel.filter_program(machine, may_fork) for may_fork in (False, True)]
        if "landlock" in self.layers and not kernel.landlock_version():
            raise LayerMissing("landlock", "the kernel has none (it needs 5.13 or newer, with landlock among its lsm)")
        root = os.geteuid() == 0
        if "namespaces" in self.layers:
            try:
                self.root = kernel.enter_namespaces(readable, hidden, NOBODY if root else None)
            except OSError as error:
                raise LayerMissing("namespaces", str(error)) from None
            return
        if root and all(_open_to_all(path) for path in sys.path if os.path.isdir(path)):
            self.uid = NOBODY
            os.chown(self.folder, NOBODY, NOBODY)
        if "landlock" in self.layers:
            self.rules = kernel.landlock_rules(self._rules(readable, hidden))

    def _rules(self, readable: list[str], hidden: list[str]) -> list[tuple[str, int]]:
        read = kernel.READ_FILE | kernel.READ_FOLDER
        rules = [(self.folder, read | kernel.MAKE_FILES), ("/dev/null", kernel.READ_FILE | kernel.WRITE_FILE)]
        waiting = list(readable)
        while waiting:
            path = waiting.pop()
            if not any(h == path or h.startswith(path + "/") for h in hidden):
                rules.append((path, read))
            elif path not in hidden:
                rules.append((path, kernel.READ_FOLDER))
                waiting += [os.path.join(path, name) for name in os.listdir(path)]
        return rules

    def serve(self) -> None:
        """The zygote's life: contain itself, tell what it found, then a job for every message."""
        kernel.die_with_parent()
        if "namespaces" in self.layers:
            self.pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            try:
                kernel.change_root(self.root)
            except OSError as error:
                self.control.send(json.dumps({"failed": "namespaces", "why": str(error)}).encode())
                return
        os.environ.update(HOME=self.folder, TMPDIR=self.folder)
        gc.collect()
        gc.freeze()
        self.control.send(json.dumps({"ready": self.layers}).encode())
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.control, 4096, 8)
            if not message:
                return
            try:
                reply = self.run(json.loads(message), descriptors)
            except OSError as error:
                reply = {"status": "failed", "detail": str(error)}
            for descriptor in descriptors:
                os.close(descriptor)
            self.control.send(json.dumps(reply).encode())

    def run(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Fork what a job needs, wait, kill what is left, and say how it ended."""
        self._renew_folder(order["folder"])
        began = time.monotonic()
        job, *standard, result = descriptors[:5]
        program = _probe if order.get("probe") else inside.run_submission
        pipes: list[int] = []
        pids: list[int] = []
        ended: dict[int, int] = {}
        try:
            theirs = None
            if len(descriptors) > 5:
                questions, answers = os.pipe(), os.pipe()
                pipes += [*questions, *answers]
                ours, theirs = inside.Channel(answers[0], questions[1]), inside.Channel(questions[0], answers[1])
                steps, found = descriptors[5:]
                pids.append(self.start(order, steps, [self.null] * 3, found, ours, inside.run_steps))
            pids.append(self.start(order, job, standard, result, theirs, program))
            while pipes:
                os.close(pipes.pop())
            status = self._wait(pids[0], ended, began + order["seconds"], order["folder"])
            seconds = time.monotonic() - began
        finally:
            for pipe in pipes:
                os.close(pipe)
            for pid in pids:
                if pid not in ended:
                    os.kill(pid, signal.SIGKILL)
                    ended[pid] = os.waitpid(pid, 0)[1]
        code = os.waitstatus_to_exitcode(ended[pids[0]])
        detail = "folder" if status == "over_limit" else ""
        return {"status": status, "code": code, "seconds": seconds, "detail": detail}

    def _wait(self, pid: int, ended: dict[int, int], deadline: float, most: int) -> str:
        """How the job came to its end, which is that of `pid`; `ended` gets the wait status of what ended meanwhile."""
        while True:
            with contextlib.suppress(ChildProcessError):
                while (dead := os.waitpid(-1, os.WNOHANG))[0]:
                    ended[dead[0]] = dead[1]
            left = deadline - time.monotonic()
            if pid in ended:
                return "finished"
            if left <= 0:
                return "timeout"
            if self.rules >= 0 and self._used() > most:
                return "over_limit"
            if select.select([self.control], [], [], 0)[0]:  # nothing is sent meanwhile: the trainer has hung up
                return "failed"
            signal.sigtimedwait([signal.SIGCHLD], min(left, WATCH_SECONDS if self.rules >= 0 else 1.0))

    def start(
        self,
        order: dict[str, Any],
        job: int,
        standard: list[int],
        result: int,
        channel: inside.Channel | None,
        program: Callable[..., int],
    ) -> int:
        """Fork a process that contains itself and runs the program on its job. Raises OSError where it could not."""
        ready, tell = os.pipe()
        if self.pids >= 0:
            kernel.unshare(kernel.NEW_PIDS, "unshare pids of one job")
        pid = os.fork()
        if pid == 0:
            try:
                kept = [job, result, *([channel.source, channel.sink] if channel else [])]
                os._exit(self._live(order, standard, kept, tell) or program(_question(job), result, channel))
            finally:
                os._exit(125)
        os.close(tell)
        if self.pids >= 0:
            kernel.join_pids(self.pids)
        said = os.read(ready, 1000)
        os.close(ready)
        if said != b"1":
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise OSError(f"a job could not be contained: {said.decode() or 'it died on the way'}")
        return pid

    def _live(self, order: dict[str, Any], standard: list[int], kept: list[int], tell: int) -> int:
        """The child's first steps; says over `tell` whether the walls stand, which nothing can forge afterwards."""
        try:
            for number, descriptor in enumerate(standard):
                os.dup2(descriptor, number)
            self._contain(order)
            _close_all_but([0, 1, 2, tell, *kept])
            os.write(tell, b"1")
            return 0
        except OSError as error:
            os.write(tell, str(error).encode())
            return 125
        finally:
            os.close(tell)

    def _contain(self, order: dict[str, Any]) -> None:
        os.setsid()
        several = order["processes"] > 1
        if "seccomp" not in self.layers and "namespaces" in self.layers:
            kernel.unshare(kernel.NEW_IPC, "unshare ipc of one job")
        limits = [
            (resource.RLIMIT_AS, order["memory"] // order["processes"]),
            (resource.RLIMIT_CPU, math.ceil(order["seconds"]) + 1),
            (resource.RLIMIT_FSIZE, max(order["output"] + 1, order["folder"] // 4)),
            (resource.RLIMIT_NOFILE, order["open_files"]),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
            (resource.RLIMIT_MSGQUEUE, 0),
        ]
        if "namespaces" in self.layers:  # elsewhere it counts every process of the user
            limits.append((resource.RLIMIT_NPROC, 3 + (order["processes"] if several else THREADS)))
        kernel.set_limits(limits)
        os.chdir(self.folder)
        if self.uid is not None:
            kernel.drop_user(self.uid)
        kernel.die_with_parent()
        kernel.drop_powers()
        if "landlock" in self.layers:
            if self.rules < 0:
                read = kernel.READ_FILE | kernel.READ_FOLDER
                write = [(kernel.FOLDER, read | kernel.MAKE_FOLDERS), ("/dev/null", kernel.WRITE_FILE)]
                kernel.landlock_enter(kernel.landlock_rules([("/", read), *write]))
            else:
                kernel.landlock_enter(self.rules)
        if "seccomp" in self.layers:
            kernel.seccomp_enter(self.filters[several])
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        random.seed(0)  # the same submission meets the same chance every time

    def _used(self) -> int:
        """Bytes in the folder, an empty file counting for a block: inodes are finite too."""
        with os.scandir(self.folder) as entries:
            return sum(max(4096, entry.stat(follow_symlinks=False).st_blocks * 512) for entry in entries)

    def _renew_folder(self, size: int) -> None:
        """An empty folder of this size; most submissions write nothing, and mounting costs as much as a whole run."""
        if "namespaces" not in self.layers:
            for name in os.listdir(self.folder):  # no folders: Landlock does not let them be made
                os.unlink(os.path.join(self.folder, name))
        elif size != self.size or os.listdir(self.folder):
            if self.size:
                kernel.unmount_folder()
            kernel.mount_folder(size)
            self.size = size


def _probe(question: dict[str, Any], result: int, channel: inside.Channel | None) -> int:
    """Try to get out, in each way that a layer is there to stop; tell what worked."""
    found = []

    def attempt(what: str, action: Callable[[], Any]) -> None:
        with contextlib.suppress(OSError):
            action()
            found.append(what)

    def connect(family: int, address: Any) -> None:
        with socket.socket(family) as probe:
            probe.settimeout(1.0)
            probe.connect(address)

    attempt("read /etc/passwd", lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)))
    attempt("write outside its folder", lambda: os.close(os.open(question["outside"], os.O_CREAT | os.O_WRONLY)))
    attempt("reach TCP ports of this machine", lambda: connect(socket.AF_INET, ("127.0.0.1", question["port"])))
    attempt("reach sockets of other processes", lambda: connect(socket.AF_UNIX, question["abstract"]))
    attempt("signal the trainer", lambda: os.kill(question["trainer"], 0))
    attempt("trace the trainer", lambda: os.close(os.open(f"/proc/{question['trainer']}/mem", os.O_RDONLY)))
    # Nothing outlives the first process of a pid namespace, but each child would have the whole memory limit anew.
    child = "start processes that share no limit" if os.getpid() == 1 else "leave processes behind"
    attempt(child, lambda: os.fork() or os._exit(0))
    os.write(result, json.dumps(found).encode())
    return 0


def _paths(extra: list[str]) -> tuple[list[str], list[str]]:
    """(what a submission may read, folders of installed packages inside it that it may not)."""
    standard = os.path.dirname(os.__file__)
    beside = os.path.dirname(standard)  # where some distributions keep what the library's extensions link to
    places = {standard, beside, *sys.path, *extra, *LIBRARIES, *OTHERS, *DEVICES}
    readable = sorted((path for path in places if path and os.path.exists(path)), key=lambda path: (len(path), path))
    hidden = [
        found
        for top in (standard, beside, *LIBRARIES)
        for pattern in ("", "/python*")
        for name in ("/site-packages", "/dist-packages")
        for found in glob.glob(top + pattern + name)
        if not any(path == found or path.startswith(found + "/") for path in extra)
    ]
    return readable, hidden


def _open_to_all(path: str) -> bool:
    """Whether an ordinary user can read this folder: every folder on the way lets others through."""
    while path != "/":
        if os.stat(path).st_mode & 0o005 != 0o005:
            return False
        path = os.path.dirname(path)
    return True


def _close_all_but(descriptors: list[int]) -> None:
    kept = sorted(descriptors)
    for low, high in zip(kept, [*kept[1:], 1 << 20]):
        os.closerange(low + 1, high)


def _question(job: int) -> Any:
    """The job's own JSON; its descriptor goes with it."""
    question = json.loads(inside.read_all(job))
    os.close(job)
    return question
