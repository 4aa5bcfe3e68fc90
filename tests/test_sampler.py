"""TorchSampler: what it samples, that nobody else's row matters, how rows come and go, and what happens when things
break."""

import asyncio
import json
import logging
import math
import random
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from scipy import stats
from test_model import FAMILIES, tiny

from rlvr.engine.model import LanguageModel
from rlvr.engine.noise import gumbel
from rlvr.engine.protocol import Request, Sample, Unsupported
from rlvr.engine.rows import CachedRows, PlainRows
from rlvr.engine.sampler import TorchSampler, draw
from rlvr.records import digest

CASES = {c["id"]: c for c in map(json.loads, (Path(__file__).parent / "cases" / "field_reports.jsonl").open())}
# Statistical tests are deterministic (fixed keys and seeds); each was set to reject a true sampler once in 10,000.
ALPHA = 1e-4


def ask(sampler: TorchSampler, requests: list[Request]) -> list[Sample]:
    async def together() -> list[Sample]:
        return await asyncio.gather(*(sampler.sample(r) for r in requests))

    return asyncio.run(together())


def sampler_of(family: str, slots: int = 5, dtype: torch.dtype = torch.float32, **more) -> TorchSampler:
    return TorchSampler(LanguageModel(tiny(family, dtype=dtype, **more)), slots=slots)


def chain(edges: dict[int, int | dict[int, float]], vocab: int = 16) -> TorchSampler:
    """A model that is a Markov chain: after token i comes edges[i] (a token, or probabilities), else token 0.

    Embeddings are unit vectors, attention and MLP write nothing, so the head's column i holds the logits after token i.
    """
    sizes = {"hidden_size": vocab, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = hf.LlamaConfig(
        vocab_size=vocab, intermediate_size=8, max_position_embeddings=64, rms_norm_eps=0.0, **sizes
    )
    model = hf.LlamaForCausalLM(config).double().eval()
    logits = torch.full((vocab, vocab), -1e4, dtype=torch.float64)
    for i in range(vocab):
        after = edges.get(i, 0)
        for token, p in (after if isinstance(after, dict) else {after: 1.0}).items():
            logits[token, i] = math.log(p)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(vocab))
        model.lm_head.weight.copy_(logits / math.sqrt(vocab))  # the norm scales a unit vector to length sqrt(vocab)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return TorchSampler(LanguageModel(model))


def mixed_requests(vocab: int, n: int = 17, longest: int = 30) -> list[Request]:
    """Prompts of many lengths, one of them shared; every setting differs somewhere."""
    r = random.Random(1)
    shared = tuple(r.randrange(vocab) for _ in range(5))
    out = []
    for i in range(n):
        ids = shared if i % 3 == 0 else tuple(r.randrange(vocab) for _ in range(r.choice([1, 2, 7, 13])))
        settings = {
            "temperature": r.choice([0, 0.7, 1, 1.5]),
            "top_p": r.choice([1, 0.8]),
            "top_k": r.choice([0, 0, 5]),
        }
        stops = frozenset(r.sample(range(vocab), r.choice([0, 1, 2])))
        want = frozenset({"entropy"}) if i % 2 else frozenset()
        out.append(Request(ids, r.choice([1, 3, 12, longest]), key=i, stop_ids=stops, want=want, **settings))
    return out


