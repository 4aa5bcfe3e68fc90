"""A method is a set of slot settings. Papers add settings; a plan (plan.py) is what comes out when they are all in.

A paper is a function `paper(method, ...) -> Method` that says which slots it sets and how strongly:

    base < preference < firm

`base` is GRPO's own; `prefer` yields to anything firm; `firm` is what defines the paper. In a slot that holds one piece
two different firm settings contradict and are refused, equal ones agree, and two different preferences cancel (the
base's stays). In a slot that holds many, all live together, in an order that does not depend on the order of stacking.
Since a method is only a set, papers commute by construction.

A *piece* is a small frozen dataclass with `__call__`; its fields are hyper-parameters. What it may declare, all
optional:

    needs     streams it reads, or Views (looks of a model) that give them
    gives     streams it writes (derive, annotate; advantage: "row_advantage" or "advantage")
    settle    (stack) -> piece: fill defaults that depend on the rest of the stack
    refuses   {slot, stream or property: reason}: firm pieces of other papers that it cannot live with
    properties  words that others may refuse, e.g. "corrects=sampler"
    rank      reshape only: 1 bounds, 2 scales, 3 adds
    keeps     reshape only: (batch, new advantage) -> what of its promises that breaks, "" where nothing is
    selects   token_weight only: its zeros leave the denominators
    on_update token_weight only: computed on each optimiser batch, at the current weights
    tell      (batch) -> {metric: Tally}: what it says of the batch that it worked on
    reads     loss and terms: fields of `Now`: "logp", "ratio", "entropy", "value", "logp_at/<stream>"
    together  loss and terms: rows that must stay in one micro-batch: "row", "pair", "group"
    model     loss and terms: whose parameters it trains; "policy" unless said
    reduction terms: a reduction of its own; else the policy's weight
    asks      annotate: whom it asks on `world`: "judge"
    lacks     (training tasks) -> what they do not have that it cannot work without, "" where nothing
    stand_in  annotate, and probes of views: (batch) -> {stream}: facts made up of rows' ids, for the laws (testing.py)
    one_way   phases only: they come in the order of `names`, and none comes back
    afresh    phases only: the policy's optimiser forgets its moments where a phase begins
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

Strength = Literal["base", "prefer", "firm"]


class Slot(NamedTuple):
    many: bool
    signature: str
    meaning: str


SLOTS: dict[str, Slot] = {
    "select": Slot(False, "start(tasks, seed) -> Selector", "which tasks a step takes"),
    "rollout": Slot(False, "(tasks, n, world) -> async iterator of Groups", "how the policy acts on them"),
    "verify": Slot(False, "(text, task) -> Verdict", "how answers are checked"),
    "keep": Slot(True, "(group) -> bool", "which groups are trained on; all must agree"),
    "annotate": Slot(True, "async (group, world) -> {stream}", "facts that somebody outside adds to a group"),
    "derive": Slot(True, "(batch) -> {stream}", "streams computed from others"),
    "reward": Slot(True, "(batch) -> {part: [R] or [N]}", "parts of the reward, weighted and summed"),
    "advantage": Slot(False, "(batch) -> [R] or [N]", "how much better than expected"),
    "reshape": Slot(True, "(batch) -> advantage [N]", "changes to the advantage, by rank"),
    "bounds": Slot(False, "(batch) -> clip_low [N], clip_high [N]", "how far the ratio may go"),
    "row_weight": Slot(True, "(batch) -> [R]", "multiplied; 0 leaves every denominator"),
    "token_weight": Slot(True, "(batch) -> [N]", "multiplied"),
    "ratio": Slot(False, "(now, batch) -> [N]", "importance ratio at a level"),
    "loss": Slot(False, "(now, batch) -> token_loss [N], {name: Tally}", "what is minimised"),
    "terms": Slot(True, "(now, batch) -> token_loss [N], {name: Tally}", "further losses, also of other models"),
    "reduction": Slot(False, "(batch) -> [N]", "how token losses become one number"),
    "phases": Slot(
        True, "start() -> state, next(state, step, metrics), at(stack, phase)", "the stack changes as training goes on"
    ),
}
# What a piece has to have, where that is not __call__.
METHODS = {"select": ("start",), "phases": ("names", "start", "next", "at")}
# What a phase replaces when it swaps the policy-gradient method for another (e.g. distillation).
POLICY_GRADIENT = ("advantage", "reshape", "bounds", "token_weight", "ratio", "loss", "reduction")


class Contradiction(ValueError):
    """Settings that cannot live together; the message names both, why, and what would work."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One setting of one slot."""

    slot: str
    piece: Any
    paper: str
    strength: Strength

    def __str__(self) -> str:
        return f"{self.paper}'s {self.piece}"


