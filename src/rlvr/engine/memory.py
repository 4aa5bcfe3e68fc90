"""Memory: how much a recipe will need.

The estimate knows no formula. The model is built from its config.json on torch's meta device, where tensors have shapes
and no numbers; the code that samples and updates runs there once, and the bytes that would be alive are counted.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from rlvr.batch import Chains
    from rlvr.engine.model import LanguageModel
    from rlvr.recipe import Recipe

PROMPT = 256  # our guess where nobody knows: tokens of a prompt
_ATTENTION = "rlvr_counted"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes that a run needs beyond interpreter, libraries and (on a GPU) the CUDA context.

    standing: what is there all the time, by name. sampling, update: the most that is needed on top of it while answers
    are sampled, while the optimiser takes a step; scoring: while a teacher looks at them. cache, gradients and
    activations are their largest parts: keys and values of `slots` rows; gradients of all trained weights; what the
    backward pass of one micro-batch of `rows` rows keeps. A row has `prompt` + `new` tokens.
    """

    parameters: int
    trained: int
    standing: Mapping[str, int]
    sampling: int
    update: int
    cache: int
    gradients: int
    activations: int
    slots: int
    rows: int
    prompt: int
    new: int
    scoring: int = 0

    @property
    def peak(self) -> int:
        return sum(self.standing.values()) + max(self.sampling, self.update, self.scoring)


def estimate(
    recipe: Recipe,
    config: Mapping[str, Any],
    models: frozenset[str] = frozenset(),
    prompt: int | None = None,
    teacher: Mapping[str, Any] | None = None,
) -> Estimate:
    """What `recipe` needs for the model of a config.json.

    models: those of the plan, "reference", "critic" and, where its config.json is given as well, "teacher" count.
    prompt: tokens of a prompt, a guess if None. Every answer
    is taken to be max_tokens long. Raises what transformers raises for a config that it does not know, or for a model
    that cannot run without numbers.
    """
    from rlvr.engine.model import LanguageModel, recompute_layers
    from rlvr.engine.torch_engine import CPU_TOKENS

    model = _without_numbers(recipe, config, recipe.dtype)
    if recipe.gradient_checkpointing:
        recompute_layers(model)
    lm = LanguageModel(model)
    number, narrow = lm.dtype.itemsize, lm.dtype.itemsize < 4
    context = lm.context or 2**30
    prompt = max(1, min(PROMPT if prompt is None else prompt, context - recipe.max_tokens))
    new = min(recipe.max_tokens, context - prompt)
    parameters = sum(p.numel() for p in lm.model.parameters())
    trained = {"policy": sum(p.numel() for p in lm.model.parameters() if p.requires_grad)}
    held = _size(lm.model)
    standing = {"weights": held}
    if "reference" in models and recipe.lora is None:
        standing["reference"] = held
    if "critic" in models:
        head = lm.model.config.get_text_config().hidden_size + 1
        trained["critic"] = trained["policy"] + head
        standing["critic"] = (trained["critic"] if recipe.lora else parameters + head) * number
    n = sum(trained.values())
    if narrow:
        standing["float32 copies"] = 4 * n
    standing["optimiser"] = 2 * n * max(4, number)
    batch = recipe.prompts_per_step * recipe.group_size
    of_update = -(-batch // recipe.updates_per_batch)
    budget = recipe.token_budget if _on_gpu(recipe) else min(recipe.token_budget, CPU_TOKENS)
    rows = min(of_update, _rows_in(budget, lm.packs, recipe.group_size, prompt, new))
    gradients = n * number
    made = _rectangle(rows, recipe.group_size, prompt, new)
    backward, activations = _update(lm, *made, recipe.temperature, again=rows < of_update)
    slots = min(recipe.slots, batch)
    sampling, cache = _sampling(lm, slots, recipe.group_size, prompt, new, _on_gpu(recipe))
    scoring = 0
    if "teacher" in models and teacher is not None and recipe.teacher is not None:
        judging = LanguageModel(_without_numbers(recipe, teacher, recipe.teacher.dtype or recipe.dtype, adapted=False))
        standing["teacher"] = _size(judging.model)
        looked = min(batch, _rows_in(budget, judging.packs, recipe.group_size, prompt, new))
        scoring = _scoring(judging, *_rectangle(looked, recipe.group_size, prompt, new), recipe.temperature)
    return Estimate(
        parameters,
        n,
        standing,
        sampling,
        max(backward + (n - trained["policy"]) * number, gradients + 4 * n * narrow),
        cache,
        gradients,
        activations,
        slots,
        rows,
        prompt,
        new,
        scoring,
    )


def _on_gpu(recipe: Recipe) -> bool:
    return recipe.device.startswith("cuda") if recipe.device else torch.cuda.is_available()


def _size(model: nn.Module) -> int:
    return sum(x.numel() * x.itemsize for x in (*model.parameters(), *model.buffers()))


# ---- running without numbers -----------------------------------------------------------------------------
def _without_numbers(recipe: Recipe, config: Mapping[str, Any], dtype: str, adapted: bool = True) -> Any:
    """A model on the meta device, in eval mode, with the recipe's adapter in it where it is `adapted`."""
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

    from rlvr.engine import lora

    AttentionInterface.register(_ATTENTION, _attention)
    made = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made, dtype=getattr(torch, dtype), attn_implementation=_ATTENTION)
    model = model.eval()
    chosen = recipe.lora if adapted else None
    return model if chosen is None else lora.add(model, chosen.rank, chosen.alpha, chosen.targets)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float | None = None, **more: Any
) -> tuple[Tensor, None]:
    """Stands for the fused kernels, which all keep the same: inputs, output, and one number for each query."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: Tensor = kernel(query, key, value, 0.0, True, scale=scaling)[0]
    return out.transpose(1, 2).contiguous(), None


class _Living(TorchDispatchMode):
    """Counts the bytes of all tensors that are made inside and still alive: `now`, and the `most` there ever were."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: dict[int, Any] = {}
        for x in (*model.parameters(), *model.buffers()):  # they were there before
            self._known[x.untyped_storage()._cdata] = x

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor):
                self._count(x.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return

        def gone(_: Any) -> None:
            self.now -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, gone)
        self.now += size
        self.most = max(self.most, self.now)


