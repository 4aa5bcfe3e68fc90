"""The judge that a recipe's table [judge] names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr import organisms
from rlvr.engine.protocol import Sampler, Unsupported
from rlvr.judges.judge import Bench, Judge, JudgeBroken, Noisy
from rlvr.judges.models import PolicyJudge, ServedJudge
from rlvr.judges.oracle import Oracle
from rlvr.plan import Plan
from rlvr.records import Task
from rlvr.server import unset_key
from rlvr.verify.llm_judge import Endpoint


def askers(plan: Plan) -> list[str]:
    """Papers that want a judge, in some phase."""
    return sorted({p.paper for r in plan.phases.values() for p in r.stack if "judge" in getattr(p.piece, "asks", ())})


def check_judge(chosen: Any, plan: Plan, tasks: Sequence[Task] | None, model: Any = None) -> None:
    """Raises Unsupported where the plan wants a judge and none is named that can judge these tasks; None: they are not
    here yet. `model`: the policy, where it is known, by its name or loaded. Asks nobody."""
    if not (papers := askers(plan)):
        return
    if chosen is not None and chosen.url is not None:
        if lacking := unset_key("judge", chosen.key):
            raise Unsupported(lacking)
        return
    if chosen is not None and chosen.model == "policy":
        if model in organisms.names():
            raise Unsupported(
                f'judge = "policy": the bundled model {model} knows no words, so it cannot be asked in any; name '
                'another judge, e.g. judge = "oracle", which knows the built-in tasks'
            )
        return
    if tasks is None:
        return
    try:
        Oracle().check(tasks)
    except JudgeBroken as error:
        who = " and ".join(papers)
        wants = f"{who} {'wants' if len(papers) == 1 else 'want'} a judge"
        raise Unsupported(f"{wants}{', and the recipe names none' if chosen is None else ''}: {error}") from None


def about_judge(chosen: Any, plan: Plan) -> str:
    """A sentence where the recipe is silent about a judge that is wanted, or names one that is not; else ""."""
    papers = askers(plan)
    if chosen is None and papers:
        return f"The judge of {' and '.join(papers)} is the oracle, which knows these tasks' steps."
    return f"Nothing in this stack asks a judge: {chosen.model} is not asked." if chosen and not papers else ""


def bench_of(
    chosen: Any,
    plan: Plan,
    tasks: Sequence[Task],
    sampler: Sampler,
    renderer: Any,
    stop_ids: frozenset[int],
) -> Bench | None:
    """The recipe's judge, looked at whether it can serve; None where nobody asks one. Raises Unsupported and
    JudgeBroken."""
    if not askers(plan):
        return None
    check_judge(chosen, plan, tasks)
    judge: Judge = Oracle()
    name = "oracle"
    if chosen is None:
        return Bench(judge, name)
    if chosen.url is not None:
        settings = {k: getattr(chosen, k) for k in ("url", "model", "key", "seconds", "retries", "max_tokens", "cache")}
        judge, name = ServedJudge(Endpoint(**settings), chosen.parallel, chosen.temperature), chosen.model
    elif chosen.model == "policy":
        judge, name = PolicyJudge(sampler, renderer, stop_ids, chosen.max_tokens, chosen.temperature), "policy"
    judge.check(tasks)
    return Bench(Noisy(judge, chosen.noise) if chosen.noise else judge, name, chosen.failed_limit)
