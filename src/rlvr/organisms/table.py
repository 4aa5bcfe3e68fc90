"""The settings of every organism, in one place. `organisms.make` carries them out; the numbers were found by trial.

A model is warmed up on worked demonstrations of a seeded task family until it can do the task. In the last part of the
warm-up another habit comes in (`organisms.habits`). The model ends with both, and reinforcement learning has a mode to
strengthen; a model that is merely under-trained stays flat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlvr.organisms.habits import Careless, Guesses, Mistaken


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model's size, its tasks and its warm-up."""

    # model: Llama format, tied head, a token a character
    hidden: int
    layers: int
    heads: int
    inner: int
    initializer_range: float  # about 1 / sqrt(hidden); at .02 these widths learn several times more slowly
    # tasks
    family: str  # of tasks.synthetic
    levels: tuple[int, int]
    # warm-up: AdamW without decay, learning rate along a cosine to 10 %
    steps: int
    batch: int
    lr: float
    habit: Guesses | Careless | Mistaken  # of the demonstrations that come last
    mixed_from: float = 0.85  # share of the steps after which they come
    moduli: tuple[int, int] | None = None  # of modular chains
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: int = 20  # steps of rising learning rate
    max_grad_norm: float = 1.0


# 0.22M parameters, answers of 3 to 15 tokens. For tests and the quickstart.
NANO = Recipe(
    hidden=96,
    layers=2,
    heads=3,
    inner=256,
    initializer_range=0.08,
    family="running_sums",
    levels=(2, 5),
    steps=640,
    batch=128,
    lr=4e-3,
    habit=Guesses(direct=0.65, wrong=0.9),
)

# 0.39M parameters, about 30 tokens, four to six steps an answer. For experiments.
MINI = Recipe(
    hidden=128,
    layers=2,
    heads=4,
    inner=336,
    initializer_range=0.088,
    family="modular_chains",
    levels=(4, 6),
    moduli=(5, 9),  # every number is one character: steps of one length
    steps=560,
    batch=96,
    lr=4e-3,
    habit=Careless(careless=0.25, stop=0.05),
)

# 1.98M parameters, about 40 tokens. For speed comparisons.
MICRO = Recipe(
    hidden=256,
    layers=3,
    heads=8,
    inner=512,
    initializer_range=0.0625,
    family="modular_chains",
    levels=(6, 8),
    moduli=(5, 7),
    steps=260,
    batch=64,
    lr=2.5e-3,
    habit=Careless(careless=0.2, stop=0.03),
)

RECIPES = {"nano": NANO, "mini": MINI, "micro": MICRO}  # bundled

# A teacher for mini's tasks that does all steps, and is wrong on purpose on those modulo 7 that have a product: about a
# sixth. Not bundled.
MISTAKEN = replace(MINI, habit=Mistaken(modulus=7), mixed_from=0.0)

TEACHERS = {"mistaken": MISTAKEN}
