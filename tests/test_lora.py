"""LoRA: only the adapter learns, the reference is the policy with its adapter off, runs go on exactly, and what comes
out is a model that others load. Gradient checkpointing changes memory and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import every_token, tiny_llama
from torch import Tensor, nn

from rlvr.batch import Batch, Chains
from rlvr.cli import main
from rlvr.engine import adapter_files, lora
from rlvr.engine.critic import Critic
from rlvr.engine.load import ModelError, load_model
from rlvr.engine.model import LanguageModel, recompute_layers
from rlvr.engine.protocol import Unsupported
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.methods.grpo import grpo
from rlvr.methods.kl import kl
from rlvr.recipe import RecipeError, make_recipe
from rlvr.run import train
from rlvr.testing import running
from rlvr.views import STANDARD

pytest.importorskip("peft")
torch.set_num_threads(1)
F64 = torch.float64


class NoSampler:
    version = 0

    def publish(self, version: int) -> None:
        self.version = version


def adapted(seed: int = 0, noise: float = 0.0, **more: Any) -> LanguageModel:
    """A tiny llama with an adapter of rank 3; with noise, one that says something."""
    lm = LanguageModel(lora.add(tiny_llama(seed).model, rank=3, alpha=6.0, **more))
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for p in lm.model.parameters():
            if p.requires_grad:
                p.add_(noise * torch.randn(p.shape, dtype=p.dtype, generator=generator))
    return lm


def engine(lm: LanguageModel, **more: Any) -> TorchEngine:
    models = {"policy": lm, "reference": lm.inside(lambda: lora.off(lm.model))}
    return TorchEngine(models, {"policy": Optim(lr=1e-2)}, NoSampler(), **more)  # type: ignore[arg-type]


def rows(n: int = 8) -> Batch:
    """Four groups of two rows of 3 to 12 tokens; one of the two is right."""
    noise = torch.Generator().manual_seed(4)
    ids, at = [], []
    for i in range(n):
        prompt, new = 2 + i % 3, 1 + (5 * i) % 8
        ids.append(torch.randint(3, 17, (prompt + new,), generator=noise).tolist())
        at.append(list(range(prompt, prompt + new)))
    correct = torch.arange(n) % 2 == 0
    count = sum(map(len, at))
    return Batch.pack(
        torch.tensor([len(a) for a in at]),
        Chains.of(ids, at),
        token=torch.tensor([row[p] for row, places in zip(ids, at) for p in places]),
        group=torch.arange(n) // 2,
        correct=correct,
        score=correct.double(),
        behavior_logp=torch.zeros(count, dtype=F64),
        sampler_logp=torch.full((count,), torch.nan, dtype=F64),
    )


def plain_logp(model: nn.Module, batch: Batch) -> Tensor:
    """[N] one row at a time, by the Hugging Face model's own forward."""
    assert batch.chains is not None
    out = []
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        ids = batch.chains.row(i)
        logits = model(ids[None], use_cache=False).logits[0]
        out.append(torch.log_softmax(logits, -1)[places - 1, ids[places]])
    return torch.cat(out)


def off_policy(lm: LanguageModel, batch: Batch) -> Batch:
    with torch.no_grad():
        logp = plain_logp(lm.model, batch)
    noise = torch.randn(len(logp), dtype=logp.dtype, generator=torch.Generator().manual_seed(7))
    return batch.with_({"old_logp": logp + 0.3 * noise})


def learned(e: TorchEngine, batch: Batch) -> dict[str, Tensor]:
    """The gradient of each trained matrix after the engine's backward pass over the batch."""
    plan = running(grpo())
    batch = plan.weigh(plan.credit(batch))
    e._backward(batch, plan, "policy", torch.arange(len(batch)))
    return {n: p.grad.clone() for n, p in e.models["policy"].model.named_parameters() if p.grad is not None}


