"""Run verl's own functions on the shared cases, on the CPU, and write what they give as a fixture.

    python peers/verl_values.py        writes tests/fixtures/peers/verl.json.gz; see peers/README.md for the environment

Each run goes the way that verl's trainer goes: reward manager -> KL in the reward -> advantages
(`ray_trainer.compute_advantage`) -> importance weights (`rollout_corr_helper`) -> the worker's loss (`losses.ppo_loss`,
`value_loss`, `sft_loss`) -> autograd. verl's code runs unmodified, in float64 as far as it lets us; the model is a leaf
of log-probs. The counts that its engine would send along are the batch's: all trained tokens, all rows. Lists hold one
number a trained token, rows end to end.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
import sys
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from make_cases import Case, load, padded, save
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto, __version__
from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import apply_kl_penalty, compute_advantage
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig, CriticConfig
from verl.workers.config.actor import PolicyLossConfig
from verl.workers.utils.losses import ppo_loss, sft_loss, value_loss

PROMPT = 2  # tokens of every prompt
TOKEN_MEAN, ROW_MEAN, CONSTANT = "token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"
GRPO = {"adv": "grpo"}

# name of a run: what differs from verl's defaults. `adv` names the estimator, `actor` the worker's settings.
RUNS: dict[str, dict[str, Any]] = {
    "grpo": GRPO,
    "grpo row mean": {**GRPO, "actor": {"loss_agg_mode": ROW_MEAN}},
    "grpo row mean, counting by itself": {**GRPO, "actor": {"loss_agg_mode": ROW_MEAN}, "batch_info": False},
    "dapo": {**GRPO, "overlong": 4, "actor": {"clip_ratio_high": 0.28}},
    "dr_grpo": {"adv": "grpo", "std": False, "actor": {"loss_agg_mode": CONSTANT, "loss_scale_factor": 12}},
    "rloo": {"adv": "rloo"},
    "rloo vectorized": {"adv": "rloo_vectorized"},
    "reinforce_pp": {"adv": "reinforce_plus_plus"},
    "reinforce_pp gamma 0.9": {"adv": "reinforce_plus_plus", "gamma": 0.9},
    "reinforce_pp baseline": {"adv": "reinforce_plus_plus_baseline"},
    "ppo": {"adv": "gae", "critic": {}},
    "ppo gamma 0.95 lam 0.9": {"adv": "gae", "gamma": 0.95, "lam": 0.9, "critic": {"cliprange_value": 0.2}},
    "gspo": {
        **GRPO,
        "actor": {"mode": "gspo", "loss_agg_mode": ROW_MEAN, "clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4},
    },
    "gspo wide": {
        **GRPO,
        "actor": {"mode": "gspo", "loss_agg_mode": ROW_MEAN, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2},
    },
    "gspo token mean": {
        **GRPO,
        "actor": {"mode": "gspo", "loss_agg_mode": TOKEN_MEAN, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2},
    },
    "gspo tis": {
        **GRPO,
        "actor": {"mode": "gspo", "loss_agg_mode": ROW_MEAN, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2},
        "correct": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    },
    "cispo": {**GRPO, "actor": {"mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 4.0}},
    "cispo tight": {**GRPO, "actor": {"mode": "cispo"}},
    "kl k2": {**GRPO, "actor": {"use_kl_loss": True, "kl_loss_type": "mse", "kl_loss_coef": 0.1}},
    "kl k3": {**GRPO, "actor": {"use_kl_loss": True, "kl_loss_type": "low_var_kl", "kl_loss_coef": 0.1}},
    "kl k1": {**GRPO, "actor": {"use_kl_loss": True, "kl_loss_type": "kl", "kl_loss_coef": 0.1}},
    "kl k3+": {**GRPO, "actor": {"use_kl_loss": True, "kl_loss_type": "k3+", "kl_loss_coef": 0.1}},
    "kl in reward, reinforce_pp": {"adv": "reinforce_plus_plus", "kl_reward": 0.1},
    "kl in reward, ppo": {"adv": "gae", "gamma": 0.95, "lam": 0.9, "kl_reward": 0.1, "critic": {}},
    "kl in reward, rloo": {"adv": "rloo", "kl_reward": 0.1},
    "entropy": {**GRPO, "actor": {"entropy_coeff": 0.01}},
    "entropy row mean": {**GRPO, "actor": {"entropy_coeff": 0.01, "loss_agg_mode": ROW_MEAN}},
    "tis": {**GRPO, "correct": {"rollout_is": "token", "rollout_is_threshold": 2.0}},
    "tis kl": {
        **GRPO,
        "correct": {"rollout_is": "token", "rollout_is_threshold": 2.0},
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.1},
    },
    "tis sequence": {**GRPO, "correct": {"rollout_is": "sequence", "rollout_is_threshold": 2.0}},
    "mis": {**GRPO, "correct": {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"}},
    "mis 0.5 to 5": {**GRPO, "correct": {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}},
    "rejection 0.5 to 5": {**GRPO, "correct": {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_5.0"}},
    "sft": {"sft": True},
}
ESTIMATORS = ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus", "gae")
EVERYWHERE = ("square-1", "square-2", "uneven-3", "uneven-4", "plain-5")
EDGES: dict[str, tuple[str, ...]] = {
    "alone": ("grpo", "rloo", "rloo vectorized", "reinforce_pp baseline"),
    "silent": (),
    "close": ("grpo",),
    "far": ("grpo", "cispo", "cispo tight"),
    "wild": ("grpo", "gspo wide", "cispo", "kl k3"),
    "drift": ("grpo", "kl k3"),
    "tool-last": ("grpo", "reinforce_pp", "ppo", "dapo"),
    "two-tokens": ("grpo", "tis", "tis sequence", "mis", "mis 0.5 to 5", "rejection 0.5 to 5"),
}


def tensor(case: Case, name: str) -> torch.Tensor:
    return torch.tensor(padded(case, name), dtype=torch.float64)


def trained(case: Case, x: torch.Tensor) -> list[float]:
    """The numbers at trained tokens, rows end to end."""
    return [float(v) for v in x.detach()[tensor(case, "trained").bool()]]


class Words:
    """Stands in for a tokenizer: the reward manager decodes, the score is known already."""

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return ""


def proto(case: Case) -> DataProto:
    """A rollout batch as verl's trainers hold it: prompts of two tokens, responses with their tool output."""
    lengths = torch.tensor([len(row) for row in case["tokens"]["trained"]])
    rows, width = len(lengths), int(lengths.max())
    inside = (torch.arange(width) < lengths[:, None]).long()
    group = case["rows"]["group"]
    scores = [{"ground_truth": x} for x in case["rows"]["score"]]
    return DataProto.from_dict(
        tensors={
            "prompts": torch.ones(rows, PROMPT, dtype=torch.long),
            "responses": inside,
            "attention_mask": torch.cat([torch.ones(rows, PROMPT, dtype=torch.long), inside], 1),
            "response_mask": tensor(case, "trained"),
            "old_log_probs": tensor(case, "old_logp"),
            "ref_log_prob": tensor(case, "ref_logp"),
            "values": tensor(case, "value"),
        },
        non_tensors={
            "uid": np.array([f"group {g}" for g in group], dtype=object),
            "reward_model": np.array(scores, dtype=object),
            "data_source": np.array(["peers"] * rows, dtype=object),
        },
    )


