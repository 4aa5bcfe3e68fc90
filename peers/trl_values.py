"""Run TRL's own trainers on the shared cases, on the CPU, and write what they give as a fixture.

    python peers/trl_values.py          writes tests/fixtures/peers/trl.json.gz; see peers/README.md for the environment

Trainers are built by their own constructors from a configuration that a user could write, around a model of a few
hundred parameters. Then the model is exchanged for a table of the case's log-probs, and TRL's code runs unmodified:
`_generate_and_score_completions` on the case's tokens (through `rollout_func`) and rewards, then `_compute_loss`, then
autograd. Set by hand are only `use_vllm` (after construction: vLLM is not needed, its tokens are the case's), `beta`
(likewise: the reference is a table), and how RLOOTrainer, which has no `rollout_func`, gets its tokens. Rewards are
float32 in TRL, log-probs here float64. Lists hold one number a trained token, rows end to end.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import trl
from datasets import Dataset
from make_cases import Case, load, padded, save
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer
from trl.rewards import get_soft_overlong_punishment

FIRST = 10  # row i's prompt is the one token FIRST + i: so the table knows the row
VOCABULARY = 64
PAD, EOS, WORD = 0, 1, 2

# name of a run: what differs from TRL's defaults. `use_vllm` and `beta` are set after construction.
SEQUENCE = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
VLLM = {"use_vllm": True}
RUNS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo, half the batch a step": {"loss_type": "dapo", "steps_per_generation": 2},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {**SEQUENCE, "epsilon": 3e-4, "epsilon_high": 4e-4},
    "gspo wide": {**SEQUENCE, "epsilon": 0.2, "epsilon_high": 0.2},
    "gspo tis": {
        **SEQUENCE,
        **VLLM,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "kl k3": {"loss_type": "dapo", "beta": 0.1, "use_bias_correction_kl": False},
    "kl k3, corrected": {"loss_type": "dapo", "beta": 0.1},  # TRL's default
    "entropy": {"loss_type": "dapo", "entropy_coef": 0.01},
    "entropy row mean": {"loss_type": "grpo", "entropy_coef": 0.01},
    "tis": {
        "loss_type": "dapo",
        **VLLM,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "tis kl": {
        "loss_type": "dapo",
        **VLLM,
        "beta": 0.1,
        "use_bias_correction_kl": False,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "mis": {
        "loss_type": "dapo",
        **VLLM,
        "vllm_importance_sampling_mode": "token_mask",
        "vllm_importance_sampling_clip_min": 0.5,
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "sequence truncate": {
        "loss_type": "dapo",
        **VLLM,
        "vllm_importance_sampling_mode": "sequence_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    "sequence mask": {"loss_type": "dapo", **VLLM},  # TRL's defaults: sequence_mask, at most 3
    "mask_truncated": {"loss_type": "dapo", "mask_truncated_completions": True},
}
EVERYWHERE = ("square-1", "square-2", "plain-5")
EDGES: dict[str, tuple[str, ...]] = {
    "silent": ("dapo",),
    "close": ("dapo",),
    "far": ("dapo", "cispo"),
    "wild": ("dapo", "cispo", "kl k3"),
    "drift": ("dapo", "kl k3"),
    "tool-last": ("dapo",),
    "unjudged": ("dapo", "grpo", "dr_grpo"),
    "two-tokens": ("tis", "mis", "sequence truncate", "sequence mask"),
}


class Table(torch.nn.Module):
    """Answers like a model with TRL's fused head: log-probs and entropies at scored positions, 0 elsewhere."""

    def __init__(self, log_probs: torch.Tensor, entropy: torch.Tensor) -> None:
        super().__init__()
        self.log_probs, self.entropy, self.is_gradient_checkpointing = log_probs, entropy, False

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, **_: Any) -> SimpleNamespace:
        row, width = input_ids[:, 0] - FIRST, input_ids.shape[1] - 1
        scored = labels[:, 1:] != -100
        take = lambda x: torch.where(scored, x[row][:, :width], 0.0)  # noqa: E731
        zero = torch.zeros_like(scored, dtype=torch.float64)
        return SimpleNamespace(
            log_probs=take(self.log_probs),
            entropy=take(self.entropy),
            label_mask=scored,
            is_top1=scored,
            mean_logits=zero,
            logits=None,
        )


def tensor(case: Case, name: str) -> torch.Tensor:
    return torch.tensor(padded(case, name), dtype=torch.float64)


def trained(case: Case, x: torch.Tensor) -> list[float]:
    """The numbers at trained tokens, rows end to end; [R] and [R, 1] are laid on the row's tokens."""
    mask = tensor(case, "trained").bool()
    x = x.detach().double()
    return [float(v) for v in (x.reshape(len(x), -1).expand(mask.shape))[mask]]


