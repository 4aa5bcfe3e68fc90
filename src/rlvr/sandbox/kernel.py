"""What the Linux kernel offers to contain a process, by ctypes alone: namespaces, Landlock, seccomp, dropped powers.

Every function works on the calling process, for good, and raises OSError that names the step which failed.
Sources: man 7 namespaces, landlock, capabilities; man 2 seccomp, pivot_root, mount; the headers of Linux 6.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Iterable, Sequence

from rlvr.sandbox.syscalls import CONDITIONAL, MACHINES, NEWEST, numbers

_libc = ctypes.CDLL(None, use_errno=True)

FOLDER = "/box"  # a job's private folder, where mounts are to be had

NEW_IPC, NEW_PIDS = 0x08000000, 0x20000000
_NEW_MOUNTS, _NEW_USERS, _NEW_NET, _NEW_NAMES = 0x00020000, 0x10000000, 0x40000000, 0x04000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVILEGES = 1, 4, 22, 38


def _check(result: int, step: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{step}: {os.strerror(code)}")
    return result


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    spelled = [None if text is None else text.encode() for text in (source, target, kind, data)]
    result = _libc.mount(spelled[0], spelled[1], spelled[2], ctypes.c_ulong(flags), spelled[3])
    _check(result, f"mount {kind or source or ''} at {target}")


def _prctl(option: int, value: int, step: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3), step)


def unshare(flags: int, step: str) -> None:
    _check(_libc.unshare(flags), step)


def join_pids(descriptor: int) -> None:
    """Children are born into this pid namespace again."""
    _check(_libc.setns(descriptor, NEW_PIDS), "setns to a pid namespace")


def drop_user(uid: int) -> None:
    """Become an ordinary user and stay able to describe oneself in /proc."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise OSError(error.errno, f"become user {uid}: {error.strerror}") from None
    _prctl(_SET_DUMPABLE, 1, "set dumpable")


def enter_namespaces(readable: Sequence[str], hidden: Sequence[str], uid: int | None) -> str:
    """New user, mount, pid (for children), net, ipc and name namespaces, and a root that holds only `readable` paths.

    Returns the new root, which `change_root` makes `/`; everything in it is read-only, `hidden` folders are empty,
    FOLDER is a mount point. Root (uid given) becomes that user on the way, once it has mounted what that user could not
    reach.
    """
    everything = _NEW_USERS | _NEW_MOUNTS | NEW_PIDS | _NEW_NET | NEW_IPC | _NEW_NAMES
    if uid is None:
        _new_user_namespace(everything)
        return _build_root(readable, hidden)
    unshare(_NEW_MOUNTS, "unshare mounts")
    root = _build_root(readable, hidden)
    drop_user(uid)
    _new_user_namespace(everything)
    return root


def _new_user_namespace(flags: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    unshare(flags, "unshare user, mount, pid, net, ipc and name namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _build_root(readable: Sequence[str], hidden: Sequence[str]) -> str:
    root = next(path for path in ("/tmp", "/mnt", "/var", "/usr") if os.path.isdir(path))
    opened = {path: os.open(path, os.O_PATH) for path in (*readable, *hidden)}  # the new root may hide them
    _mount(None, "/", None, _PRIVATE | _RECURSIVE)
    _mount("tmpfs", root, "tmpfs", _NO_SETUID | _NO_DEVICES, "mode=755,size=1m")
    for path in readable:
        target = root + path
        if os.path.lexists(target):
            continue  # inside one that is there already
        if os.path.isdir(f"/proc/self/fd/{opened[path]}"):
            os.makedirs(target, 0o755)
        else:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        _mount(f"/proc/self/fd/{opened[path]}", target, None, _BIND | _RECURSIVE)
        kept = os.statvfs(target).f_flag & 15  # flags that a user namespace may not take away
        device = path.startswith("/dev/")
        _mount(None, target, None, _REMOUNT | _BIND | kept | (0 if device else _READ_ONLY | _NO_SETUID | _NO_DEVICES))
    for path in hidden:
        if os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", _READ_ONLY, "size=4k")
    os.mkdir(root + FOLDER, 0o755)
    if not os.path.lexists(root + "/tmp"):  # the interpreter may live there
        os.symlink(FOLDER, root + "/tmp")
    for descriptor in opened.values():
        os.close(descriptor)
    return root


def change_root(root: str) -> None:
    """`root` becomes /, read-only, and nothing else of the file system can be reached."""
    _mount(root, root, None, _BIND | _RECURSIVE)
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _DETACH), "umount the old root")
    os.chdir("/")
    _mount(None, "/", None, _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)


def mount_folder(size: int) -> None:
    """FOLDER becomes an empty folder of at most `size` bytes and 4096 files."""
    _mount("tmpfs", FOLDER, "tmpfs", _NO_SETUID | _NO_DEVICES, f"mode=700,size={size},nr_inodes=4096")


def unmount_folder() -> None:
    _check(_libc.umount2(FOLDER.encode(), _DETACH), f"umount {FOLDER}")


def die_with_parent() -> None:
    _prctl(_SET_DEATH_SIGNAL, 9, "set parent death signal")


def set_limits(values: Iterable[tuple[int, int]]) -> None:
    """Hard limits; one that is lower already stays."""
    for name, value in values:
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))


def drop_powers() -> None:
    """No capability, and no way to gain any."""
    _prctl(_SET_NO_NEW_PRIVILEGES, 1, "set no_new_privs")
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _check(_libc.capset(header, nothing), "capset")


# Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_OPEN_PATH = os.O_PATH | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
WRITE_FILE = 1 << 1 | 1 << 14  # truncating is a right of its own from version 3 on
MAKE_FILES = WRITE_FILE | 1 << 5 | 1 << 8  # remove and make regular files
MAKE_FOLDERS = MAKE_FILES | 1 << 4 | 1 << 7
_FILE_RIGHTS = 0b111 | 1 << 14 | 1 << 15


def landlock_version() -> int:
    """0 where the kernel has none or does not let us. Needs 5.13 or newer, and `landlock` among its lsm."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, int(version))


def landlock_rules(rules: Iterable[tuple[str, int]]) -> int:
    """A descriptor for `landlock_enter`: only these (path, rights) remain, of what is opened from then on.

    No TCP, abstract socket or signal to the outside either, where the kernel knows how. A path that is not there is
    left out.
    """
    version = landlock_version()
    handled = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    words = [handled] + [3] * (version >= 4) + [3] * (version >= 6)
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(ruleset, "landlock_create_ruleset")
    for path, rights in rules:
        try:
            descriptor = os.open(path, _OPEN_PATH)
        except OSError:
            continue
        rights &= handled if os.path.isdir(path) else handled & _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
        os.close(descriptor)
    return int(ruleset)


def landlock_enter(ruleset: int) -> None:
    _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")


# seccomp: a program for the kernel's classic BPF machine. Offsets are those of struct seccomp_data.

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_NOT_PERMITTED, _NO_SUCH_CALL, _NOT_A_TERMINAL = 0x00050001, 0x00050026, 0x00050019  # errno 1, 38, 25
_NEW_NAMESPACE_FLAGS = 0x7E020080
_THREAD = 0x10000
_OWN_ID = 0x7FFFFFF1  # stands for the process's own id until that is known; no process has it

Instruction = tuple[int, int, int, int]


def _low(argument: int) -> Instruction:
    return _LOAD, 0, 0, 16 + 8 * argument


def _among(argument: int, values: Sequence[int], otherwise: int = _NOT_PERMITTED) -> list[Instruction]:
    """Allowed if an argument's low half is one of these."""
    tests: list[Instruction] = [(_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_low(argument), *tests, (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, _ALLOW)]


def _masked(argument: int, mask: int, value: int, allowed: bool) -> list[Instruction]:
    """Allowed, or refused, if the masked low half of an argument is this."""
    yes, no = (_ALLOW, _NOT_PERMITTED) if allowed else (_NOT_PERMITTED, _ALLOW)
    return [_low(argument), (_AND, 0, 0, mask), (_EQUAL, 0, 1, value), (_RETURN, 0, 0, yes), (_RETURN, 0, 0, no)]


def _runs(values: Iterable[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of consecutive numbers: the kernel tries a program on every call when it is put on."""
    runs: list[tuple[int, int]] = []
    for value in sorted(values):
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def filter_program(machine: str, may_fork: bool) -> bytes:
    """A seccomp program. `may_fork` allows fork and kill, never exec."""
    known = numbers(machine)
    allow: list[Instruction] = [(_RETURN, 0, 0, _ALLOW)]
    refuse: list[Instruction] = [(_RETURN, 0, 0, _NOT_PERMITTED)]
    missing: list[Instruction] = [(_RETURN, 0, 0, _NO_SUCH_CALL)]
    fork = allow if may_fork else refuse
    o_trunc = 0o1000
    rules = {
        # Landlock before version 3 lets O_RDONLY | O_TRUNC empty a file that may only be read.
        "open": _masked(1, 3 | o_trunc, o_trunc, allowed=False),
        "openat": _masked(2, 3 | o_trunc, o_trunc, allowed=False),
        "openat2": missing,  # its flags lie in memory
        "clone3": missing,
        "clone": _masked(0, _NEW_NAMESPACE_FLAGS | (0 if may_fork else _THREAD), 0 if may_fork else _THREAD, True),
        "fork": fork,
        "vfork": fork,
        "kill": fork,
        "tgkill": allow if may_fork else _among(0, [_OWN_ID]),
        "prlimit64": _among(0, [0]),
        "socketpair": [_low(0), (_EQUAL, 1, 0, 1), *refuse, *_masked(1, 0xF, 1, True)],  # AF_UNIX, SOCK_STREAM
        "sendto": [_low(4), (_EQUAL, 1, 0, 0), *refuse, (_LOAD, 0, 0, 52), (_EQUAL, 1, 0, 0), *refuse, *allow],
        "fcntl": _among(1, [0, 1, 2, 3, 4, 5, 6, 7, 1030]),  # not F_SETOWN and F_SETSIG, which signal others
        "ioctl": _among(1, [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451], _NOT_A_TERMINAL),
        "prctl": _among(0, [15, 16]),  # thread names
    }
    code: list[Instruction] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, MACHINES[machine]), (_RETURN, 0, 0, _KILL)]
    code.append((_LOAD, 0, 0, 0))
    for first, last in _runs(number for name, number in known.items() if name not in CONDITIONAL):
        code += [(_AT_LEAST, 0, 2, first), (_AT_LEAST, 1, 0, last + 1), *allow]
    for name, rule in rules.items():
        if name in known:
            code += [(_EQUAL, 0, len(rule), known[name]), *rule]
    code += [(_AT_LEAST, 0, 1, 0x40000000), *refuse]  # x86's second table
    code += [(_AT_LEAST, 0, 1, NEWEST + 1), *missing, *refuse]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def seccomp_enter(program: bytes) -> None:
    """Needs no_new_privs (`drop_powers`)."""
    program = program.replace(struct.pack("I", _OWN_ID), struct.pack("I", os.getpid()))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(_SET_SECCOMP, ctypes.c_ulong(2), header, ctypes.c_ulong(0), ctypes.c_ulong(0)), "seccomp")
