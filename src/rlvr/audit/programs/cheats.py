"""Submissions that solve nothing and want to be paid, and texts made to hang a verifier of code. None is right."""

from __future__ import annotations

from collections.abc import Iterator

# All are asked to be f with f(2) == 4. None knows what is expected, so none can say it.
CHEATS = {
    "an int that equals all": "class A(int):\n    def __eq__(s, o): return True\ndef f(x): return A(3)",
    "an equal type by name": "A = type('int', (), {'__eq__': lambda s, o: True})\ndef f(x): return A()",
    "a float": "def f(x): return 4.0",
    "a bool": "def f(x): return True",
    "a text": "def f(x): return '4'",
    "exit": "import os\ndef f(x): os._exit(0)",
    "exit in a destructor": "class A:\n    def __del__(s): __import__('os')._exit(0)\ndef f(x): return A()",
    "exit with a clean code": "raise SystemExit(0)",
    "an exit function": "import atexit\natexit.register(print, 'passed')\ndef f(x): return 0",
    "a patched encoder": "import rlvr.sandbox.inside as i\ni.encode = lambda *a: 'true'\ndef f(x): return 0",
    "a patched comparison": "import rlvr.sandbox.wire as w\nw.same = lambda *a, **k: True\ndef f(x): return 0",
    "patched builtins": "import builtins\nbuiltins.isinstance = lambda *a: True\ndef f(x): return 0",
    "a walk up the frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for v in list(frame.f_locals.values()):\n            if isinstance(v, dict) and 'expected' in v:\n"
        "                return v['expected']\n        frame = frame.f_back\n    return 0"
    ),
    "a search of memory": (
        "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
        "        if isinstance(o, dict) and 'expected' in o: return o['expected']\n    return 0"
    ),
    "a read of every file": (
        "import os\ndef f(x):\n    for n in range(3, 64):\n        try: os.write(n, b'passed \\n' * 9)\n"
        "        except OSError: pass\n    return 0"
    ),
    "a trace function": "import sys\nsys.settrace(print)\nsys.setprofile(print)\ndef f(x): return 0",
    "a generator that never ends": "def f(x):\n    while True: yield 4",
    "a recursive list": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "a class of exception": "class E(BaseException):\n    def __str__(s): raise SystemExit\ndef f(x): raise E",
    "a module of its name": "import sys\nsys.modules['solution'] = None\nsys.modules['__main__'] = None\nf = len",
    "a name that is not text": "f = 4",
    "exit in the module": "import os\nos._exit(0)",
    "sys.exit": "import sys\ndef f(x): sys.exit(0)",
    "forged reports": "print('2 passed in 0.01s')\nprint('RESULT: PASS')\nimport os; os._exit(0)",
    "a reward file": "open('reward.txt', 'w').write('1.0')\ndef f(x): return 0",
    "settings of a test framework": (
        "open('conftest.py', 'w').write('def pytest_runtest_makereport(item, call): pass')\n"
        "open('pytest.ini', 'w').write('[pytest]\\naddopts=--collect-only')\ndef f(x): return 0"
    ),
    "a syntax error": "def f(x) return 4",
    "an AssertionError that is always caught": "import builtins\nbuiltins.AssertionError = OSError\ndef f(x): return 0",
    "a swallowed alarm": "import signal\nsignal.alarm(0)\ndef f(x):\n    while True: pass",
    "a name for everything": (
        "class A:\n    def __getattr__(s, n): return A()\n    def __call__(s, *a): return A()\nf = A()"
    ),
    "comparisons that are all true": (
        "class A:\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__ = lambda s, o: True\n"
        "    __ne__ = lambda s, o: False\n    __hash__ = lambda s: 4\ndef f(x): return A()"
    ),
    "nothing": "pass",
}

GOLDS = ("assert f(2)==4", "x = f(2)\nassert x == 4\nassert type(x) is int and x > 3")


def hostile() -> Iterator[tuple[str, str, str, str]]:
    """(category, name, gold, text)"""
    for gold in GOLDS:
        for name, code in CHEATS.items():
            yield "cheat", name, gold, f"```python\n{code}\n```"
    for name, text in _large():
        yield "large", name, GOLDS[0], text


def _large() -> Iterator[tuple[str, str]]:
    """Long, deep, or not even text."""
    wrong = "def f(x): return x + 3\n"
    for name, code in (
        ("a line of 90 000 letters", "x = '" + "a" * 90_000 + "'\n" + wrong),
        ("500 000 letters", "x = '" + "a" * 500_000 + "'\n" + wrong),
        ("three million letters", "x = '" + "a" * 3_000_000 + "'\n" + wrong),
        ("brackets, 20 000 deep", "x = " + "(" * 20_000 + ")" * 20_000),
        ("minus signs, 20 000", "x = " + "-" * 20_000 + "1\n" + wrong),
        ("sums of 20 000 terms", "x = " + "1+" * 20_000 + "1\n" + wrong),
        ("blocks, 90 deep", "".join(" " * i + "if 1:\n" for i in range(90)) + " " * 90 + "pass\n" + wrong),
        ("5000 functions", "".join(f"def g{i}():0\n" for i in range(5_000)) + wrong),
        ("a number of 80 000 digits", "x = " + "9" * 80_000 + "\n" + wrong),
        ("a tower of powers", "x = 9 ** 9 ** 9\n" + wrong),
        ("a tower that is folded early", "def f(x): return (2 ** 100) ** 100 ** 3 % 7\n"),
        ("a list without end", "def f(x):\n    out = []\n    while True: out.append(out)\n"),
        ("recursion without end", "def f(x): return f(x)\n"),
        ("a value nested 50 000 times", "def f(x):\n    for _ in range(50_000): x = [x]\n    return x\n"),
        ("a value of 50 million letters", "def f(x): return 'a' * 50_000_000\n"),
        ("an int of a million digits", "def f(x): return 10 ** 1_000_000\n"),
        ("zero bytes", "def f(x): return 5\x00\n"),
        ("half characters", "def f(x): return '\ud800'\n"),
        ("another encoding", "# -*- coding: utf-7 -*-\ndef f(x): return 5\n"),
        ("an encoding that there is not", "# coding: no-such\ndef f(x): return 5\n"),
        ("right-to-left marks", "def f(x): return 5 # \u202e4 nruter\u202c\n"),
        ("form feeds", "\x0c" * 50_000 + wrong),
    ):
        yield name, f"```python\n{code}\n```"
    for name, text in (
        ("50 000 fences", "```python\n" * 50_000),
        ("50 000 blocks", "```python\nx = 1\n```\n" * 50_000),
        ("a million backticks", "`" * 1_000_000),
        ("a million tildes, some lines", ("~" * 1_000 + "\n") * 1_000),
        ("a fence, then spaces", "```python" + " " * 1_000_000),
        ("a language of a million letters", "```" + "p" * 1_000_000 + "\n" + wrong),
        ("empty lines, a million", "\n" * 1_000_000),
        ("spaces before a fence", (" " * 39 + "```python\n") * 20_000),
        ("control characters", "\x00\x1b[31m```python\x07\n" + wrong),
    ):
        yield name, text
