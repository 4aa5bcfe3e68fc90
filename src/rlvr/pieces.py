"""The border at which the plan calls pieces. Of a piece that fails, or returns something else than its slot promises,
one sentence says whose it is, in which slot, what was expected and what came.

Checks are of type, length and gradient, and of nan where a number enters the loss without being looked at again; the
engine looks at losses. They cost nothing beside a forward pass.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch, Tally
from rlvr.method import Placed
from rlvr.views import reads

PACKAGE = Path(__file__).parent


class PieceError(ValueError):
    """A piece failed, or broke its slot's promise; the message names both and the paper."""


def ask(placed: Placed, *given: Any) -> Any:
    """What the piece makes of these, its batch last; in the form that its slot promises. Raises PieceError."""
    back = guarded(placed, placed.piece, *given)
    return _FORMS[placed.slot](placed, back, given[-1])


def guarded(placed: Placed, function: Callable[..., Any], *given: Any) -> Any:
    """The call itself. What it raises becomes a PieceError that says where; out of memory stays what it is."""
    try:
        return function(*given)
    except (PieceError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a piece is somebody's own code, which may raise anything
        raise PieceError(f"{who(placed)} fails: {_said(error)}{_where(error)}") from error


def who(placed: Placed) -> str:
    """As in "my_paper's reshape MyPiece"."""
    piece = placed.piece
    name = type(piece).__name__ if is_dataclass(piece) else getattr(piece, "__name__", type(piece).__name__)
    return f"{placed.paper}'s {placed.slot} {name}"


def _said(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: Exception) -> str:
    """The last line of somebody else's code that the error went through."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if not Path(f.filename).is_relative_to(PACKAGE)]
    outside = [f for f in own if "site-packages" not in f.filename]
    return f" ({Path(outside[-1].filename).name}, line {outside[-1].lineno})" if outside else ""


# ---- what slots promise ----------------------------------------------------------------------------------
def refuse(placed: Placed, came: str, expected: str) -> PieceError:
    return PieceError(f"{who(placed)} returned {came}; expected {expected}")


def shown(x: Any) -> str:
    """A value that should not have come, in few words."""
    if isinstance(x, Tensor):
        return f"a tensor of shape {list(x.shape)}, {str(x.dtype).removeprefix('torch.')}"
    if x is None:
        return "None (is there a `return`?)"
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of {len(x)}"
    text = repr(x)
    return f"{type(x).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _per(per: str, batch: Batch) -> str:
    return (
        f"[R], one value a row (R = {len(batch)})" if per == "row" else f"[N], one value a token (N = {len(batch.row)})"
    )


def _tensor(placed: Placed, x: Any, per: str, batch: Batch, what: str, gradient: bool = False) -> Tensor:
    """x, when it is one number a row or token, on the batch's device, and detached unless it may carry gradient."""
    want = len(batch) if per == "row" else len(batch.row)
    if not isinstance(x, Tensor) or x.shape != (want,) or x.is_complex():
        raise refuse(placed, shown(x), f"{what} {_per(per, batch)}")
    _on(placed, x, batch, what)
    if x.requires_grad and not gradient:
        raise PieceError(f"{who(placed)} returned {what} that carries gradient; only `Now` may: write .detach()")
    return x


def _on(placed: Placed, x: Tensor, batch: Batch, what: str) -> None:
    if x.device != batch.length.device:
        raise refuse(
            placed, f"{what} on {x.device}", f"{batch.length.device}, where the batch is: device=batch.length.device"
        )


def _number(placed: Placed, x: Any, per: str, batch: Batch, what: str, everywhere: bool = False) -> Tensor:
    """A tensor of the batch's own floating-point type, without nan on known rows, or (`everywhere`) on any."""
    x = _tensor(placed, x, per, batch, what).to(batch["behavior_logp"].dtype)
    known = batch["known"] if per == "row" else batch.spread(batch["known"])
    bad = torch.isnan(x) if everywhere else torch.isnan(x) & known
    if bool(bad.any()):
        raise PieceError(
            f"{who(placed)} returned {what} with nan {_rows(bad, per, batch)}{_read_before(placed, bad, batch)}"
        )
    return x


def _rows(bad: Tensor, per: str, batch: Batch) -> str:
    rows = bad.nonzero()[:, 0] if per == "row" else torch.unique(batch.row[bad])
    ids = batch["id"][rows].tolist()
    return f"on rows {ids[:10]}" + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")


def _read_before(placed: Placed, bad: Tensor, batch: Batch) -> str:
    """Whether nan came in with a stream that the piece reads."""
    have = [name for name in sorted(reads(placed.piece)) if name in batch and batch[name].is_floating_point()]
    ill = [name for name in have if bool(torch.isnan(batch[name]).any())]
    return f"; {', '.join(ill)}, which it reads, {'has' if len(ill) == 1 else 'have'} nan too" if ill else ""


def _mapping(placed: Placed, back: Any, expected: str) -> Mapping[str, Any]:
    if not isinstance(back, Mapping) or not all(isinstance(name, str) for name in back):
        raise refuse(placed, shown(back), expected)
    return back


def _derived(placed: Placed, back: Any, batch: Batch) -> Mapping[str, Tensor]:
    promised = tuple(placed.piece.gives)
    told = _mapping(placed, back, f"a dictionary of the streams {', '.join(promised)}")
    if set(told) != set(promised):
        raise refuse(placed, f"the streams {', '.join(told) or '{}'}", f"those that it `gives`: {', '.join(promised)}")
    for name, x in told.items():
        per = streams.per(name)
        want = len(batch) if per == "row" else len(batch.row)
        if not isinstance(x, Tensor) or x.dim() == 0 or len(x) != want:
            raise refuse(placed, f"{name} = {shown(x)}", _per(per, batch))
        _on(placed, x, batch, name)
        if x.requires_grad:
            raise PieceError(f"{who(placed)} returned {name} that carries gradient; only `Now` may: write .detach()")
    return told


def _parts(placed: Placed, back: Any, batch: Batch) -> Mapping[str, Tensor]:
    """Parts of the reward, not yet weighted; 0 on rows without a verdict."""
    told = _mapping(placed, back, "a dictionary {part: [R]}")
    per = "token" if getattr(placed.piece, "per_token", False) else "row"
    out = {}
    for name, x in told.items():
        x = _tensor(placed, x, per, batch, f"reward part {name!r}").to(batch["behavior_logp"].dtype)
        known = batch["known"] if per == "row" else batch.spread(batch["known"])
        bad = known & ~torch.isfinite(x)
        if bool(bad.any()):
            raise PieceError(
                f"{who(placed)}: reward part {name!r} is not finite {_rows(bad, per, batch)}; a reward that cannot be "
                f"computed belongs in an unknown verdict, not in a number"
            )
        out[name] = torch.where(known, x, 0.0)
    return out


def _advantage(placed: Placed, back: Any, batch: Batch) -> Tensor:
    by_row = gives_rows(placed.piece)
    per, other = ("row", "token") if by_row else ("token", "row")
    if (
        isinstance(back, Tensor)
        and len(batch) != len(batch.row)
        and back.shape == (len(batch.row if by_row else batch),)
    ):
        write = "advantage" if by_row else "row_advantage"
        raise refuse(placed, f"one value a {other}", f'{_per(per, batch)}, or gives = ("{write}",)')
    return _number(placed, back, per, batch, "an advantage")


def gives_rows(piece: Any) -> bool:
    """Whether an advantage piece returns one value a row."""
    return "row_advantage" in getattr(piece, "gives", ("row_advantage",))


def _bounds(placed: Placed, back: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    if not isinstance(back, tuple | list) or len(back) != 2:
        raise refuse(placed, shown(back), f"clip_low and clip_high, each {_per('token', batch)}")
    low, high = (_number(placed, x, "token", batch, name) for name, x in zip(("clip_low", "clip_high"), back))
    return low, high


def _loss(placed: Placed, back: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tally]]:
    form = "token_loss [N] and {name: Tally}"
    if not isinstance(back, tuple | list) or len(back) != 2 or not isinstance(back[1], Mapping):
        raise refuse(placed, shown(back), form)
    loss, told = back
    if isinstance(loss, Tensor) and loss.shape != batch.row.shape:
        raise refuse(
            placed,
            f"a loss of shape {list(loss.shape)}",
            f"{_per('token', batch)}: lay a row's value on its tokens with batch.spread, and let the reduction reduce",
        )
    if isinstance(loss, Tensor) and not loss.is_floating_point():
        raise refuse(placed, shown(loss), "a loss of floating-point numbers")
    for name, tally in told.items():
        if not isinstance(tally, Tally):
            raise refuse(placed, f"{name} = {shown(tally)}", f"{form}, e.g. Tally.mean(x)")
    return _tensor(placed, loss, "token", batch, "a loss", gradient=True), told


def idle(placed: Placed, batch: Batch) -> Tensor:
    """[N] bool: tokens from which a loss can learn nothing; none where it does not say."""
    if not hasattr(placed.piece, "idle"):
        return torch.zeros_like(batch.row, dtype=torch.bool)
    back = _tensor(placed, guarded(placed, placed.piece.idle, batch), "token", batch, "`idle`")
    if back.dtype != torch.bool:
        raise refuse(placed, f"`idle` = {shown(back)}", "bool [N]: tokens from which nothing can be learned")
    return back


def wants(placed: Placed, group: Any) -> bool:
    """Whether a keep piece wants a group."""
    back = guarded(placed, placed.piece, group)
    if isinstance(back, bool) or type(back).__name__ in ("bool", "bool_"):  # numpy's too
        return bool(back)
    raise refuse(placed, shown(back), "True or False: whether the group is trained on")


def annotation(placed: Placed, back: Any) -> Mapping[str, Any]:
    """What an annotate piece added to a group; `pack` looks at lengths."""
    promised = tuple(placed.piece.gives)
    told = _mapping(placed, back, f"a dictionary of the streams {', '.join(promised)}")
    if set(told) != set(promised):
        raise refuse(placed, f"the streams {', '.join(told) or '{}'}", f"those that it `gives`: {', '.join(promised)}")
    return told


def tallies(placed: Placed, batch: Batch) -> Mapping[str, Tally]:
    """What a piece tells of a batch that it worked on, where it has something to tell."""
    if not hasattr(placed.piece, "tell"):
        return {}
    form = "from `tell`, {metric: Tally}"
    back = _mapping(placed, guarded(placed, placed.piece.tell, batch), form)
    for name, tally in back.items():
        if not isinstance(tally, Tally):
            raise refuse(placed, f"{name} = {shown(tally)}", f"{form}, e.g. Tally.mean(x)")
    return back


def phase_state(placed: Placed, state: Any) -> dict[str, Any]:
    """The state of a phases piece."""
    names = placed.piece.names
    if not isinstance(state, dict) or state.get("phase") not in names:
        raise refuse(placed, shown(state), f'a state, {{"phase": one of {", ".join(map(repr, names))}, ...}}')
    return state


_FORMS: dict[str, Callable[[Placed, Any, Batch], Any]] = {
    "derive": _derived,
    "reward": _parts,
    "advantage": _advantage,
    "reshape": lambda p, back, batch: _number(p, back, "token", batch, "an advantage"),
    "bounds": _bounds,
    "row_weight": lambda p, back, batch: _number(p, back, "row", batch, "a row weight", everywhere=True),
    "token_weight": lambda p, back, batch: _number(p, back, "token", batch, "a token weight", everywhere=True),
    "reduction": lambda p, back, batch: _number(p, back, "token", batch, "a factor", everywhere=True),
    "ratio": lambda p, back, batch: _tensor(p, back, "token", batch, "a ratio", gradient=True),
    "loss": _loss,
    "terms": _loss,
}