# -- what is sampled


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2", "bloom"])
def test_streams_are_those_of_a_full_forward_pass(family):
    sampler = sampler_of(family)
    assert isinstance(sampler._rows, CachedRows)
    requests = mixed_requests(sampler.lm.vocab)
    for request, sample in zip(requests, ask(sampler, requests)):
        with torch.no_grad():
            logits = sampler.lm.model(torch.tensor([[*request.ids, *sample.ids]])).logits[0, len(request.ids) - 1 : -1]
        t, made = request.temperature, torch.tensor(sample.ids)
        logp = (logits.double() / (t or 1)).log_softmax(-1)
        plain = logp.gather(1, made[:, None])[:, 0]
        assert sample.streams["plain_logp"] == pytest.approx(plain.tolist(), abs=1e-5)
        if "entropy" in request.want:
            assert sample.streams["entropy"] == pytest.approx((-(logp.exp() * logp).sum(1)).tolist(), abs=1e-5)
        else:
            assert "entropy" not in sample.streams
        if t == 0:
            assert sample.streams["logp"] == [0.0] * len(made)
            assert made.tolist() == logits.argmax(1).tolist()
        else:
            kept = logits.double() / t
            if request.top_k:
                kept = hf.TopKLogitsWarper(request.top_k)(None, kept)
            if request.top_p < 1:
                kept = hf.TopPLogitsWarper(request.top_p)(None, kept)
            real = kept.log_softmax(-1).gather(1, made[:, None])[:, 0]
            assert sample.streams["logp"] == pytest.approx(real.tolist(), abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_a_sample_does_not_know_its_batch(family, monkeypatch):
    """Same tokens alone or together, in any order, with few slots or many: rows wait, enter and move differently."""
    model = LanguageModel(tiny(family, dtype=torch.float64, context=256))
    requests = mixed_requests(model.vocab, longest=90)
    together = ask(TorchSampler(model, slots=64), requests)
    assert max(len(s.ids) for s in together) > 80
    order = random.Random(2).sample(range(len(requests)), len(requests))
    few = ask(TorchSampler(model, slots=3, prefill_tokens=16), [requests[i] for i in order])
    for i, b in zip(order, few):
        a = together[i]
        assert (a.ids, a.finish, a.context) == (b.ids, b.finish, b.context)
        for name in a.streams:
            assert a.streams[name] == pytest.approx(b.streams[name], abs=1e-6)
    monkeypatch.setattr("rlvr.engine.sampler.chunk_rows", lambda vocab, dtype: 4)  # logits in several chunks
    assert [s.ids for s in ask(TorchSampler(model, slots=64), requests)] == [s.ids for s in together]
    alone = TorchSampler(model)
    assert [ask(alone, [r])[0].ids for r in requests[:8]] == [s.ids for s in together[:8]]


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2"])
def test_greedy_is_hugging_faces_greedy(family):
    sampler = sampler_of(family)
    prompts = [[3, 4, 5, 6, 7, 8, 9], [5], [2, 9, 4]]
    ours = ask(sampler, [Request(p, 20, key=0, temperature=0, stop_ids=frozenset({1})) for p in prompts])
    for p, sample in zip(prompts, ours):
        out = sampler.lm.model.generate(
            torch.tensor([p]), attention_mask=torch.ones(1, len(p)), max_new_tokens=20, do_sample=False, eos_token_id=1
        )
        assert sample.ids == out[0, len(p) :].tolist()


def test_tokens_are_the_argmax_of_log_prob_plus_keyed_noise_at_their_absolute_position():
    sampler = sampler_of("llama", dtype=torch.float64)
    prompt, key = [3, 1, 4, 1, 5], 99
    ids, streams = (s := ask(sampler, [Request(prompt, 6, key)])[0]).ids, s.streams
    for t, token in enumerate(ids):
        with torch.no_grad():
            logp = sampler.lm.model(torch.tensor([prompt + ids[:t]])).logits[0, -1].log_softmax(-1)
        noise = gumbel(torch.tensor([key]), torch.tensor([len(prompt) + t]), sampler.lm.vocab, torch.float64)[0]
        assert token == int((logp + noise).argmax())
        assert streams["logp"][t] == streams["plain_logp"][t] == pytest.approx(float(logp[token]), abs=1e-9)
    # so a chain that is cut anywhere and continued with its key goes on as it did
    assert ask(sampler, [Request(prompt + ids[:2], 4, key)])[0].ids == ids[2:]


def sequences(sampler: TorchSampler, n: int, length: int, **settings) -> Counter:
    out = ask(sampler, [Request([2, 0], length, key=k, **settings) for k in range(n)])
    return Counter(tuple(s.ids) for s in out)


def chi_square(seen: Counter, expected: dict[tuple[int, ...], float], n: int) -> float:
    """p-value, cells with fewer than 5 expected put together."""
    big = {s: p * n for s, p in expected.items() if p * n >= 5}
    observed, want = [seen[s] for s in big], list(big.values())
    rest = n - sum(want)
    if rest > 1e-6:
        observed, want = [*observed, n - sum(observed)], [*want, rest]
    return stats.chisquare(observed, want).pvalue


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(1.0, 1.0, 0), (0.7, 0.8, 0), (1.3, 1.0, 3)])
def test_sequences_have_their_probabilities_by_enumeration_and_hugging_faces_frequencies(temperature, top_p, top_k):
    sampler = sampler_of("llama", slots=512, vocab=5)
    n, length, model = 6000, 3, sampler.lm.model
    every = torch.tensor(list(product(range(5), repeat=length)))
    with torch.no_grad():
        logits = model(torch.cat([torch.tensor([[2, 0]]).expand(len(every), 2), every], 1)).logits[:, 1:-1].double()
    scores = logits.reshape(-1, 5) / temperature
    if top_k:
        scores = hf.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = hf.TopPLogitsWarper(top_p)(None, scores)
    logp = scores.log_softmax(-1).view(-1, length, 5).gather(2, every[..., None])[..., 0].sum(1)
    expected = {tuple(s): math.exp(p) for s, p in zip(every.tolist(), logp.tolist())}
    assert sum(expected.values()) == pytest.approx(1)
    seen = sequences(sampler, n, length, temperature=temperature, top_p=top_p, top_k=top_k)
    assert all(expected[s] > 0 for s in seen)
    assert chi_square(seen, expected, n) > ALPHA
    torch.manual_seed(3)
    theirs = model.generate(
        torch.tensor([[2, 0]]),
        attention_mask=torch.ones(1, 2),
        do_sample=True,
        num_return_sequences=n,
        max_new_tokens=length,
        min_new_tokens=length,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        eos_token_id=None,
    )[:, 2:]
    other = Counter(map(tuple, theirs.tolist()))
    common = [s for s in expected if seen[s] + other[s] >= 10]
    table = [[c[s] for s in common] + [n - sum(c[s] for s in common)] for c in (seen, other)]
    if not table[0][-1] + table[1][-1]:
        table = [row[:-1] for row in table]
    assert stats.chi2_contingency(table).pvalue > ALPHA