@dataclass(frozen=True, slots=True)
class Method:
    """Slot settings, in no order. Build it with `grpo()` and papers; run `method.plan()`."""

    placed: frozenset[Placed] = frozenset()

    def base(self, paper: str, **slots: Any) -> Method:
        return self._put(paper, "base", slots)

    def prefer(self, paper: str, **slots: Any) -> Method:
        return self._put(paper, "prefer", slots)

    def firm(self, paper: str, **slots: Any) -> Method:
        return self._put(paper, "firm", slots)

    def _put(self, paper: str, strength: Strength, slots: Mapping[str, Any]) -> Method:
        new = set()
        for slot, given in slots.items():
            if slot not in SLOTS:
                raise Contradiction(f"{paper} sets {slot!r}, which is no slot; slots are {', '.join(SLOTS)}")
            pieces = given if isinstance(given, tuple | list) else (given,)
            if len(pieces) > 1 and not SLOTS[slot].many:
                raise Contradiction(f"{paper} puts {len(pieces)} pieces into {slot}, which holds one")
            new |= {Placed(slot, _sound(paper, slot, piece), paper, strength) for piece in pieces}
        return Method(self.placed | new)

    @property
    def papers(self) -> list[str]:
        return sorted({p.paper for p in self.placed})

    def plan(
        self, max_tokens: int = 1024, steps: int = 60, group_size: int = 16, eval_every: int = 0, **recipe: Any
    ) -> Any:
        """The plan that runs: everything settled and checked. `recipe` fills slots that no paper has set, e.g.
        `reward=Pays(...)`; the numbers are the run's, for defaults that depend on them. Raises Contradiction."""
        from rlvr.plan import make_plan

        run = {"max_tokens": max_tokens, "steps": steps, "group_size": group_size, "eval_every": eval_every}
        return make_plan(self._put("recipe", "base", recipe), run)


EMPTY = Method()


def _sound(paper: str, slot: str, piece: Any) -> Any:
    """The piece, where it can be one. Raises Contradiction."""
    if fault := _fault(slot, piece):
        raise Contradiction(f"{paper} sets {slot} to {fault}")
    return piece


def _fault(slot: str, piece: Any) -> str | None:
    """What is wrong with a piece as it stands, before anybody calls it."""
    if piece is None or isinstance(piece, str | int | float | Mapping):
        return f"{piece!r}, which is no piece: a piece is an object with __call__"
    if isinstance(piece, type):
        return f"the class {piece.__name__}; make one of it: {piece.__name__}(...)"
    name = type(piece).__name__
    if lacking := [method for method in METHODS.get(slot, ("__call__",)) if not hasattr(piece, method)]:
        return f"{name}, which has no {' and no '.join(lacking)}"
    try:
        hash(piece)
    except TypeError as error:
        return (
            f"{name}, which can change ({error}); write @dataclass(frozen=True), with numbers, texts and tuples in it"
        )
    if slot in ("derive", "annotate") and not hasattr(piece, "gives"):
        return f'{name}, which does not say what it writes: name the streams, gives = ("...",)'
    for word in ("needs", "gives", "parts", "reads", "properties"):
        if isinstance(text := getattr(piece, word, ()), str):
            return f"{name}, whose {word} is the text {text!r}; write a tuple: {word} = ({text!r},)"
    return None


