"""Adapters as files, as PEFT and vLLM read them."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from rlvr.engine.load import cast, check_target, load_model, save_model, whole_folder
from rlvr.engine.lora import without_future_warnings
from rlvr.engine.protocol import Unsupported

WEIGHTS = "adapter_model.safetensors"  # PEFT's own names
CONFIG = "adapter_config.json"


def save_adapter(model: Any, folder: Path) -> Path:
    """Write the adapter alone, as PEFT reads it. The folder appears whole, in the place of an earlier one."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

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


def merge_adapter(source: Path, folder: Path, dtype: str | None = None) -> Path:
    """A saved adapter and the model it was trained on, found by its name, as one whole model in another folder; in
    `dtype`, or as it was trained."""
    from peft import PeftModel

    check_target(folder, dtype)
    trained = next(str(x.dtype).removeprefix("torch.") for x in _weights(source).values())
    base = json.loads((source / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    loaded = load_model(base, trained, "cpu")
    with without_future_warnings():
        model = PeftModel.from_pretrained(loaded.model, str(source))
    return save_model(model, loaded.tokenizer, folder, dtype or trained)


def copy_adapter(source: Path, folder: Path, dtype: str | None = None) -> Path:
    """A saved adapter into another folder, in `dtype` if given."""
    from safetensors.torch import save_file

    check_target(folder, dtype, CONFIG)
    state = _weights(source)
    with whole_folder(folder) as partial:
        save_file(state if dtype is None else cast(state, dtype), partial / WEIGHTS, {"format": "pt"})
        shutil.copy(source / CONFIG, partial)
    return folder


def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)