def _rows_in(budget: int, packed: bool, group: int, prompt: int, new: int) -> int:
    """How many rows a micro-batch of `budget` tokens has; see Batch.cut and cut_packed."""
    if not packed:
        return max(1, budget // (prompt + new))
    groups, left = divmod(budget, prompt + group * new)
    return max(1, groups * group + max(0, left - prompt) // new)


def _rectangle(rows: int, group: int, prompt: int, new: int) -> tuple[Chains, Tensor]:
    """Rows of `new` trained tokens after a prompt that a group shares, and their trained lengths."""
    from rlvr.batch import Chains

    n = prompt + new
    ids = torch.zeros(rows, n, dtype=torch.long)
    ids[:, :prompt] = (torch.arange(rows) // group)[:, None]
    at = torch.arange(prompt, n).repeat(rows)
    chains = Chains(ids.flatten(), torch.full((rows,), n), at, torch.arange(rows) * n)
    return chains, torch.full((rows,), new)


def _update(lm: LanguageModel, chains: Chains, length: Tensor, temperature: float, again: bool) -> tuple[int, int]:
    """(the most bytes in forward and backward pass of a micro-batch, gradients included; bytes that the forward pass
    leaves to the backward pass). again: gradients of an earlier micro-batch are there already."""
    with torch.device("meta"), _Living(lm.model) as living:
        if again:
            for p in lm.model.parameters():
                p.grad = torch.zeros_like(p) if p.requires_grad else None
        before = living.now
        h = lm.predicting(chains, length)
        kept = living.now - before
        logp, _, _ = lm.logp_entropy(h, torch.zeros(len(h), dtype=torch.long), temperature)
        logp.sum().backward()
    return living.most, kept


def _scoring(lm: LanguageModel, chains: Chains, length: Tensor, temperature: float) -> int:
    """The most bytes in a look at a micro-batch from which nothing is learned."""
    with torch.device("meta"), torch.no_grad(), _Living(lm.model) as living:
        h = lm.predicting(chains, length)
        lm.logp_entropy(h, torch.zeros(len(h), dtype=torch.long), temperature)
    return living.most


def _sampling(lm: LanguageModel, slots: int, group: int, prompt: int, new: int, on_gpu: bool) -> tuple[int, int]:
    """(the most bytes while `slots` rows are decoded together, bytes of their keys and values at the end)."""
    from rlvr.engine.model import chunk_rows
    from rlvr.engine.noise import gumbel
    from rlvr.engine.rows import CachedRows
    from rlvr.engine.sampler import PREFILL, draw

    exact = torch.float64 if lm.dtype == torch.float64 else torch.float32
    with torch.device("meta"), torch.inference_mode(), _Living(lm.model) as living:
        rows = CachedRows(lm, slots, PREFILL)
        rows.admit([np.full(prompt, b // group) for b in range(slots)])
        for _ in range(new - 1):  # the slabs grow as they would; only the last token is really decoded
            rows._fit(slots, 0, 1)
            rows.end += 1
        h = rows.advance(torch.zeros(slots, dtype=torch.long))[: chunk_rows(lm.vocab, exact)]
        key = torch.zeros(len(h), dtype=torch.long)
        logits = lm.logits(h).to(exact)
        # on a CPU noise is made in small blocks and put together
        noise = gumbel(key, key, lm.vocab, exact) if on_gpu else torch.cat([torch.empty_like(logits)])
        draw(logits, noise, torch.ones(len(h), dtype=exact), greedy=False)
        cache = sum(x.numel() * x.itemsize for layer in rows.layers for x in layer.slabs)
    return living.most, cache


# ---- for people ------------------------------------------------------------------------------------------
def memory_table(recipe: Recipe, models: set[str]) -> str:
    """The estimate as a small table, from the model's config.json alone; or why there is none."""
    from rlvr.engine.load import find_config

    file = find_config(recipe.model)
    if file is None:
        return f"memory: not estimated, for the config.json of {recipe.model} is not on this machine yet"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        teacher = teacher_config(recipe)
        e = estimate(recipe, config, frozenset(models), teacher=teacher)
        cheaper = recipe.model_copy(update={"gradient_checkpointing": True})
        less = None
        if not recipe.gradient_checkpointing:
            less = estimate(cheaper, config, frozenset(models), teacher=teacher)
    except Exception as error:  # the boundary: a dry run is still worth having for a model that only runs for real
        return f"memory: not estimated, {recipe.model} cannot be looked at without its weights ({error})"
    what = {"weights": f"{e.parameters:,} numbers, {e.trained:,} trained"}
    lines = [(name, _shown(size), what.get(name, "")) for name, size in e.standing.items()]
    if "teacher" in models and "teacher" not in e.standing and recipe.teacher and recipe.teacher.url is None:
        lines.append(("teacher", "?", f"the config.json of {recipe.teacher.model} is not on this machine yet"))
    lines += [
        ("sampling", f"+ {_shown(e.sampling)}", f"of it keys and values of {e.slots} rows {_shown(e.cache)}"),
        (
            "update",
            f"+ {_shown(e.update)}",
            f"of it gradients {_shown(e.gradients)}, activations of {e.rows} rows {_shown(e.activations)}",
        ),
        *([("scoring", f"+ {_shown(e.scoring)}", "by the teacher")] if e.scoring else []),
        (
            "most at once",
            _shown(e.peak),
            f"{_shown(less.peak)} with gradient_checkpointing = true" if less else "",
        ),
    ]
    title = (
        f"memory, estimated for rows of {e.prompt} + {e.new} tokens (prompts are a guess), beyond the program itself:"
    )
    told = [title, *(f"  {name:<14} {size:>12}  {text}".rstrip() for name, size, text in lines)]
    if not _on_gpu(recipe):  # measured: 1.1 to 3.6 times, benchmarks/results/memory.json
        told.append(
            "  On a CPU, glibc also keeps what was freed; MALLOC_MMAP_THRESHOLD_=65536 in the environment avoids it."
        )
    return "\n".join(told)


def teacher_config(recipe: Recipe) -> Any:
    """The config.json of the recipe's teacher; None where it has none here."""
    from rlvr.engine.load import find_config

    if recipe.teacher is None or recipe.teacher.url is not None:
        return None
    file = find_config(recipe.teacher.model)
    return None if file is None else json.loads(file.read_text(encoding="utf-8"))


def _shown(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
