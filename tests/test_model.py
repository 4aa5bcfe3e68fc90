"""LanguageModel: the model's own numbers, whatever the family, and log-probs that never hold tokens x vocabulary."""

import json
from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import nn

from rlvr.engine.model import LanguageModel, evaluating
from rlvr.engine.protocol import Unsupported

torch.set_num_threads(1)
CASES = {c["id"]: c for c in map(json.loads, (Path(__file__).parent / "cases" / "field_reports.jsonl").open())}
COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
FAMILIES = {
    "llama": (hf.LlamaConfig, {}),
    "qwen2": (hf.Qwen2Config, {}),
    "qwen3": (hf.Qwen3Config, {"head_dim": 8}),
    "mistral": (hf.MistralConfig, {"sliding_window": 4}),
    "gemma2": (hf.Gemma2Config, {"head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 0.5}),
    "cohere": (hf.CohereConfig, {"logit_scale": 0.3}),
    "granite": (hf.GraniteConfig, {"logits_scaling": 3.0}),
    "phi": (hf.PhiConfig, {}),
}


def tiny(family: str, vocab: int = 23, context: int = 64, dtype: torch.dtype = torch.float32, **more) -> nn.Module:
    """A random model whose every matrix and bias speaks: at the usual initial scale biases are 0 and soft-caps idle."""
    if family == "gpt2":
        sizes = {"n_positions": context, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 1}
        config = hf.GPT2Config(vocab_size=vocab, **sizes, **more)
    elif family == "bloom":
        config = hf.BloomConfig(vocab_size=vocab, hidden_size=32, n_layer=2, n_head=4)
    elif family == "mamba":
        config = hf.MambaConfig(vocab_size=vocab, hidden_size=32, num_hidden_layers=2, state_size=4)
    else:
        make, extra = FAMILIES[family]
        config = make(**{**COMMON, "vocab_size": vocab, "max_position_embeddings": context, **extra, **more})
    model = hf.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    noise = torch.Generator().manual_seed(5)
    for name, p in model.named_parameters():
        if p.ndim > 1 or ("bias" in name and "norm" not in name):
            p.data.copy_(0.2 * torch.randn(p.shape, generator=noise))
    return model


def rows(vocab: int, lengths: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(vocab, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    return ids, torch.tensor(lengths)


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2", "bloom"])
def test_padded_rows_give_the_logits_that_the_model_gives_each_row_alone(family):
    model = tiny(family, dtype=torch.float64)
    lm = LanguageModel(model)
    ids, lengths = rows(lm.vocab, [11, 3, 7, 1])
    with torch.no_grad():
        h = lm.hidden(ids, lengths)
        for b, n in enumerate(lengths.tolist()):
            want = model(ids[b : b + 1, :n]).logits[0]
            exact = 1e-6 if family == "gemma2" else 1e-10  # Gemma's attention softmax is float32 even here
            torch.testing.assert_close(lm.logits(h[b, :n]), want, rtol=0, atol=exact)


def test_what_is_known_of_a_model():
    lm = LanguageModel(tiny("gpt2", vocab=19, context=32))
    assert (lm.vocab, lm.context, lm.dtype, lm.device) == (19, 32, torch.float32, torch.device("cpu"))
    assert LanguageModel(tiny("bloom")).context is None  # alibi knows no limit


def test_left_padding_in_hugging_face_has_the_log_probs_of_our_rows():
    """Field report T22: learned positions and padding; theirs is on the left, positions count real tokens."""
    case = CASES["T22"]
    mask = torch.tensor([case["input"]["attention_mask"]])
    model = tiny("gpt2")
    lm = LanguageModel(model)
    real = torch.tensor([[4, 9, 2]])
    seen = {}
    model.transformer.wpe.register_forward_hook(lambda module, args, out: seen.update(positions=args[0]))
    with torch.no_grad():
        ours = lm.logits(lm.hidden(torch.cat([real, torch.tensor([[0, 0]])], 1), torch.tensor([3]))[0, :3])
        assert seen["positions"][0, :3].tolist() == case["expected"]["position_ids_of_real_tokens"]
        padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), real], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        theirs = model(padded, attention_mask=mask, position_ids=positions).logits[0, 2:]
        alone = model(real).logits[0]
    tolerance = case["expected"]["same_logprobs_as_unpadded_tol"]
    for logits in (ours, theirs):
        torch.testing.assert_close(logits.log_softmax(-1), alone.log_softmax(-1), atol=tolerance, rtol=0)


class Shifted(hf.LlamaForCausalLM):
    """Adds something to its logits that no config attribute tells."""

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + torch.linspace(0, 1, out.logits.shape[-1])
        return out


def test_a_model_whose_logits_cannot_be_reproduced_is_refused_by_name():
    with pytest.raises(Unsupported, match="Shifted"):
        LanguageModel(Shifted(tiny("llama").config))
    with pytest.raises(Unsupported, match="LlamaModel is not a causal language model"):
        LanguageModel(tiny("llama").model)


class Peeking(hf.LlamaForCausalLM):
    """Its body lets real tokens see the number of columns."""

    def __init__(self, config):
        super().__init__(config)
        self.model.register_forward_hook(self.peek)

    @staticmethod
    def peek(module, args, out):
        out.last_hidden_state = out.last_hidden_state * out.last_hidden_state.shape[1]
        return out


def test_a_model_whose_real_tokens_see_padding_is_refused():
    with pytest.raises(Unsupported, match="Peeking: padding"):
        LanguageModel(Peeking(tiny("llama").config))


def test_building_leaves_modes_and_the_random_state_alone():
    model = tiny("gpt2").train()
    model.transformer.h[0].eval()
    state = torch.get_rng_state()
    lm = LanguageModel(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.transformer.h[1].training
    assert not model.transformer.h[0].attn.training
    with evaluating(lm.model.modules()):
        assert not any(m.training for m in model.modules())


# -- log-probs and entropy


def naive(lm, h, y, temperature, at=None):
    logits = lm.logits(h).double() / (temperature if isinstance(temperature, float) else temperature[:, None])
    logp = logits.log_softmax(-1)
    return logp.gather(1, y[:, None])[:, 0], -(logp.exp() * logp).sum(1), None if at is None else logp.gather(1, at)


def head_inputs(family="llama", n=10, dtype=torch.float64, vocab=23):
    lm = LanguageModel(tiny(family, vocab=vocab, dtype=dtype))
    g = torch.Generator().manual_seed(1)
    h = torch.randn(n, 32, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    return lm, h, torch.randint(vocab, (n,), generator=g), torch.randint(vocab, (n, 3), generator=g)


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite", "phi"])
@pytest.mark.parametrize("chunk", [None, 4])
def test_values_and_gradients_are_those_of_the_whole_softmax(family, chunk):
    lm, h, y, at = head_inputs(family)
    g = torch.Generator().manual_seed(2)
    pull = [torch.randn(s, generator=g, dtype=torch.float64) for s in ((10,), (10,), (10, 3))]
    leaves = [h, *lm.model.get_output_embeddings().parameters()]
    for temperature in (1.0, 0.7, torch.linspace(0.5, 2, 10, dtype=torch.float64)):
        got = lm.logp_entropy(h, y, temperature, chunk, at)
        want = naive(lm, h, y, temperature, at)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        grads = torch.autograd.grad(sum((p * x).sum() for p, x in zip(pull, got)), leaves)
        truth = torch.autograd.grad(sum((p * x).sum() for p, x in zip(pull, want)), leaves)
        for a, b in zip(grads, truth):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 2])
def test_gradcheck(chunk):
    lm, h, y, at = head_inputs("gemma2", n=5, vocab=7)
    assert torch.autograd.gradcheck(lambda h: lm.logp_entropy(h, y, 0.8, chunk, at), (h,))
    for k in range(3):  # each output alone: the others' gradients are then absent, not zero
        assert torch.autograd.gradcheck(lambda h, k=k: lm.logp_entropy(h, y, 0.8, chunk, at)[k], (h,))


def test_log_prob_is_taken_at_the_sampling_temperature():
    """Field report T20: logits 2 and 0 at temperature 0.5 give log(1 / (1 + exp(-4)))."""
    case = CASES["T20"]["input"]
    lm = LanguageModel(tiny("llama", vocab=2))
    head = lm.model.get_output_embeddings()
    with torch.no_grad():
        head.weight.zero_()
        head.weight[:, 0] = torch.tensor(case["logits"])
        state = torch.zeros(1, 32)
        state[0, 0] = 1
        logp, entropy, _ = lm.logp_entropy(state, torch.tensor([case["token"]]), case["temperature"])
    assert float(logp) == pytest.approx(CASES["T20"]["expected"]["logp"], abs=1e-5)
    p = 0.9820138
    assert float(entropy) == pytest.approx(-p * -0.01815 - (1 - p) * -4.01815, abs=1e-5)


def test_no_tensor_of_tokens_times_vocabulary_outlives_a_chunk(monkeypatch):
    n, vocab, chunk = 64, 501, 8
    lm, h, y, at = head_inputs(n=n, vocab=vocab)
    rows_at_once, kept = [], []
    whole = LanguageModel.logits

    def watched(self, h):
        rows_at_once.append(len(h))
        return whole(self, h)

    def keep(t):
        kept.append(t.numel())
        return t

    monkeypatch.setattr(LanguageModel, "logits", watched)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        logp, entropy, logp_at = lm.logp_entropy(h, y, chunk=chunk, at=at)
    (logp.sum() + entropy.sum() + logp_at.sum()).backward()
    assert max(rows_at_once) == chunk
    assert len(rows_at_once) == 2 * n // chunk  # once forward, once in the backward pass
    assert max(kept, default=0) < chunk * vocab
    assert h.grad is not None
    assert lm.model.get_output_embeddings().weight.grad is not None


def test_half_precision_models_get_a_float32_softmax():
    lm, h, y, _ = head_inputs(dtype=torch.bfloat16)
    logp, entropy, _ = lm.logp_entropy(h, y)
    assert logp.dtype == entropy.dtype == torch.float32
    want = naive(lm, h, y, 1.0)
    torch.testing.assert_close(logp.double(), want[0], rtol=1e-5, atol=1e-5)
    logp.sum().backward()
    assert h.grad.dtype == torch.bfloat16


def test_forbidden_tokens_leave_everything_finite():
    lm, h, y, _ = head_inputs("phi")
    with torch.no_grad():
        lm.model.lm_head.bias[5:] = -torch.inf
    y = y % 5
    logp, entropy, _ = lm.logp_entropy(h, y)
    (logp.sum() + entropy.sum()).backward()
    five = (lm.logits(h)[:, :5]).log_softmax(-1)
    torch.testing.assert_close(entropy, -(five.exp() * five).sum(1))
    torch.testing.assert_close(logp, five.gather(1, y[:, None])[:, 0])
    assert torch.isfinite(h.grad).all()


def test_no_rows_and_no_temperature():
    lm, h, y, at = head_inputs()
    logp, entropy, logp_at = lm.logp_entropy(h[:0], y[:0], at=at[:0])
    assert (logp.shape, entropy.shape, logp_at.shape) == ((0,), (0,), (0, 3))
    logp.sum().backward()  # a graph-connected zero
    assert float(h.grad.abs().sum()) == 0
    with pytest.raises(ValueError, match="temperature above 0, got 0"):
        lm.logp_entropy(h, y, 0.0)
