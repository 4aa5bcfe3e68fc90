"""`rlvr new`: a file that works, and a test of it that passes as written, to change into your own."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated

import typer

from rlvr.cli.names import PLURALS

TEMPLATES = Path(__file__).parent / "templates"
# kind -> how it is used, once it is there
USES = {
    "method": 'rlvr check {file}:{name}\nrlvr train quickstart --method "+{file}:{name}"',
    "verifier": "rlvr train quickstart --set verifier={file}:{name}",
    "tasks": "rlvr train quickstart --set tasks={file}:{name}",
}


class CannotCreate(ValueError):
    """The file cannot be written as asked."""


def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="method, verifier or tasks.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A Python name, such as my_paper.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to.")] = Path(),
) -> None:
    """Write a small working file and its test, to change into your own.

    \b
    Examples:
      rlvr new method my_paper
      rlvr new verifier last_word --out checks
      rlvr new tasks my_tasks

    Nothing is ever written over.
    """
    kind = PLURALS.get(kind, kind)
    if kind not in USES:
        raise CannotCreate(f"there is no template for {kind!r}; there are: {', '.join(USES)}")
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise CannotCreate(f"{name!r} is not a name for a Python function; write small letters, e.g. my_{kind}")
    from rlvr import registry

    if name in registry.names(kind):
        raise CannotCreate(f"{name} is the name of a {kind} already; choose another")
    files = {out / f"{name}.py": "{}.py", out / f"test_{name}.py": "test_{}.py"}
    taken = [str(file) for file in files if file.exists()]
    if taken:
        raise CannotCreate(f"there is already {' and '.join(taken)}; nothing was written")
    out.mkdir(parents=True, exist_ok=True)
    old = f"my_{kind}"
    for file, template in files.items():
        text = (TEMPLATES / template.format(old)).read_text(encoding="utf-8")
        file.write_text(text.replace(old, name).replace(_camel(old), _camel(name)), encoding="utf-8")
        typer.echo(f"wrote {file}")
    file = out / f"{name}.py"
    typer.echo(f"try it:\n  pytest {out / f'test_{name}.py'}")
    for line in USES[kind].format(file=file, name=name).splitlines():
        typer.echo(f"  {line}")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
