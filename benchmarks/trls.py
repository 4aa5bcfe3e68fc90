"""TRL's GRPOTrainer as a process that makes steps when it is told to. Runs in .venv-trl, with src/ on the path.

    .venv-trl/bin/python benchmarks/trls.py '{"model": ..., "rows": "tasks.jsonl", "settings": {...}}'

The same verifier judges as on our side. A step is one batch of rollouts with all its optimiser updates. With
"settings_list" instead of "settings" each of them makes "steps" steps in a fork, one after another: the sweep.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rlvr.records import Task
from rlvr.verify.spec import verifier_from


def say(told: dict[str, Any]) -> None:
    print("@" + json.dumps(told), flush=True)


class Teller(TrainerCallback):
    """Tells every step, and waits for leave to go on: `wanted()` is the number of steps to make next, 0 to end."""

    def __init__(self, updates: int, wanted: Any) -> None:
        self.updates, self.wanted, self.left = updates, wanted, 0
        self.rewards: list[float] = []
        self.lengths: list[int] = []
        self.sampling = 0.0
        self.began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.left = self.wanted()
        self.began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.updates:
            return
        cpu = time.process_time() - self.began
        say(
            {
                "step": state.global_step // self.updates,
                "cpu": round(cpu, 5),
                "reward": sum(self.rewards) / len(self.rewards),
                "length": sum(self.lengths) / len(self.lengths),
                "stages": {"sample": round(self.sampling, 5), "update": round(cpu - self.sampling, 5)},
            }
        )
        self.rewards, self.lengths, self.sampling, self.left = [], [], 0.0, self.left - 1
        if not self.left:
            self.left = self.wanted()
            control.should_training_stop = not self.left
        self.began = time.process_time()


def trainer_of(load: dict[str, Any], settings: dict[str, Any], teller: Teller) -> GRPOTrainer:
    """settings: micro_batch, and optionally cache, attention, generation (keyword arguments of generate)."""
    tasks = [json.loads(line) for line in open(load["rows"], encoding="utf-8")]  # noqa: SIM115
    verifier = verifier_from(tasks[0]["verifier"])

    def reward(completions: list[str], id: list[str], answer: list[str], completion_ids: Any, **_: Any) -> list[float]:
        scores = [verifier(text, Task(i, "", gold)).score for text, i, gold in zip(completions, id, answer)]
        teller.rewards += scores
        teller.lengths += [len(ids) for ids in completion_ids]
        return scores

    rows, micro = load["prompts"] * load["group"], settings["micro_batch"]
    accumulate = rows // load["updates"] // micro
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulate,
        steps_per_generation=rows // micro,
        num_generations=load["group"],
        max_completion_length=load["max_tokens"],
        max_steps=10**6,
        learning_rate=load["lr"],
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=load["warmup"],
        adam_beta1=load["betas"][0],
        adam_beta2=load["betas"][1],
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=0.2,
        loss_type="dapo",  # the mean over all tokens of the optimiser batch
        temperature=1.0,
        seed=load.get("seed", 0),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        cache_implementation=settings.get("cache"),
        generation_kwargs=settings.get("generation"),
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    model = AutoModelForCausalLM.from_pretrained(
        load["folder"], dtype=torch.float32, attn_implementation=settings.get("attention", "sdpa")
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{k: t[k] for k in ("id", "prompt", "answer")} for t in tasks]),
        processing_class=AutoTokenizer.from_pretrained(load["folder"]),
        callbacks=[teller],
    )
    generate = trainer._generate

    def timed(*given: Any, **named: Any) -> Any:
        start = time.process_time()
        out = generate(*given, **named)
        teller.sampling += time.process_time() - start
        return out

    trainer._generate = timed
    return trainer


def sweep(load: dict[str, Any]) -> None:
    for settings in load["settings_list"]:
        say({"settings": settings})
        child = os.fork()
        if not child:
            try:
                trainer_of(load, settings, Teller(load["updates"], iter([load["steps"], 0]).__next__)).train()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            say({"failed": status})


def main() -> None:
    torch.set_num_threads(1)
    load = json.loads(sys.argv[1])
    if "settings_list" in load:
        sweep(load)
        return
    teller = Teller(load["updates"], lambda: int(sys.stdin.readline() or 0))
    trainer = trainer_of(load, load["settings"], teller)
    say({"startup": time.process_time()})
    trainer.train()


if __name__ == "__main__":
    main()
