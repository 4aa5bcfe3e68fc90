"""Whether a model's files are whole: looked at before anything is loaded from them, so that the file is named.

A safetensors file begins with the length of its header, and the header says where each tensor ends; a file that was
cut, by a full disk or a copy that broke off, is shorter than that.
"""

from __future__ import annotations

import json
from pathlib import Path


def fault_of(file: Path) -> str:
    """What is wrong with a safetensors or JSON file: a few words that follow its name; "" where it is whole."""
    try:
        return _fault_of_weights(file) if file.suffix == ".safetensors" else _fault_of_json(file)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def fault_in(folder: Path) -> str:
    """The first fault of the safetensors and JSON files of a folder, with the file's name; "" where all are whole."""
    files = sorted(f for f in folder.rglob("*") if f.suffix in (".safetensors", ".json") and f.is_file())
    return next((f"{file} {fault}" for file in files if (fault := fault_of(file))), "")


def absent_shards(folder: Path) -> list[str]:
    """Files that the index of a model in several files names, and that are not there."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file() or fault_of(index):
        return []
    named = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()
    return sorted({name for name in named if not (folder / name).is_file()})


def _fault_of_weights(file: Path) -> str:
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > size - 8:
            return f"is no whole safetensors file: it ends within its header, after {size} bytes"
        try:
            header = json.loads(opened.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "is no safetensors file: its header cannot be read"
    wanted = 8 + length + max(ends, default=0)
    return "" if size == wanted else f"is not whole: it has {size} bytes, and its header says {wanted}"


def _fault_of_json(file: Path) -> str:
    try:
        json.loads(file.read_bytes())
    except ValueError as error:
        return f"is not JSON: {error}"
    return ""