@dataclass(frozen=True, slots=True)
class Stack:
    """A method with every slot decided: what phases and `settle` look at."""

    slots: Mapping[str, tuple[Placed, ...]]
    notes: tuple[str, ...] = ()
    run: Mapping[str, Any] = field(default_factory=dict)  # facts of the run, for `settle`: "max_tokens", ...

    def __getitem__(self, slot: str) -> tuple[Placed, ...]:
        return self.slots.get(slot, ())

    def one(self, slot: str) -> Any:
        """The piece in a slot that holds one, or None."""
        return self[slot][0].piece if self[slot] else None

    def __iter__(self) -> Iterator[Placed]:
        for slot in SLOTS:
            yield from self[slot]

    def swap(self, paper: str, **slots: Any) -> Stack:
        """With these slots replaced by a paper's pieces (None empties a slot); for phases."""
        new = dict(self.slots)
        for slot, given in slots.items():
            pieces = () if given is None else given if isinstance(given, tuple | list) else (given,)
            new[slot] = tuple(Placed(slot, _sound(paper, slot, p), paper, "firm") for p in pieces)
        return replace(self, slots=new)

    def only(self, placed: Iterable[Placed]) -> Stack:
        """With just these settings kept."""
        keep = {id(p) for p in placed}
        return replace(self, slots={s: tuple(p for p in ps if id(p) in keep) for s, ps in self.slots.items()})


def resolve(placed: Iterable[Placed], run: Mapping[str, Any]) -> Stack:
    """Decide every slot: firm beats preference beats base. Raises Contradiction where two firm settings differ."""
    slots: dict[str, tuple[Placed, ...]] = {}
    notes: list[str] = []
    by_slot: dict[str, list[Placed]] = {}
    for p in sorted(placed, key=lambda p: (p.paper, p.strength, repr(p.piece))):
        by_slot.setdefault(p.slot, []).append(p)
    for slot, rivals in by_slot.items():
        slots[slot] = _all_of(rivals) if SLOTS[slot].many else (_winner(slot, rivals, notes),)
    stack = Stack(slots, tuple(notes), run)
    return replace(
        stack,
        slots={
            slot: tuple(
                replace(p, piece=_sound(p.paper, slot, p.piece.settle(stack))) if hasattr(p.piece, "settle") else p
                for p in ps
            )
            for slot, ps in slots.items()
        },
    )


def _winner(slot: str, rivals: Sequence[Placed], notes: list[str]) -> Placed:
    for strength in ("firm", "prefer", "base"):
        wanted = [p for p in rivals if p.strength == strength]
        different = [p for i, p in enumerate(wanted) if p.piece not in [q.piece for q in wanted[:i]]]
        if not different:
            continue
        if len(different) == 1:
            for p in rivals:
                if strength == "firm" and p.strength == "prefer" and p.piece != different[0].piece:
                    notes.append(f"{p.paper} would prefer {slot} = {p.piece}; {different[0].paper}'s setting stands")
            return different[0]
        a, b = different[:2]
        if strength == "firm":
            if a.paper == b.paper:
                raise Contradiction(
                    f"{a.paper} is stacked twice with different settings ({a.piece}, {b.piece}); name it once"
                )
            raise Contradiction(
                f"{a.paper} and {b.paper} both define the {slot} ({SLOTS[slot].meaning}): {a.piece} against {b.piece}. "
                f"A stack has one {slot}: drop {a.paper} or {b.paper}, or train with one after the other"
            )
        if strength == "prefer":
            notes.append(
                f"{' and '.join(f'{p.paper} ({p.piece})' for p in different)} prefer different settings of {slot}; "
                f"the base's stays"
            )
            continue
        raise Contradiction(f"two bases set {slot}: {a} and {b}; a stack has one base")
    raise Contradiction(f"only differing preferences set {slot}, and there is no base: start the stack with grpo")


def _all_of(rivals: Sequence[Placed]) -> tuple[Placed, ...]:
    out: list[Placed] = []
    for p in sorted(rivals, key=lambda p: (getattr(p.piece, "rank", 0), p.paper, repr(p.piece))):
        same = [q for q in out if q.piece == p.piece]
        if not same:
            out.append(p)
        elif p.strength == "firm" and same[0].strength != "firm":
            out[out.index(same[0])] = p  # somebody insists on it
    return tuple(out)
