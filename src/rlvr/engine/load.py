"""Models by name: bundled, added, in a folder or on the hub; to a causal language model, and back to a folder.

Safetensors only, and never a model's own Python code. A folder is written under another name and renamed when whole.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial as bound
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlvr import organisms
from rlvr.engine.sources import SOURCES
from rlvr.engine.weights import absent_shards, fault_of

DTYPES = ("float32", "bfloat16", "float16", "float64")
READ = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json",
        "model.safetensors.index.json")  # fmt: skip
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model", "vocab.txt", "spiece.model",
              "sentencepiece.bpe.model", "merges.txt", "tekken.json", "vocab.model")  # fmt: skip


class ModelError(ValueError):
    """A model that is not there, or not usable as it is; the message says what would work."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can be sampled and trained."""

    model: Any  # transformers causal LM, in eval mode
    tokenizer: Any
    name: str
    folder: Path | None  # None for a model that was made in memory
    stop_ids: frozenset[int]  # a turn ends with any of these
    pad_id: int  # fills batches; masked wherever it stands, never a reason to stop


def models_dir() -> Path:
    """Where added models are kept: $RLVR_MODELS, or ~/.cache/rlvr/models."""
    return Path(os.environ.get("RLVR_MODELS") or "~/.cache/rlvr/models").expanduser()


def added() -> dict[str, Path]:
    """Models that `rlvr models add` put here, by name."""
    return {card.parent.name: card.parent for card in sorted(models_dir().glob("[!.]*/config.json"))}


def find_model(name: str | Path) -> Path:
    """The folder of a model: bundled, added, local, or fetched from the hub. Raises ModelError."""
    text = str(name)
    folder = Path(name).expanduser()
    if isinstance(name, str):
        if name in organisms.names():
            return organisms.folder(name)
        if name in added():
            return added()[name]
    if folder.is_dir():
        return folder
    if isinstance(name, Path) or not HUB_ID.fullmatch(text) or text.startswith("."):
        raise ModelError(f"there is no folder {folder}; {_choices(text)}")
    if text in SOURCES:
        raise ModelError(f"{text} is not on this machine yet; run: rlvr models add {text}")
    return _from_hub(text)


def check_here(name: str | Path) -> None:
    """Raises ModelError where a model is not there or not whole, as far as this can be seen without fetching it: an id
    of the hub is taken on trust."""
    text = str(name)
    if find_config(name) is not None or not HUB_ID.fullmatch(text) or text in SOURCES:
        check_files(find_model(name))
    elif "/" not in text and _near(text):
        raise ModelError(f"no model {text!r} is on this machine; {_choices(text)}")


def find_config(name: str | Path) -> Path | None:
    """The config.json of a model, where it is on this machine: nothing is fetched. None where it is not."""
    here = {**added(), **{known: organisms.folder(known) for known in organisms.names()}}
    file = here.get(str(name), Path(name).expanduser()) / "config.json"
    if file.is_file():
        return file
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(str(name), "config.json")
    except errors.HFValidationError:  # no hub id
        return None
    return Path(cached) if isinstance(cached, str) else None


def _near(name: str) -> list[str]:
    return difflib.get_close_matches(name, [*organisms.names(), *added(), *SOURCES], 1)


def _choices(name: str) -> str:
    near = _near(name)
    return (f"did you mean {near[0]!r}? " if near else "") + (
        f"what works: a bundled model ({', '.join(organisms.names()) or 'none'}), an added one"
        f" ({', '.join(added()) or 'none'}; see rlvr models), the path of a folder, or a hub id such as Qwen/Qwen3-0.6B"
    )


def _from_hub(name: str) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"],
                ignore_patterns=["*/*", "consolidated*"],  # other formats of the same weights
            )
        )
    except errors.GatedRepoError:
        why = "its authors ask for consent: accept the terms on its hub page and set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        why = "the hub knows no such model, or it is private (then set HF_TOKEN)"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "the hub cannot be reached (offline?) and the local hub cache does not have it"
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        why = f"the hub refused: {str(error).strip().splitlines()[0]}"
    raise ModelError(
        f"no model {name!r}: it is neither bundled, nor added, nor a folder here, and {why}; {_choices(name)}"
    )


