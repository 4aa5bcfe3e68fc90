"""Does the run fit into memory? Estimated from the model's config.json, before any weight is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient
from rlvr.engine.load import find_config
from rlvr.engine.memory import estimate, teacher_config


def memory(patient: Patient) -> Iterator[Finding]:
    """The most that is needed at once against what the machine has in all."""
    recipe = patient.recipe
    file = find_config(recipe.model)
    if file is None:  # not on this machine yet
        return
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        models = frozenset(patient.plan.models_ahead(patient.plan.start()))
        needed = estimate(recipe, config, models, teacher=teacher_config(recipe))
    except Exception:  # the boundary: some models only run with their weights, and an estimate is no fault of theirs
        return
    have = available(recipe.device)
    if needed.peak > have:
        yield Finding(
            "memory",
            "wrong",
            f"The run needs about {needed.peak / 2**30:.1f} GiB at once, {sum(needed.standing.values()) / 2**30:.1f} "
            f"of them all the time, and there are {have / 2**30:.1f} GiB.",
            'Set gradient_checkpointing = true or dtype = "bfloat16", add a table [lora], lower token_budget (now '
            f"{recipe.token_budget}), or take a smaller model.",
        )


def available(device: str | None) -> int:
    """Bytes in all of the GPU, or of this machine's memory as far as this process may use it."""
    if (device or "cuda").startswith("cuda") and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(torch.device(device or "cuda")).total_memory)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(allowed)) if allowed.isdigit() else physical