def rewarded(case: Case, data: DataProto, overlong: int | None) -> torch.Tensor:
    """[R, T] token_level_scores by verl's DAPO reward manager: the row's score at its last token, be it a tool's."""
    buffer = {"enable": overlong is not None, "len": overlong or 0, "penalty_factor": 1.0, "log": False}
    given = {"reward": {"reward_kwargs": {"overlong_buffer_cfg": buffer, "max_resp_len": case["max_tokens"]}}}
    score = lambda data_source, solution_str, ground_truth, extra_info: ground_truth  # noqa: E731

    async def every() -> list[float]:
        manager = DAPORewardManager(OmegaConf.create(given), Words(), score)
        return [float((await manager.run_single(data[i : i + 1]))["reward_score"]) for i in range(len(data))]

    return DAPORewardManager.assemble_rm_scores(data, asyncio.run(every())).double()


def nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def model_output(case: Case, response: torch.Tensor) -> torch.Tensor:
    """Padded [R, T] as the worker's jagged output of prompt and response; a token's number stands one place earlier."""
    parts = []
    for i, row in enumerate(case["tokens"]["trained"]):
        zero = response.new_zeros
        parts.append(torch.cat([zero(PROMPT - 1), response[i, : len(row)], zero(1)]))
    values = torch.cat(parts)
    lengths = torch.tensor([0, *[len(p) for p in parts]])
    return torch.nested.nested_tensor_from_jagged(values, offsets=lengths.cumsum(0))


def worker_data(case: Case, data: DataProto, **more: torch.Tensor) -> TensorDict:
    """What the trainer sends to a worker: jagged rows, prompt and response."""
    lengths = [len(row) for row in case["tokens"]["trained"]]
    cut = lambda x: nested([x[i, :n] for i, n in enumerate(lengths)])  # noqa: E731
    fields = {name: cut(data.batch[name]) for name in ("responses", "response_mask", "old_log_probs", "ref_log_prob")}
    fields |= {name: cut(x) for name, x in more.items()}
    fields["prompts"] = nested([torch.ones(PROMPT, dtype=torch.long) for _ in lengths])
    return TensorDict(fields, batch_size=[len(lengths)])


