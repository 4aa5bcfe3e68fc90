"""The verifiers as reward functions of other trainers: a TRL `reward_funcs` entry and verl's `compute_score`.

    trainer = GRPOTrainer(..., reward_funcs=[trl_reward])                     # TRL; golds in a column `answer`
    custom_reward_function.path=.../rlvr/verify/adapters.py                   # verl; its name is compute_score

Which verifier judges is said by a spec, as in `math(mode='strict')`: in a dataset column `verifier` for TRL, in
`extra_info["verifier"]` for verl; `math` where nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.records import Task, Verdict
from rlvr.verify.judge import judge
from rlvr.verify.spec import verifier_from

_GOLD_COLUMNS = ("answer", "solution", "ground_truth", "gold")
_DEFAULT = "math"


def trl_reward(completions: Sequence[str | Sequence[Mapping[str, Any]]], **columns: Any) -> list[float | None]:
    """The score of each completion, a text or a list of messages; None, which TRL leaves out, without a verdict.

    The golds are the column `answer`, else `solution`, `ground_truth` or `gold`. Raises ValueError where there is none.
    """
    golds = next((columns[name] for name in _GOLD_COLUMNS if columns.get(name) is not None), None)
    if golds is None:
        raise ValueError(
            f"trl_reward: the dataset has no column with the right answers; call it {', '.join(_GOLD_COLUMNS)}"
            f" (it has: {', '.join(sorted(columns)) or 'none'})"
        )
    if len(golds) != len(completions):
        raise ValueError(f"trl_reward: {len(completions)} completions came with {len(golds)} right answers")
    specs = columns.get("verifier")
    if specs is None or isinstance(specs, str):
        specs = [specs] * len(golds)
    tasks = [Task(str(i), "", gold, verifier=spec or _DEFAULT) for i, (gold, spec) in enumerate(zip(golds, specs))]
    verdicts = judge(verifier_from(_DEFAULT), [(_words(c), task) for c, task in zip(completions, tasks)])
    return [verdict.score if verdict.known else None for verdict in verdicts]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, Any]:
    """verl's reward: "score" in [0, 1], "acc", "pred" (the answer as it was extracted), "reason", and "known".

    verl cannot leave a row out: where there is no verdict, because the gold or the verifier is at fault, "score" is 0
    and "known" is False; watch the mean of "known". `ground_truth` may also be verl's {"ground_truth": ...}.
    """
    if isinstance(ground_truth, Mapping) and "ground_truth" in ground_truth:
        ground_truth = ground_truth["ground_truth"]
    spec = (extra_info or {}).get("verifier") or _DEFAULT
    task = Task(str((extra_info or {}).get("index", "")), "", ground_truth, verifier=spec, made_by=data_source)
    (verdict,) = judge(verifier_from(_DEFAULT), [(solution_str, task)])
    return _for_verl(verdict)


def _for_verl(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": verdict.score,
        "acc": verdict.label == "right",
        "pred": verdict.extracted or "",
        "reason": verdict.reason,
        "known": verdict.known,
    }


def _words(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a completion, or of the last message of a conversation."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "") if completion else ""