# ---- the adapter -----------------------------------------------------------------------------------------
def test_at_first_the_policy_is_the_reference_and_both_are_the_model_bit_for_bit() -> None:
    e = engine(adapted())
    done = e.score(rows(), [STANDARD["old_logp"], STANDARD["ref_logp"]])
    assert torch.equal(done["old_logp"], done["ref_logp"])
    assert torch.equal(done["ref_logp"], engine(tiny_llama()).score(rows(), [STANDARD["old_logp"]])["old_logp"])


def test_updates_change_the_adapter_alone_and_the_reference_stays_where_it_was() -> None:
    lm, batch = adapted(), off_policy(tiny_llama(), rows())
    before = {n: p.clone() for n, p in lm.model.named_parameters()}
    e, plan = engine(lm), running(grpo())
    at_first = e.score(batch, [STANDARD["ref_logp"]])["ref_logp"]
    for _ in range(3):
        e.update(plan.weigh(plan.credit(batch)), plan)
    changed = {n for n, p in lm.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {n for n in before if "lora_" in n}
    assert len(changed) == 2 * 7 * 2  # A and B of seven linear layers in each of two blocks
    assert len(e.steppers["policy"].weights) == len(changed)
    now = e.score(batch, [STANDARD["ref_logp"], STANDARD["now_logp"]])
    assert torch.equal(now["ref_logp"], at_first)
    assert not torch.equal(now["now_logp"], at_first)
    assert all(p.requires_grad for n, p in lm.model.named_parameters() if "lora_" in n)  # a look leaves no trace


def test_the_gradient_of_adapter_entries_equals_finite_differences() -> None:
    lm = adapted(noise=0.2)
    for layer in lm.model.model.layers:  # Hugging Face's norms compute in float32, too coarse for differences
        layer.input_layernorm = nn.RMSNorm(16, eps=1e-6, dtype=F64)
        layer.post_attention_layernorm = nn.RMSNorm(16, eps=1e-6, dtype=F64)
    lm.model.model.norm = nn.RMSNorm(16, eps=1e-6, dtype=F64)
    batch = off_policy(lm, rows())
    got = learned(engine(lm), batch)
    advantage = running(grpo()).credit(batch)["advantage"]

    def loss() -> float:
        ratio = (plain_logp(lm.model, batch) - batch["old_logp"]).exp()
        return float(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean())

    weights = dict(lm.model.named_parameters())
    for name in ("layers.0.self_attn.q_proj.lora_A", "layers.0.mlp.up_proj.lora_A", "layers.1.mlp.down_proj.lora_B"):
        key = f"model.{name}.default.weight"
        for entry in (0, 7, 20):
            flat = weights[key].data.view(-1)
            middle, slopes = float(flat[entry]), []
            with torch.no_grad():
                for side in (1e-5, -1e-5):
                    flat[entry] = middle + side
                    slopes.append(loss())
            flat[entry] = middle
            assert float(got[key].view(-1)[entry]) == pytest.approx((slopes[0] - slopes[1]) / 2e-5, rel=1e-5, abs=1e-9)


def test_micro_batches_change_no_gradient() -> None:
    lm = adapted(noise=0.2)
    batch = off_policy(lm, rows())
    whole = learned(engine(lm), batch)
    for budget in (1, 30):
        for name, g in learned(engine(lm, token_budget=budget), batch).items():
            torch.testing.assert_close(g, whole[name], rtol=0, atol=1e-12)


def test_an_adapter_is_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(5)
    a = {n: p.clone() for n, p in adapted(targets=["q_proj"]).model.named_parameters()}
    torch.manual_seed(6)
    state = torch.random.get_rng_state()
    b = dict(lora.add(tiny_llama().model, rank=3, targets=["q_proj"]).get_base_model().named_parameters())
    assert all(torch.equal(a[n], b[n]) for n in a)
    other = dict(lora.add(tiny_llama().model, rank=3, targets=["q_proj"], seed=1).get_base_model().named_parameters())
    assert any(not torch.equal(a[n], other[n]) for n in a)
    assert {n.split(".")[4] for n in a if "lora_" in n} == {"q_proj"}
    torch.manual_seed(6)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_critic_shares_the_weights_that_do_not_learn_and_has_an_adapter_of_its_own() -> None:
    lm = adapted(noise=0.1)
    critic = Critic(lm)
    mine, theirs = dict(critic.model["body"].named_parameters()), dict(lm.model.model.named_parameters())
    for name, p in mine.items():
        assert (p is theirs[name]) == ("lora_" not in name), name
    ids = torch.randint(3, 17, (2, 6))
    assert torch.equal(critic.predicting(*every_token(ids)), lm.predicting(*every_token(ids)))
    with torch.no_grad():
        next(p for n, p in theirs.items() if "lora_B" in n).add_(1.0)
    assert not torch.equal(critic.predicting(*every_token(ids)), lm.predicting(*every_token(ids)))


# ---- what is refused -------------------------------------------------------------------------------------
def test_a_reference_without_weights_of_its_own_cannot_follow_the_policy() -> None:
    e = engine(adapted())
    e.require(running(kl(grpo(), coef=0.1)))
    with pytest.raises(Unsupported, match=r"kl\(refresh = 2\).*adapter off.*drop refresh"):
        e.require(running(kl(grpo(), coef=0.1, refresh=2)))
    with pytest.raises(Unsupported, match="cannot move"):
        e.refresh("reference")


def test_targets_that_do_not_exist_and_second_adapters_are_refused_in_a_sentence() -> None:
    with pytest.raises(Unsupported, match=r"no layer is called 'query'; there are: down_proj, gate_proj, k_proj"):
        lora.add(tiny_llama().model, targets=["q_proj", "query"])
    with pytest.raises(Unsupported, match="lm_head"):  # the head is no target: it may be tied to the embedding
        lora.add(tiny_llama().model, targets=["lm_head"])
    with pytest.raises(Unsupported, match="has an adapter already"):
        lora.add(adapted().model)


def test_an_adapter_outside_the_base_model_is_refused_by_numbers() -> None:
    from peft import PromptTuningConfig, get_peft_model

    model = get_peft_model(tiny_llama().model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.normal_()
    with pytest.raises(Unsupported, match="does not give the logits of its own forward pass"):
        LanguageModel(model.double().eval())


def test_dropout_is_no_setting_and_the_recipe_says_why() -> None:
    with pytest.raises(RecipeError, match=r"lora.dropout.*nothing is dropped out in training"):
        make_recipe({"tasks": "running_sums", "lora": {"dropout": 0.1}})
    with pytest.raises(RecipeError, match=r"`lora_r` is called `lora.rank` here"):
        make_recipe({"tasks": "running_sums", "lora_r": 8})
    assert make_recipe({"tasks": "running_sums", "lora": {"targets": "q_proj"}}).lora.targets == ["q_proj"]


# ---- runs ------------------------------------------------------------------------------------------------
SMALL = {
    "model": "nano",
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 4,
    "prompts_per_step": 4,
    "group_size": 4,
    "updates_per_batch": 2,
    "max_tokens": 16,
    "lr": 1e-2,
    "checkpoint_every": 1,
    "doctor": False,
    "eval": {"problems": 0},
    "lora": {"rank": 4},
}


def logits(model: Any) -> Tensor:
    ids = torch.arange(24).view(2, 12) % 20 + 3
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora") / "run"
    train(make_recipe({**SMALL, "method": "kl(coef=0.01)"}), folder, sinks=("jsonl",))
    return folder


def told(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: x for k, x in m.items() if not k.startswith(("time", "perf"))} for m in lines]


@pytest.mark.parametrize("more", [{"method": "ppo(warmup=1)"}, {"method": "kl(coef=0.01)", "dtype": "bfloat16"}])
def test_a_run_that_goes_on_ends_in_the_same_bytes(tmp_path: Path, more: dict[str, Any]) -> None:
    recipe = make_recipe({**SMALL, "gap_limit": 1.0, "gradient_checkpointing": True, **more})
    train(recipe, tmp_path / "run", sinks=("jsonl",))
    files = [tmp_path / "run" / "adapter" / adapter_files.WEIGHTS, tmp_path / "run" / "model" / "model.safetensors"]
    straight, numbers = [f.read_bytes() for f in files], told(tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00003"
    assert sorted(p.name for p in checkpoint.iterdir()) == ["adapter", "state.json", "state.safetensors"]
    assert sum(f.stat().st_size for f in checkpoint.rglob("*.safetensors")) < files[1].stat().st_size
    for f in files:
        f.unlink()
    train(recipe, tmp_path / "run", sinks=("jsonl",), resume=True)
    assert [f.read_bytes() for f in files] == straight
    assert told(tmp_path / "run") == numbers


def test_a_run_goes_on_with_what_it_trains(run: Path) -> None:
    whole = make_recipe({**SMALL, "lora": {"rank": 5}})
    with pytest.raises(Unsupported, match="another rank or other targets"):
        train(whole, run, sinks=(), resume=True)
    with pytest.raises(ValueError, match=r"trained an adapter; keep its \[lora\]"):
        train(make_recipe({k: x for k, x in SMALL.items() if k != "lora"}), run, sinks=(), resume=True)


def test_what_comes_out_is_a_model_for_transformers_and_an_adapter_for_peft(run: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = load_model("nano", device="cpu").model
    before = logits(base)
    with_adapter = PeftModel.from_pretrained(base, str(run / "adapter")).eval()
    want = logits(with_adapter)
    assert float((want - before).abs().max()) > 0.05  # it has learned something
    merged = AutoModelForCausalLM.from_pretrained(run / "model")
    torch.testing.assert_close(logits(merged), want, rtol=0, atol=2e-6 * float(want.abs().max()))
    out = merged.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, do_sample=False)
    assert out.shape[1] > 3
    assert (run / "recipe.toml").read_text().count("[lora]") == 1


def test_export_of_runs_and_checkpoints(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def export(*arguments: str) -> str:
        with pytest.raises(SystemExit) as done:
            main(["export", *arguments])
        said = capsys.readouterr()
        assert done.value.code in (0, None, 2), said
        return said.out + said.err

    out = tmp_path / "out"
    export(str(run), "--out", str(out))
    assert (out / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()
    full = load_model(out, device="cpu").model
    export(str(run), "--out", str(out), "--dtype", "bfloat16")
    half = load_model(out, device="cpu").model
    for (name, a), b in zip(full.named_parameters(), half.parameters()):
        assert torch.equal(a.bfloat16().float(), b), name  # merged in float32, rounded once
    last = run / "checkpoints" / "step-00003"
    export(str(last), "--adapter", "--out", str(tmp_path / "adapter"))
    assert (tmp_path / "adapter" / adapter_files.WEIGHTS).read_bytes() == (
        last / "adapter" / adapter_files.WEIGHTS
    ).read_bytes()
    export(str(last), "--out", str(tmp_path / "third"))
    assert not torch.equal(logits(load_model(tmp_path / "third", device="cpu").model), logits(full))
    assert "is not just a saved model" in export(str(run), "--out", str(run))
    assert "neither a run nor its best/ nor a checkpoint" in export(str(tmp_path), "--out", str(tmp_path / "x"))
    with pytest.raises(ModelError, match="is an adapter, not a whole model"):
        load_model(run / "adapter")


def test_export_of_a_run_that_trained_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = {k: x for k, x in SMALL.items() if k != "lora"} | {"steps": 2}
    train(make_recipe(recipe), tmp_path / "run", sinks=("jsonl",))

    def main_(*more: str) -> object:
        with pytest.raises(SystemExit) as done:
            main(["export", str(tmp_path / "run"), *more])
        return done.value.code

    assert main_("--out", str(tmp_path / "a"), "--adapter") == 2
    assert "trained all weights and has no adapter" in capsys.readouterr().err
    assert main_("--out", str(tmp_path / "b"), "--dtype", "float16") in (0, None)
    a, b = (load_model(tmp_path / x, device="cpu").model for x in ("run/model", "b"))
    assert all(torch.equal(p.half().float(), q) for p, q in zip(a.parameters(), b.parameters()))
    (tmp_path / "run" / "model").rename(tmp_path / "elsewhere")
    assert main_("--out", str(tmp_path / "c")) == 2
    assert "did not come to its end; export its newest checkpoint" in capsys.readouterr().err


# ---- gradient checkpointing ------------------------------------------------------------------------------
def kept_bytes(lm: LanguageModel) -> int:
    """Bytes that a forward pass leaves to its backward pass, weights not counted."""
    weights = {p.untyped_storage().data_ptr() for p in lm.model.parameters()}
    found: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    ids = torch.randint(3, 17, (4, 30))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        h = lm.hidden(ids, torch.full((4,), 30))
    assert h.requires_grad
    return sum(found.values())


@pytest.mark.parametrize("make", [tiny_llama, adapted], ids=["full", "lora"])
def test_recomputed_layers_give_the_same_gradient_from_less_memory(make: Any) -> None:
    plain, less = make(), make()
    recompute_layers(less.model)
    recompute_layers(less.model)  # twice is once
    batch = off_policy(plain, rows())
    want, got = (learned(engine(lm, token_budget=40), batch) for lm in (plain, less))
    assert want.keys() == got.keys()
    assert all(torch.equal(want[n], got[n]) for n in want)
    assert kept_bytes(less) < kept_bytes(plain) / 3
    ids, lengths = torch.randint(3, 17, (2, 9)), torch.tensor([9, 4])
    with torch.no_grad():
        assert torch.equal(plain.hidden(ids, lengths), less.hidden(ids, lengths))


def test_recomputing_wakes_no_dropout() -> None:
    """OPT drops out in its layers themselves, by their own mode: Hugging Face's switch would turn that on."""
    from transformers import OPTConfig, OPTForCausalLM

    def make() -> LanguageModel:
        torch.manual_seed(3)
        config = OPTConfig(vocab_size=17, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2,
                           word_embed_proj_dim=16, max_position_embeddings=64, dropout=0.5, init_std=0.4)  # fmt: skip
        return LanguageModel(OPTForCausalLM(config).double().eval())

    plain, less = make(), make()
    recompute_layers(less.model)
    ids, lengths = torch.randint(3, 17, (3, 8)), torch.tensor([8, 8, 8])
    for lm in (plain, less):
        lm.hidden(ids, lengths).square().sum().backward()
    assert kept_bytes(less) < kept_bytes(plain)
    for (name, p), q in zip(plain.model.named_parameters(), less.model.parameters()):
        if p.grad is not None:
            assert torch.equal(p.grad, q.grad), name


def test_a_copy_of_a_recomputing_model_computes_with_its_own_weights() -> None:
    lm = tiny_llama()
    recompute_layers(lm.model)
    critic = Critic(lm)
    ids, lengths = torch.randint(3, 17, (2, 6)), torch.tensor([6, 6])
    before = lm.hidden(ids, lengths)
    with torch.no_grad():
        for p in critic.model.parameters():
            p.mul_(1.5)
    assert torch.equal(lm.hidden(ids, lengths), before)
    critic.predicting(*every_token(ids)).sum().backward()
    assert all(p.grad is None for p in lm.model.parameters())
    assert any(p.grad is not None for p in critic.model.parameters())


def test_a_model_without_layers_that_say_so_is_refused() -> None:
    with pytest.raises(Unsupported, match="Linear does not say which of its modules"):
        recompute_layers(nn.Linear(2, 2))
