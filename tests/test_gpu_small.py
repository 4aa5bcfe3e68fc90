"""The GPU check itself, small and on the CPU: it passes in health and says BROKEN when a number is off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr import gpu_check
from rlvr.engine.sampler import TorchSampler
from rlvr.gpu_check import Line, Size, made, main


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_small_check_passes_and_writes_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--out", str(tmp_path / "gpu.json")]) == 0
    out = capsys.readouterr().out
    assert "BROKEN" not in out
    told = json.loads((tmp_path / "gpu.json").read_text())
    assert told["ok"]
    value = {line["name"]: line["value"] for line in told["lines"]}
    assert value["rows that are drawn otherwise"] == 0
    assert 0 < value["log-probs"] < 1e-5  # two ways to cut the batch: nearly the same, and not the very same numbers
    assert 0 < value["gradient of an update"] < 1e-5
    assert value["sampling"] > value["a whole step"] > 0
    assert value["peak memory, training"] > 0.1


def test_a_sampler_that_is_off_is_broken_and_exits_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = TorchSampler.sample

    async def off(self: TorchSampler, request: Any) -> Any:
        got = await sample(self, request)
        return replace(got, streams={**got.streams, "plain_logp": [x - 0.5 for x in got.streams["plain_logp"]]})

    monkeypatch.setattr(TorchSampler, "sample", off)
    monkeypatch.setattr(gpu_check, "speed", lambda *a: iter(()))
    assert main(["--device", "cpu", "--out", str(tmp_path / "gpu.json")]) == 1
    broken = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BROKEN")]
    assert [" ".join(line.split()[1:6]) for line in broken] == [
        "sampler and trainer, float32 0.5",
        "sampler and trainer, bfloat16 0.5",
    ]


def test_a_number_that_is_none_is_not_ok() -> None:
    assert not Line("x", float("nan"), "", 1.0).ok
    assert Line("x", float("nan"), "").ok  # nothing was promised


def test_the_model_has_the_architecture_and_the_size_that_it_is_named_for() -> None:
    tiny = made(Size(2, 32, 64, 4, 2, 128, 1, 1, 1, 1), torch.float32, "cpu")
    assert type(tiny.model).__name__ == "Qwen3ForCausalLM"
    # embedding, tied to the head; q and o of 4 x 8, k and v of 2 x 8; three matrices of the MLP; norms
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32 + 2 * 8
    assert sum(p.numel() for p in tiny.model.parameters()) == 128 * 32 + 2 * layer + 32
    s = gpu_check.SPEED
    layer = 2 * s.hidden * s.heads * 128 + 2 * s.hidden * s.groups * 128 + 3 * s.hidden * s.inner
    assert round((s.vocab * s.hidden + s.layers * layer) / 1e6) == 596  # Qwen3-0.6B has 0.6 billion


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_sentence_says_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "make gpu DEVICE=cpu" in capsys.readouterr().err
