"""The laws of single pieces, each piece asked by itself on a finished batch:

reads      only what it names in `needs`: the plan orders pieces, asks for looks and cuts batches by that
writes     nothing in place: neither into the batch, nor into `now`
memory     none: the answer depends on the batch alone, not on what was asked before
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from rlvr.alive import PACKED
from rlvr.batch import Batch, Now
from rlvr.method import Placed
from rlvr.pieces import PieceError, ask, idle, who
from rlvr.plan import Running, weight_name
from rlvr.views import reads

# What a piece may read without naming it. Of what packing gives, verdicts must be named: rows without one then weigh
# nothing.
UNNAMED = PACKED - {"score", "correct"}
# The same inside a loss, where a micro-batch carries only this beside what is named.
UNNAMED_IN_A_LOSS = frozenset({"token", "behavior_logp", "sampler_logp", "group", "episode", "id", "pair"})
IN_A_LOSS = ("ratio", "loss", "terms")
ASKED = ("derive", "reward", "advantage", "reshape", "bounds", "row_weight", "token_weight", *IN_A_LOSS, "reduction")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a piece is asked on: a batch that holds every stream of its stack, and the running forward."""

    batch: Batch
    logp: Tensor
    entropy: Tensor
    value: Tensor
    ratio: Tensor

    def now(self) -> Now:
        """A forward pass of its own, with gradient."""
        fresh = lambda x: x.clone().requires_grad_() * 1.0  # noqa: E731
        return Now(fresh(self.logp), fresh(self.entropy), fresh(self.value), fresh(self.ratio))


def asked(running: Running) -> list[Placed]:
    """Every piece that is asked on a batch, reductions that terms bring along included."""
    own = [p for slot in ASKED for p in running.stack[slot]]
    brought = [replace(p, slot="reduction", piece=r) for p in own if (r := getattr(p.piece, "reduction", None))]
    return [*own, *brought]


