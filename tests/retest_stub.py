"""Stands in for `rlvr train` in tests of `rlvr retest`: a run of two steps in some hundredths of a second.

    python retest_stub.py RUNFOLDER

Values follow from the recipe alone: after training, mean@2 is 0.5 + seed / 100, and 0.1 more under gapo. A file `fails`
beside the run's folders names, one a line, what fails: a method and a seed ("gapo 3"), after its first step, or before
it with "early" behind. A file `slow` holds seconds that a run takes.
"""

import json
import sys
import time
import tomllib
from pathlib import Path


def main(folder: Path) -> None:
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    seed, method = recipe["seed"], recipe["method"]
    home = folder.parent
    fails = (home / "fails").read_text().splitlines() if (home / "fails").is_file() else []
    if f"{method} {seed} early" in fails:
        sys.exit("ImportError: somebody is at work on it")
    run = folder / "run"
    run.mkdir()
    (run / "model").mkdir()
    if (home / "slow").is_file():
        time.sleep(float((home / "slow").read_text()))
    better = 0.1 if "gapo" in method else 0.0
    steps = [
        {"step": n, "reward/mean": 0.1 * n + better, "rollouts/sampled": 16, "rollouts/tokens": 100} for n in (1, 2)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps({"time": 0.0, **line}) + "\n" for line in steps))
    if f"{method} {seed}" in fails:
        print("rlvr: step 2: the loss is not finite")
        sys.exit(1)
    closeness = 1e3 * abs(recipe["lr"] - 3e-4)  # the middle learning rate is best
    after = 0.5 + seed / 100 + better - closeness
    told = {"k": 2, "problems": 4, "before": {"toy": {"mean@2": [0.25, 0.1, 0.4]}}}
    (run / "eval.json").write_text(json.dumps({**told, "after": {"toy": {"mean@2": [after, 0.0, 1.0]}}}))
    (run / "summary.json").write_text(json.dumps({"status": "finished"}))


main(Path(sys.argv[1]))
