"""Which settings of a stack reach a loss, and what is refused: settings that reach none, needs that nothing gives, and
pieces that cannot live with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlvr.method import Contradiction, Placed, Stack
from rlvr.pieces import gives_rows
from rlvr.views import STANDARD, reads, views_of

# What packing a batch of groups gives without asking anybody.
PACKED = frozenset(
    (
        *("token", "origin", "behavior_logp", "sampler_logp", "sampler_entropy"),
        *("id", "group", "episode", "role", "score", "correct", "known", "truncated", "demo"),
        *("path_length", "progress"),
    )
)
WRITES: dict[str, tuple[str, ...]] = {  # what a slot's pieces write, where they do not say so themselves
    "reward": ("reward", "token_reward"),
    "advantage": ("advantage", "row_advantage"),
    "reshape": ("advantage",),
    "bounds": ("clip_low", "clip_high"),
    "row_weight": ("row_weight",),
    "token_weight": ("token_weight", "token_counted"),
    "ratio": ("ratio",),
    "reduction": ("weight",),
}
BEFORE_BATCH = ("select", "rollout", "verify", "keep")


def _writes(placed: Placed) -> set[str]:
    if placed.slot in ("derive", "annotate"):
        return set(placed.piece.gives)
    if placed.slot == "reward":
        return {"reward", "token_reward"} | reward_parts(placed.piece)
    if placed.slot == "advantage" and not gives_rows(placed.piece):
        return {"advantage"}
    return set(WRITES.get(placed.slot, ()))


def _wants(placed: Placed) -> set[str]:
    wanted = reads(placed.piece)
    if placed.slot in ("loss", "terms"):
        wanted |= {"ratio"} & set(getattr(placed.piece, "reads", ()))
        wanted |= {"weight"} if getattr(placed.piece, "reduction", None) is None else {"row_weight"}
    if placed.slot == "reduction":
        wanted |= {"row_weight", "token_weight"}
    return wanted


def awake_in(stack: Stack) -> list[Placed]:
    """Settings that reach a loss in this phase: walked backwards from the policy's loss. A model's term lives only if
    something alive looks at that model."""
    alive: list[Placed] = [p for p in stack if p.slot in (*BEFORE_BATCH, "phases")]
    pending = [p for p in stack if p.slot not in (*BEFORE_BATCH, "phases")]
    wanted: set[str] = set().union(*(reads(p.piece) for p in alive)) if alive else set()
    models = {"policy"}
    while True:
        new = [
            p
            for p in pending
            if (model_of(p.piece) in models if p.slot in ("loss", "terms") else bool(_writes(p) & wanted))
        ]
        if not new:
            return alive
        pending = [p for p in pending if p not in new]
        alive += new
        for p in new:
            wanted |= _wants(p)
            models |= {model for v in views_of(p.piece) for model in v.models}


def _missing(stack: Stack, awake: list[Placed]) -> Iterator[tuple[Placed, set[str]]]:
    have = set(PACKED) | set(STANDARD) | {"row_weight", "token_weight", "token_counted"}
    for p in awake:
        have |= _writes(p)
        for view in views_of(p.piece):
            have |= set(view.gives)
    for p in awake:
        lack = {s for s in reads(p.piece) - have if not s.startswith("part/")}
        if lack:
            yield p, lack


def refuse_dead(stacks: Mapping[tuple[str, ...], Stack], awake: Mapping[tuple[str, ...], list[Placed]]) -> None:
    lives = {id(p) for placed in awake.values() for p in placed}
    lives_as = [(p.slot, p.piece) for placed in awake.values() for p in placed]
    for key, stack in stacks.items():
        where = f" in phase {', '.join(key)}" if key else ""
        for p, lack in _missing(stack, awake[key]):
            elsewhere = any(
                p in placed and p not in [q for q, _ in _missing(stacks[k], placed)] for k, placed in awake.items()
            )
            if elsewhere:
                awake[key].remove(p)  # it sleeps here
                continue
            raise Contradiction(
                f"{p.paper}: {type(p.piece).__name__} needs {', '.join(sorted(lack))}, which nothing gives{where}"
                + _but(lack, stack)
            )
        for p in stack:
            if p.strength != "firm" or id(p) in lives or (p.slot, p.piece) in lives_as:
                continue
            loss = stack["loss"][0]
            what = ", ".join(sorted(_writes(p))) or f"a loss for the {model_of(p.piece)}"
            raise Contradiction(
                f"{p.paper} sets {p.slot} ({type(p.piece).__name__} gives {what}), but nothing in this stack reads "
                f"it: the loss is "
                f"{type(loss.piece).__name__} of {loss.paper}. Drop {p.paper}, or use a loss that reads {what}"
            )


def _but(lack: set[str], stack: Stack) -> str:
    """Who would give what is lacking, and does not."""
    if "row_advantage" not in lack or not stack["advantage"]:
        return ""
    (placed,) = stack["advantage"]
    return f": the advantage of {placed.paper}, {type(placed.piece).__name__}, is one of tokens, not of rows"


def refuse_pairs(stack: Stack) -> None:
    for p in stack:
        for word, why in getattr(p.piece, "refuses", {}).items():
            for q in stack:
                words = {q.slot, *_writes(q), *getattr(q.piece, "properties", ())}
                if q is not p and q.paper != p.paper and q.strength == "firm" and word in words:
                    raise Contradiction(f"{p.paper} cannot be stacked with {q.paper}: {why}")


def unread(stack: Stack, awake: list[Placed]) -> tuple[str, ...]:
    quiet = [p for p in stack if p not in awake]
    return (*stack.notes, *(f"{p.paper}'s {p.slot} {short(p.piece)} is not read here and does not run" for p in quiet))


def reward_parts(piece: Any) -> set[str]:
    return {f"reward/{name}" for name in getattr(piece, "parts", ())}


def model_of(term: Any) -> str:
    return str(getattr(term, "model", "policy"))


def short(piece: Any) -> str:
    text = repr(piece) if hasattr(piece, "__dataclass_fields__") else getattr(piece, "__name__", type(piece).__name__)
    return text if len(text) <= 45 else text[:42] + "..."
