"""From a step's groups and batch to records that people read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlvr.batch import Batch
from rlvr.records import Group, Prompt, Task
from rlvr.report.store import RowRecord

SHOWN = ("advantage", "entropy", "behavior_logp", "old_logp", "weight")


def rows_of(
    step: int,
    seen: Sequence[Group],
    kept: Sequence[Group],
    batch: Batch | None,
    renderer: Any,
    tasks: Mapping[str, Task],
) -> list[RowRecord]:
    """One record a rollout. Rows that were trained on carry token streams, in the order in which `pack` laid them."""
    trained: dict[str, tuple[int, int, int]] = {}
    if batch is not None:
        ends = batch.length.cumsum(0).tolist()
        names = [row.id for group in kept for row in group.rollouts]
        trained = {name: (i, end - n, end) for i, (name, end, n) in enumerate(zip(names, ends, batch.length.tolist()))}
    cpu = batch.to("cpu") if batch is not None else None
    out = []
    for group in seen:
        for row in group.rollouts:
            verdict = group.verdicts[row.episode]
            ids = row.ids[row.owned()]
            streams: dict[str, Any] = {}
            reward = None
            if cpu is not None and row.id in trained:
                i, start, end = trained[row.id]
                streams = {n: cpu[n][start:end].numpy() for n in SHOWN if n in cpu}
                if "old_logp" in cpu and "sampler_logp" in cpu:
                    streams["gap"] = (cpu["old_logp"] - cpu["sampler_logp"])[start:end].abs().numpy()
                reward = float(cpu["reward"][i]) if "reward" in cpu and verdict.known else None
                ids = cpu["token"][start:end].numpy()
            out.append(
                RowRecord(
                    step=step,
                    task=group.task.id,
                    group=group.id,
                    rollout=row.id,
                    episode=row.episode,
                    prompt=prompt_text(group.task.prompt),
                    response=row.text,
                    answer=str(tasks[group.task.id].answer),
                    extracted=verdict.extracted,
                    verdict=verdict.label,
                    score=verdict.score,
                    reason=verdict.reason,
                    status=row.status,
                    source=row.source,
                    reward=reward,
                    length=len(ids),
                    parts=verdict.parts,
                    pieces=renderer.pieces(ids.tolist()),
                    token_ids=ids,
                    streams=streams,
                )
            )
    return out


def save_broken(folder: Path, step: int, batch: Batch, ids: Sequence[int]) -> Path:
    """Write rows that broke an update to broken-step-N.jsonl, streams and all."""
    path = folder / f"broken-step-{step}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for r in ids:
            row = batch.take(torch.tensor([r], device=batch.length.device))
            assert row.chains is not None
            told = {k: x.tolist() for k, x in (*row.tokens.items(), *row.rows.items())}
            file.write(json.dumps({"step": step, "row": r, "ids": row.chains.row(0).tolist(), **told}) + "\n")
    return path


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one readable text."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m['role']}: {m['content']}" for m in prompt)
