"""What can be told from the recipe and the plan alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rlvr.assemble import check_models
from rlvr.batch import Batch
from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient
from rlvr.engine.load import ModelError
from rlvr.engine.protocol import Unsupported
from rlvr.judges.choose import check_judge
from rlvr.plan import Running


def cut_support(patient: Patient) -> Iterator[Finding]:
    """Top-p and top-k sample from a cut and renormalised distribution; losses score with the whole one."""
    recipe = patient.recipe
    cuts = [f"top_p = {recipe.top_p:g}"] if recipe.top_p < 1 else []
    cuts += [f"top_k = {recipe.top_k}"] if recipe.top_k else []
    running = _running(patient)
    sampled = "advantage" in {p.slot for p in running.stack}  # demonstrations and pairs are not drawn under top-p
    corrected = any("corrects=sampler" in getattr(p.piece, "properties", ()) for p in running.stack)
    if cuts and sampled and not corrected:
        off = [key.partition(" ")[0] for key in cuts]
        yield Finding(
            "cut_support",
            "wrong",
            f"{' and '.join(cuts)} samples from a cut distribution, but the loss scores every token with the whole "
            "one, and nothing corrects the difference.",
            f'Add the paper tis (method = "{recipe.method},tis"), or drop {" and ".join(off)}.',
        )


def no_teacher(patient: Patient) -> Iterator[Finding]:
    """A method wants a teacher, and none is named or it is not there."""
    try:
        check_models(patient.recipe, patient.plan)
    except (Unsupported, ModelError) as error:
        yield Finding("no_teacher", "wrong", f"{error}.", "Name a teacher, or drop the paper.")


def no_judge(patient: Patient) -> Iterator[Finding]:
    """A method wants a judge, and none is named that can be asked and knows these tasks."""
    tasks = patient.asked.train if patient.asked else None
    try:
        check_judge(patient.recipe.judge, patient.plan, tasks, patient.model or patient.recipe.model)
    except Unsupported as error:
        yield Finding("no_judge", "wrong", f"{error}.", "Name a judge, or drop the paper.")


def lonely_group(patient: Patient) -> Iterator[Finding]:
    """A group of one has nobody to be compared with."""
    if patient.recipe.group_size > 1:
        return
    placed = _running(patient).stack["advantage"]
    if placed and _silent_alone(placed[0].piece):
        yield Finding(
            "lonely_group",
            "wrong",
            f"group_size = 1, but {type(placed[0].piece).__name__} of {placed[0].paper} compares an answer with its "
            "own group: every advantage is 0, and nothing is learned.",
            "Set group_size = 8, or use a method without groups, such as reinforce_pp or ppo.",
        )


def _running(patient: Patient) -> Running:
    return patient.plan.at(patient.plan.start())


def _silent_alone(advantage: object) -> bool:
    """Whether an advantage is 0 on two groups of one, of which one is paid and the other is not."""
    batch = Batch.pack(
        torch.tensor([1, 1]),
        reward=torch.tensor([1.0, 0.0]),
        token_reward=torch.zeros(2),
        correct=torch.tensor([True, False]),
        score=torch.tensor([1.0, 0.0]),
        behavior_logp=torch.zeros(2),
    )
    try:
        return not bool(advantage(batch).any())  # type: ignore[operator]
    except KeyError:  # it reads more than rewards, a critic for instance
        return False
