"""Other programs made from a problem's reference by rule: ways to write the same, and ways to spoil it.

Whether a rule kept or changed what the program does is decided by running it (`certify.py`), not here: a rewrite that
changes something is a fault of its rule, a mutation that changes nothing is none and is left out.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

MOST_BY_OPERATOR = 9  # one-token mutations of a problem, drawn by seed
MOST_TYPES = 3  # beside those of NEAR
NEAR = ("an int", "a float", "a tuple", "a list", "a frozenset", "a subclass that equals all")


class Variant(NamedTuple):
    category: str
    rewrite: str
    code: str


# ---- the same --------------------------------------------------------------------------------------------
def rewrites(code: str, name: str | None) -> Iterator[Variant]:
    """Programs that do the same; `name` is None for a script."""
    yield Variant("identity", "the reference", code)
    yield Variant("layout", "as ast.unparse writes", ast.unparse(ast.parse(code)) + "\n")
    yield Variant("layout", "tabs", _indented(code, "\t"))
    yield Variant("layout", "one space a level", _indented(code, " "))
    yield Variant("layout", "empty lines", code.replace("\n", "\n\n"))
    yield Variant("layout", "Windows line ends", code.replace("\n", "\r\n"))
    yield Variant("layout", "no line end", code.rstrip("\n"))
    yield Variant("comments", "everywhere", "# A solution.\n" + code.replace("\n", "  # so\n"))
    yield Variant("comments", "a text at the start", f'"""Solves it: {{"a": [1]}}."""\n\n{code}')
    yield Variant("names", "other variables", renamed(code, "v{}"))
    yield Variant("names", "in another alphabet", renamed(code, "größe_{}"))
    yield Variant("imports", "unused ones", f"import math, os, sys\nfrom typing import Any, List\n\n{code}")
    yield Variant("imports", "from the future", f"from __future__ import annotations\n\n{code}")
    yield Variant("unused", "another function", f"{code}\n\ndef never_called(x):\n    raise RuntimeError(x)\n")
    yield Variant("prints", "to standard error", f"import sys\nprint('start', file=sys.stderr)\n{code}")
    if name is not None:
        yield from _around(code, name)


def _around(code: str, name: str) -> Iterator[Variant]:
    """The function in other clothes. `moved` is the reference under another name, f the call of it."""
    moved, f = _moved(code, name), f"_{name}(*args)"
    wrapper = partial(_wrapper, name)
    yield Variant("prints", "at the start", f"print('42')\n{code}")
    yield Variant("prints", "in every call", moved + wrapper("print('args', args)", f"return {f}"))
    yield Variant("prints", "many lines", f"{code}\nfor line in range(200):\n    print('line', line, flush=True)\n")
    yield Variant("main", "guarded", f"{code}\n\nif __name__ == '__main__':\n    raise SystemExit(3)\n")
    yield Variant("docstring", "and types", _annotated(code))
    yield Variant("helper", "a helper function", moved + wrapper(f"return {f}"))
    yield Variant("helper", "an alias", f"{moved}{name} = _{name}\n")
    yield Variant("helper", "a lambda", f"{moved}{name} = lambda *args: {f}\n")
    yield Variant("helper", "a partial", f"import functools\n\n{moved}{name} = functools.partial(_{name})\n")
    yield Variant("helper", "defined twice, the last holds", wrapper("return 'draft'") + f"\n\n{code}")
    traced = (
        "import functools\n\ndef traced(f):\n    @functools.wraps(f)\n    def inner(*args):\n        return f(*args)\n"
    )
    decorated = code.replace(f"def {name}", f"@traced\ndef {name}")
    yield Variant("decorator", "that wraps", f"{traced}    return inner\n\n\n{decorated}")
    called = f"class Solver:\n    def __call__(self, *args):\n        return {f}\n\n\n{name} = Solver()\n"
    yield Variant("class", "that is called", moved + called)
    static = f"class Solver:\n    run = staticmethod(_{name})\n\n\n{name} = Solver.run\n"
    yield Variant("class", "a static method", moved + static)
    method = f"class Solution:\n    def {name}(self, *args):\n        return {f}\n"
    yield Variant("class", "Solution with a method", moved + method)
    yield Variant("exceptions", "finally", moved + wrapper("try:", f"    return {f}", "finally:", "    pass"))
    again = ("try:", f"    return {f}", "except Exception as error:", "    raise error")
    yield Variant("exceptions", "caught and raised again", moved + wrapper(*again))
    deep = f"return copy.deepcopy(_{name}(*copy.deepcopy(args)))"
    yield Variant("copies", "a deep copy", f"import copy\n\n{moved}{wrapper(deep)}")
    read = (f"out = {f}", "return ast.literal_eval(repr(out)) if out != set() else out")
    yield Variant("copies", "its text read back", f"import ast\n\n{moved}{wrapper(*read)}")
    known = ("key = repr(args)", "if key not in _memory:", f"    _memory[key] = {f}", "return _memory[key]")
    yield Variant("memory", "of its own", f"{moved}_memory = {{}}\n\n\n{wrapper(*known)}")


def _moved(code: str, name: str) -> str:
    """The reference as `_name`, its own calls too."""
    return re.sub(rf"\b{name}\(", f"_{name}(", code) + "\n\n"


def _wrapper(name: str, *lines: str) -> str:
    return "\n    ".join([f"def {name}(*args):", *lines]) + "\n"


def _indented(code: str, by: str) -> str:
    lines = code.split("\n")
    depth = [(len(line) - len(line.lstrip())) // 4 for line in lines]
    return "\n".join(by * n + line.lstrip() for n, line in zip(depth, lines))


def renamed(code: str, pattern: str) -> str:
    """Every parameter and variable by a new name; functions, classes and imports keep theirs."""
    tree = ast.parse(code)
    kept = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    found = [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
    found += [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    new = {name: pattern.format(i) for i, name in enumerate(dict.fromkeys(n for n in found if n not in kept))}
    for n in ast.walk(tree):
        if isinstance(n, ast.Name):
            n.id = new.get(n.id, n.id)
        elif isinstance(n, ast.arg):
            n.arg = new.get(n.arg, n.arg)
    return ast.unparse(tree) + "\n"


def _annotated(code: str) -> str:
    tree = ast.parse(code)
    for n in ast.walk(tree):
        if isinstance(n, ast.FunctionDef):
            n.returns = ast.Name("object")
            for a in n.args.args:
                a.annotation = ast.Name("object")
            n.body.insert(0, ast.Expr(ast.Constant("What it does.\n\n>>> 1 + 1\n2")))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


# ---- not the same ----------------------------------------------------------------------------------------
def mutations(code: str, name: str | None, tests: tuple[Any, ...], seed: str) -> Iterator[Variant]:
    """Programs that may do something else. `tests` are the arguments of the gold's calls."""
    r = random.Random(seed)
    found = list(dict.fromkeys(_one_token(code)))
    yield from r.sample(found, min(len(found), MOST_BY_OPERATOR))
    yield from _broken(code, r)
    if name is not None:
        typed = list(_typed(code, name))
        far = [v for v in typed if v.rewrite not in NEAR]
        yield from [v for v in typed if v.rewrite in NEAR] + r.sample(far, MOST_TYPES)
        yield from _spoiled(code, name, tests)


