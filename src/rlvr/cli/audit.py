"""`rlvr audit`: which right answers does a verifier refuse, and which wrong ones does it accept?"""

from __future__ import annotations

import json as _json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlvr.cli import show


def audit(
    verifiers: Annotated[
        list[str], typer.Argument(metavar="VERIFIER...", help="A spec, path.py:function, or a known peer.")
    ],
    corpus: Annotated[
        str | None, typer.Option(metavar="NAME", help="math, wide, numbers, choice, json or code; default by verifier.")
    ] = None,
    golds: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Audit on these golds: a line each, or JSON lines with answer.")
    ] = None,
    wrap: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How an answer is presented; {} is its place.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the generators.")] = 0,
    seconds: Annotated[float, typer.Option(metavar="S", help="Deadline of one call.")] = 5.0,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="A peer's interpreter; default .venv-audit-*, else this one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write audit.md, audit.json, audit.html and raw verdicts.")
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(metavar="LIMIT", help='As in "false_accept" or "false_reject>0.05".')
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Test a verifier, not a model.

    Thousands of rewrites that cannot change an answer's meaning, and mutations
    that must; an off-by-one ladder; hostile answers. Rejections and failures to
    judge are told apart. Each call runs in a process that is killed at its
    deadline. With --out an interrupted audit goes on where it stopped.

    \b
    Examples:
      rlvr audit math
      rlvr audit "numeric(relative=1e-4)" --fail-on ladder
      rlvr audit reward.py:f --wrap "Answer: {}" --out audit
      rlvr audit reward.py:f --corpus code
      rlvr audit math --golds my_tasks.jsonl
      rlvr audit math math-verify mathruler --out audit     (make audit-peers first)

    --fail-on knows false_accept, false_reject, failure (right answers not
    judged), ladder, hostile, killed; exits with 1 when a limit is exceeded.
    Peers: math-verify, math-verify-latex, math-verify-expr, minerva, prm800k,
    verl-math-reward, verl-math-dapo, verl-prime-math, mathruler.
    """
    from rlvr.audit.asking import NotAudited
    from rlvr.audit.corpus import corpus as made
    from rlvr.audit.document import as_json, as_markdown
    from rlvr.audit.fail_on import limits
    from rlvr.audit.golds_file import corpus_of
    from rlvr.audit.run import audited, questions
    from rlvr.audit.tables import code, tables
    from rlvr.audit.targets import target
    from rlvr.report.progress import counting

    wanted = limits(fail_on or [])
    targets = [target(name, wrap, corpus, python) for name in verifiers]
    audits, absent = [], {}
    for chosen in targets:
        pairs = made(chosen.corpus, seed) if golds is None else corpus_of(golds)
        log = None if out is None else out / "raw" / f"{_file_name(chosen.name)}.jsonl"
        with counting(chosen.name, len(questions(pairs)), sys.stderr) as told:
            try:
                audits.append(audited(chosen, pairs, seconds, log, told))
            except NotAudited as error:
                if len(targets) == 1:
                    raise
                absent[chosen.name] = str(error)
    command = "rlvr audit " + " ".join(verifiers) + (f" --seed {seed}" if seed else "")
    if out is not None:
        from rlvr.audit.page import page
        from rlvr.report.store import write_text

        title = "Audit of " + ", ".join(verifiers)
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "audit.md", f"# {title}\n\n{as_markdown(audits)}")
        write_text(out / "audit.json", _json.dumps(as_json(audits, command), indent=1, ensure_ascii=False) + "\n")
        write_text(out / "audit.html", page(audits, title))
    if json:
        show.as_json(as_json(audits, command))
    else:
        for v in audits:
            typer.echo(f"{v.name}  on {v.corpus.name}, {len(v.corpus.pairs)} pairs, asked as {code(v.wrap, 80)}")
            first = tables([v])[0]
            typer.echo(show.table(list(zip(first.columns[2:], first.rows[0][2:]))))
            worst = next((t for t in tables([v]) if t.key == "T7"), None)
            for row in worst.rows if worst else ():
                typer.echo(f"    {row[3]}: {row[1]} and {row[2]} ({row[0]}): {row[4]}")
        if out is not None:
            typer.echo(str(out / "audit.html"))
    broken = [said for limit in wanted for v in audits if (said := limit.broken_by(v))]
    for said in broken:
        typer.echo(f"over the limit: {said}", err=True)
    for name, why in absent.items():
        typer.echo(f"not audited: {name}: {why}", err=True)
    if broken or absent:
        raise typer.Exit(1)


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:80]
