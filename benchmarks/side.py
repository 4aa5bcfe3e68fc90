"""One side of a comparison: a process of ours or of TRL's that makes steps when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared import ONE_THREAD, ROOT, TRL_PYTHON, tasks_of


def dump_tasks(load: Mapping[str, Any], folder: Path) -> Path:
    """The load's tasks as JSON lines, for TRL."""
    from rlvr.registry import get

    source = tasks_of(load)
    file = folder / f"{load['model']}.jsonl"
    made = get("tasks", source.pop("name"))(**source)
    told = [{"id": t.id, "prompt": t.prompt, "answer": t.answer, "verifier": t.verifier} for t in made]
    file.write_text("".join(json.dumps(t) + "\n" for t in told))
    return file


def for_trl(load: Mapping[str, Any], folder: Path, **more: Any) -> list[str]:
    """The command of TRL's side of a load."""
    from rlvr import organisms

    given = {**load, "folder": str(organisms.folder(load["model"])), "rows": str(dump_tasks(load, folder)), **more}
    return [str(TRL_PYTHON), str(ROOT / "benchmarks/trls.py"), json.dumps(given)]


def for_ours(load: Mapping[str, Any], **more: Any) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks/ours.py"), json.dumps({**load, **more})]


class Side:
    """A running side. `startup`: its CPU seconds until it was ready."""

    def __init__(self, command: list[str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            env={**ONE_THREAD, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.startup = round(self.hear()["startup"], 3)

    def hear(self) -> dict[str, Any]:
        """The next line that is meant for us. Raises RuntimeError where the process has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        self.errors.seek(0)
        raise RuntimeError(f"{self.process.args[1]} ended:\n{self.errors.read()[-3000:]}")  # type: ignore[index]

    def steps(self, n: int) -> list[dict[str, Any]]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return [self.hear() for _ in range(n)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()