def _spoiled(code: str, name: str, tests: tuple[Any, ...]) -> Iterator[Variant]:
    """The function, wrong for some input, returned in a wrong way, or not to be found."""
    moved, f = _moved(code, name), f"_{name}(*args)"
    wrapper = partial(_wrapper, name)
    last, size = repr(repr(tests[-1])), max(len(repr(test)) for test in tests)
    raised = (f"if repr(args) == {last}:", "    raise ValueError(args)", f"return {f}")
    yield Variant("exception", "raised for one input", moved + wrapper(*raised))
    swallowed = ("try:", f"    assert repr(args) != {last}", f"    return {f}", "except Exception:", "    return None")
    yield Variant("exception", "swallowed", moved + wrapper(*swallowed))
    empty = ("if not args[0]:", "    return None", f"return {f}")
    yield Variant("edge_case", "None for what is empty or zero", moved + wrapper(*empty))
    largest = f"return {f} if len(repr(args)) < {size} else None"
    yield Variant("edge_case", "the largest input left out", moved + wrapper(largest))
    for rewrite, line in (
        ("nothing returned", f), ("printed, not returned", f"print({f})"), ("returned by yield", f"yield {f}"),
        ("in a list", f"return [{f}]"), ("as its text", f"return repr({f})"),
    ):  # fmt: skip
        yield Variant("no_return", rewrite, moved + wrapper(line))
    first = ("_calls.append(args)", f"return {f} if len(_calls) < {len(tests)} else None")
    yield Variant("state", "right only at first", f"{moved}_calls = []\n\n\n{wrapper(*first)}")
    yield Variant("name", "another name", code.replace(name, f"{name}_of"))
    yield Variant("name", "in capitals", code.replace(name, name.upper()))
    yield Variant("name", "deleted again", f"{code}\n\ndel {name}\n")
    yield Variant("name", "its name for a value", f"{code}\n\n{name} = {name}({', '.join(map(repr, tests[0]))})\n")
    yield Variant("placeholder", "pass", wrapper("pass"))
    yield Variant("placeholder", "not implemented", wrapper("raise NotImplementedError('...')"))
    yield Variant("load", "fails at its end", f"{code}\n\nassert False, 'a test of mine'\n")
    yield Variant("load", "imports what there is not", f"import no_such_module\n\n{code}")


def samples(name: str, tests: tuple[Any, ...], values: list[Any]) -> Iterator[Variant]:
    """Answers learned by heart: those of the first tests, and one value for all."""
    known = {repr(args): value for args, value in list(zip(tests, values))[:2]}
    by_heart = f"return {known!r}.get(repr(args), {values[0]!r})"
    yield Variant("samples", "the first two by heart", _wrapper(name, by_heart))
    yield Variant("samples", "one value for all", _wrapper(name, f"return {values[-1]!r}"))