def run(
    case: Case, adv: str = "", std: bool = True, gamma: float = 1.0, lam: float = 1.0, **given: Any
) -> dict[str, Any]:
    data, out = proto(case), {}
    logp, entropy, value = (tensor(case, s).requires_grad_() for s in ("logp", "now_entropy", "now_value"))
    mask = tensor(case, "trained")
    info = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": len(mask)}
    if not given.get("batch_info", True):
        info = {"dp_size": 1, "batch_num_tokens": None, "global_batch_size": None}
    if given.get("sft"):
        sent = TensorDict({"response_mask": mask}, batch_size=[len(mask)])
        tu.assign_non_tensor(sent, pad_mode="left_right", **info)
        loss, _ = sft_loss(None, {"log_probs": logp}, sent)
        loss.backward()
        return {"loss": float(loss.detach()), "logp": trained(case, logp.grad)}

    data.batch["token_level_scores"] = rewarded(case, data, given.get("overlong"))
    data.batch["token_level_rewards"] = data.batch["token_level_scores"]
    if "kl_reward" in given:
        data, _ = apply_kl_penalty(data, core_algos.FixedKLController(given["kl_reward"]), "kl")
    config = AlgoConfig(gamma=gamma, lam=lam, norm_adv_by_std_in_grpo=std, adv_estimator=adv)
    data = compute_advantage(data, adv, gamma=gamma, lam=lam, norm_adv_by_std_in_grpo=std, config=config)
    out["advantage"] = trained(case, data.batch["advantages"])

    more = {"advantages": data.batch["advantages"]}
    if "correct" in given:
        weights, data.batch["response_mask"], _ = compute_rollout_correction_and_rejection_mask(
            tensor(case, "old_logp"), tensor(case, "behavior_logp"), mask, **given["correct"]
        )
        if weights is not None:
            more["rollout_is_weights"] = weights.batch["rollout_is_weights"]
            out["weights"] = trained(case, more["rollout_is_weights"])
    settings = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, **given.get("actor", {})}
    mode = settings.pop("mode", "vanilla")
    actor = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=mode),
        **settings,
    )
    sent = worker_data(case, data, **more)
    tu.assign_non_tensor(sent, **info)
    spoken = {"log_probs": model_output(case, logp)}
    if actor.entropy_coeff:
        spoken["entropy"] = model_output(case, entropy)
    loss, _ = ppo_loss(actor, spoken, sent)
    out["loss"] = float(loss.detach())
    loss.backward()
    out["logp"] = trained(case, logp.grad)
    if actor.entropy_coeff:
        out["entropy"] = trained(case, entropy.grad)
    if "critic" in given:
        out["returns"] = trained(case, data.batch["returns"])
        critic = CriticConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, **given["critic"])
        sent = worker_data(case, data, values=data.batch["values"], returns=data.batch["returns"])
        tu.assign_non_tensor(sent, **info)
        lost, _ = value_loss(critic, {"values": model_output(case, value)}, sent)
        lost.backward()
        out |= {"value_loss": float(lost.detach()), "value": trained(case, value.grad)}
    return out


def advantages(case: Case, estimator: str) -> list[float]:
    """Of an estimator alone, called by its registered name, in float32 as in training."""
    data = proto(case)
    data.batch["values"] = data.batch["values"].float()
    score = rewarded(case, data, None).float()
    keys = {"values": data.batch["values"], "gamma": 1.0, "lam": 1.0} if estimator == "gae" else {}
    if estimator != "gae":
        keys |= {"index": data.non_tensor_batch["uid"], "config": AlgoConfig(gamma=1.0)}
    result, _ = core_algos.get_adv_estimator_fn(estimator)(
        token_level_rewards=score, response_mask=data.batch["response_mask"], **keys
    )
    return trained(case, result)


def penalties(case: Case) -> dict[str, list[float]]:
    """verl's KL estimators of (logp, ref_logp), one value a token."""
    return {
        kind: trained(case, core_algos.kl_penalty(tensor(case, "logp"), tensor(case, "ref_logp"), kind))
        for kind in ("k1", "k2", "k3", "k3+", "abs")
    }


def main() -> None:
    torch.set_num_threads(1)
    cases = load("cases")["cases"]
    wanted = {name: tuple(RUNS) for name in EVERYWHERE} | EDGES
    values: dict[str, Any] = {}
    for name, runs in wanted.items():
        values[name] = {what: run(cases[name], **RUNS[what]) for what in runs}
        values[name]["estimators"] = {e: advantages(cases[name], e) for e in ESTIMATORS}
    values["penalties"] = {name: penalties(cases[name]) for name in (*EVERYWHERE, "wild")}
    lengths = list(range(1, 15))
    long = {
        "max_tokens": 12,
        "rows": {"group": lengths, "score": [0.0] * 14},
        "tokens": {"trained": [[1.0] * n for n in lengths]},
    }
    for stream in ("old_logp", "ref_logp", "value"):
        long["tokens"][stream] = long["tokens"]["trained"]
    values["overlong"] = {"lengths": lengths, "penalty": rewarded(long, proto(long), 4).sum(-1).tolist()}
    versions = {"verl": __version__, "torch": torch.__version__, "python": platform.python_version()}
    today = datetime.date.today().isoformat()
    save("verl", {"command": "python peers/verl_values.py", "date": today, "versions": versions, "values": values})
    print(f"wrote {sum(len(v) for v in values.values())} results of verl {__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
