"""`rlvr export`: what a run has learned, as a folder that other programs load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


class NothingToExport(ValueError):
    """The folder holds nothing that was learned; the message says what would."""


def export(
    what: Annotated[Path, typer.Argument(metavar="RUN_OR_CHECKPOINT", help="A run, its best/, or a checkpoint.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to.")],
    adapter: Annotated[
        bool, typer.Option("--adapter/--merged", help="The adapter alone (of a run with [lora]), or a whole model.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="float32, bfloat16, float16; default as it was trained.")
    ] = None,
) -> None:
    """Write a Hugging Face folder of what a run has learned.

    An adapter is added to the weights in float32 and only then made narrower.

    \b
    Examples:
      rlvr export runs/first --out my_model --dtype bfloat16
      rlvr export runs/first/best --out my_model
      rlvr export runs/first/checkpoints/step-00050 --out my_model
      rlvr export runs/first --adapter --out my_adapter      (for PEFT or vLLM)
    """
    learned = _learned(what)
    if adapter and learned.name != "adapter":
        raise NothingToExport(f"{what} trained all weights and has no adapter; leave out --adapter")
    from rlvr.engine.weights import fault_in

    if fault := fault_in(learned):
        raise NothingToExport(
            f"{fault}; export another checkpoint of the run, or its model/ or best/ where it is whole"
        )
    if learned.name != "adapter":
        from rlvr.engine.load import copy_model as write
    elif adapter:
        from rlvr.engine.adapter_files import copy_adapter as write
    else:
        from rlvr.engine.adapter_files import merge_adapter as write
    typer.echo(f"{write(learned, out, dtype)} is written")


def _learned(what: Path) -> Path:
    """The folder adapter/ or model/ of a run or checkpoint; a best/ is a model itself, perhaps with its adapter/."""
    from rlvr import best

    if not any((what / name).is_file() for name in ("recipe.toml", "state.json", best.TOLD)):
        raise NothingToExport(
            f"{what} is neither a run nor its best/ nor a checkpoint: it holds no recipe.toml, no {best.TOLD} and no "
            "state.json"
        )
    if (what / best.TOLD).is_file():
        return what / "adapter" if (what / "adapter").is_dir() else what
    found = [what / name for name in ("adapter", "model") if (what / name).is_dir()]
    if not found:
        from rlvr.checkpoint import newest

        raise NothingToExport(f"{what} did not come to its end; export its newest checkpoint: {newest(what)}")
    return found[0]
