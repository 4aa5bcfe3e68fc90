"""CPU seconds a step: TRL 1.16's GRPOTrainer and ours, taking turns in one run, one thread each.

    python benchmarks/against_trl.py [--quick] [--only nano] [--sweep-only | --no-sweep]

First a short sweep finds TRL's best micro-batch and generation settings (results/trl_sweep.json). Then, for every load
of shared.py, three pairs: each starts every arm in a process of its own and lets them make steps in turn, a few at a
time, so that whatever else the machine does meets all of them (results/against_trl.json). A step's cost is the median
over the steps after the warm-up; a ratio is of one pair.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared import LOADS, ONE_THREAD, ROOT, TRL_PYTHON, about, columns, median, read, write
from side import Side, for_ours, for_trl

# (pairs, steps a pair, steps a turn); warm-up steps are not counted
SIZES = {"nano": (3, 40, 5), "nano, 4 updates": (3, 15, 3), "micro": (3, 8, 2)}
QUICK = {"nano": (1, 6, 2), "nano, 4 updates": (1, 4, 2), "micro": (1, 3, 1)}
WARM_UP = 2
ARMS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, HF path": {"path": "hf"},
    "ours, idle rows kept": {"skip_idle": False},
}
SWEEP_STEPS = {"nano": 6, "nano, 4 updates": 4, "micro": 3}
MICRO_BATCHES = (32, 64, 128, 256, 512)
OTHERS: tuple[dict[str, Any], ...] = (
    {"cache": "static"},
    {"attention": "eager"},
    {"cache": "static", "attention": "eager"},
)


# ---- TRL's best ----------------------------------------------------------------------------------------------------
def tried(load: Mapping[str, Any], every: list[dict[str, Any]], steps: int, folder: Path) -> list[dict[str, Any]]:
    """Each of these settings with its CPU seconds a step, None where it fails."""
    command = for_trl(load, folder, settings_list=every, steps=steps)
    done = subprocess.run(
        command, env={**ONE_THREAD, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    out: list[dict[str, Any]] = []
    for told in (json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")):
        if "settings" in told:
            out.append({"settings": told["settings"], "steps": []})
        elif "cpu" in told:
            out[-1]["steps"].append(told["cpu"])
        else:
            out[-1]["failed"] = done.stderr.strip().splitlines()[-1]
    for case in out:
        case["cpu"] = median(case["steps"][1:]) if len(case["steps"]) > 1 and "failed" not in case else None
    return out


def sweep(name: str, quick: bool, folder: Path) -> dict[str, Any]:
    """Micro-batches first, then the other settings at the best of them."""
    load = LOADS[name]
    sizes = [m for m in MICRO_BATCHES if m <= load["prompts"] * load["group"] // load["updates"]]
    steps = 2 if quick else SWEEP_STEPS[name]
    cases = tried(load, [{"micro_batch": m} for m in (sizes[-3:] if quick else sizes)], steps, folder)
    best = min((c for c in cases if c["cpu"]), key=lambda c: c["cpu"])
    cases += tried(load, [{**best["settings"], **more} for more in OTHERS], steps, folder)
    best = min((c for c in cases if c["cpu"]), key=lambda c: c["cpu"])
    for case in cases:
        print(f"TRL {name}: {case['settings']} {case['cpu']}", flush=True)
    return {"cases": cases, "best": best["settings"]}


# ---- pairs ---------------------------------------------------------------------------------------------------------
def pair(name: str, seed: int, steps: int, turn: int, best: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Every arm's steps and start-up, made in turns. An arm that cannot be made says why."""
    load = {**LOADS[name], "seed": seed}
    commands = {"TRL": for_trl(load, folder, settings=best)}
    commands |= {arm: for_ours(load, **more) for arm, more in ARMS.items()}
    told: dict[str, Any] = {}
    sides: dict[str, Side] = {}
    try:
        for arm, command in commands.items():
            try:
                sides[arm] = Side(command)
            except RuntimeError as error:
                told[arm] = {"failed": str(error).strip().splitlines()[-1]}
                continue
            told[arm] = {"startup": sides[arm].startup, "steps": []}
        order = list(sides)
        for done in range(0, steps, turn):
            for arm in order:
                told[arm]["steps"] += sides[arm].steps(min(turn, steps - done))
            order = order[1:] + order[:1]
    finally:
        for side in sides.values():
            side.close()
    for arm, made in told.items():
        if "steps" in made:
            made["steps"] = columns(made["steps"])
            made["cpu"] = median(made["steps"]["cpu"][WARM_UP:])
            made["ratio"] = made["cpu"] / told["TRL"]["cpu"]
            print(f"{name}, pair {seed}: {arm:<22} {made['cpu']:8.3f} CPU-s a step  {made['ratio']:.3f}", flush=True)
        else:
            print(f"{name}, pair {seed}: {arm:<22} {made['failed']}", flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps of everything, to see that it works")
    parser.add_argument("--only", default=";".join(LOADS), help="loads, parted by ;")
    parser.add_argument("--sweep-only", action="store_true")
    parser.add_argument("--no-sweep", action="store_true", help="take TRL's settings from results/trl_sweep.json")
    given = parser.parse_args()
    if not TRL_PYTHON.exists():
        raise SystemExit("there is no .venv-trl; run: make .venv-trl/installed")
    swept = read("trl_sweep") or {"loads": {}}
    results = read("against_trl") or {"loads": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in given.only.split(";"):
            if not given.no_sweep:
                swept = {
                    "about": about(given.quick),
                    "loads": {**swept["loads"], name: sweep(name, given.quick, folder)},
                }
                write("trl_sweep", swept)
            if given.sweep_only:
                continue
            pairs, steps, turn = (QUICK if given.quick else SIZES)[name]
            best = swept["loads"][name]["best"]
            made = [pair(name, seed, steps, turn, best, folder) for seed in range(pairs)]
            told = {"load": LOADS[name], "trl": best, "warm_up": WARM_UP, "pairs": made, "about": about(given.quick)}
            results = {"loads": {**results["loads"], name: told}}
            write("against_trl", results)


if __name__ == "__main__":
    main()
