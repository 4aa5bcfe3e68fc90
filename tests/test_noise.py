"""Keyed noise: what it depends on, how it is distributed, and that its ends are finite."""

import math

import pytest
import torch
from scipy import stats

from rlvr.engine.noise import exponential, gumbel, random_bits, wrap

# Every statistical test below is deterministic (fixed keys) and was set to reject a true generator once in 10,000.
ALPHA = 1e-4


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def splitmix(key: int, position: int, token: int) -> int:
    """The same formula with Python's unbounded integers."""
    m = 2**64 - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & m
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & m
        return z ^ (z >> 31)

    row = mix((mix(key & m) + 0x9E3779B97F4A7C15 * (position + 1)) & m)
    return mix((row + 0xD1342543DE82EF95 * (token + 1)) & m)


def test_the_bits_are_splitmix64_in_unbounded_arithmetic():
    keys, positions = [0, 1, -1, 2**63 - 1, -(2**63), 123456789], [0, 1, 5, 100000, 7, 2]
    bits = random_bits(ints(*keys), ints(*positions), 11)
    for b, (key, position) in enumerate(zip(keys, positions)):
        assert [int(x) % 2**64 for x in bits[b]] == [splitmix(key, position, t) for t in range(11)]


def test_splitmix_finaliser_gives_its_published_first_output():
    # SplitMix64 seeded with 0 first returns 0xE220A8397B1DCDAF = mix(gamma)
    from rlvr.engine.noise import _GAMMA, _mix

    assert int(_mix(ints(_GAMMA))) % 2**64 == 0xE220A8397B1DCDAF


def test_any_python_integer_is_a_key():
    assert wrap(5) == 5
    assert wrap(2**64 - 1) == -1
    assert wrap(2**63) == -(2**63)
    assert wrap(-3) == -3
    assert wrap(2**200 + 9) == 9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_of_a_row_does_not_know_its_batch(dtype):
    keys, positions = ints(3, -8, 2**62, 3), ints(0, 17, 4, 1)
    whole = gumbel(keys, positions, 50, dtype)
    for b in range(4):
        assert torch.equal(gumbel(keys[b : b + 1], positions[b : b + 1], 50, dtype)[0], whole[b])
    order = ints(2, 0, 3, 1)
    assert torch.equal(gumbel(keys[order], positions[order], 50, dtype), whole[order])
    assert torch.equal(gumbel(keys, positions, 20, dtype), whole[:, :20])  # nor the size of the vocabulary


def uniforms(keys: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    return torch.exp(-exponential(keys, positions, vocab, torch.float64))


def test_uniforms_are_uniform_along_keys_positions_and_tokens():
    n = 40_000
    line = torch.arange(n)
    for u in (
        uniforms(line, ints(0).expand(n), 1)[:, 0],
        uniforms(ints(7).expand(n), line, 1)[:, 0],
        uniforms(ints(7), ints(3), n)[0],
    ):
        assert stats.kstest(u.numpy(), "uniform").pvalue > ALPHA
        cells = torch.histc(u, 256, 0, 1).numpy()
        assert stats.chisquare(cells).pvalue > ALPHA


def test_neighbouring_keys_positions_and_tokens_are_not_correlated():
    k, p, v = 48, 48, 48
    keys = torch.arange(k).repeat_interleave(p)
    positions = torch.arange(p).repeat(k)
    u = uniforms(keys, positions, v).reshape(k, p, v) - 0.5
    pairs = {
        "key": (u[1:], u[:-1]),
        "position": (u[:, 1:], u[:, :-1]),
        "token": (u[..., 1:], u[..., :-1]),
        "key for position": (u[1:, :-1], u[:-1, 1:]),
        "position for token": (u[:, 1:, :-1], u[:, :-1, 1:]),
        "transposed": (u, u.transpose(0, 1)),
    }
    for name, (a, b) in pairs.items():
        if name == "transposed":  # the diagonal is itself
            off = ~torch.eye(k, dtype=torch.bool)
            a, b = a[off], b[off]
        r = float((a * b).mean() * 12)  # uniform variance is 1/12
        z = abs(r) * math.sqrt(a.numel())
        limit = 3.9 * (math.sqrt(2) if name == "transposed" else 1)  # transposed pairs are counted twice
        assert z < limit, (name, z)


def test_all_bits_flip_when_one_bit_of_the_input_flips():
    keys, positions = torch.arange(2000), torch.arange(2000) % 37
    base = random_bits(keys, positions, 1)[:, 0]
    for other in (random_bits(keys ^ 1, positions, 1)[:, 0], random_bits(keys, positions ^ 1, 1)[:, 0]):
        flips = torch.stack([((base ^ other) >> i) & 1 for i in range(64)]).double().mean(1)
        assert float((flips - 0.5).abs().max()) < 5 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_ends_are_finite(dtype, monkeypatch):
    ends = ints(0, -1, 2**63 - 1, -(2**63), 1, 2**11)
    monkeypatch.setattr("rlvr.engine.noise.random_bits", lambda keys, positions, vocab: ends[None])
    e = exponential(ints(0), ints(0), 6, dtype)
    assert bool((e > 0).all())
    assert torch.isfinite(e).all()
    g = gumbel(ints(0), ints(0), 6, dtype)
    assert torch.isfinite(g).all()
    # all bits zero: v = 2**-53, so the noise is 53 log 2 = 36.74, in float32 too
    assert float(g[0, 0]) == pytest.approx(53 * math.log(2), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_argmax_frequencies_are_the_softmax(dtype):
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, -3.0, 0.5], dtype=dtype)
    n = 60_000
    won = (torch.log_softmax(logits, 0) + gumbel(torch.arange(n), ints(5).expand(n), 6, dtype)).argmax(1)
    seen = torch.bincount(won, minlength=6).numpy()
    assert stats.chisquare(seen, torch.softmax(logits.double(), 0).numpy() * n).pvalue > ALPHA


def test_a_rare_token_is_not_rounded_away_in_float32():
    # P(v < 2**-30) = 2**-30: the smallest draws keep their size. With u = 24 bits no draw is below 2**-25.
    e = exponential(ints(11).expand(64), torch.arange(64), 1 << 17, torch.float32)
    n = e.numel()
    below = int((e < 2.0**-20).sum())
    assert abs(below - n * 2.0**-20) < 4 * math.sqrt(n * 2.0**-20)
    assert len(torch.unique(e[e < 2.0**-18])) > 0.99 * int((e < 2.0**-18).sum())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_cpu_and_gpu_draw_the_same_bits():
    keys, positions = torch.arange(-50, 50), torch.arange(100)
    here = random_bits(keys, positions, 1000)
    assert torch.equal(random_bits(keys.cuda(), positions.cuda(), 1000).cpu(), here)
    there = gumbel(keys.cuda(), positions.cuda(), 1000, torch.float64).cpu()
    torch.testing.assert_close(there, gumbel(keys, positions, 1000, torch.float64), rtol=1e-12, atol=1e-12)
