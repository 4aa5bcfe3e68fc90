"""Does every baseline learn? Each trains `nano` for 30 steps with four updates a batch, on three seeds.

    python experiments/baselines.py --out experiments/results/baselines.json [--only grpo,ppo]

A method passes where the mean reward (dapo, rejection: the share of right rollouts) of steps 26-30 is above that of
steps 1-3 by at least 0.10 on every seed; sft and dpo, where held-out mean@8 rises by as much. Finished runs are kept,
so an interrupted call goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from rlvr.recipe import make_recipe
from rlvr.records import Task
from rlvr.report.store import read_run, write_text
from rlvr.report.text import sparkline
from rlvr.run import train
from rlvr.tasks.synthetic import running_sums

SEEDS = (0, 1, 2)
STEPS = 30
RISE = 0.10
# Settings that differ from a paper's defaults, and why.
STACKS = {
    "grpo": "grpo",
    "dr_grpo": "dr_grpo",
    "dapo": "dapo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce_pp",
    "reinforce_pp baseline": "reinforce_pp(baseline=True)",
    "gspo": "gspo",
    "cispo": "cispo",
    "ppo": "ppo(lam=0.95, warmup=3)",
    "kl in loss": "kl(coef=0.01)",
    "kl in reward": "kl(coef=0.01, where='reward')",
    "entropy_bonus": "entropy_bonus",
    "tis": "tis",
    "mis": "mis",
    "mask_truncated": "mask_truncated",
    "rejection": "rejection",
    "dpo online": "dpo(online=True)",
    "sft": "sft",
    "dpo offline": "dpo",
}
HELD_OUT = ("sft", "dpo offline", "dpo online")  # measured by held-out mean@8
BY_VERDICT = ("dapo", "rejection")  # dapo trains on mixed groups only; rejection has no reward, only right and wrong


def with_pairs(task: Task, random: Random) -> Task:
    """A worked-out answer preferred to a guess."""
    guess = str(int(task.answer) + random.choice([-9, -4, -1, 1, 3, 10]))
    return replace(task, meta={**task.meta, "chosen": task.meta["demo"], "rejected": f"#{guess}"})


def one(stack: str, seed: int) -> dict[str, Any]:
    recipe = make_recipe(
        {
            "model": "nano",
            "method": stack,
            "tasks": {"name": "running_sums", "n": 2000},
            "steps": STEPS,
            "updates_per_batch": 4,
            "prompts_per_step": 32,
            "group_size": 16,
            "max_tokens": 24,
            "lr": 3e-4,
            "critic_lr": 1e-3,
            "betas": [0.9, 0.98],
            "warmup_steps": 10,
            "seed": seed,
            "eval": {"problems": 0},
        }
    )
    held = running_sums(100, seed=1, split="eval")
    random = Random(seed)
    tasks = [*held, *(with_pairs(t, random) for t in running_sums(2000, seed=seed))]
    settings = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"problems": 100, "holdout": 0.05})})
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = train(settings, Path(folder) / "run", tasks=tasks, sinks=("jsonl",))
        told = read_run(Path(folder) / "run")
    scores = {when: next(iter(run.summary["eval"][when].values()))["mean@8"] for when in ("before", "after")}
    return {
        "reward": np.round(told.get("reward/mean"), 4).tolist(),
        "clip_frac": np.round(told.get("policy/clip_frac"), 4).tolist(),
        "right": np.round(told.get("verdict/right"), 4).tolist(),
        "mean@8": scores,
        "status": run.summary["status"],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def rise(name: str, run: dict[str, Any]) -> float:
    if name in HELD_OUT:
        return run["mean@8"]["after"][0] - run["mean@8"]["before"][0]
    told = np.array(run["right"] if name in BY_VERDICT else run["reward"], float)
    return float(told[25:30].mean() - told[:3].mean())


def page(done: dict[str, Any]) -> str:
    """The results as Markdown, with the share of right rollouts by step, mean of the seeds, as a line of blocks."""
    lines = [
        "# Does every baseline learn?",
        "",
        f"Made by `{done['command']}` at {done['commit']},",
        f"on {done['machine']}. Each trains `nano` on running sums for {STEPS} steps of 32 x 16 rollouts with four",
        "updates a batch; three seeds, which share tasks. `rise` is the mean reward of steps 26-30 above that of steps",
        "1-3 (dapo, rejection: the share of right rollouts; sft, dpo: held-out mean@8 after and before, 100 problems);",
        f"all are to be at least {RISE:.2f}. This says that the pieces work, not which is best: settings were not",
        "searched, and 30 steps of a toy are no comparison of papers.",
        "",
        "| stack | rise, seeds 0 1 2 | mean@8 after (before: .25 .27 .28) | right rollouts by step |",
        "|---|---|---|---|",
    ]
    for name, rises in done["rise"].items():
        runs = [done["runs"][f"{name}/{seed}"] for seed in SEEDS]
        right = np.mean([[x or 0 for x in run["right"]] for run in runs], 0)
        curve = "played back" if name in ("sft", "dpo offline") else f"`{sparkline(right.tolist(), 30, 0.2, 0.9)}`"
        after = " ".join(f"{run['mean@8']['after'][0]:.2f}" for run in runs)
        lines.append(f"| `{runs[0]['stack']}` | {' '.join(f'{x:+.2f}' for x in rises)} | {after} | {curve} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/baselines.json"))
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(chosen.out.read_text()) if chosen.out.is_file() else {"runs": {}}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    done.setdefault("command", "python experiments/baselines.py")
    done.setdefault("commit", commit)
    done.setdefault("machine", f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    for name, stack in STACKS.items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        for seed in SEEDS:
            key = f"{name}/{seed}"
            if key in done["runs"]:
                continue
            done["runs"][key] = one(stack, seed) | {"stack": stack}
            write_text(chosen.out, json.dumps(done, indent=1))
            print(
                f"{key:<24} rise {rise(name, done['runs'][key]):+.3f}  {done['runs'][key]['cpu_seconds']} CPU-s",
                flush=True,
            )
    rises = {name: [rise(name, r) for k, r in done["runs"].items() if k.rsplit("/", 1)[0] == name] for name in STACKS}
    done["rise"] = {name: [round(x, 3) for x in values] for name, values in rises.items() if values}
    done["passed"] = {name: min(values) >= RISE for name, values in rises.items() if values}
    write_text(chosen.out, json.dumps(done, indent=1))
    write_text(Path("docs/baselines.md"), page(done))


if __name__ == "__main__":
    main()
