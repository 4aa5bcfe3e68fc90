"""Read the test pairs that other verifiers publish, as data, out of the packages they come in.

    python -m pip download --no-deps --no-binary :all: math-verify==0.9.0 lm-eval==0.4.13 --dest FOLDER
    python -m pip download --no-deps reward-doctor==0.2.0 --dest FOLDER
    python audit_peers/published.py FOLDER

Writes tests/cases/published/pairs.jsonl. Nothing of theirs is run: the tests' source is parsed, and only constants are
taken out of it. What is made by an expression is left out, and said.
"""

from __future__ import annotations

import argparse
import ast
import json
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "tests" / "cases" / "published" / "pairs.jsonl"
MATH_VERIFY, LM_EVAL, DOCTOR = "math-verify 0.9.0", "lm-eval 0.4.13", "reward-doctor 0.2.0"
Row = dict[str, Any]


def constant(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of a constant, of constants in a sequence, of a sum or a multiple of them. ValueError for others."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Tuple | ast.List):
        return [constant(item, names) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return constant(node.left, names) + constant(node.right, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return constant(node.left, names) * constant(node.right, names)
    raise ValueError(ast.unparse(node)[:90])


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, list[str], list[ast.expr]]]:
    """(test, names of its parameters, rows) of every parametrised test."""
    for test in tree.body:
        for made in test.decorator_list if isinstance(test, ast.FunctionDef) else []:
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "parametrize":
                assert isinstance(test, ast.FunctionDef)
                assert isinstance(made.args[1], ast.List)
                names = [name.strip() for name in constant(made.args[0], {}).split(",")]
                yield test, names, made.args[1].elts


def math_verify(tree: ast.Module, file: str) -> Iterator[Row | str]:
    """Rows of gold, pred, expected. Their rounding to `precision` decimals, six by default, is our `decimals`; a
    percent sign there counts for nothing."""
    for test, names, rows in functions(tree):
        if "gold" not in names:
            continue
        body = ast.unparse(test)
        usual = 5 if "precision=5" in body else 6
        for n, node in enumerate(rows):
            try:
                row = dict(zip(names, constant(node, {})))
            except ValueError as fault:
                yield f"{file} {test.name} {n}: {fault}"
                continue
            settings = {"decimals": row.get("precision", usual), "percent": "ignore"}
            equal = bool(row.get("expected", row.get("result")))
            yield pair(MATH_VERIFY, f"{file}:{test.name}:{n}", row["gold"], row["pred"], equal, settings)


def lm_eval(tree: ast.Module, file: str) -> Iterator[Row | str]:
    """What is said of is_equiv: of an answer and itself, of two, of a prediction and a gold."""
    for test, names, rows in functions(tree):
        asks = "is_equiv(" in ast.unparse(test)
        for n, node in enumerate(rows if asks else []):
            args = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else [node]
            texts = [constant(arg, {}) for arg in args]
            answer, gold = (texts * 2)[:2]
            yield pair(LM_EVAL, f"{file}:{test.name}:{n}", gold, answer, names != ["x1", "x2"], {"mode": "whole"})
    for test in tree.body:
        said = [node for node in ast.walk(test) if isinstance(node, ast.Assert)]
        for n, node in enumerate(said):
            call, equal = node.test, True
            if isinstance(call, ast.UnaryOp):
                call, equal = call.operand, False
            texts = [inner.value for inner in ast.walk(call) if isinstance(inner, ast.Constant)]
            if isinstance(test, ast.FunctionDef) and "is_equiv" in ast.unparse(call) and len(texts) == 2:
                yield pair(LM_EVAL, f"{file}:{test.name}:{n}", texts[1], texts[0], equal, {"mode": "whole"})


def doctor(tree: ast.Module, file: str) -> Iterator[Row | str]:
    """Calls that make a case: _eq and _fmt right, _ne and _x wrong; the gold of _x is 42 unless it is said."""
    names = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        kind = call.func.id  # type: ignore[attr-defined]
        if kind not in ("_eq", "_fmt", "_ne", "_x"):
            continue
        told = {word.arg: word.value for word in call.keywords}
        try:
            name, second, third = (constant(arg, names) for arg in call.args[:3])
        except ValueError as fault:
            yield f"{file}: {fault}"
            continue
        gold = constant(told["reference"], {}) if "reference" in told else "42" if kind == "_x" else second
        contested = {"contested": True} if "contested" in ast.unparse(call) else {}
        yield pair(DOCTOR, name, gold, third, kind in ("_eq", "_fmt"), {}) | contested


def pair(source: str, test: str, gold: str, answer: str, equal: bool, settings: Row) -> Row:
    return {"source": source, "test": test, "gold": gold, "answer": answer, "equal": equal, "settings": settings}


READERS = (
    ("math_verify-0.9.0.tar.gz", "/tests/test_", math_verify),
    ("lm_eval-0.4.13.tar.gz", "/tests/test_minerva_math", lm_eval),
    ("reward_doctor-0.2.0-py3-none-any.whl", "/corpus/", doctor),
)


def sources(package: Path, part: str) -> Iterator[tuple[str, str]]:
    """(file name, text) of the Python files in a package whose path holds `part`."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            for name in sorted(archive.namelist()):
                if part in f"/{name}" and name.endswith(".py"):
                    yield Path(name).name, archive.read(name).decode()
        return
    with tarfile.open(package) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            opened = tar.extractfile(member) if part in member.name and member.name.endswith(".py") else None
            if opened is not None:
                yield Path(member.name).name, opened.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages lie")
    folder = parser.parse_args().folder
    rows: list[Row] = []
    for package, part, reader in READERS:
        for file, text in sources(folder / package, part):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # their escapes
                tree = ast.parse(text)
            for found in reader(tree, file):
                if isinstance(found, str):
                    print(f"left out: {found}")
                else:
                    rows.append(found)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} pairs in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
