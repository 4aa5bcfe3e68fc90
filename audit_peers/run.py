"""Audit the peers and our own verifiers, one process at a time, and write what was seen.

    python audit_peers/run.py [--raw FOLDER] [--only NAME ...]     everything; `make audit-peers` makes what it needs
    python audit_peers/run.py --speed                              the speed table of a part of the pairs

Writes benchmarks/results/audit.json and the tables of docs/audit.md, between its two marks. The raw verdicts stay in
--raw; an interrupted run goes on where it stopped. Exits with 1 and says why where one of ours is over its limit (HELD)
or could not be audited.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from rlvr.audit.asking import NotAudited
from rlvr.audit.corpus import corpus
from rlvr.audit.document import as_json, as_markdown, machine, markdown
from rlvr.audit.fail_on import limits
from rlvr.audit.run import Verdicts, audited
from rlvr.audit.tables import tables
from rlvr.audit.targets import PEERS, target

ROOT = Path(__file__).parents[1]
# Ours, and the limits that each is held to, as --fail-on writes them.
NOTHING_WRONG = "false_accept, ladder, hostile, killed"
HELD = {
    "math": f"{NOTHING_WRONG}, false_reject>0.005",
    "last_box": NOTHING_WRONG,  # it compares texts: it refuses every other spelling by its contract
    "numeric": f"{NOTHING_WRONG}, false_reject",
    "choice": f"{NOTHING_WRONG}, false_reject",
    "json_schema": f"{NOTHING_WRONG}, false_reject",
    "code": f"{NOTHING_WRONG}, false_reject",
}
SECONDS = 10.0  # twice the longest limit that a peer sets itself, so that its own limit shows
BEGIN, END = "<!-- tables: made by make audit-peers -->", "<!-- end of tables -->"
EVERY = 12  # of the honest pairs, for --speed


def run(names: list[str], raw: Path | None, every: int = 1) -> tuple[list[Verdicts], dict[str, str]]:
    """The audits, and why others could not be made."""
    audits, absent = [], {}
    for name in names:
        chosen = target(name)
        asked = corpus(chosen.corpus)
        if every > 1:
            asked = replace(asked, pairs=tuple(p for p in asked.pairs if p.part == "pairs")[::every])
        try:
            audits.append(audited(chosen, asked, SECONDS, raw / f"{name}.jsonl" if raw else None))
            print(f"{name}: {len(asked.pairs)} pairs", flush=True)
        except NotAudited as error:
            absent[name] = str(error)
            print(f"{name}: not audited: {error}", flush=True)
    return audits, absent


def faults(audits: list[Verdicts], absent: dict[str, str]) -> list[str]:
    """What is wrong with ours, in sentences."""
    found = [f"{name} was not audited: {why}" for name, why in absent.items() if name in HELD]
    for v in audits:
        for limit in limits([held] if (held := HELD.get(v.name.partition("(")[0])) else []):
            if said := limit.broken_by(v):
                found.append(said)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, default=ROOT / ".tmp" / "audit", help="folder of the raw verdicts")
    parser.add_argument("--only", nargs="*", default=[*HELD, *PEERS], help="names; default all")
    parser.add_argument("--speed", action="store_true", help="only print how fast each is")
    options = parser.parse_args()
    if options.speed:
        audits, _ = run([name for name in options.only if target(name).corpus == "math"], None, EVERY)
        print(markdown(next(table for table in tables(audits) if table.key == "T10"), 1))
        return
    audits, absent = run(options.only, options.raw)
    told = as_json(audits, "make audit-peers") | {"absent": absent}
    (ROOT / "benchmarks" / "results" / "audit.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    doc = ROOT / "docs" / "audit.md"
    head, rest = doc.read_text(encoding="utf-8").split(BEGIN)
    versions = {f"{k} {n}" for v in audits for k, n in v.about.get("versions", {}).items()}
    facts = (
        f"Measured {told['made']['date']} on {machine()}, other work running beside it; {', '.join(sorted(versions))}."
    )
    gone = "".join(f"\n\nNot audited: {name}: {why}" for name, why in absent.items())
    body = f"{BEGIN}\n\n{facts}{gone}\n\n{as_markdown(audits)}\n{END}"
    doc.write_text(head + body + rest.split(END)[1], encoding="utf-8")
    found = faults(audits, absent)
    for said in found:
        print(f"over the limit: {said}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
