"""The table of stream names: each says token or row, and what it holds. It is the glossary and the spelling check.

Third parties add namespaced names: `declare("token", "hispo/start", "first token of a segment")`. Names under `part/`
and `reward/` (rows) belong to verdict parts and reward parts and need no declaration, nor do `weight/` tokens (the
weights of terms that reduce in their own way).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

Per = Literal["token", "row"]


@dataclass(frozen=True, slots=True)
class Stream:
    per: Per
    meaning: str


class UnknownStream(KeyError):
    def __str__(self) -> str:
        return str(self.args[0])


TABLE: dict[str, Stream] = {}
OPEN: dict[str, Per] = {"part/": "row", "reward/": "row", "weight/": "token"}


def declare(per: Per, name: str, meaning: str) -> None:
    """Add a stream. Declaring it again differently is an error, so that two papers cannot share a name by accident."""
    new = Stream(per, meaning)
    if TABLE.setdefault(name, new) != new:
        raise ValueError(f"stream {name!r} is already declared per {TABLE[name].per}: {TABLE[name].meaning}")


def per(name: str) -> Per:
    """'token' or 'row'. Raises UnknownStream with the nearest known name."""
    if name in TABLE:
        return TABLE[name].per
    for prefix, kind in OPEN.items():
        if name.startswith(prefix):
            return kind
    near = difflib.get_close_matches(name, TABLE, 1)
    raise UnknownStream(
        f"unknown stream {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; declare it: rlvr.streams.declare")
    )


for _name, _meaning in {
    "token": "id of the trained token",
    "origin": "records.Origin of the token",
    "behavior_logp": "log-prob under the distribution really sampled from (temperature, top-p and top-k applied)",
    "sampler_logp": "the sampler's log-prob at full support: comparable with old_logp",
    "sampler_entropy": "the sampler's entropy in nats at full support",
    "old_logp": "log-prob under the policy that starts the step's updates, trainer numerics, full support",
    "ref_logp": "log-prob under the frozen reference policy",
    "teacher_logp": "log-prob under the teacher; old_logp where it has no say: in rows that it did not look at, and on "
    "ends of answers that are no ends to it",
    "entropy": "entropy in nats of the policy that starts the step's updates, at the sampling temperature",
    "value": "critic's prediction at this token",
    "now_logp": "log-prob at the current weights, before an optimiser step, detached",
    "now_entropy": "entropy at the current weights, before an optimiser step, detached",
    "now_slope": "d(all policy losses)/d(log-prob) at the current weights, detached",
    "token_reward": "sum of the weighted token parts of the reward",
    "advantage": "how much better than expected this token was",
    "clip_low": "ratio is clipped below at 1 - clip_low",
    "clip_high": "ratio is clipped above at 1 + clip_high",
    "token_weight": "product of all token weights",
    "token_counted": "whether the token stands in the denominators that count tokens",
    "weight": "what the token's loss is multiplied with: row_weight * token_weight * reduction",
}.items():
    declare("token", _name, _meaning)

for _name, _meaning in {
    "id": "position of the row in the rollout batch; breaks ties",
    "group": "index of the row's group",
    "episode": "index of the row's episode; rows of one episode share reward and verdict",
    "role": "index of the role that acted",
    "score": "verdict's score in [0, 1]",
    "correct": "verdict is right",
    "known": "verdict is right or wrong, not unknown",
    "truncated": "the rollout hit a length limit",
    "demo": "the row is a demonstration, not sampled by the policy",
    "reward": "weighted sum of the reward parts, token parts included",
    "row_advantage": "advantage of the whole row",
    "row_weight": "product of all row weights; 0 leaves every denominator",
    "path_length": "trained tokens on the whole path from the root, parents' tokens included",
    "teacher_known": "the teacher looked at the row: it fits its context, and a server answered",
    "progress": "share of the run's steps that are behind: 0 in the first, 1 in the last",
    "pair": "index of the pair that a row belongs to, -1 for none",
}.items():
    declare("row", _name, _meaning)
