"""What the speed benchmarks share: loads, where results go, what a result says of its machine, statistics."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
TRL_PYTHON = ROOT / ".venv-trl/bin/python"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
# What is alive at once, not what glibc keeps: blocks above 64 KiB go back to the kernel when they are freed.
EXACT_MEMORY = {**ONE_THREAD, "MALLOC_MMAP_THRESHOLD_": "65536"}

# One step of training, the same for both sides. The quickstart's optimiser; micro is the organism of the same kind that
# is large enough for arithmetic to count.
COMMON: dict[str, Any] = {"prompts": 32, "group": 16, "lr": 3e-4, "betas": [0.9, 0.98], "warmup": 10, "updates": 1}
COMMON["settings"] = {"slots": 512}  # all answers of a step at once, as TRL samples them
LOADS: dict[str, dict[str, Any]] = {
    "nano": {**COMMON, "model": "nano", "max_tokens": 24},
    "nano, 4 updates": {**COMMON, "model": "nano", "max_tokens": 24, "updates": 4},
    "micro": {**COMMON, "model": "micro", "max_tokens": 64},
}


def tasks_of(load: Mapping[str, Any]) -> dict[str, Any]:
    """The organism's own tasks, as a recipe names them."""
    from rlvr.organisms.table import RECIPES

    made = RECIPES[load["model"]]
    source = {"name": made.family, "n": 2000, "levels": list(made.levels)}
    return source if made.moduli is None else {**source, "moduli": list(made.moduli)}


def recipe_of(load: Mapping[str, Any], **more: Any) -> Any:
    """A load as our recipe; what neither the load nor its `settings` name is the default that users get."""
    from rlvr.recipe import make_recipe

    return make_recipe(
        {
            "model": load["model"],
            "tasks": tasks_of(load),
            "prompts_per_step": load["prompts"],
            "group_size": load["group"],
            "updates_per_batch": load["updates"],
            "max_tokens": load["max_tokens"],
            "lr": load["lr"],
            "betas": load["betas"],
            "warmup_steps": load["warmup"],
            "threads": 1,
            "device": "cpu",
            "doctor": False,
            "sinks": [],
            "eval": {"problems": 0},
            **load.get("settings", {}),
            **more,
        }
    )


# ---- what a result says of itself -------------------------------------------------------------------------------
def about(quick: bool) -> dict[str, Any]:
    """Machine, command, commit and versions."""
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()  # noqa: E731
    flags = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo")}
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "quick": quick,
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": git("rev-parse", "--short", "HEAD"),
        "uncommitted": bool(git("status", "--porcelain", "--", "src")),
        "cpu": f"{flags.get('model name', platform.processor())}, family {flags.get('cpu family', '?')}",
        "avx512": "avx512f" in flags.get("flags", ""),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**20, 1),
        "load_average": round(os.getloadavg()[0], 1),
        "threads": 1,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers")},
        **_trl_versions(),
    }


def _trl_versions() -> dict[str, str]:
    found = {p.name for p in (ROOT / ".venv-trl").glob("lib/python*/site-packages/*.dist-info")}
    parts = [name.removesuffix(".dist-info").split("-") for name in found]
    return {f"trl's {k}": v for k, v in sorted(parts) if k in ("trl", "torch", "transformers", "accelerate")}


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []


def write(name: str, result: Mapping[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1)
    flat = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text)  # a list of numbers is one line
    (RESULTS / f"{name}.json").write_text(flat + "\n")


def read(name: str) -> dict[str, Any] | None:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


# ---- memory of this process ------------------------------------------------------------------------------------------
def memory(key: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (peak), from the kernel."""
    line = next(line for line in _lines("/proc/self/status") if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


# ---- statistics and steps -----------------------------------------------------------------------------------------
def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Records of steps by column; what is nested is named with a slash, what is missing is None."""
    flat = [
        {k: v for k, v in r.items() if not isinstance(v, dict)}
        | {f"{k}/{inner}": x for k, v in r.items() if isinstance(v, dict) for inner, x in v.items()}
        for r in records
    ]
    return {key: [r.get(key) for r in flat] for key in dict.fromkeys(k for r in flat for k in r)}


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares: y grows as x to this power."""
    import numpy as np

    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