def load_model(name: str | Path, dtype: str = "float32", device: str | None = None) -> Loaded:
    """A model by name, ready to sample, in `dtype` whatever it is stored in; on the GPU where there is one.

    Raises ModelError: not found, no safetensors, files that are not whole, weights missing, of other shapes or not
    finite, no tokenizer or one larger than the embedding, a model that needs its own Python code.
    """
    if dtype not in DTYPES:
        raise ModelError(f"there is no dtype {dtype!r}; there are: {', '.join(DTYPES)}")
    folder = find_model(name)
    check_files(folder)

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr.engine.out_of_memory import ran_out

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f'device {where!r}: this machine has no usable GPU; use device = "cpu"')
    with _quiet():
        what = "its tokenizer"
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            what = "its weights"
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
            model, info = loaded
        except Exception as error:  # the boundary: transformers and its parsers raise whatever a file makes them raise
            if isinstance(error, RuntimeError) and ran_out(error):
                raise
            why = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
            if "trust_remote_code" in str(error):
                why = "it needs its own Python code, which is never run; use a model that transformers itself knows"
            elif "size mismatch" in str(error) or "mismatched" in str(error):
                why = "they have other shapes than config.json says; the files do not belong together"
            raise ModelError(f"{name}: {what} in {folder} cannot be loaded: {why}") from None
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if absent:
        raise ModelError(
            f"{name}: {len(absent)} weights that {type(model).__name__} needs are missing in {folder} or have another"
            f" shape, for example {absent[0]}; config.json and the safetensors files do not belong together"
        )
    rows, tokens = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values()) + 1
    if rows < tokens:
        raise ModelError(
            f"{name}: the tokenizer has {tokens} tokens and the model's embedding only {rows} rows; use the one"
            " that came with the model, or enlarge the model once with model.resize_token_embeddings and save it"
        )
    if bad := next((key for key, p in model.named_parameters() if not bool(p.isfinite().all())), None):
        raise ModelError(
            f"{name}: the weight {bad} in {_file_of(folder, bad)} holds nan or infinity, so every answer would be "
            "noise; take another copy or an earlier checkpoint"
        )
    stops = stop_ids(model, tokenizer)
    pad = tokenizer.pad_token_id
    return Loaded(
        model=model.to(where).eval(),
        tokenizer=tokenizer,
        name=str(name),
        folder=folder,
        stop_ids=stops,
        pad_id=min(stops, default=0) if pad is None else int(pad),
    )


def check_files(folder: Path) -> None:
    """Raises ModelError where a folder's files cannot be a whole model; nothing is loaded."""
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} is an adapter, not a whole model; give the model/ beside it, or make one: "
            "rlvr export RUN_OR_CHECKPOINT --out DIR"
        )
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("*.bin")):
            raise ModelError(
                f"{folder} keeps its weights as pickle (.bin), which can run code when it is opened; if you trust it,"
                f" convert it once: AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained(NEW_FOLDER),"
                " and copy the tokenizer's files there"
            )
        raise ModelError(f"{folder} has no *.safetensors file, so it has no weights")
    absent = absent_shards(folder)
    if absent:
        raise ModelError(
            f"{folder} lacks {absent[0]}{f' and {len(absent) - 1} more' if len(absent) > 1 else ''}, which its "
            "model.safetensors.index.json names; copy the model again"
        )
    for file in sorted([*folder.glob("*.safetensors"), *(folder / n for n in READ if (folder / n).is_file())]):
        if fault := fault_of(file):
            raise ModelError(f"{file} {fault}; copy the model again, or take an earlier checkpoint")
    if not any((folder / n).is_file() for n in TOKENIZERS):
        raise ModelError(
            f"{folder} has no tokenizer (none of {', '.join(TOKENIZERS[:3])}); copy the tokenizer's files of the "
            "model that it was made from there"
        )


