"""Our own forward pass of the Llama and Qwen families gives Hugging Face's numbers, or steps aside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from models import tiny_llama
from torch import Tensor

from rlvr.batch import Batch, Chains
from rlvr.engine.fused import Layout, _norm, unfit
from rlvr.engine.model import LanguageModel, recompute_layers
from rlvr.engine.protocol import Request
from rlvr.engine.sampler import TorchSampler


def random_model(seed: int, dtype: torch.dtype = torch.float32) -> Any:
    """A random member of the family: grouped queries, biases, tied heads, head sizes, qk-norms, rotary kinds."""
    import transformers as t

    def pick(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=noise))]

    noise = torch.Generator().manual_seed(seed)
    family = ("Llama", "Qwen2", "Qwen3", "Mistral")[seed % 4]
    heads, kv = pick((4, 4), (4, 2), (6, 1), (3, 3))
    rope = pick(
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 16},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 1e4,
        },
    )
    size = pick(8, 16)
    more = {"attention_bias": pick(True, False)} if family in ("Llama", "Qwen3") else {}
    if family == "Mistral":
        more["sliding_window"] = None
    config = getattr(t, f"{family}Config")(
        vocab_size=37,
        hidden_size=heads * (size if family == "Qwen2" else pick(6, size)),
        intermediate_size=pick(24, 56),
        num_hidden_layers=pick(1, 3),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=size,
        max_position_embeddings=64,
        tie_word_embeddings=pick(True, False),
        rope_parameters=rope,
        initializer_range=0.25,
        pad_token_id=0,
        **more,
    )
    torch.manual_seed(seed)
    model = getattr(t, f"{family}ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:  # norms of 1 and biases of 0 would hide a mistake
                p.add_(0.3 * torch.randn(p.shape))
    return model


def forest(seed: int, vocab: int = 37) -> tuple[Chains, Tensor]:
    """Rows with shared and single prompts, answers of no token, one and many, and tokens between that do not train."""
    noise = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(3, vocab, (n,), generator=noise)  # noqa: E731
    prompts = [draw(n) for n in (1, 3, 9, 9, 17)]
    rows, at = [], []
    for i in range(17):
        prompt, own = prompts[i % 5], draw((0, 1, 2, 5, 9, 23)[int(torch.randint(6, (1,), generator=noise))])
        places = torch.arange(len(own)) + len(prompt)
        rows.append(torch.cat([prompt, own]))
        at.append(places[::2] if i % 3 == 0 else places)
    return Chains.of(rows, at), torch.tensor([len(x) for x in at])


def plainly(model: Any, chains: Chains, length: Tensor) -> Tensor:
    """[n, d] by the model itself, a row at a time."""
    places = chains.at.split(length.tolist())
    states = [model.base_model(chains.row(i)[None]).last_hidden_state[0, p - 1] for i, p in enumerate(places) if len(p)]
    return torch.cat(states)


@pytest.mark.parametrize("seed", range(24))
def test_states_and_gradients_are_the_models_own(seed: int) -> None:
    model = random_model(seed)
    lm = LanguageModel(model)
    assert lm.packs, type(model).__name__
    chains, length = forest(seed)
    found: list[tuple[Tensor, dict[str, Tensor]]] = []
    for states in (lm.predicting(chains, length), plainly(model, chains, length)):
        model.zero_grad()
        logits = lm.logits(states)
        weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
        (logits * weight).sum().backward()
        found.append((logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (got, gradients), (want, right) = found
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * max(1.0, float(want.abs().max())))
    assert gradients.keys() == right.keys()
    for name, g in gradients.items():
        # sums of a few hundred float32 products, in another order
        torch.testing.assert_close(g, right[name], rtol=0, atol=1e-4 * float(right[name].abs().max()) + 1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_gradients_in_float64_differ_by_the_norms_rounding_alone(seed: int) -> None:
    """Hugging Face's norms compute in float32 in a float64 model too, and so do ours there."""
    model = random_model(seed, torch.float64)
    lm, (chains, length) = LanguageModel(model), forest(seed)
    found = []
    for states in (lm.predicting(chains, length), plainly(model, chains, length)):
        model.zero_grad()
        lm.logits(states).square().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    for name, g in found[0].items():
        torch.testing.assert_close(g, found[1][name], rtol=0, atol=1e-6 * float(g.abs().max()))


