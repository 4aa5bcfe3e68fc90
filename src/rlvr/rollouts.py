"""Sample and verify without training: `rlvr rollout`. What comes of it is a folder:

    recipe.toml                  every setting, defaults included
    rollout.json                 which tasks, how many, and how many answers to each
    rollouts/step-00001.parquet  a row an answer, as a training run writes them; AT_ONCE tasks a file
    tasks.jsonl                  a line a task, in their order: what select/anchors.py reads

A file of answers is written whole, then its tasks' lines: a task with a line is done. Noise depends on seed, task and
its place alone, so work that was interrupted goes on to the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from rlvr.assemble import Setup, asked_by, check_verifiers, plan_of, set_up
from rlvr.evaluate.statistics import over_problems
from rlvr.folder import claimed, fresh
from rlvr.pack import pack
from rlvr.recipe import Recipe
from rlvr.records import Group, Task, mix
from rlvr.report.progress import counting
from rlvr.report.store import read_lines, rollout_path, write_rows, write_text
from rlvr.rollout.world import World
from rlvr.rows import rows_of
from rlvr.verify.episodes import verified
from rlvr.waiting import wait_for

AT_ONCE = 64  # tasks sampled together, and tasks a file
TABLE, ASKED = "tasks.jsonl", "rollout.json"
Split = Literal["train", "eval"]


class NoRollouts(ValueError):
    """There is nothing to sample, or nothing to go on with; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What is in a folder of rollouts. `lines` as in tasks.jsonl, in order."""

    folder: Path
    model: str
    answers: int
    tasks: int  # that were asked for; fewer lines: it was interrupted
    lines: Sequence[Mapping[str, Any]]

    @property
    def done(self) -> bool:
        return len(self.lines) == self.tasks

    def told(self) -> dict[str, Any]:
        """Shares of tasks and answers; `right` with its 95 % interval over tasks with a verdict, nan without any."""
        n = max(1, len(self.lines))
        total = sum(line["answers"] for line in self.lines)
        known = [line["right"] / line["known"] for line in self.lines if line["known"]]
        right = over_problems(known)
        kinds = [_kind(line) for line in self.lines]
        return {
            "folder": str(self.folder),
            "model": self.model,
            "tasks": len(self.lines),
            "asked": self.tasks,
            "answers": total,
            "right": [right.value, right.low, right.high],
            **{kind: kinds.count(kind) / n for kind in ("solved", "failed", "mixed")},
            "unknown": sum(line["answers"] - line["known"] for line in self.lines) / max(1, total),
            "tokens": sum(line["tokens"] for line in self.lines) / max(1, total),
        }


def sample(
    recipe: Recipe,
    folder: Path,
    answers: int | None = None,
    tasks: int | None = None,
    split: Split = "train",
    shown_to: TextIO | None = None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Sampled:
    """Answers to the recipe's tasks, verified, in a new folder.

    answers: to each task; None: the recipe's group_size. tasks: how many of the split; None: all. shown_to: where to
    say how far it is, a bar on a terminal, else a line a file. Stops after the present file when `asked_to_stop`.
    """
    for name, number in (("answers", answers), ("tasks", tasks)):
        if number is not None and number < 1:
            raise NoRollouts(f"{name} is a number from 1, got {number}")
    fresh(folder)
    wanted = {"answers": answers or recipe.group_size, "tasks": tasks, "split": split, "at_once": AT_ONCE}
    work = _prepared(recipe, folder, wanted)
    folder.mkdir(parents=True, exist_ok=True)  # from here on nothing that the recipe says can be wrong
    write_text(folder / "recipe.toml", recipe.to_toml())
    write_text(folder / ASKED, json.dumps(wanted))
    return _go_on(work, shown_to, asked_to_stop)


def resume(
    recipe: Recipe,
    folder: Path,
    shown_to: TextIO | None = None,
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> Sampled:
    """The same with what is missing in a folder; `recipe` is the folder's. Raises NoRollouts where it is none."""
    if not (folder / ASKED).is_file():
        raise NoRollouts(f"{folder} holds no rollouts of `rlvr rollout`: it has no {ASKED}")
    work = _prepared(recipe, folder, json.loads((folder / ASKED).read_text()))
    return _go_on(work, shown_to, asked_to_stop)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done, where, and with what."""

    folder: Path
    setup: Setup
    rollout: Any
    tasks: Sequence[Task]
    answers: int
    at_once: int


def _prepared(recipe: Recipe, folder: Path, wanted: Mapping[str, Any]) -> _Work:
    plan = plan_of(recipe)
    asked = asked_by(recipe, plan)
    if not (asked.train if wanted["split"] == "train" else asked.evaluate):
        raise NoRollouts(f"the recipe has no {wanted['split']} tasks; raise eval.problems, or take the other split")
    check_verifiers(asked)
    # what samples is a whole model: an adapter has become part of it
    setup = set_up(recipe.model_copy(update={"lora": None}), plan, asked=asked)
    every = setup.train_tasks if wanted["split"] == "train" else setup.eval_tasks
    rollout = plan.at(plan.start()).stack.one("rollout")
    return _Work(folder, setup, rollout, every[: wanted["tasks"]], wanted["answers"], wanted["at_once"])


def _go_on(work: _Work, shown_to: TextIO | None, asked_to_stop: Callable[[], bool]) -> Sampled:
    folder, model, tasks = work.folder, work.setup.loaded.name, work.tasks
    with claimed(folder), counting("sampling", len(tasks), shown_to) as told:
        lines = _whole(folder, [task.id for task in tasks], work.at_once)
        told(len(lines))
        for first in range(len(lines), len(tasks), work.at_once):
            if asked_to_stop():
                break
            groups = _sampled(work, first, told)
            step = first // work.at_once + 1
            rows = rows_of(step, groups, groups, pack(groups), work.setup.renderer, {t.id: t for t in tasks})
            write_rows(rollout_path(folder, step), rows)
            new = [_line(group, model) for group in groups]
            with (folder / TABLE).open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in new))
            lines += new
            if shown_to is not None and not shown_to.isatty():
                print(f"{len(lines)} of {len(tasks)} tasks", file=shown_to, flush=True)
    return Sampled(folder, model, work.answers, len(tasks), lines)


def _sampled(work: _Work, first: int, told: Callable[[int], None]) -> list[Group]:
    """The groups of the file that begins with this task."""
    setup = work.setup
    key = mix(setup.recipe.seed, "rollouts", first)
    world = World(setup.sampler, setup.renderer, setup.limits, setup.loaded.stop_ids, f"{first}", key, setup.judge)

    async def every() -> list[Group]:
        found = []
        async for group in work.rollout(work.tasks[first : first + work.at_once], work.answers, world):
            found.append(group)
            told(first + len(found))
        return sorted(found, key=lambda g: g.id)

    return verified(wait_for(every()), setup.judge)


def _line(group: Group, model: str) -> dict[str, Any]:
    """What tasks.jsonl says of a task. `known`: answers with a verdict."""
    verdicts = list(group.verdicts.values())
    known = group.known()
    right = sum(v.label == "right" for v in known)
    return {
        "task": group.task.id,
        "answers": len(verdicts),
        "known": len(known),
        "right": right,
        "share_right": right / len(known) if known else None,
        "score": sum(v.score for v in known) / len(known) if known else None,
        "truncated": sum(row.truncated for row in group.rollouts),
        "tokens": sum(int(row.owned().sum()) for row in group.rollouts),
        "model": model,
        "verifier": "; ".join(sorted({v.fingerprint for v in verdicts if v.fingerprint})),
    }


def _whole(folder: Path, ids: Sequence[str], at_once: int) -> list[dict[str, Any]]:
    """The lines of tasks.jsonl that stand, up to the last whole file of answers; the file holds just those afterwards.
    Raises NoRollouts where they are of other tasks."""
    lines, _ = read_lines(folder / TABLE)
    if [line.get("task") for line in lines] != list(ids[: len(lines)]):
        raise NoRollouts(f"{folder / TABLE} is of other tasks than its recipe has now; start anew in another folder")
    keep = len(lines) if len(lines) == len(ids) else len(lines) // at_once * at_once
    write_text(folder / TABLE, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines[:keep]))
    return lines[:keep]


def _kind(line: Mapping[str, Any]) -> str:
    known, right = line["known"], line["right"]
    return "unknown" if not known else "solved" if right == known else "failed" if not right else "mixed"