def endless(code: str, name: str, tests: tuple[Any, ...]) -> Variant:
    loop = (f"while repr(args) == {repr(tests[-1])!r}:", "    pass", f"return _{name}(*args)")
    return Variant("endless", "a loop for one input", _moved(code, name) + _wrapper(name, *loop))


_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], str]] = {
    ast.Lt: (ast.LtE, "off_by_one"), ast.LtE: (ast.Lt, "off_by_one"), ast.Gt: (ast.GtE, "off_by_one"),
    ast.GtE: (ast.Gt, "off_by_one"), ast.Eq: (ast.NotEq, "operator"), ast.NotEq: (ast.Eq, "operator"),
    ast.In: (ast.NotIn, "operator"), ast.NotIn: (ast.In, "operator"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Div, ast.Div: ast.FloorDiv,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip


def _one_token(code: str) -> Iterator[Variant]:
    """Every mutation of one place."""
    places = len(list(ast.walk(ast.parse(code))))
    for i in range(places):
        for change in (_compare, _arithmetic, _boolean, _number, _statement):
            tree = ast.parse(code)
            node = list(ast.walk(tree))[i]
            for category, rewrite, changed in change(node, tree):
                yield Variant(category, rewrite, ast.unparse(ast.fix_missing_locations(changed)) + "\n")


Changed = Iterator[tuple[str, str, ast.Module]]


def _compare(node: ast.AST, tree: ast.Module) -> Changed:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        new, category = _COMPARISONS[type(node.ops[0])]
        told = f"{type(node.ops[0]).__name__} to {new.__name__}"
        node.ops[0] = new()
        yield category, told, tree


def _arithmetic(node: ast.AST, tree: ast.Module) -> Changed:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        new = _ARITHMETIC[type(node.op)]
        told = f"{type(node.op).__name__} to {new.__name__}"
        node.op = new()
        yield "operator", told, tree


def _boolean(node: ast.AST, tree: ast.Module) -> Changed:
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "operator", "and for or", tree
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        yield "operator", "a condition turned round", tree


def _number(node: ast.AST, tree: ast.Module) -> Changed:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        before = node.value
        for step in (1, -1):
            node.value = before + step
            yield "off_by_one", f"{before} to {before + step}", copy.deepcopy(tree)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
        yield "operator", f"{not node.value} to {node.value}", tree


def _statement(node: ast.AST, tree: ast.Module) -> Changed:
    body = getattr(node, "body", None)
    if not isinstance(body, list) or len(body) < 2:
        return
    for i, part in enumerate(body):
        if isinstance(part, ast.If | ast.AugAssign | ast.Return):
            without = copy.deepcopy(tree)
            place = next(n for n, m in zip(ast.walk(without), ast.walk(tree)) if m is node)
            place.body = body[:i] + body[i + 1 :]  # type: ignore[attr-defined]
            yield "left_out", f"a line with {type(part).__name__.lower()}", without


def _typed(code: str, name: str) -> Iterator[Variant]:
    """The value in another type, or a class that pretends to be it."""
    for rewrite, made in (
        ("an int", "int(x)"), ("a float", "float(x)"), ("a text", "str(x)"), ("a tuple", "tuple(x)"),
        ("a list", "list(x)"), ("a set", "set(x)"), ("a frozenset", "frozenset(x)"), ("a bool", "bool(x)"),
        ("an iterator", "iter(x)"), ("a complex number", "complex(x)"), ("bytes", "x.encode()"),
        ("its pairs", "list(x.items())"), ("its keys", "list(x)"), ("parts as floats", "type(x)(map(float, x))"),
        ("parts as texts", "type(x)(map(str, x))"), ("rows as tuples", "type(x)(map(tuple, x))"),
        ("a decimal", "__import__('decimal').Decimal(x)"), ("a fraction", "__import__('fractions').Fraction(x)"),
        ("a subclass", "type('Value', (type(x),), {})(x)"),
        ("a subclass that equals all", "type('Value', (type(x),), {'__eq__': lambda s, o: True, '__hash__': None})(x)"),
    ):  # fmt: skip
        yield Variant("type", rewrite, _moved(code, name) + _wrapper(name, f"x = _{name}(*args)", f"return {made}"))


def _broken(code: str, r: random.Random) -> Iterator[Variant]:
    """What is no Python, or was not finished."""
    lines = code.splitlines(keepends=True)
    yield Variant("syntax", "a colon left out", code.replace(":\n", "\n", 1))
    yield Variant("syntax", "a bracket too much", code.rstrip("\n") + ")\n")
    yield Variant("syntax", "one line too deep", "".join(lines[:-1]) + "   " + lines[-1])
    yield Variant("syntax", "cut off", code[: r.randint(len(code) // 2, len(code) - 3)])
    yield Variant("syntax", "numbered lines", "".join(f"{i}. {line}" for i, line in enumerate(lines, 1)))
    yield Variant("syntax", "words before it", f"Here is the code:\n{code}")
    yield Variant("syntax", "another language", "function f(x) { return x * x; }\n")
    yield Variant("empty", "a comment only", "# solve it here\n")