def test_draw_keeps_what_hugging_faces_warpers_keep():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 12, generator=g, dtype=torch.float64) * 2
    k, p = torch.randint(1, 15, (40,), generator=g), torch.rand(40, generator=g, dtype=torch.float64) * 0.99 + 0.005
    p[::4] = 1
    k[1::4] = 0
    heat = torch.rand(40, generator=g, dtype=torch.float64) + 0.5
    warped = logits / heat[:, None]
    for b in range(40):
        if k[b]:
            warped[b : b + 1] = hf.TopKLogitsWarper(int(k[b]))(None, warped[b : b + 1])
        if p[b] < 1:
            warped[b : b + 1] = hf.TopPLogitsWarper(float(p[b]))(None, warped[b : b + 1])
    for v in range(12):  # noise that makes token v win wherever it is kept
        loud = torch.zeros(40, 12, dtype=torch.float64)
        loud[:, v] = 1e9
        tokens, values = draw(logits, loud, heat, k, p)
        assert torch.equal(tokens == v, warped[:, v].isfinite())
        kept = tokens == v
        torch.testing.assert_close(values[0][kept], warped.log_softmax(-1)[kept, v])
        torch.testing.assert_close(values[1][kept], (logits / heat[:, None]).log_softmax(-1)[kept, v])


def test_nucleus_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]], dtype=torch.float64).log()
    heat, p = torch.ones(2, dtype=torch.float64), torch.tensor([0.75, 0.01], dtype=torch.float64)
    allowed = [set(), set()]
    for v in range(4):
        loud = torch.zeros(2, 4, dtype=torch.float64)
        loud[:, v] = 1e9
        tokens, values = draw(logits, loud, heat, None, p)
        for b in range(2):
            allowed[b].add(int(tokens[b]))
            if int(tokens[b]) == 0 and b == 0:
                assert float(values[0, 0]) == pytest.approx(math.log(0.5 / 0.8))
                assert float(values[1, 0]) == pytest.approx(math.log(0.5))
    assert allowed == [{0, 1}, {3}]  # 0.5 + 0.3 reaches 0.75; the best token always stays


