"""Model text made harmless, and small pictures in characters: sparklines, bars, numbers.

Text that a model wrote is hostile: it may hold escape sequences that repaint a terminal and bidirectional controls that
turn a line around. `plain` makes it safe for one terminal line, `visible` for a page, where what was removed must still
be seen.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

# Payloads exclude every control character, so that a text of nothing but introducers is still read in linear time.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS: titles, clipboard
    r"|\x1b[ -/]*[0-~]?"  # everything else that starts with ESC
)
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_BLOCKS = "▁▂▃▄▅▆▇█"


def utf8(text: str) -> str:
    """The text with lone surrogates, which no file format takes, as '?'."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(text: str) -> str:
    """One line that is safe in a terminal: escape sequences, control, bidi and invisible characters are gone."""
    text = _ESCAPES.sub("", text)
    kept = (c if unicodedata.category(c)[0] != "C" else " " if c in "\n\t\r\x0b\x0c\x85" else "" for c in text)
    return " ".join("".join(kept).split())


def visible(text: str) -> str:
    """The text for a page: newlines and tabs kept, every control, bidi and invisible character named (␛, ⟨U+202E⟩)."""

    def show(match: re.Match[str]) -> str:
        code = ord(match[0])
        return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"

    return _HIDDEN.sub(show, text.replace("\r\n", "\n"))


def short(text: str, width: int, tail: float = 0.6) -> str:
    """`plain` text in at most `width` cells; `tail` of the room shows its end, where answers are."""
    if width < 8:
        return set_cell_size(plain(text[: 8 * width + 64]), width).rstrip() if width > 0 else ""
    room = 4 * width + 400  # cleaning a whole long response for one line would waste the step's time
    if len(text) > 2 * room:
        text = text[:room] + " " + text[-room:]
    text = plain(text)
    if cell_len(text) <= width:
        return text
    last = int((width - 3) * tail)
    first = width - 3 - last
    return set_cell_size(text, first).rstrip() + " … " + set_cell_size(text[::-1], last)[::-1].lstrip()


def sparkline(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """All values in at most `width` characters of eight heights, lowest to highest.

    More values than characters: each shows the mean of its share. nan is a gap. Equal values sit in the middle (▄).
    """
    n = len(values)
    if n == 0 or width < 1:
        return ""
    cells = [_mean(values[i * n // width : (i + 1) * n // width]) for i in range(width)] if n > width else list(values)
    seen = [v for v in cells if math.isfinite(v)]
    if not seen:
        return " " * len(cells)
    bottom, top = min(seen) if low is None else low, max(seen) if high is None else high
    if top <= bottom:
        return "".join("▄" if math.isfinite(v) else " " for v in cells)
    scaled = ((v - bottom) / (top - bottom) if math.isfinite(v) else None for v in cells)
    return "".join(" " if s is None else _BLOCKS[min(7, max(0, int(s * 8)))] for s in scaled)


def shares(parts: Sequence[float], width: int) -> list[int]:
    """`width` characters dealt to the parts in proportion, largest remainder first; all 0 when no part is positive."""
    parts = [p if math.isfinite(p) and p > 0 else 0.0 for p in parts]
    total = sum(parts)
    if total <= 0 or width < 1:
        return [0] * len(parts)
    exact = [p / total * width for p in parts]
    dealt = [int(e) for e in exact]
    for i in sorted(range(len(parts)), key=lambda i: (dealt[i] - exact[i], i))[: width - sum(dealt)]:
        dealt[i] += 1
    return dealt


def number(value: float, digits: int = 3) -> str:
    """A number for people: three significant digits, 12.3k, 1.2e-6; an en dash when it is not finite."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 999_500 or size < 1e-3:
        power, exponent = f"{value:.{digits - 2}e}".split("e")
        return f"{power}e{int(exponent)}"
    if size >= 9999.5:
        return f"{value / 1000:.{digits}g}k"
    return f"{value:.0f}" if size >= 100 else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """0.123 as '12.3%'; an en dash when it is not finite."""
    return "–" if not math.isfinite(share) else f"{100 * share:.0f}%" if abs(share) >= 0.1 else f"{100 * share:.1f}%"


def ended(status: str, seconds: float) -> str:
    """How a run ended and how long it took: "finished after 45s", or a longer status with the time behind it."""
    after = f"after {clock(seconds)}"
    return f"{plain(status)} {after}" if " " not in status else f"{plain(status)} ({after})"


def clock(seconds: float) -> str:
    """'45s', '12:03', '3:04:05', '2d 03h'; an en dash when it is not finite."""
    if not math.isfinite(seconds) or seconds < 0:
        return "–"
    s = int(seconds)
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}:{s % 60:02d}"
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d}" if s < 86400 else f"{s // 86400}d {s // 3600 % 24:02d}h"


def _mean(values: Sequence[float]) -> float:
    seen = [v for v in values if math.isfinite(v)]
    return sum(seen) / len(seen) if seen else math.nan
