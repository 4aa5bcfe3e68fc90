"""Batteries against the sandbox and the `code` verifier; docs/sandbox.md lists them by name.

REACH and HOGS: programs that try to get out, to use up the machine or to stay. HONEST: solutions in the manners in
which people write them, which must be right. Submissions that solve nothing and want to be paid: rlvr.audit's CHEATS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MB = 1 << 20
SECONDS = 0.7  # for an attack; those that would go on for ever take all of it

# What a submission might reach. Each program prints what it achieved; an exception is the wall it ran into. The words
# in braces are places of the world around it.
REACH = {
    "a host's file": "print(open('/etc/passwd').read())",
    "the tests": "print(open({here!r}).read())",
    "a folder": "import os\nprint(os.listdir({outside!r}))",
    "installed packages": "import glob, os\nprint(open(glob.glob({packages!r} + '/*.*')[0]).read())",
    "its environment": "print(open('/proc/self/environ').read())",
    "a link to a file": "import os\nos.symlink('/etc/passwd', 'here')\nprint(open('here').read())",
    "a hard link": "import os\nos.link({here!r}, 'here')\nprint(open('here').read())",
    "the trainer's memory": "print(open('/proc/{trainer}/mem', 'rb').read(1))",
    "a write outside": "open({outside!r} + '/x', 'w')\nprint(1)",
    "a write into the library": "import os\nopen(os.__file__, 'a')\nprint(1)",
    "an emptied library file": "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)\nprint(1)",
    "other rights for a file": "import os\nos.chmod({outside!r}, 0o777)\nprint(1)",
    "other times of a file": "import os\nos.utime({outside!r})\nprint(1)",
    "a shell": "import os\nprint(open('x').read() if os.system('id > x') == 0 else 1 / 0)",
    "a program": "import subprocess\nprint(subprocess.run(['id'], capture_output=True).stdout)",
    "another Python": "import os, sys\nos.execv(sys.executable, ['python', '-c', 'print(1)'])",
    "TCP": "import socket\ns = socket.create_connection(('127.0.0.1', {port}), 2)\nprint(1)",
    "UDP": "import socket\nsocket.socket(2, 2).sendto(b'x', ('127.0.0.1', 9))\nprint(1)",
    "an abstract socket": "import socket\nsocket.socket(socket.AF_UNIX).connect({abstract!r})\nprint(1)",
    "a datagram pair": "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nprint(1)",
    "the trainer's life": "import os\nos.kill({trainer}, 9)\nprint(1)",
    "its parent's life": "import os\nos.kill(os.getppid(), 9)\nprint(1)",
    "everybody's life": "import os\nos.kill(-1, 9)\nprint(1)",
    "a signal by a pipe": "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, {trainer})\nprint(1)",
    "a child": "import os\nos.fork() or os._exit(0)\nprint(1)",
    "higher limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint(1)",
    "the trainer's limits": "import resource\nresource.prlimit({trainer}, resource.RLIMIT_NOFILE, (9, 9))\nprint(1)",
    "another user": "import os\nos.setuid(1)\nprint(1)",
    "root": "import os\nos.setresuid(0, 0, 0)\nassert os.getuid() == 0\nopen({outside!r} + '/x', 'w')\nprint(1)",
}


@dataclass(frozen=True)
class Hog:
    """A program that prints THROUGH if it gets more than it may have. `ends`: the statuses of a contained one."""

    code: str
    ends: tuple[str, ...] = ("finished",)
    processes: int = 1  # above 1 only where namespaces bound the tree


FOREVER = ("timeout",)
# What it might use up, or leave behind.
HOGS = {
    "an endless loop": Hog("while True: pass", FOREVER),
    "an endless sleep": Hog("import time\ntime.sleep(600)", FOREVER),
    "a loop deaf to signals": Hog(
        "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
        "while True: pass",
        FOREVER,
    ),
    "one long call that holds the interpreter": Hog("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", FOREVER),
    "a fork bomb": Hog("import os\nwhile True:\n    os.fork()\n    print('THROUGH', flush=True)"),
    "a fork bomb where forks are allowed": Hog(
        "import os, time\nmade = 0\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(600)\n"
        "        made += 1\n    except OSError:\n        break\nif made > 8: print('THROUGH', flush=True)\n"
        "time.sleep(600)",
        FOREVER,
        processes=4,
    ),
    "a daemon": Hog(
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n"
        "    os._exit(0)\nprint('THROUGH')"
    ),
    "a daemon where forks are allowed": Hog(
        "import os, signal, time\nif os.fork() == 0:\n    os.setsid(); signal.pthread_sigmask(0, range(1, 65))\n"
        "    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\nos.wait()",
        processes=4,
    ),
    "three gigabytes": Hog("x = bytearray(3 << 30)\nprint('THROUGH')"),
    "six times 400 megabytes": Hog(
        "import threading\nkept = []\ndef eat():\n    try: kept.append(bytearray(400 << 20))\n"
        "    except MemoryError: pass\nfor _ in range(6):\n    t = threading.Thread(target=eat); t.start(); t.join()\n"
        "if len(kept) == 6: print('THROUGH')",
        ("finished", "timeout"),  # touching so many pages takes long on a loaded machine
    ),
    "two thousand threads": Hog(
        "import threading, time\nfor _ in range(2000):\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint('THROUGH')",
        ("finished", "timeout"),
    ),
    "a thousand open files": Hog("import os\nfor _ in range(1000): os.dup(0)\nprint('THROUGH')"),
    "a full disk": Hog(
        "import os\nfor i in range(40):\n    with open(f'f{i}', 'wb') as f: f.write(bytes(16 << 20))\nprint('THROUGH')",
        ("finished", "over_limit", "timeout"),
    ),
    "one huge file": Hog(
        "f = open('f', 'wb')\nfor i in range(40): f.write(bytes(16 << 20)); f.flush()\nprint('THROUGH')",
        ("finished", "over_limit", "killed", "timeout"),
    ),
    "a hundred thousand small files": Hog(
        "for i in range(100_000): open(f'f{i}', 'w').close()\nprint('THROUGH')", ("finished", "over_limit", "timeout")
    ),
    "a flood of output": Hog("while True: print('y' * 1000)", ("over_limit", "timeout")),
    "a flood of errors": Hog("import sys\nwhile True: sys.stderr.write('y' * 1000)", ("over_limit", "timeout")),
    "a crash of the interpreter": Hog("import ctypes\nctypes.string_at(0)\nprint('THROUGH')", ("killed",)),
    "shared memory that stays": Hog(
        "from multiprocessing.shared_memory import SharedMemory\nSharedMemory('rlvr-left', True, 1 << 20)\n"
        "print('THROUGH')"
    ),
    "a pipe into the file system": Hog("import os\nos.mkfifo({outside!r} + '/pipe')\nprint('THROUGH')"),
    "a socket into the file system": Hog(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind({outside!r} + '/socket')\nprint('THROUGH')"
    ),
}

F_OF_2 = "assert f(2)==4"
F_OF_3 = [F_OF_2, "assert f(3) == 9", "assert f(-1) == 1"]
UNITTEST = (
    "import unittest\nfrom solution import f\nclass T(unittest.TestCase):\n"
    "    def test_it(self): self.assertEqual(f(3), 9)\n    def test_error(self):\n"
    "        with self.assertRaises(TypeError): f('a', 'b')"
)
PYTEST = "from solution import f\n\ndef test_f():\n    assert f(2) == 4\n"
METHOD = "assert Solution().square(3) == 9"
SQUARES = {"stdin": "3\n1 2 3\n", "stdout": "1 4 9\n"}

# name -> (code, tests)
HONEST: dict[str, tuple[str, Any]] = {
    "a function": ("def f(x):\n    return x * x", F_OF_3),
    "a lambda": ("f = lambda x: x ** 2", F_OF_3),
    "recursion": ("def f(x):\n    return 0 if x == 0 else f(abs(x) - 1) + 2 * abs(x) - 1", F_OF_3),
    "a cache": ("import functools\n@functools.lru_cache(None)\ndef f(x): return x * x", F_OF_3),
    "a class with a method": ("class Solution:\n    def square(self, x): return x * x", METHOD),
    "a method called as a function": ("class Solution:\n    def f(self, x): return x * x", F_OF_3),
    "a method that a test program calls as a function": ("class Solution:\n    def f(self, x): return x * x", PYTEST),
    "a partial": (
        "import functools, operator\ndef power(n, x): return x ** n\nf = functools.partial(power, 2)",
        F_OF_3,
    ),
    "prints beside the answer": ("def f(x):\n    print('squaring', x)\n    return x * x", F_OF_3),
    "a demonstration at its end": ("def f(x): return x * x\nprint(f(3))\nassert f(3) == 9", F_OF_3),
    "a main of its own": ("def f(x): return x * x\nif __name__ == '__main__':\n    print(f(int(input())))", F_OF_3),
    "types and a docstring": ('def f(x: int) -> int:\n    """The square of x."""\n    return x * x', F_OF_3),
    "a generator inside": ("def f(x): return sum(2 * i + 1 for i in range(abs(x)))", F_OF_3),
    "numbers of any size": ("def f(x): return x * x", "assert f(10**30) == 10**60"),
    "a list that is sorted in place": ("def f(a): a.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]"),
    "a dictionary": (
        "from collections import Counter\ndef f(s): return Counter(s)",
        "assert f('aab') == {'a': 2, 'b': 1}",
    ),
    "nested values": (
        "def f(n): return [(i, {i: [i]}) for i in range(n)]",
        "assert f(2) == [(0, {0: [0]}), (1, {1: [1]})]",
    ),
    "an exception that is wanted": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass\nassert f(1) == 1",
    ),
    "an object with state": (
        "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n"
        "    def pop(self): return self.x.pop()",
        "s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert s.pop() == 1",
    ),
    "unittest": ("def f(x): return x * x", UNITTEST),
    "pytest": ("def f(x): return x * x", PYTEST),
    "a script": ("n = int(input())\nprint(*[int(x) ** 2 for x in input().split()])", SQUARES),
    "a script over bytes": (
        "import sys\nd = sys.stdin.buffer.read().split()\n"
        "sys.stdout.buffer.write(b' '.join(str(int(x) ** 2).encode() for x in d[1:]))",
        SQUARES,
    ),
    "a script that exits by itself": (
        "import sys\ninput()\nprint(*[int(x) ** 2 for x in input().split()])\nsys.exit()",
        SQUARES,
    ),
    "a script with a main function": (
        "def main():\n    input()\n    print(*[int(x) ** 2 for x in input().split()])\n\nmain()",
        SQUARES,
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\ndef f(x):\n    with ThreadPoolExecutor(2) as pool:\n"
        "        return sum(pool.map(abs, [x] * abs(x)))",
        F_OF_3,
    ),
    "a file of its own": (
        "def f(x):\n    with open('notes.txt', 'w') as file: file.write(str(x * x))\n"
        "    return int(open('notes.txt').read())",
        F_OF_3,
    ),
}
