"""LoRA: a small adapter learns, the model's own weights stay as they are.

    W x + (alpha / rank) B A x,   A [rank, in] random, B [out, rank] zero at first

so the policy starts as the very model, and with the adapter off it still is that model: the reference costs nothing.
Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021). PEFT puts the layers in; it is imported only
where an adapter is asked for.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlvr.engine.protocol import Unsupported

ALL = "all-linear"


def adapted(model: Any) -> bool:
    """Whether PEFT has put an adapter into this model."""
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


def add(
    model: Any, rank: int = 16, alpha: float = 32.0, targets: Sequence[str] = (ALL,), seed: int = 0, base: str = ""
) -> Any:
    """The model as a PeftModel with a fresh adapter in its dtype, the only part that can be trained. Changes `model`.

    targets: last parts of names of linear layers, or "all-linear": all of them but the output head. base: the name
    under which others find the model. Raises Unsupported where PEFT is missing, a target does not exist, or the model
    has an adapter already.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise Unsupported("[lora] needs the package peft; run: pip install 'rlvr[lora]'") from None
    refuse_adapted(model)
    head = model.get_output_embeddings()
    names = [n for n, m in model.named_modules() if _is_linear(m) and m is not head]
    there = sorted({n.rpartition(".")[2] for n in names})
    unknown = [t for t in targets if t != ALL and not any(f".{n}".endswith(f".{t}") for n in names)]
    if unknown:
        raise Unsupported(f'lora.targets: no layer is called {unknown[0]!r}; there are: {", ".join(there)}, or "{ALL}"')
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # it only divides by rank
        target_modules=there if ALL in targets else list(targets),
        fan_in_fan_out=not any(isinstance(m, nn.Linear) for m in model.modules() if m is not head),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), without_future_warnings():
        torch.manual_seed(seed)
        # not in float32, as PEFT would have it: the optimiser keeps float32 copies here, as of every narrow weight
        wrapped = get_peft_model(model, config, autocast_adapter_dtype=False)
    wrapped.peft_config["default"].base_model_name_or_path = base
    return wrapped.eval()


def refuse_adapted(model: Any) -> None:
    """Raises Unsupported where PEFT has touched the model before."""
    if hasattr(model, "peft_config"):
        raise Unsupported(
            "the model has an adapter already; make it part of the weights first (model.merge_and_unload() of PEFT), "
            "or load the model anew; a table [lora] in the recipe gives it a new one"
        )


def _is_linear(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, nn.Linear | Conv1D)


@contextmanager
def off(model: nn.Module) -> Iterator[None]:
    """The model without its adapter inside."""
    layers = list(_layers(model).values())
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def _layers(model: nn.Module) -> dict[str, Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, BaseTunerLayer)}


def merged(model: Any, cast: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The state of the model that `model` was made from, the adapter added to its weights in float32.

    cast: what is done to tensors by name before they are kept, one layer at a time, so that no second model in
    float32 is ever held.
    """
    inner = model.get_base_model()
    layers = _layers(inner)
    rest = {k: x for k, x in inner.state_dict().items() if not any(k.startswith(f"{name}.") for name in layers)}
    out = cast(rest)
    for name, layer in layers.items():
        wide = torch.float64 if layer.get_base_layer().weight.dtype == torch.float64 else torch.float32
        alone = copy.deepcopy(layer).to("cpu", wide)
        alone.merge()
        out |= cast({f"{name}.{key}": x for key, x in alone.get_base_layer().state_dict().items()})
    return out


@contextmanager
def without_future_warnings() -> Iterator[None]:
    """PEFT asks transformers by a name that is going away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
