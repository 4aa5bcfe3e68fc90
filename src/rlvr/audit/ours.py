"""The asked side for our own verifiers and for functions of a file: `python -m rlvr.audit.ours SPEC`.

A verdict is accept (right), reject (wrong), or a failure: unknown, or wrong because nothing could be read (no_answer,
unparsable, over_limit). `path.py:f` is called in this very process, which the asker can kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlvr.verify
from rlvr.records import Task, Verdict
from rlvr.verify.calls import item_of, item_to_json
from rlvr.verify.code import Code
from rlvr.verify.function import Function, open_function
from rlvr.verify.judge import judge
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import Verifier

UNREAD = frozenset(["no_answer", "unparsable", "over_limit"])


def outcome(verdict: Verdict) -> tuple[str, str]:
    """(accept, reject or failure; the reason's code without its detail)."""
    reason = verdict.reason.partition(":")[0]
    if verdict.label == "right":
        return "accept", reason
    return ("failure" if verdict.label == "unknown" or reason in UNREAD else "reject"), reason


def answerer(verifier: Verifier) -> Callable[[str, str], Verdict]:
    """(gold, text) -> verdict."""
    if isinstance(verifier, Function):
        file = os.path.abspath(verifier.path.rpartition(":")[0])
        settings = {"path": f"{file}:{verifier.path.rpartition(':')[2]}", "right_above": verifier.right_above}
        _, call = open_function(settings)
        return lambda gold, text: Verdict(**call([item_to_json(item_of(text, _task(gold)))])[0])
    return lambda gold, text: judge(verifier, [(text, _task(gold))])[0]


def _task(gold: str) -> Task:
    return Task("audit", "", gold)


def main(spec: str) -> None:
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # print() must not write a reply
    try:
        verifier = verifier_from(spec)
        ask = answerer(verifier)
    except Exception as error:
        _say(sink, {"absent": f"{spec} cannot be built: {type(error).__name__}: {error}"})
        return
    _say(sink, {"name": spec, "fingerprint": verifier.fingerprint, "code": _code(), "python": sys.version.split()[0]})
    elsewhere = isinstance(verifier, Code)  # it works in other processes: their time is taken as the wall's
    for line in source:
        gold, text = json.loads(line)
        began, cpu = time.perf_counter(), time.process_time()
        result = outcome(ask(gold, text))
        wall, spent = time.perf_counter() - began, time.process_time() - cpu
        _say(sink, [*result, wall if elsewhere else spent, wall])


def _code() -> str:
    """A digest of our verifiers' source: an audit of other code is another audit."""
    folder = Path(rlvr.verify.__file__).parent
    source = b"".join(file.read_bytes() for file in sorted(folder.rglob("*.py")))
    return hashlib.sha256(source).hexdigest()[:12]


def _say(sink: Any, reply: Any) -> None:
    sink.write(json.dumps(reply).encode() + b"\n")
    sink.flush()


if __name__ == "__main__":
    main(sys.argv[1])
