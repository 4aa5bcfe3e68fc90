"""Model organisms: tiny models, bundled with the package, on which a learning curve takes a few minutes on one core.

`organisms.make` makes them by the settings in `organisms.table`; each folder is an ordinary Hugging Face checkpoint
with a card, `organism.json`, that records how it was made. `organisms.accept` measures them against what they are for
and leaves `acceptance.json` there.
"""

from __future__ import annotations

import difflib
from pathlib import Path

HERE = Path(__file__).parent
CARD = "organism.json"
WEIGHTS = "model.safetensors"
ACCEPTED = "acceptance.json"


def names() -> list[str]:
    """The bundled organisms."""
    return sorted(card.parent.name for card in HERE.glob(f"*/{CARD}"))


def folder(name: str) -> Path:
    """The checkpoint folder of a bundled organism. Raises ValueError with the names there are."""
    if name in names():
        return HERE / name
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names())}"
    raise ValueError(f"no organism {name!r} is bundled; {hint}")
