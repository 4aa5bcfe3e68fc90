"""Which part of a reward decides: a part of large scale can drown the others without anybody noticing."""

from __future__ import annotations

import torch

from rlvr.batch import Batch

DROWNS = 0.99  # ours: a part with more than this share of the spread leaves the others no say


def shares(batch: Batch) -> dict[str, float]:
    """Each part's share of the summed within-group variance of the parts; {} where nothing varies."""
    parts = {name: x for name, x in batch.rows.items() if name.startswith("reward/")}
    spread = {name: float((batch.group_std(x)[batch["known"]] ** 2).sum()) for name, x in parts.items()}
    total = sum(spread.values())
    return {name.removeprefix("reward/"): v / total for name, v in spread.items()} if total > 0 else {}


def drowning(batch: Batch) -> str | None:
    """A sentence where one part other than correctness decides alone, and pays a wrong row best; None where all is
    well."""
    told = shares(batch)
    if len(told) < 2:
        return None
    part, share = max(told.items(), key=lambda item: item[1])
    if part == "correctness" or share <= DROWNS:
        return None
    known, reward = batch["known"], batch["reward"]
    best = int(torch.where(known, reward, -torch.inf).argmax())
    wrong = "" if bool(batch["correct"][best]) else ", and the best-paid rollout is a wrong one"
    return (
        f"reward part {part!r} supplies {share:.2%} of the parts' variance{wrong}; the others have no say. Scale it "
        f"down: give "
        f"it a weight near {((1 - share) / share) ** 0.5:.1g} of its present one"
    )
