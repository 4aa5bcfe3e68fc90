"""What can be audited, and how each is spoken to: our verifiers by spec, known peers by name, functions of a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BARE = "{}"
BOX = "The answer is $\\boxed{{}}$."


@dataclass(frozen=True, slots=True)
class Target:
    """One verifier under audit. `wrap` says how an answer is presented, `gold` how the gold is; {} is the place."""

    name: str
    command: tuple[str, ...]
    wrap: str
    gold: str
    corpus: str

    def text(self, answer: str, raw: bool) -> str:
        return answer if raw else filled(self.wrap, answer)


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's grader: the environment that `make audit-peers` makes for it, and how it wants to be asked."""

    environment: str
    wrap: str
    gold: str
    what: str


PEERS = {
    "math-verify": Peer("math-verify", BOX, "\\boxed{{}}", "math-verify, parse() as it comes: LaTeX and expressions"),
    "math-verify-latex": Peer("math-verify", "${}$", "${}$", "math-verify, LatexExtractionConfig alone"),
    "math-verify-expr": Peer("math-verify", BARE, BARE, "math-verify, ExprExtractionConfig alone"),
    "minerva": Peer(
        "minerva", "Final Answer: The final answer is ${}$. I hope it is correct.", BARE, "lm-eval's minerva_math"
    ),
    "prm800k": Peer("verl", BARE, BARE, "PRM800K's grade_answer, in the copy that verl ships"),
    "verl-math-reward": Peer("verl", BOX, BARE, "verl's math_reward, which is lm-eval's hendrycks_math"),
    "verl-math-dapo": Peer("verl", "Answer: {}", BARE, "verl's math_dapo"),
    "verl-prime-math": Peer("verl", BOX, BARE, "verl's prime_math: PRM800K's grader, then a numeric cascade"),
    "mathruler": Peer("mathruler", BOX, BARE, "mathruler: PRM800K's grader on the last box"),
}
# how ours are asked: (wrap, corpus); all others bare, on mathematics
_OURS = {
    "math": (BOX, "math"), "last_box": (BOX, "math"), "hash_marker": ("#### {}", "math"), "numeric": (BARE, "numbers"),
    "choice": (BARE, "choice"), "json_schema": (BARE, "json"),
    "code": ("```python\n{}\n```", "code"),
}  # fmt: skip
# how a bare name is asked: an endless loop must end before the asker kills the whole verifier
_SPELLED = {"code": "code(seconds=2)"}
_WITHOUT = {"instructions", "llm_judge", "rubric", "sql"}


def target(name: str, wrap: str | None = None, corpus: str | None = None, python: str | None = None) -> Target:
    """The target that a name or spec means; `wrap`, `corpus` and a peer's interpreter may be told.

    Raises ValueError for a wrap without a place for the answer, and for a verifier that no corpus fits.
    """
    if wrap is not None and "{}" not in wrap:
        raise ValueError(f"--wrap {wrap!r} has no {{}}, the place of the answer")
    if name in PEERS:
        peer = PEERS[name]
        made = Path(f".venv-audit-{peer.environment}") / "bin" / "python"
        interpreter = python or (str(made) if made.is_file() else sys.executable)
        asked = (interpreter, str(Path(__file__).with_name("peer.py")), name)
        return Target(name, asked, wrap or peer.wrap, peer.gold, corpus or "math")
    name = _SPELLED.get(name, name)
    if corpus is None and name.partition("(")[0].strip() in _WITHOUT:
        raise ValueError(
            f"there is no corpus for {name} yet: its answers are neither mathematics nor choices nor JSON; give a "
            "--corpus if you mean one of these"
        )
    usual, usually = _OURS.get(name.partition("(")[0].strip(), (BARE, "math"))
    command = (sys.executable, "-m", "rlvr.audit.ours", name)
    return Target(name, command, wrap or usual, BARE, corpus or usually)


def filled(template: str, text: str) -> str:
    before, _, after = template.partition("{}")
    return before + text + after
