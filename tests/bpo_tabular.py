"""Policies that are tables: every state a prefix, every row a path down a full tree, all of them enumerated in float64.

A table is a list of logits, [V^t, V] for depth t; state s at depth t has the children s V + a. Here is what BPO is
derived from, without the approximations of `rlvr.methods.bpo`: advantages, mirror descent's optimum, and the residual.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Table = Sequence[Tensor]


def random_table(vocabulary: int, depth: int, noise: torch.Generator, scale: float = 1.0) -> list[Tensor]:
    draw = lambda t: scale * torch.randn(vocabulary**t, vocabulary, generator=noise, dtype=torch.float64)  # noqa: E731
    return [draw(t) for t in range(depth)]


def log_probs(table: Table) -> list[Tensor]:
    return [torch.log_softmax(x, -1) for x in table]


def paths(vocabulary: int, depth: int) -> list[tuple[Tensor, Tensor]]:
    """Of every depth, the state and the action of each of the V^T paths."""
    every = torch.arange(vocabulary**depth)
    left = [vocabulary ** (depth - t) for t in range(depth + 1)]
    return [(every // left[t], every // left[t + 1] % vocabulary) for t in range(depth)]


def advantages(mu: Table, reward: Tensor) -> tuple[list[Tensor], Tensor]:
    """A^mu [V^t, V] of every depth, and V at the root; reward [V^T] comes at the leaves."""
    out: list[Tensor] = []
    value = reward
    for logp in reversed(log_probs(mu)):
        q = value.reshape(logp.shape)
        value = (logp.exp() * q).sum(-1)
        out.insert(0, q - value[:, None])
    return out, value[0]


def mirror_descent(mu: Table, reward: Tensor, eta: float) -> list[Tensor]:
    """pi+ in proportion to mu exp(eta A^mu), as log-probs: one exact step."""
    better, _ = advantages(mu, reward)
    return [torch.log_softmax(logp + eta * a, -1) for logp, a in zip(log_probs(mu), better)]


def state_kl(mu: Table, pi: Table) -> list[Tensor]:
    """KL(mu || pi) [V^t] of every state."""
    return [(m.exp() * (m - p)).sum(-1) for m, p in zip(log_probs(mu), log_probs(pi))]


def path_probs(mu: Table) -> Tensor:
    """[V^T] probability of every path."""
    logp = log_probs(mu)
    vocabulary, depth = logp[0].shape[-1], len(logp)
    return sum(m[s, a] for m, (s, a) in zip(logp, paths(vocabulary, depth))).exp()  # type: ignore[union-attr]


def residual(mu: Table, pi: Table, reward: Tensor, eta: float, with_kl: bool = True) -> Tensor:
    """[V^T] delta = eta (r - V) - sum of (log pi - log mu + KL(mu || pi)) of every path, with gradient in pi."""
    _, value = advantages(mu, reward)
    total = eta * (reward - value)
    kl = state_kl(mu, pi)
    m, p = log_probs(mu), log_probs(pi)
    for t, (s, a) in enumerate(paths(m[0].shape[-1], len(m))):
        total = total - (p[t][s, a] - m[t][s, a]) - (kl[t][s] if with_kl else 0)
    return total


def exact_loss(mu: Table, pi: Table, reward: Tensor, eta: float, with_kl: bool = True) -> Tensor:
    """E over mu of delta^2 / (2 eta)."""
    return (path_probs(mu) * residual(mu, pi, reward, eta, with_kl) ** 2).sum() / (2 * eta)


def minimised(mu: Table, reward: Tensor, eta: float, start: Table) -> list[Tensor]:
    """Log-probs of the policy that minimises the exact loss, found by L-BFGS from `start`."""
    free = [x.clone().requires_grad_() for x in start]
    search = torch.optim.LBFGS(
        free, max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        loss = exact_loss(mu, free, reward, eta)
        loss.backward()
        return loss

    search.step(closure)  # type: ignore[arg-type]
    return [x.detach() for x in log_probs(free)]