def answer(placed: Placed, batch: Batch, now: Now) -> dict[str, Tensor]:
    """Everything that a piece says of a batch, by name."""
    if placed.slot not in IN_A_LOSS:
        back = ask(placed, batch)
        named = back if isinstance(back, Mapping) else dict(enumerate(back)) if isinstance(back, tuple) else {"": back}
        return {str(name): x for name, x in named.items()}
    part = replace(batch, whole=False)
    if placed.slot == "ratio":
        return {"": ask(placed, now, part)}
    loss, told = ask(placed, now, part)
    tallies = {name: torch.stack([torch.as_tensor(x).double() for x in (t.total, t.count)]) for name, t in told.items()}
    return {"loss": loss, "idle": idle(placed, batch), **tallies}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two answers are one, bit for bit; nan equals nan."""
    return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())


# ---- reads -----------------------------------------------------------------------------------------------
def undeclared(placed: Placed, scene: Scene) -> str | None:
    """A sentence, where a piece reads what it does not name."""
    named = reads(placed.piece)
    if placed.slot in IN_A_LOSS:
        named |= UNNAMED_IN_A_LOSS | {weight_name(placed.piece)}
    else:
        named |= UNNAMED
    whole = answer(placed, scene.batch, scene.now())

    def differs(names: set[str]) -> bool:
        try:
            return not same(whole, answer(placed, only(scene.batch, names), scene.now()))
        except PieceError:
            return True

    every = {*scene.batch.tokens, *scene.batch.rows}
    if not differs(named & every):
        return _undeclared_now(placed, scene, whole)
    guilty = [name for name in sorted(every - named) if differs(every - {name})]
    told = ", ".join(guilty) or "more than it names"
    return f"{who(placed)} reads {told} without saying so; add it to `needs`"


def _undeclared_now(placed: Placed, scene: Scene, whole: Mapping[str, Tensor]) -> str | None:
    if placed.slot not in ("loss", "terms"):
        return None
    for name in sorted({"ratio", "entropy", "value"} - set(getattr(placed.piece, "reads", ("logp",)))):
        without: Any = {name: None}
        now = replace(scene.now(), **without)
        try:
            differs = not same(whole, answer(placed, scene.batch, now))
        except PieceError:
            differs = True
        if differs:
            return f"{who(placed)} reads now.{name} without saying so; add {name!r} to `reads`"
    return None


def only(batch: Batch, names: set[str]) -> Batch:
    """The batch with these streams alone."""
    keep = lambda held: {name: x for name, x in held.items() if name in names}  # noqa: E731
    return replace(batch, tokens=keep(batch.tokens), rows=keep(batch.rows))


# ---- writes ----------------------------------------------------------------------------------------------
def written(placed: Placed, scene: Scene, anew: Batch) -> str | None:
    """A sentence, where a piece writes into what it was given. The scene was made with this very piece, which may have
    written into it already, and a second time changes nothing: so its streams are those of `anew` where that has them,
    and other numbers elsewhere."""
    doubled = {name: 2 * x + 0.25 for name, x in _floating(scene.batch) if name not in anew}
    changed = scene.batch.with_({**doubled, **anew.tokens, **anew.rows})
    try:
        return _written(placed, copy.deepcopy(changed), scene.now())
    except PieceError:  # numbers that never come, such as a reward of 2.25
        return _written(placed, copy.deepcopy(scene.batch.with_({**anew.tokens, **anew.rows})), scene.now())


def _floating(batch: Batch) -> list[tuple[str, Tensor]]:
    return [(name, x) for name, x in (*batch.tokens.items(), *batch.rows.items()) if x.is_floating_point()]


def _written(placed: Placed, batch: Batch, now: Now) -> str | None:
    given = {"length": batch.length, "row": batch.row, **batch.tokens, **batch.rows}
    given |= {f"now.{name}": getattr(now, name) for name in ("logp", "entropy", "value", "ratio")}
    before = {name: x.detach().clone() for name, x in given.items()}
    names = [*batch.tokens, *batch.rows]
    answer(placed, batch, now)
    changed = [name for name, x in given.items() if not _equal(x.detach(), before[name])]
    if [*batch.tokens, *batch.rows] != names:
        changed.append("the batch's dictionary of streams")
    if not changed:
        return None
    return f"{who(placed)} writes into {', '.join(changed)} in place; others read that after it: make a new tensor"


# ---- memory ----------------------------------------------------------------------------------------------
def remembered(running: Running, scenes: Callable[[], tuple[Scene, Scene]]) -> Iterator[str]:
    """A sentence for each piece whose answer depends on earlier calls, or which a call leaves changed. The pieces of
    `running` have not been called before; `scenes` calls them."""
    every, fresh = asked(running), copy.deepcopy(asked(running))
    before = [left_behind(p.piece) for p in every]
    first, second = scenes()
    for placed, new, was in zip(every, fresh, before):
        now = left_behind(placed.piece)
        kept = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
        if kept:
            yield f"{who(placed)} changes {', '.join(kept)} when it is called; {NOTHING}"
        elif not same(*(answer(placed, first.batch, first.now()) for _ in range(2))):
            yield f"{who(placed)} says something else when it is asked again of the same batch; {NOTHING}"
        elif not same(*(answer(p, second.batch, second.now()) for p in (placed, new))):
            yield f"{who(placed)} says something else after it has seen another batch; {NOTHING}"
    for placed in running.stack["phases"]:
        state = placed.piece.start()
        was = copy.deepcopy(state)
        one, two = (placed.piece.next(state, 1, {}) for _ in range(2))
        if state != was:
            yield f"{who(placed)} writes into the state that `next` is given; return a new one"
        elif one != two or placed.piece.start() != was:
            yield f"{who(placed)} says something else when it is asked again; what it knows belongs into its state"


NOTHING = "a piece remembers nothing"


def left_behind(piece: Any) -> dict[str, bytes]:
    """Everything in which a piece could keep something: itself, its class, its module, defaults of functions there. By
    a name that people understand; what cannot be pickled is left out."""
    module = sys.modules.get(type(piece).__module__)
    out: dict[str, Any] = dict(_attributes(piece))
    for kind in type(piece).__mro__[:-1]:
        out |= {f"the class attribute {name}": x for name, x in vars(kind).items() if _is_data(name, x)}
        out |= _defaults(vars(kind).values())
    if module is not None:
        out |= {f"the global {name}": x for name, x in vars(module).items() if _is_data(name, x)}
        out |= _defaults(f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__)
    return {name: told for name, x in out.items() if (told := _pickled(x)) is not None}


def _attributes(piece: Any) -> Iterator[tuple[str, Any]]:
    names = {*getattr(piece, "__dict__", {}), *(n for kind in type(piece).__mro__ for n in _slots(kind))}
    return ((f"its field {name}", getattr(piece, name)) for name in sorted(names) if hasattr(piece, name))


def _slots(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_data(name: str, x: Any) -> bool:
    return not name.startswith("__") and not isinstance(x, type) and not callable(x)


def _defaults(functions: Any) -> dict[str, Any]:
    given = {f: (f.__defaults__, f.__kwdefaults__, vars(f)) for f in functions if isinstance(f, FunctionType)}
    return {f"a default or attribute of {f.__name__}": x for f, x in given.items() if any(x)}


def _pickled(x: Any) -> bytes | None:
    try:
        return pickle.dumps(x)
    except Exception:  # whatever a foreign object says when it cannot be pickled: it is not looked at
        return None