def test_of_equally_likely_tokens_the_nucleus_takes_the_lower_ids_and_it_may_be_most_of_a_large_vocabulary():
    flat = torch.zeros(3, 4096, dtype=torch.float64)
    flat[1, 17] = flat[2, 4000] = 50  # one token has it all
    p, heat = torch.tensor([0.75, 0.75, 1], dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    edge, last = torch.zeros(3, 4096, dtype=torch.float64), torch.zeros(3, 4096, dtype=torch.float64)
    edge[:, 3070:3074] = torch.tensor([1.0, 2.0, 3.0, 4.0]) * 1e9  # 0.75 of 4096 are 0..3071
    last[:, 4095] = 1e9
    assert draw(flat, edge, heat, None, p)[0].tolist() == [3071, 17, 3073]
    tokens, values = draw(flat, last, heat, None, p)
    assert tokens.tolist() == [0, 17, 4095]  # without noise of their own the first of the equals wins
    assert float(values[0, 0]) == pytest.approx(-math.log(3072))


def test_streams_of_a_markov_chain_by_hand():
    """Field report T20 in the sampler: logits 2 and 0 at temperature 0.5."""
    case = CASES["T20"]
    first, second = case["input"]["logits"]
    sampler = chain({3: {4: math.exp(first), 5: math.exp(second)}, 4: 3, 5: 3})
    heat = case["input"]["temperature"]
    sample = next(
        s
        for k in range(99)
        if (s := ask(sampler, [Request([3], 1, k, temperature=heat, want=frozenset({"entropy"}))])[0]).ids == [4]
    )
    assert sample.streams["logp"] == sample.streams["plain_logp"] == pytest.approx([case["expected"]["logp"]], abs=1e-5)
    p = 1 / (1 + math.exp(-4))
    assert sample.streams["entropy"] == pytest.approx([-p * math.log(p) - (1 - p) * math.log(1 - p)])
    cut = ask(sampler, [Request([3], 1, 0, top_k=1)])[0]
    assert cut.streams == {"logp": [0.0], "plain_logp": pytest.approx([-math.log(1 + math.exp(-2))])}


# -- where samples end


@pytest.mark.parametrize("name", ["T17", "T18"])
def test_field_reports_of_wrong_ends(name):
    """Several stop ids; padding that equals the stop id: the first stop id is sampled and kept, nothing follows."""
    case = CASES[name]["input"]
    tokens = case["tokens"]
    edges = {13: tokens[0]} | {a: b for a, b in pairwise(tokens) if a != b}
    stops = frozenset(case["eos_ids"])
    sample = ask(chain(edges), [Request([13], case["max_len"], 0, stop_ids=stops)])[0]
    trained = sum(CASES[name]["expected"]["mask"])
    assert sample.ids == tokens[:trained]
    assert sample.streams["logp"] == pytest.approx([0.0] * trained)
    assert (sample.finish != "stop") == CASES[name]["expected"]["truncated"]


def test_finish_codes():
    sampler = chain({i: i + 1 for i in range(15)} | {15: 15})
    assert sampler.lm.context == 64
    one = ask(
        sampler,
        [
            Request([1], 3, 0),
            Request([1], 3, 0, stop_ids=frozenset({4})),  # the stop id is also the last token allowed
            Request([1], 9, 0, stop_ids=frozenset({3, 5, 14})),
            Request([15] * 62, 9, 0),
            Request([15] * 62, 2, 0),
            Request([15] * 64, 9, 0),
            Request([15] * 70, 9, 0),
            Request([1], 0, 0, want=frozenset({"entropy"})),
            Request([1], -3, 0),
        ],
    )
    assert [(s.ids, s.finish) for s in one] == [
        ([2, 3, 4], "length"),
        ([2, 3, 4], "stop"),
        ([2, 3], "stop"),
        ([15, 15], "context"),
        ([15, 15], "length"),
        ([], "context"),
        ([], "context"),
        ([], "length"),
        ([], "length"),
    ]
    assert one[7].streams == {"logp": [], "plain_logp": [], "entropy": []}
    assert one[0].context == digest([1])
    assert (one[0].temperature, one[0].top_p, one[0].top_k, one[0].version) == (1.0, 1.0, 0, 0)


# -- rows


def watched(sampler: TorchSampler, monkeypatch) -> list[tuple[int, int]]:
    """Shapes [rows, tokens] of every forward pass from now on."""
    shapes, body = [], LanguageModel.body

    def watch(self, ids, *args, **kwargs):
        shapes.append(tuple(ids.shape))
        return body(self, ids, *args, **kwargs)

    monkeypatch.setattr(LanguageModel, "body", watch)
    return shapes


def test_a_group_is_prefilled_once(monkeypatch):
    sampler = chain({i: i + 1 for i in range(15)})
    shapes = watched(sampler, monkeypatch)
    ask(sampler, [Request([1, 2, 3, 4], 2, k) for k in range(8)])
    assert shapes == [(1, 4), (8, 1)]
    shapes.clear()
    sampler.publish(1)
    ask(sampler, [Request(ids, 1, k) for ids in ([1, 2, 3], [4, 5], [1, 2, 3]) for k in range(4)])
    assert shapes == [(2, 3)]  # different prompts together, right-padded


def test_waiting_members_of_a_group_copy_a_living_one(monkeypatch):
    sampler = chain({i: i + 1 for i in range(15)})
    sampler.slots = 2
    sampler._forget()
    shapes = watched(sampler, monkeypatch)
    out = ask(sampler, [Request([1, 2, 3], n, k) for k, n in enumerate([9, 2, 2, 2])])
    assert [len(s.ids) for s in out] == [9, 2, 2, 2]
    assert [s for s in shapes if s[1] > 1] == [(1, 3)]


def test_finished_rows_cost_nothing(monkeypatch):
    sampler = chain({i: i + 1 for i in range(15)} | {15: 15})
    shapes = watched(sampler, monkeypatch)
    ask(sampler, [Request([15], n, 0) for n in (1, 2, 2, 5)])
    assert shapes == [(1, 1), (3, 1), (1, 1), (1, 1), (1, 1)]


def test_slabs_stay_near_the_longest_row_and_lose_nothing_when_they_slide_or_grow():
    lm = LanguageModel(tiny("llama", context=512, dtype=torch.float64))
    both = [CachedRows(lm, slots=4, budget=8), PlainRows(lm, budget=4096)]
    kept, token, sizes = both[0], torch.Generator().manual_seed(0), []

    def each(action):
        cached, plain = (action(r) for r in both)
        if plain is not None:
            torch.testing.assert_close(lm.logits(cached), lm.logits(plain), atol=1e-6, rtol=0)

    def advance(steps):
        for _ in range(steps):
            tokens = torch.randint(lm.vocab, (kept.count,), generator=token)
            each(lambda r, tokens=tokens: r.advance(tokens))
            sizes.append((kept.width, kept.end - kept.start))

    with torch.inference_mode():
        each(lambda r: r.admit([np.arange(3), np.arange(2)]))
        for _ in range(20):  # one row lives on, the other is replaced again and again
            advance(7)
            each(lambda r: r.admit([np.arange(5)]))
            each(lambda r: r.move([1], [2], 2))
        assert (kept.count, kept.height) == (2, 3)
        each(lambda r: r.move([0], [1], 1))  # the long one leaves: its columns are used again
        width, end = kept.width, kept.end
        advance(100)
        assert kept.end < end + 100  # it slid
        assert kept.width == width
        each(lambda r: r.admit([np.arange(20) + k for k in range(2)] + [np.arange(150) % lm.vocab]))  # longer than all
        advance(3)
    assert all(width <= max(1.25 * span, span + 64) + 64 for width, span in sizes[:140])


def test_idle_samplers_hold_no_keys_and_values():
    sampler = sampler_of("llama")
    ask(sampler, [Request([1, 2], 3, 0)])
    assert sampler._rows.layers == []


@pytest.mark.case("T30")
def test_publish_leaves_nothing_stale():
    """After an update the sampler answers as a fresh one with the new weights would."""
    sampler = sampler_of("llama", dtype=torch.float64)
    request = Request([3, 1, 4], 8, 0)
    ask(sampler, [request])
    with torch.no_grad():
        for p in sampler.lm.model.parameters():
            p.mul_(-1.1)
    sampler.publish(7)
    fresh, made = TorchSampler(sampler.lm), ask(sampler, [request])[0]
    assert made.version == 7
    (again,) = ask(fresh, [request])
    assert made.ids == again.ids
    assert made.streams["plain_logp"] == pytest.approx(again.streams["plain_logp"], abs=1e-9)


def test_publish_in_the_middle_ends_rows_with_what_they_have():
    sampler = chain({15: 15})

    async def scene() -> list[Sample]:
        asked = [asyncio.ensure_future(sampler.sample(Request([15], 30, k))) for k in range(3)]
        for _ in range(8):
            await asyncio.sleep(0)
        sampler.publish(2)
        assert sampler._rows.layers == []
        late = await sampler.sample(Request([15], 4, 9))
        return [*[await a for a in asked], late]

    *early, late = asyncio.run(scene())
    assert {(s.finish, s.version) for s in early} == {("aborted", 0)}
    assert 0 < len(early[0].ids) < 30
    assert len(early[0].streams["logp"]) == len(early[0].ids)
    assert (late.ids, late.finish, late.version) == ([15] * 4, "length", 2)


def test_dropout_is_off_and_the_trainers_mode_comes_back():
    model = tiny("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    sampler = TorchSampler(LanguageModel(model))
    requests = [Request([3, 4], 9, k) for k in range(4)]
    quiet = ask(sampler, requests)
    model.train()
    state = torch.get_rng_state()
    assert [s.ids for s in ask(sampler, requests)] == [s.ids for s in quiet]
    assert model.training
    assert model.transformer.drop.training
    assert torch.equal(torch.get_rng_state(), state)  # no global random number was used


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_what_was_sampled_can_be_trained_at_once(family):
    lm = LanguageModel(tiny(family))
    out = ask(TorchSampler(lm), [Request([3, 1, 4], 9, k) for k in range(3)])
    ids = torch.tensor([[3, 1, 4, *s.ids] for s in out])
    h = lm.hidden(ids, torch.full((3,), 12))[:, 2:-1]
    logp, _, _ = lm.logp_entropy(h.reshape(27, -1), ids[:, 3:].reshape(-1))
    logp.sum().backward()
    assert logp.view(3, 9).tolist() == [pytest.approx(s.streams["logp"], abs=1e-5) for s in out]
    assert all(torch.isfinite(p.grad).all() for p in lm.model.parameters())


# -- models without a table of keys and values


def test_a_state_space_model_is_decoded_by_full_passes_with_one_warning(caplog):
    with caplog.at_level(logging.WARNING):
        sampler = sampler_of("mamba", dtype=torch.float64)
    mine = [r.getMessage() for r in caplog.records if r.name.startswith("rlvr")]
    assert len(mine) == 1
    assert mine[0].startswith("MambaForCausalLM is decoded by full forward passes, slowly: ")
    assert isinstance(sampler._rows, PlainRows)
    requests = mixed_requests(sampler.lm.vocab, 11, longest=14)
    together = ask(sampler, requests)
    for request, sample in zip(requests, together):
        with torch.no_grad():
            logits = sampler.lm.model(torch.tensor([[*request.ids, *sample.ids]])).logits[0, len(request.ids) - 1 : -1]
        logp = (logits / (request.temperature or 1)).log_softmax(-1)
        want = logp.gather(1, torch.tensor(sample.ids)[:, None])[:, 0].tolist()
        assert sample.streams["plain_logp"] == pytest.approx(want, abs=1e-6)
    assert [ask(sampler, [r])[0].ids for r in requests[:4]] == [s.ids for s in together[:4]]


def test_with_and_without_cache_the_samples_are_the_same():
    lm = LanguageModel(tiny("qwen3", dtype=torch.float64))
    cached, plain = TorchSampler(lm, slots=4), TorchSampler(lm, slots=4)
    plain._rows = PlainRows(lm, 32)
    requests = mixed_requests(lm.vocab)
    assert [s.ids for s in ask(cached, requests)] == [s.ids for s in ask(plain, requests)]


class Forgetful(hf.LlamaForCausalLM):
    """Adds to its states a thing that only a full pass can know: what the first token of the pass was."""

    def __init__(self, config):
        super().__init__(config)
        self.model.register_forward_hook(self.add, with_kwargs=True)

    def add(self, module, args, kwargs, out):
        out.last_hidden_state = out.last_hidden_state + self.model.embed_tokens(kwargs["input_ids"][:, :1])
        return out


def test_a_model_that_a_cache_would_falsify_is_found_out(caplog):
    with caplog.at_level(logging.WARNING):
        sampler = TorchSampler(LanguageModel(Forgetful(tiny("llama").config).eval()))
    assert isinstance(sampler._rows, PlainRows)
    assert "other logits than a full forward pass" in caplog.text


# -- event loops, cancelling, errors


def test_every_event_loop_may_use_it():
    sampler = chain({15: 15})

    async def impatient() -> None:
        left = asyncio.ensure_future(sampler.sample(Request([15], 50, 1)))
        for _ in range(4):
            await asyncio.sleep(0)
        assert not left.done()

    assert ask(sampler, [Request([15], 2, 0)])[0].ids == [15, 15]
    asyncio.run(impatient())  # the loop ends with a row in mid-air
    assert ask(sampler, [Request([15], 3, 0)])[0].ids == [15, 15, 15]


def test_two_event_loops_at_once_are_refused():
    sampler = chain({15: 15})
    first = asyncio.new_event_loop()
    task = first.create_task(sampler.sample(Request([15], 50, 1)))
    first.call_soon(lambda: first.call_soon(first.stop))
    first.run_forever()
    with pytest.raises(RuntimeError, match="another event loop"):
        ask(sampler, [Request([15], 2, 0)])
    assert first.run_until_complete(task).ids == [15] * 50
    first.close()


def test_cancelled_requests_leave_and_the_others_do_not_notice():
    sampler = sampler_of("llama", slots=3, dtype=torch.float64)
    requests = [Request([3, k], 40, k) for k in range(6)]
    calm = [s.ids for s in ask(sampler, requests)]

    async def scene() -> list[Sample | BaseException]:
        asked = [asyncio.ensure_future(sampler.sample(r)) for r in requests]
        for _ in range(8):
            await asyncio.sleep(0)
        asked[0].cancel()  # live
        asked[5].cancel()  # waiting
        for _ in range(4):
            await asyncio.sleep(0)
        assert requests[0] not in [row.request for row in sampler._live]  # it costs nothing any more
        return await asyncio.gather(*asked, return_exceptions=True)

    out = asyncio.run(scene())
    assert isinstance(out[0], asyncio.CancelledError)
    assert isinstance(out[5], asyncio.CancelledError)
    assert [s.ids for s in out[1:5]] == calm[1:5]
    assert len(sampler._free) == 3


def test_requests_join_while_others_are_decoded():
    sampler = sampler_of("llama", dtype=torch.float64)
    requests = [Request([3, k], 20, k) for k in range(3)]
    alone = [ask(sampler, [r])[0].ids for r in requests]

    async def later(k: int) -> Sample:
        for _ in range(4 * k):
            await asyncio.sleep(0)
        return await sampler.sample(requests[k])

    async def scene() -> list[Sample]:
        return await asyncio.gather(*map(later, range(3)))

    assert [s.ids for s in asyncio.run(scene())] == alone


def test_logits_that_are_not_finite_fail_their_own_request_and_no_other():
    sampler = sampler_of("llama", dtype=torch.float64)
    stop = frozenset({9})
    good = [
        Request([3, 5], 40, 1, stop_ids=stop),
        Request([4] * 20, 40, 2, stop_ids=stop),
        Request([8, 8], 3, 3, stop_ids=stop),
    ]
    with torch.no_grad():
        sampler.lm.model.model.embed_tokens.weight[9] = torch.nan  # whoever meets token 9 is lost
    calm = [s.ids for s in ask(sampler, good)]

    async def scene() -> list[Sample | BaseException]:
        bad = [
            Request([9, 2], 5, 77),
            *good,
            Request([9] * 30, 5, 78, temperature=0),
            Request([3], 60, 1, top_p=0.9, top_k=4),
        ]
        return await asyncio.gather(*map(sampler.sample, bad), return_exceptions=True)

    out = asyncio.run(scene())
    assert isinstance(out[0], FloatingPointError)
    assert "request 77: the model's logits after 2 prompt tokens and 0 sampled ones are not finite" in str(out[0])
    assert "request 78" in str(out[4])
    assert [s.ids for s in out[1:4]] == calm
    if isinstance(out[5], FloatingPointError):  # met token 9 on its way
        assert "after 1 prompt tokens and" in str(out[5])


def test_a_row_that_overflowed_leaves_no_nan_to_the_row_that_takes_its_place():
    sampler = sampler_of("llama", slots=2, dtype=torch.float64)
    with torch.no_grad():
        sampler.lm.model.model.embed_tokens.weight[9] = torch.nan
    long, short = Request([4] * 20, 30, 0, top_k=1), Request([5], 3, 1, top_k=1)

    async def scene() -> list[Sample | BaseException]:
        return await asyncio.gather(
            *map(sampler.sample, (long, Request([9] * 20, 9, 2), short)), return_exceptions=True
        )

    out = asyncio.run(scene())
    assert isinstance(out[1], FloatingPointError)
    assert [out[0].ids, out[2].ids] == [ask(sampler, [r])[0].ids for r in (long, short)]


@pytest.mark.parametrize(
    ("fault", "raised", "match"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError, r"one row of 1 tokens \(request 0\)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), MemoryError, "Lower max_tokens"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RuntimeError, "mat1 and mat2"),
    ],
)
def test_a_broken_pass_reaches_every_waiting_request_and_the_sampler_lives_on(monkeypatch, fault, raised, match):
    sampler = chain({15: 15})

    async def scene() -> list[Sample | BaseException]:
        requests = [Request([15], 9, 0), Request([15], 9, 1), Request([15] * 5, 9, 2)]
        return await asyncio.gather(*map(sampler.sample, requests), return_exceptions=True)

    def fail(*args, **kwargs):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "body", fail)
        for error in asyncio.run(scene()):
            with pytest.raises(raised, match=match):
                raise error
    assert [len(s.ids) for s in asyncio.run(scene())] == [9, 9, 9]


@pytest.mark.parametrize(
    ("request_", "error", "match"),
    [
        (Request([], 3, 5), ValueError, "request 5: there is nothing to continue"),
        (Request([3, 99], 3, 5), ValueError, r"request 5: ids\[1\] is 99, but the vocabulary has 0..15"),
        (Request([-1], 3, 5), ValueError, r"ids\[0\] is -1"),
        (Request([1], 3, 5, temperature=-1), ValueError, "temperature is 0 .greedy. or above, got -1"),
        (Request([1], 3, 5, temperature=math.nan), ValueError, "got nan"),
        (Request([1], 3, 5, top_p=0), ValueError, "top_p lies in"),
        (Request([1], 3, 5, top_k=-1), ValueError, "top_k is 0"),
        (Request([1], 3, 5, want=frozenset({"routes"})), Unsupported, r"has no \['routes'\], only logp"),
    ],
)
def test_requests_that_make_no_sense(request_, error, match):
    with pytest.raises(error, match=match):
        ask(chain({}), [request_])
