"""The border between rollouts and verdicts: whatever happens behind it, every rollout gets exactly one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from rlvr.records import Rollout, Task, Verdict
from rlvr.verify.heard import Heard, hearing
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import Verifier, VerifierBroken, error_reason, unknown, words

LONGEST_TOLD = 500  # characters of an exception's text that are shown

Pair = tuple[Rollout | str, Task]
named = lru_cache(maxsize=64)(verifier_from)  # verifiers that tasks name, with their worker processes
_heard = lru_cache(maxsize=64)(Heard)  # what each verifier said so far, by its fingerprint


def judge(verifier: Verifier, items: Sequence[Pair]) -> list[Verdict]:
    """One verdict for each (rollout or text, task), in their order, with seconds and fingerprint filled in.

    A task that names a verifier is judged by that one. A failed or aborted rollout is the machine's fault: `unknown`,
    "rollout_failed" or "rollout_aborted"; a truncated one is judged as it stands. What a verifier raises becomes
    `unknown` with its reason, except VerifierBroken, which says that it can never work. Ctrl-C passes.
    """
    verdicts: list[Verdict | None] = [None] * len(items)
    waiting: dict[str | None, list[int]] = {}  # by the verifier's name; None is the run's own
    for i, (what, task) in enumerate(items):
        if isinstance(what, Rollout) and what.status in ("failed", "aborted"):
            verdicts[i] = unknown(f"rollout_{what.status}: {what.reason}" if what.reason else f"rollout_{what.status}")
        else:
            waiting.setdefault(task.verifier, []).append(i)
    for name, rows in waiting.items():
        for i, verdict in zip(rows, _judge_by(verifier, name, [items[i] for i in rows])):
            verdicts[i] = verdict
    return [verdict or unknown("verifier_error: no verdict came back") for verdict in verdicts]


def _judge_by(default: Verifier, name: str | None, items: Sequence[Pair]) -> list[Verdict]:
    try:
        verifier = default if name is None else named(name)
    except Exception as error:
        _heard(str(name)).failed("", f"task {items[0][1].id} names a verifier that cannot be built: {error}")
        return [unknown(error_reason(error))] * len(items)
    many = getattr(verifier, "judge_many", None)
    mark = getattr(verifier, "fingerprint", type(verifier).__qualname__)
    with hearing(_heard(mark)):
        if many is not None:
            return _guarded(partial(many, items), [task for _, task in items], mark)
        verdicts = []
        for what, task in items:
            verdicts += _guarded(partial(_once, verifier, words(what), task), [task], mark)
        return verdicts


def _once(verifier: Verifier, text: str, task: Task) -> list[Verdict]:
    return [verifier(text, task)]


def _guarded(judgement: Callable[[], Sequence[Verdict]], tasks: Sequence[Task], mark: str) -> list[Verdict]:
    began = time.perf_counter()
    try:
        verdicts = list(judgement())
        if len(verdicts) != len(tasks) or not all(isinstance(v, Verdict) for v in verdicts):
            raise TypeError(f"{len(tasks)} verdicts were wanted, {verdicts!r:.200} came back")
    except VerifierBroken:
        raise
    except (Exception, SystemExit) as error:
        told = f"task {tasks[0].id}: the verifier gave no verdict: {type(error).__name__}: {error}"
        _heard(mark).failed(type(error).__name__, told[:LONGEST_TOLD])
        verdicts = [unknown(error_reason(error))] * len(tasks)
    each = (time.perf_counter() - began) / max(1, len(tasks))
    return [replace(v, seconds=v.seconds or each, fingerprint=v.fingerprint or mark) for v in verdicts]
