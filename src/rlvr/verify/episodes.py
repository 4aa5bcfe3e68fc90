"""Verdicts of whole episodes, of groups as they come from a rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlvr.records import Group, Rollout, Task, Verdict

Judge = Callable[[Sequence[tuple[Rollout, Task]]], Sequence[Verdict]]


def verified(groups: Sequence[Group], judge: Judge) -> list[Group]:
    """The groups with a verdict for every episode: a row ends its episode, and the last row's words are judged."""
    last: list[tuple[int, Rollout]] = []
    for g, group in enumerate(groups):
        by_episode = {row.episode: row for row in group.rollouts}
        last += [(g, row) for episode, row in by_episode.items() if episode not in group.verdicts]
    verdicts = judge([(row, groups[g].task) for g, row in last])
    new: list[dict[str, Verdict]] = [dict(group.verdicts) for group in groups]
    for (g, row), verdict in zip(last, verdicts, strict=True):
        new[g][row.episode] = verdict
    return [replace(group, verdicts=v) for group, v in zip(groups, new)]