def words() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": PAD, "<end>": EOS, "<word>": WORD, **{f"w{i}": i for i in range(3, VOCABULARY)}}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<word>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<word>")


def model() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            pad_token_id=PAD,
            bos_token_id=None,
            eos_token_id=EOS,
        )
    )


def common(folder: str, rows: int) -> dict[str, Any]:
    return {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "per_device_train_batch_size": rows,
    }


def completions(case: Case) -> list[list[int]]:
    """Token ids: words, with the end token last unless the row hit its limit."""
    lengths = [len(row) for row in case["tokens"]["trained"]]
    return [[WORD] * (n - 1) + [WORD if cut else EOS] for n, cut in zip(lengths, case["rows"]["truncated"])]


def prompts(case: Case) -> list[dict[str, Any]]:
    score, known = case["rows"]["score"], case["rows"]["known"]
    return [{"prompt": f"w{FIRST + i}", "worth": x if k else None} for i, (x, k) in enumerate(zip(score, known))]


def worth(prompts: list[str], completions: list[str], worth: list[float | None], **_: Any) -> list[float | None]:
    return worth


def group_relative(case: Case, folder: str, **settings: Any) -> dict[str, Any]:
    """GRPOTrainer's advantages, importance weights, loss and gradients."""
    rows = len(case["rows"]["group"])
    use_vllm, beta = settings.pop("use_vllm", False), settings.pop("beta", 0.0)
    steps = settings.pop("steps_per_generation", 1)
    args = GRPOConfig(
        **common(folder, rows // steps),
        steps_per_generation=steps,
        num_generations=case["rows"]["group"].count(case["rows"]["group"][0]),
        num_iterations=2,  # so that old log-probs are kept, not taken from the running policy
        max_completion_length=case["max_tokens"],
        **settings,
    )
    lists = case["tokens"]

    def played(asked: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        return {
            "prompt_ids": [[FIRST + i] for i in range(len(asked))],
            "completion_ids": completions(case),
            "logprobs": lists["behavior_logp"],
            "env_mask": [[int(x) for x in row] for row in lists["trained"]],
        }

    data = Dataset.from_list(prompts(case))
    trainer = GRPOTrainer(model(), worth, args, data, processing_class=words(), rollout_func=played)
    entropy = tensor(case, "now_entropy")
    trainer.use_vllm, trainer.beta = use_vllm, beta
    trainer.model = Table(tensor(case, "old_logp"), entropy)
    trainer.ref_model = Table(tensor(case, "ref_logp"), entropy)
    trainer.current_gradient_accumulation_steps = 1
    trainer._last_loaded_step = trainer.state.global_step  # no vLLM whose weights would have to be brought up to date
    inputs = trainer._generate_and_score_completions(prompts(case))
    out: dict[str, Any] = {"advantage": trained(case, inputs["advantages"])}
    if "importance_sampling_ratio" in inputs:
        out["weights"] = trained(case, inputs["importance_sampling_ratio"])

    leaf, leaf_entropy = tensor(case, "logp").requires_grad_(), entropy.clone().requires_grad_()
    policy, losses = Table(leaf, leaf_entropy), []
    for start in range(0, rows, rows // steps):
        part = {k: v[start : start + rows // steps] if v.dim() else v for k, v in inputs.items()}
        losses.append(trainer._compute_loss(policy, part))
    total = sum(losses)
    out["loss"] = finite(float(total.detach()))
    if not isinstance(out["loss"], str):
        total.backward()
        grad = lambda x: trained(case, torch.zeros_like(x) if x.grad is None else x.grad)  # noqa: E731
        out["logp"] = [finite(x) for x in grad(leaf)]
        if settings.get("entropy_coef"):
            out["entropy"] = grad(leaf_entropy)
    return out


def finite(x: float) -> float | str:
    """JSON has no infinities."""
    return x if abs(x) < float("inf") else str(x)


def leave_one_out(case: Case, folder: str, beta: float, on_policy: bool) -> dict[str, Any]:
    """RLOOTrainer's advantages, loss and gradients. It knows no tool output: for plain cases."""
    args = RLOOConfig(
        **common(folder, len(case["rows"]["group"])),
        num_generations=case["rows"]["group"].count(0),
        max_completion_length=case["max_tokens"],
        beta=0.0,
    )
    trainer = RLOOTrainer(model(), worth, args, Dataset.from_list(prompts(case)), processing_class=words())
    trainer._generate_single_turn = lambda *_: completions(case)
    entropy = tensor(case, "now_entropy")
    trainer.beta = beta
    trainer.model = Table(tensor(case, "old_logp"), entropy)
    trainer.ref_model = Table(tensor(case, "ref_logp"), entropy)
    inputs = trainer._generate_and_score_completions(prompts(case))
    leaf = tensor(case, "old_logp" if on_policy else "logp").requires_grad_()
    loss = trainer._compute_loss(Table(leaf, entropy), inputs)
    loss.backward()
    return {
        "advantage": trained(case, inputs["advantages"]),
        "loss": float(loss.detach()),
        "logp": trained(case, leaf.grad),
    }


def imitate(case: Case, folder: str) -> dict[str, Any]:
    """SFTTrainer's loss on all rows, tool output not scored."""
    args = SFTConfig(**common(folder, len(case["rows"]["group"])), max_length=None)
    trainer = SFTTrainer(model(), args, train_dataset=Dataset.from_dict({"text": ["w3 w4"]}), processing_class=words())
    leaf = tensor(case, "logp").requires_grad_()
    trainer.current_gradient_accumulation_steps = 1
    ids, mask = whole(case)
    labels = torch.where(torch.cat([torch.zeros(len(ids), 1), tensor(case, "trained")], 1).bool(), ids, -100)
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    loss = trainer.compute_loss(
        Table(leaf, tensor(case, "now_entropy")), inputs, num_items_in_batch=int((labels != -100).sum())
    )
    loss.backward()
    return {"loss": float(loss.detach()), "logp": trained(case, leaf.grad)}


def prefer(case: Case, folder: str, **settings: Any) -> dict[str, Any]:
    """DPOTrainer's loss on groups of two; the row of higher score is chosen."""
    args = DPOConfig(**common(folder, len(case["rows"]["group"]) // 2), **settings)
    data = Dataset.from_list([{"prompt": "w3", "chosen": "w4", "rejected": "w5"}])
    trainer = DPOTrainer(model(), ref_model=model(), args=args, train_dataset=data, processing_class=words())
    entropy = tensor(case, "now_entropy")
    trainer.ref_model = Table(tensor(case, "ref_logp"), entropy)
    score = case["rows"]["score"]
    chosen = [i if score[i] > score[i + 1] else i + 1 for i in range(0, len(score), 2)]
    order = torch.tensor([*chosen, *[i ^ 1 for i in chosen]])
    ids, mask = whole(case)
    completion = mask.clone()
    completion[:, 0] = 0
    leaf = tensor(case, "logp").requires_grad_()
    loss = trainer.compute_loss(
        Table(leaf, entropy),
        {"input_ids": ids[order], "attention_mask": mask[order], "completion_mask": completion[order]},
    )
    loss.backward()
    return {"loss": float(loss.detach()), "logp": trained(case, leaf.grad)}


def whole(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """[R, 1 + T] ids with the prompt's token first, and their attention mask."""
    rows = [[FIRST + i, *ids] for i, ids in enumerate(completions(case))]
    width = max(len(r) for r in rows)
    ids = torch.tensor([[*r, *[PAD] * (width - len(r))] for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    return ids, mask


def main() -> None:
    torch.set_num_threads(1)
    cases = load("cases")["cases"]
    wanted = {name: tuple(RUNS) for name in EVERYWHERE} | EDGES
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, runs in wanted.items():
            values[name] = {what: group_relative(cases[name], folder, **RUNS[what]) for what in runs}
        for name in EVERYWHERE:
            values[name]["sft"] = imitate(cases[name], folder)
        plain = values["plain-5"]
        plain["rloo, on policy"] = leave_one_out(cases["plain-5"], folder, 0.0, True)
        plain["rloo"] = leave_one_out(cases["plain-5"], folder, 0.0, False)
        plain["rloo, kl in reward"] = leave_one_out(cases["plain-5"], folder, 0.1, True)
        values["pairs-6"] = {
            "dpo": prefer(cases["pairs-6"], folder),
            "dpo beta 1": prefer(cases["pairs-6"], folder, beta=1.0),
        }
    lengths = list(range(1, 15))
    punish = get_soft_overlong_punishment(12, 4)
    values["overlong"] = {"lengths": lengths, "penalty": punish([[WORD] * n for n in lengths])}
    defaults = GRPOConfig(**common("unused", 8))
    names = (
        "beta",
        "epsilon",
        "loss_type",
        "scale_rewards",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_clip_max",
    )
    values["defaults"] = {name: getattr(defaults, name) for name in names}
    versions = {"trl": trl.__version__, "torch": torch.__version__, "python": platform.python_version()}
    today = datetime.date.today().isoformat()
    save("trl", {"command": "python peers/trl_values.py", "date": today, "versions": versions, "values": values})
    print(f"wrote {sum(len(v) for v in values.values())} results of TRL {trl.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
