"""That memory is not there: how it shows, and how it is told."""

from __future__ import annotations

import torch


class OutOfMemory(MemoryError):
    """What was asked for does not fit; the message says what to lower."""


def ran_out(error: BaseException) -> bool:
    """Whether torch had no memory left: on a GPU it raises a class of its own, on a CPU it only says so."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
