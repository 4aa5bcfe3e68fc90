"""Tasks from reasoning-gym: a hundred families of procedural problems, each with a scorer of its own."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any, Literal

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError
from rlvr.tasks.synthetic import split_of

MOST = 20_000  # problems looked at, and the size that a family is told; ours: a family of words allows no more


@register("tasks", "reasoning_gym")
def reasoning_gym(
    family: str,
    n: int = 512,
    seed: int = 0,
    split: Literal["train", "eval"] = "train",
    config: dict[str, Any] | None = None,
) -> tuple[Task, ...]:
    """Problems of a family of reasoning-gym, such as "chain_sum", "countdown" or "sudoku".

    Needs the package reasoning-gym: pip install 'rlvr[gym]'.
    config: the family's own settings, e.g. { min_terms = 2, max_terms = 4 }. The split of a problem is a hash of its
    text, about a quarter is eval; no problem comes twice. A longer draw with the same seed begins with the shorter one.

    The verifier is `reasoning_gym`: the family's own scorer, which pays in parts, on what stands in <answer></answer>.
    Tell the model so, e.g. system = "Think step by step. Give only the final answer between <answer> and </answer>."
    `answer` is None in families where many answers are right. Three families (isomorphic_strings,
    polynomial_multiplication, ransom_note) are the same again only under the same PYTHONHASHSEED.

    Raises DataError: the package is missing, no such family or setting, fewer than `n` different problems.
    """
    config = dict(config or {})
    made = _family(family, seed, config)
    found: dict[str, Task] = {}
    for index in range(MOST):
        if len(found) >= n:
            break
        try:
            entry = made[index]
        except IndexError:  # families of words run out
            break
        question = entry["question"]
        if split_of(question) != split or question in found:
            continue
        found[question] = Task(
            f"{family}/{seed + index}",  # what reasoning-gym seeds a problem with
            question,
            entry["answer"],
            "reasoning_gym",
            made_by=f"reasoning_gym/{family}",
            meta={"family": family, "config": config, "metadata": entry["metadata"], "gives_away": ["metadata"]},
        )
    if len(found) < n:
        raise DataError(
            f"reasoning_gym: n = {n}, but {family} gave only {len(found)} different {split} problems out of {MOST}; "
            "ask for fewer, or make them more varied by `config`"
        )
    return tuple(found.values())


def _family(family: str, seed: int, config: dict[str, Any]) -> Any:
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        raise DataError(
            f"tasks reasoning_gym: needs the package reasoning-gym ({error}); pip install 'rlvr[gym]'"
        ) from None
    if family not in DATASETS:
        near = difflib.get_close_matches(family, DATASETS, 3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {', '.join(sorted(DATASETS))}"
        raise DataError(f"reasoning_gym has no family {family!r}; {hint}")
    known = [f.name for f in fields(DATASETS[family][1]) if f.name not in ("seed", "size")]
    for key in config:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            raise DataError(f"reasoning_gym: {family} has no setting {key!r}; {hint} has {', '.join(known) or 'none'}")
    try:
        return create_dataset(family, seed=seed, size=MOST, **config)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"reasoning_gym: {family} cannot be made with {config}: {error}") from None
