"""Tasks from Parquet files, read a row group at a time; columns as `rows` says."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from os.path import commonpath
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError
from rlvr.tasks.rows import Raw, options_from, read_rows, table_rows


@register("tasks", "parquet")
def parquet(
    path: str | Path,
    limit: int | None = None,
    prompt: str | dict[str, str] | None = None,
    answer: dict[str, str] | None = None,
    id: dict[str, str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of a Parquet file, of all in a folder, or of those that a pattern such as "data/train-*.parquet" names.

    Files come in the order of their names. A row without `id` is called "<file without .parquet>:<row>", rows counted
    from 1. Columns as in `jsonl`; those of TRL, verl and verifiers are read as they are. `limit`: the first so many.

    Raises DataError: nothing there, no Parquet, columns or rows that cannot be used, each with file, row and id.
    """
    options = options_from(prompt, answer, id)
    files = _files(path)
    where = Path(path).expanduser()
    made_by = where.name if where.exists() else str(path)
    columns = _opened(files[0]).schema_arrow.names
    if any(_opened(file).schema_arrow.names != columns for file in files[1:]):
        columns = None
    source = str(files[0]) if len(files) == 1 else f"{path} ({len(files)} files)"
    return read_rows(_rows(files), source, made_by, options, limit, columns)


def _files(path: str | Path) -> list[Path]:
    where = Path(path).expanduser()
    if where.is_file():
        return [where]
    found = where.rglob("*.parquet") if where.is_dir() else map(Path, glob.glob(str(where), recursive=True))
    files = sorted(file for file in found if file.is_file())
    if not files:
        what = "holds no .parquet file" if where.is_dir() else "names no file; `path` is a file, a folder or a pattern"
        raise DataError(f"{path}: {what}")
    return files


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as Parquet ({str(error).splitlines()[0]})") from None


def _rows(files: list[Path]) -> Iterator[Raw]:
    root = commonpath([file.parent for file in files])
    for file in files:
        stem, number = file.relative_to(root).with_suffix("").as_posix(), 0
        for batch in _opened(file).iter_batches(batch_size=1024):
            for columns in table_rows(batch.to_pylist()):
                number += 1
                place = f"row {number}" if len(files) == 1 else f"row {number} of {file.name}"
                yield Raw(columns, place, f"{file}: row {number}", f"{stem}:{number}")