@pytest.mark.parametrize("seed", range(0, 24, 5))
def test_what_is_sampled_has_the_log_probs_of_the_model(seed: int) -> None:
    model = random_model(seed)
    sampler = TorchSampler(LanguageModel(model), slots=3)

    async def all_of_them() -> list[Any]:
        prompts = [[5, 6, 7], [5, 6, 7], [9], [3, 4, 5, 6, 7, 8, 9]]
        asked = [Request(p, 11, key=i, stop_ids=frozenset({1})) for i, p in enumerate(prompts)]
        return list(zip(prompts, await asyncio.gather(*(sampler.sample(r) for r in asked))))

    for prompt, sample in asyncio.run(all_of_them()):
        ids = torch.tensor([*prompt, *sample.ids])
        logp = model(ids[None]).logits[0].log_softmax(-1)
        want = logp[len(prompt) - 1 : -1].gather(1, ids[len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(sample.streams["logp"]), want, rtol=0, atol=1e-5)


def test_recomputing_changes_no_gradient() -> None:
    chains, length = forest(3, vocab=17)
    found = []
    for again in (False, True):
        lm = tiny_llama()
        if again:
            recompute_layers(lm.model)
        lm.predicting(chains, length).square().sum().backward()
        found.append([p.grad for p in lm.model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_the_norm_has_the_gradient_of_its_formula() -> None:
    class Norm:
        weight = torch.randn(5, requires_grad=True)
        variance_epsilon = 1e-3

    x = torch.randn(4, 2, 5, requires_grad=True)
    g = torch.randn(4, 2, 5)
    got = torch.autograd.grad((_norm(Norm, x) * g).sum(), (x, Norm.weight))
    wide, weight = x.detach().double().requires_grad_(), Norm.weight.detach().double().requires_grad_()
    y = wide / (wide.square().sum(-1, keepdim=True) / 5 + 1e-3).sqrt() * weight
    for a, b in zip(got, torch.autograd.grad((y * g).sum(), (wide, weight))):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


def test_a_prompt_is_computed_once_and_a_row_ends_before_its_last_token() -> None:
    prompt = torch.arange(5)
    chains = Chains.of([torch.cat([prompt, prompt[:n]]) for n in (3, 1, 4)], [[5, 6, 7], [5], [5, 6, 7, 8]])
    layout = Layout.of(chains, torch.tensor([3, 1, 4]))
    assert len(layout.source) == 5 + 2 + 0 + 3
    assert layout.position.tolist() == [0, 1, 2, 3, 4, 5, 6, 5, 6, 7]
    assert layout.kept.tolist() == [4, 5, 6, 7, 8, 9]  # of the prompt its last token alone
    assert layout.kept[layout.wanted].tolist() == [4, 5, 6, 4, 4, 7, 8, 9]


def test_prefixes_are_equal_only_if_all_their_ids_are() -> None:
    rows = [[1, 2, 3, 9], [1, 2, 3, 8], [1, 2, 4, 9], [3, 2, 1, 9], [1, 2, 9, 9]]
    chains = Chains.of(rows, [[3]] * 4 + [[2, 3]])
    every = torch.arange(5)
    assert chains.prefixes(every, torch.tensor([3, 3, 3, 3, 2])).tolist() == [0, 0, 2, 3, 4]
    assert chains.prefixes(torch.tensor([4, 1, 0]), torch.tensor([2, 3, 3])).tolist() == [0, 1, 1]


def test_packed_cuts_count_a_shared_prompt_once_and_hold_their_budget() -> None:
    prompts = [[7] * 10, [8] * 10]
    rows = [prompts[i % 2] + [1] * 3 for i in range(8)]
    chains = Chains.of(rows, [[10, 11, 12]] * 8)
    batch = Batch.pack(torch.full((8,), 3), chains, group=torch.arange(8) // 4)
    assert [sorted(x.tolist()) for x in batch.cut_packed(22)] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert len(batch.cut_packed(44)) == 1
    assert [len(x) for x in batch.cut_packed(1)] == [1] * 8
    assert sorted(map(len, batch.cut_packed(1, "group"))) == [4, 4]


def test_models_that_do_something_more_keep_their_own_path() -> None:
    import transformers as t

    small: dict[str, Any] = {
        "vocab_size": 37,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    window = t.MistralForCausalLM(t.MistralConfig(**small, sliding_window=4)).eval()
    assert "sliding window" in unfit(window)
    assert not LanguageModel(window).packs
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert "length of the batch" in unfit(t.LlamaForCausalLM(t.LlamaConfig(**small, rope_parameters=rope)))
    other = t.GemmaForCausalLM(t.GemmaConfig(**small, head_dim=8)).eval()
    assert "GemmaForCausalLM" in unfit(other)
    assert not LanguageModel(other).packs
    hooked = t.LlamaForCausalLM(t.LlamaConfig(**small)).eval()
    hooked.model.layers[0].register_forward_hook(lambda module, args, output: output * 2)
    assert "hooked" in unfit(hooked)
    assert not LanguageModel(hooked).packs


def test_a_model_whose_numbers_differ_keeps_its_own_path() -> None:
    """Nothing about its names gives it away; the numbers do."""
    import types

    import transformers as t

    model = t.LlamaForCausalLM(t.LlamaConfig(vocab_size=37, hidden_size=16, num_attention_heads=2, num_hidden_layers=1))
    mlp = model.model.layers[0].mlp
    mlp.forward = types.MethodType(lambda self, x: 2 * type(self).forward(self, x), mlp)
    assert unfit(model) == ""
    assert not LanguageModel(model.eval()).packs
