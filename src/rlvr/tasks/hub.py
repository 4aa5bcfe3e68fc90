"""Tasks from a dataset of the Hugging Face hub, or a folder that `datasets` can read; columns as `rows` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError
from rlvr.tasks.rows import Raw, options_from, read_rows, table_rows


@register("tasks", "hub")
def hub(
    path: str,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    limit: int | None = None,
    prompt: str | dict[str, str] | None = None,
    answer: dict[str, str] | None = None,
    id: dict[str, str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of one split of a dataset: a hub id such as "openai/gsm8k", a folder of data files, or a folder that
    `save_to_disk` wrote. Needs the package `datasets`: pip install 'rlvr[data]'.

    config: where the dataset has several. revision: a commit or tag, to pin it. split: also a part, "train[:1000]".
    A row without `id` is called "<dataset>/<config>/<split>:<row>", rows counted from 1. Columns as in `jsonl`; those
    of TRL, verl and verifiers are read as they are. What was fetched once is read from the cache of `datasets`, also
    with HF_HUB_OFFLINE=1.

    Raises DataError: the package or the dataset is missing, the hub cannot be reached, columns or rows that cannot be
    used, each with row and id.
    """
    options = options_from(prompt, answer, id)
    folder = Path(path).expanduser()
    data = _loaded(path, folder, config, split, revision)
    made_by = folder.resolve().name if folder.is_dir() else path
    called = "/".join(filter(None, [made_by, config]))
    name = f"{made_by.rpartition('/')[2]}/{f'{config}/' if config else ''}{split}"
    source = f"{called} [{split}]"
    return read_rows(_rows(data, source, name), source, called, options, limit, data.column_names)


def _rows(data: Any, source: str, name: str) -> Iterator[Raw]:
    number = 0
    for table in data.with_format("arrow").iter(batch_size=1024):  # as stored: no picture is decoded
        for columns in table_rows(table.to_pylist()):
            number += 1
            yield Raw(columns, f"row {number}", f"{source}: row {number}", f"{name}:{number}")


def _loaded(path: str, folder: Path, config: str | None, split: str, revision: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"tasks hub: needs the package datasets ({error}); pip install 'rlvr[data]'") from None
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            return _saved(datasets.load_from_disk(str(folder)), path, split)
        where = str(folder) if folder.is_dir() else path
        return datasets.load_dataset(where, config, split=split, revision=revision)
    except DataError:
        raise
    except ConnectionError:
        why = "it is no folder here, and the hub cannot be reached (offline?) nor does the local cache have it"
    except datasets.exceptions.DatasetNotFoundError:
        why = "it is no folder here, and the hub has no such dataset, or it is private or gated (then set HF_TOKEN)"
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        why = " ".join(str(error).split())[:400] or type(error).__name__
    asked = f"split {split!r}" + (f" of config {config!r}" if config else "")
    raise DataError(f"tasks hub: {path!r}, {asked}, cannot be loaded: {why}")


def _saved(data: Any, path: str, split: str) -> Any:
    """The split of what `save_to_disk` wrote: several by name, or a single one that may have none."""
    splits = data if isinstance(data, dict) else {str(data.split or "train"): data}
    if split not in splits:
        raise DataError(f"tasks hub: {path!r} has no split {split!r}; it has: {', '.join(splits)}")
    return splits[split]
