"""Advantages made of what a token still earns: discounted returns, and GAE against a critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.streams import declare

declare("token", "gae/advantage", "generalised advantage estimate, before whitening")
declare("token", "gae/return", "what the critic should have said: gae/advantage + value")


def earned(batch: Batch) -> Tensor:
    """[N] reward of each token: its token parts, and the row's other parts at the row's last token."""
    last = torch.zeros_like(batch.row, dtype=torch.bool)
    last[(batch.length.cumsum(0) - 1)[batch.length > 0]] = True
    by_row = batch["reward"] - batch.row_sum(batch["token_reward"])
    return batch["token_reward"] + torch.where(last, batch.spread(by_row), 0.0)


def whiten(x: Tensor, batch: Batch, eps: float) -> Tensor:
    """[N] (x - mean) / sqrt(var + eps) over the tokens of known rows; sample variance, as verl's masked_whiten. 0
    elsewhere."""
    counts = batch.spread(batch["known"])
    n = counts.sum()
    mean = torch.where(counts, x, 0.0).sum() / n.clamp(min=1)
    var = torch.where(counts, (x - mean) ** 2, 0.0).sum() / (n - 1).clamp(min=1)
    return torch.where(counts, (x - mean) * torch.rsqrt(var + eps), 0.0)


@dataclass(frozen=True)
class WhitenedReturn:
    """A_t = whiten(sum over k >= t of gamma^(k-t) r_k), over all tokens of the rollout batch: REINFORCE++ (arXiv
    2501.03262).

    `baseline` takes the group's mean from the reward first (the paper's variant for groups). Returns advantage [N].
    """

    gamma: float = 1.0
    baseline: bool = False
    eps: float = 1e-8  # verl
    needs: ClassVar = ("reward", "token_reward", "group", "known", "episode")
    gives: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        reward = earned(batch)
        if self.baseline:
            centred = batch["reward"].double() - batch.group_mean(batch["reward"])
            return whiten(batch.spread(centred.to(reward.dtype)), batch, self.eps)
        return whiten(batch.scan(reward, self.gamma, reverse=True), batch, self.eps)


@dataclass(frozen=True)
class Gae:
    """Generalised advantage estimation (arXiv 1506.02438): delta_t = r_t + gamma V_(t+1) - V_t, A_t = delta_t + gamma
    lam A_(t+1); nothing follows a row's last token. Gives gae/advantage [N] and gae/return [N]."""

    gamma: float = 1.0
    lam: float = 1.0
    needs: ClassVar = ("reward", "token_reward", "value")
    gives: ClassVar = ("gae/advantage", "gae/return")

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        value = batch["value"]
        delta = earned(batch) + self.gamma * batch.shift(value, 1, 0.0) - value
        advantage = batch.scan(delta, self.gamma * self.lam, reverse=True)
        return {"gae/advantage": advantage, "gae/return": advantage + value}


@dataclass(frozen=True)
class WhitenedGae:
    """gae/advantage, whitened over the rollout batch as PPO implementations do. Returns advantage [N]."""

    eps: float = 1e-8
    needs: ClassVar = ("gae/advantage", "known")
    gives: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return whiten(batch["gae/advantage"], batch, self.eps)
