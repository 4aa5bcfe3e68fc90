"""LoRA: a small adapter learns, the model's own weights stay as they are.

    W x + (alpha / rank) B A x,   A [rank, in] random, B [out, rank] zero at first

so the policy starts as the very model, and with the adapter off it still is that model: the reference costs nothing.
Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021). PEFT puts the layers in; it is imported only
where an adapter is asked for.
"""

from __future__ import annotations

import copy
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlvr.engine.protocol import Unsupported

WEIGHTS = "adapter_model.safetensors"  # PEFT's own names, so that PEFT and vLLM can read the folder
CONFIG = "adapter_config.json"
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
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), _without_future_warnings():
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


def save_adapter(model: Any, folder: Path) -> Path:
    """Write the adapter alone, as PEFT reads it. The folder appears whole, in the place of an earlier one."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    from rlvr.engine.load import whole_folder

    config = copy.copy(model.peft_config["default"])
    config.inference_mode = True
    config.target_modules = sorted(config.target_modules)  # a set: its order would differ from run to run
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    with whole_folder(folder) as partial:
        save_file({k: x.detach().cpu().contiguous() for k, x in state.items()}, partial / WEIGHTS, {"format": "pt"})
        config.save_pretrained(str(partial))
    return folder


def load_adapter(model: Any, folder: Path) -> None:
    """Put saved numbers into the adapter of `model`. Raises Unsupported where they are of another shape."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    shapes = lambda state: {key: x.shape for key, x in state.items()}  # noqa: E731
    saved = _weights(folder)
    if shapes(saved) != shapes(get_peft_model_state_dict(model, save_embedding_layers=False)):
        raise Unsupported(
            f"the adapter in {folder} has another rank or other targets than [lora] in the recipe; a run that goes on "
            "keeps them"
        )
    set_peft_model_state_dict(model, saved)


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


def merge_adapter(source: Path, folder: Path, dtype: str | None = None) -> Path:
    """A saved adapter and the model it was trained on, found by its name, as one whole model in another folder; in
    `dtype`, or as it was trained."""
    from peft import PeftModel

    from rlvr.engine.load import check_target, load_model, save_model

    check_target(folder, dtype)
    trained = next(str(x.dtype).removeprefix("torch.") for x in _weights(source).values())
    base = json.loads((source / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    loaded = load_model(base, trained, "cpu")
    with _without_future_warnings():
        model = PeftModel.from_pretrained(loaded.model, str(source))
    return save_model(model, loaded.tokenizer, folder, dtype or trained)


def copy_adapter(source: Path, folder: Path, dtype: str | None = None) -> Path:
    """A saved adapter into another folder, in `dtype` if given."""
    from safetensors.torch import save_file

    from rlvr.engine.load import cast, check_target, whole_folder

    check_target(folder, dtype, CONFIG)
    state = _weights(source)
    with whole_folder(folder) as partial:
        save_file(state if dtype is None else cast(state, dtype), partial / WEIGHTS, {"format": "pt"})
        shutil.copy(source / CONFIG, partial)
    return folder


def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)


@contextmanager
def _without_future_warnings() -> Iterator[None]:
    """PEFT asks transformers by a name that is going away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