def _file_of(folder: Path, weight: str) -> str:
    """The file that holds a weight."""
    index = folder / "model.safetensors.index.json"
    told = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.is_file() else {}
    return str(folder / told.get(weight, "model.safetensors"))


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a turn: of the generation config, the config, the tokenizer and the chat template.

    Published models often name only one of them: a chat model whose config says <|endoftext|> alone would never stop.
    """
    from rlvr.engine.renderer import TemplateError, end_of_turn

    found: set[int] = set()
    for holder in (model.generation_config, model.config, model.config.get_text_config(), tokenizer):
        eos = getattr(holder, "eos_token_id", None)
        found |= {eos} if isinstance(eos, int) else set(eos or ())
    if tokenizer.chat_template:
        try:
            end = end_of_turn(tokenizer)
            found |= set() if end is None else {end}
        except TemplateError:
            pass  # the renderer says so when somebody asks for a chat
    return frozenset(found)


def save_model(model: Any, tokenizer: Any, folder: str | Path, dtype: str | None = None) -> Path:
    """Write an HF folder: safetensors, tokenizer, chat template, generation config; in `dtype` if given.

    An adapter becomes part of the weights that are written, and stays apart in `model`. The folder appears whole or not
    at all. An earlier model there is replaced; anything else stays, with a ModelError.
    """
    folder = Path(folder).expanduser()
    check_target(folder, dtype)
    from rlvr.engine import lora

    state = None
    if lora.adapted(model):
        own = str(model.dtype).removeprefix("torch.")
        model, state = model.get_base_model(), lora.merged(model, bound(cast, dtype=dtype or own))
    elif dtype is not None:
        state = cast(model.state_dict(), dtype)
    with whole_folder(folder) as partial, _quiet():
        model.save_pretrained(partial, state_dict=state)
        if dtype is not None:
            config = json.loads((partial / "config.json").read_text(encoding="utf-8"))
            text = json.dumps(config | {"dtype": dtype}, indent=2, sort_keys=True) + "\n"
            (partial / "config.json").write_text(text, encoding="utf-8")
        tokenizer.save_pretrained(partial)
    return folder


def copy_model(source: Path, folder: Path, dtype: str | None = None) -> Path:
    """A saved model into another folder, in `dtype` if given."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    stored = config.get("dtype", config.get("torch_dtype"))
    loaded = load_model(source, stored if stored in DTYPES else "float32", "cpu")
    return save_model(loaded.model, loaded.tokenizer, folder, dtype)


def check_target(folder: Path, dtype: str | None, config: str = "config.json") -> None:
    """Raises ModelError where a folder holds anything but what was saved there before, or there is no such dtype."""
    files = list(folder.iterdir()) if folder.is_dir() else [folder] if folder.exists() else []
    if files and not (all(f.is_file() for f in files) and folder / config in files):
        raise ModelError(f"{folder} exists and is not just a saved model; name another folder")
    if dtype is not None and dtype not in DTYPES:
        raise ModelError(f"there is no dtype {dtype!r}; there are: {', '.join(DTYPES)}")


def cast(state: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Tensors by name on the CPU, the floating ones in `dtype`. Raises ModelError where one does not fit its range."""
    import torch

    done: dict[tuple[int, torch.Size], torch.Tensor] = {}  # tied weights must stay one tensor, or they are saved twice
    out = {}
    for name, x in state.items():
        key = (x.data_ptr(), x.shape)
        if key not in done:
            done[key] = x.to("cpu", getattr(torch, dtype)) if x.is_floating_point() else x.cpu()
            if not done[key].isfinite().all() and x.isfinite().all():
                raise ModelError(f"{name} has values beyond the range of {dtype}; save in bfloat16 or float32")
        out[name] = done[key]
    return out


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write into the folder that this yields; it takes the place of `folder` at the end, unless something raises."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid4().hex[:8]
    partial, old = (folder.with_name(f".{folder.name}.{mark}.{what}") for what in ("partial", "old"))
    partial.mkdir()
    try:
        yield partial
        readable = partial.stat().st_mode & 0o666  # as the umask has it; safetensors makes files for their owner alone
        for file in partial.rglob("*"):
            if file.is_file():
                file.chmod(readable)
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars that transformers prints for the smallest model, and without its tables of weights that
    do not fit, which become one sentence here."""
    from transformers.utils import logging

    shown, loud = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(loud)
        if shown:
            logging.enable_progress_bar()
