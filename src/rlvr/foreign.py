"""What TRL, verl and OpenRLHF call a recipe's settings, so that an unknown key is answered with the known one.

Looked up by the whole dotted key, then by its last two parts, then by its last part. A value is a recipe's key, or
(with a space in it) a sentence that says how the thing is done here.
"""

from __future__ import annotations

from collections.abc import Mapping

BATCH = (
    "a step samples prompts_per_step x group_size rollouts and makes updates_per_batch optimiser steps; "
    "no number has to divide another"
)
MICRO = "token_budget sets the tokens of a micro-batch, which never change the result"
KL = "a KL penalty is a paper of its own: add kl to `method`, and set papers.kl.coef"
ENTROPY = "an entropy bonus is a paper of its own: add entropy_bonus to `method`, and set papers.entropy_bonus.coef"
LOSS = 'the loss, its ratio and its reduction come from the papers in `method` (see "rlvr list method")'
NO_DROPOUT = (
    "nothing is dropped out in training: the ratio of two policies would become one of two noises; leave it out"
)
NO_CUT = "prompts are never cut; a task that is too long for the model is recorded as failed"

NAMES: Mapping[str, str] = {
    # ---- what all of them have
    "learning_rate": "lr",
    "actor_learning_rate": "lr",
    "optim.lr": "lr",
    "grad_clip": "max_grad_norm",
    "max_norm": "max_grad_norm",
    "lr_scheduler_type": "schedule",
    "lr_scheduler": "schedule",
    "warmup_ratio": "warmup_steps",
    "lr_warmup_ratio": "warmup_steps",
    "lr_warmup_steps": "warmup_steps",
    "lr_warmup_steps_ratio": "warmup_steps",
    "adam_beta1": "betas",
    "adam_beta2": "betas",
    "adam_betas": "betas",
    "max_steps": "steps",
    "total_training_steps": "steps",
    "num_train_epochs": "training is counted in `steps`: steps = epochs * tasks / prompts_per_step",
    "total_epochs": "training is counted in `steps`: steps = epochs * tasks / prompts_per_step",
    "num_episodes": "training is counted in `steps`: steps = epochs * tasks / prompts_per_step",
    "bf16": 'dtype = "bfloat16"',
    "fp16": 'dtype = "bfloat16" (float16 overflows in training)',
    "use_vllm": "the sampler is part of the engine; there is nothing to switch on",
    "enable_gradient_checkpointing": "gradient_checkpointing",
    # ---- adapters
    "use_peft": "a table [lora] trains an adapter",
    **dict.fromkeys(["lora_r", "lora_rank", "lora.r", "peft_config.r"], "lora.rank"),
    **dict.fromkeys(["lora_alpha", "lora.lora_alpha"], "lora.alpha"),
    **dict.fromkeys(["lora_target_modules", "target_modules"], "lora.targets"),
    **dict.fromkeys(["lora_dropout", "lora.dropout"], NO_DROPOUT),
    # ---- rollouts
    "num_generations": "group_size",
    "n_samples_per_prompt": "group_size",
    "rollout.n": "group_size",
    "max_completion_length": "max_tokens",
    "max_response_length": "max_tokens",
    "response_length": "max_tokens",
    "generate_max_len": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_prompt_length": NO_CUT,
    "prompt_max_len": NO_CUT,
    "prompt_length": NO_CUT,
    "train_batch_size": "prompts_per_step (and updates_per_batch for the optimiser steps that it is cut into)",
    "data.train_batch_size": "prompts_per_step",
    "gen_batch_size": "prompts_per_step",
    "rollout_batch_size": "prompts_per_step",
    "chat_template_kwargs": "chat",
    # ---- updates
    "per_device_train_batch_size": f"{BATCH}; {MICRO}",
    "gradient_accumulation_steps": f"{BATCH}; {MICRO}",
    "generation_batch_size": BATCH,
    "steps_per_generation": "updates_per_batch",
    "ppo_mini_batch_size": "updates_per_batch = prompts_per_step / ppo_mini_batch_size, rounded as you like",
    "mini_batch_size": "updates_per_batch = prompts_per_step / mini_batch_size, rounded as you like",
    "num_iterations": "epochs",
    "ppo_epochs": "epochs",
    "max_epochs": "epochs",
    "micro_train_batch_size": MICRO,
    "micro_rollout_batch_size": MICRO,
    "ppo_micro_batch_size": MICRO,
    "ppo_micro_batch_size_per_gpu": MICRO,
    "ppo_max_token_len_per_gpu": "token_budget",
    "log_prob_max_token_len_per_gpu": "token_budget",
    "max_tokens_per_gpu": "token_budget",
    # ---- the method
    "epsilon": "papers.grpo.clip_low",
    "epsilon_low": "papers.grpo.clip_low",
    "epsilon_high": "papers.grpo.clip_high",
    "clip_ratio": "papers.grpo.clip_low and papers.grpo.clip_high",
    "eps_clip": "papers.grpo.clip_low and papers.grpo.clip_high",
    "cliprange": "papers.grpo.clip_low and papers.grpo.clip_high",
    "clip_ratio_low": "papers.grpo.clip_low",
    "clip_ratio_high": "papers.grpo.clip_high",
    "eps_clip_low_high": "papers.grpo.clip_low and papers.grpo.clip_high",
    **dict.fromkeys(["beta", "kl_coef", "kl_loss_coef", "init_kl_coef", "use_kl_loss", "use_kl_in_reward"], KL),
    **dict.fromkeys(
        ["loss_type", "loss_agg_mode", "importance_sampling_level", "adv_estimator", "advantage_estimator"], LOSS
    ),
    **dict.fromkeys(
        ["scale_rewards", "norm_adv_by_std_in_grpo", "entropy_coeff", "entropy_coef", "gamma", "lam"], LOSS
    ),
    "mask_truncated_completions": f"pays.truncated sets what a truncated answer earns; {LOSS}",
    # ---- model, data, rewards
    "model_name_or_path": "model",
    "model.path": "model",
    "pretrain": "model",
    "dataset_name": "tasks",
    "train_files": "tasks",
    "prompt_data": "tasks",
    "val_files": "eval.tasks",
    "eval_dataset": "eval.tasks",
    "system_prompt": "system",
    "input_template": "prompt",
    "reward_funcs": "verifier",
    "reward_function": "verifier",
    "custom_reward_function.path": "verifier",
    "remote_rm_url": "verifier",
    "reward_weights": "parts",
    # ---- the run
    "output_dir": 'the folder is given on the command line: "rlvr train RECIPE --out DIR"',
    "save_path": 'the folder is given on the command line: "rlvr train RECIPE --out DIR"',
    "default_local_dir": 'the folder is given on the command line: "rlvr train RECIPE --out DIR"',
    "save_steps": "checkpoint_every",
    "save_freq": "checkpoint_every",
    "test_freq": "eval.every",
    "eval_steps": "eval.every",
    "num_completions_to_print": "examples_every",
}


def meaning(key: str) -> str | None:
    """What a dotted key of another library stands for here, or None."""
    parts = key.replace("-", "_").split(".")
    for tail in (parts, parts[-2:], parts[-1:]):
        if ".".join(tail) in NAMES:
            return NAMES[".".join(tail)]
    return None
