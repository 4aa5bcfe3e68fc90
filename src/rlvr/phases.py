"""What happens between two phases: models that nobody will look at again are let go, an optimiser may begin afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr.engine.protocol import Engine
from rlvr.plan import Plan


def turn(plan: Plan, engine: Engine, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """From the state `before` to the state `after`; nothing, where all phases are the same."""
    turned = [p for p in plan.controllers if before[p.paper]["phase"] != after[p.paper]["phase"]]
    if not turned:
        return
    engine.release(plan.models_ahead(after))
    if any(getattr(p.piece, "afresh", False) for p in turned):
        engine.forget("policy")
