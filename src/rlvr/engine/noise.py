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
_CACHED = 2**15  # numbers of 8 bytes and their scratch in the smallest second-level caches in use, 512 KiB


def wrap(key: int) -> int:
    """Any Python integer as the int64 that stands for it in tensors: its lowest 64 bits."""
    return _signed(key % 2**64)


def _shift(z: Tensor, n: int, out: Tensor) -> Tensor:
    """Logical right shift into `out`: torch's own copies the sign."""
    return torch.bitwise_right_shift(z, n, out=out).bitwise_and_((1 << (64 - n)) - 1)


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place: fresh memory for each of its steps would cost more than the arithmetic."""
    scratch = torch.empty_like(z)
    z.bitwise_xor_(_shift(z, 30, scratch)).mul_(_MIX_1)
    z.bitwise_xor_(_shift(z, 27, scratch)).mul_(_MIX_2)
    return z.bitwise_xor_(_shift(z, 31, scratch))


def random_bits(keys: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """[B, vocab] int64 of 64 random bits each, from keys [B] and positions [B], both int64."""
    row = _mix(_mix(keys.clone()) + _GAMMA * (positions + 1))
    token = torch.arange(1, vocab + 1, device=keys.device) * _TOKEN
    return _mix(row[:, None] + token)


def exponential(keys: Tensor, positions: Tensor, vocab: int, dtype: torch.dtype) -> Tensor:
    """[B, vocab] draws from Exp(1), finite and above zero.

    -log(1 - v) with v = (2k + 1) / 2**53, k of 52 bits. Small draws decide which token wins, and there v keeps its full
    relative precision in float32 too: a token of probability 1e-12 still wins once in 1e12, which -log(u) with u of 24
    bits would round away.
    """
    bits = random_bits(keys, positions, vocab)
    v = _shift(bits, 11, bits).bitwise_or_(1).to(dtype).mul_(2.0**-53)
    top = 1 - torch.finfo(dtype).eps / 2  # the largest number below 1: rounding must not reach log(0)
    return v.clamp_(max=top).neg_().log1p_().neg_()


def gumbel(keys: Tensor, positions: Tensor, vocab: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[B, vocab] standard Gumbel noise, always finite; keys [B] and positions [B] are int64 on the wanted device.

    argmax(log p + gumbel) is a draw from p (Gumbel-max). dtype is float32 or float64.
    """
    # on a CPU, blocks that stay in its cache are twice as fast; on a GPU they would only be more kernels
    size = max(1, _CACHED // vocab) if keys.device.type == "cpu" else max(1, len(keys))
    blocks = [exponential(k, p, vocab, dtype).log_().neg_() for k, p in zip(keys.split(size), positions.split(size))]
    return torch.cat(blocks) if len(blocks) > 1 else blocks[0]
