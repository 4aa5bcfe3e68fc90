"""Sampling noise as a pure function of (key, position, token id).

Whoever shares the batch, in which order rows stand and which device computes cannot change it, so a request is
answered with the same tokens alone or among a thousand. The integers are SplitMix64's (Steele, Lea, Flood 2014, "Fast
splittable pseudorandom number generators"; finaliser by Stafford, variant 13) and are equal bit for bit on every
device; floats differ by a rounding of `log` at most.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


_GAMMA = _signed(0x9E3779B97F4A7C15)  # SplitMix64's increment: the odd number nearest 2**64 / golden ratio
_TOKEN = _signed(
    0xD1342543DE82EF95
)  # another odd increment (Steele and Vigna 2021), so that position and token cannot trade places
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def wrap(key: int) -> int:
    """Any Python integer as the int64 that stands for it in tensors: its lowest 64 bits."""
    return _signed(key % 2**64)


def _shift(z: Tensor, n: int) -> Tensor:
    """Logical right shift: torch's `>>` copies the sign."""
    return (z >> n) & ((1 << (64 - n)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def random_bits(keys: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """[B, vocab] int64 of 64 random bits each, from keys [B] and positions [B], both int64."""
    row = _mix(_mix(keys) + _GAMMA * (positions + 1))
    token = torch.arange(1, vocab + 1, device=keys.device) * _TOKEN
    return _mix(row[:, None] + token[None])


def exponential(keys: Tensor, positions: Tensor, vocab: int, dtype: torch.dtype) -> Tensor:
    """[B, vocab] draws from Exp(1), finite and above zero.

    -log(1 - v) with v = (2k + 1) / 2**53, k of 52 bits. Small draws decide which token wins, and there v keeps its
    full relative precision in float32 too: a token of probability 1e-12 still wins once in 1e12, which -log(u) with
    24 bits would round away.
    """
    odd = _shift(random_bits(keys, positions, vocab), 11) | 1
    v = odd.to(dtype) * 2.0**-53
    top = 1 - torch.finfo(dtype).eps / 2  # the largest number below 1: rounding must not reach log(0)
    return -torch.log1p(-v.clamp_(max=top))


def gumbel(keys: Tensor, positions: Tensor, vocab: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[B, vocab] standard Gumbel noise, always finite; keys [B] and positions [B] are int64 on the wanted device.

    argmax(log p + gumbel) is a draw from p (Gumbel-max). dtype is float32 or float64.
    """
    return -torch.log(exponential(keys, positions, vocab, dtype))
