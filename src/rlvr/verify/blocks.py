"""Where an answer stands in a fenced block of Markdown: finding the last one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection

# Possessive, so that no line makes the search go back.
_FENCE = re.compile(r"[ \t]{0,40}+(`{3,}+|~{3,}+)[ \t]{0,8}+([\w+#.-]{0,40}+)([^\n]*)")


def last_block(text: str, languages: Collection[str]) -> str | None:
    """The content of the last fenced block in one of these languages, else of the last without a language, else None.

    Languages are compared in lower case. As in CommonMark a block ends at a fence of its own kind that is no shorter,
    and one that is never closed runs to the end of the text. Indentation common to the block is removed.
    """
    named = bare = None
    opened: tuple[str, str] | None = None  # (fence, language)
    content: list[str] = []
    for line in [*text.splitlines(keepends=True), None]:
        fence = None if line is None else _FENCE.match(line)
        if opened is None:
            if fence is not None and not (fence[1][0] == "`" and "`" in fence[3]):
                opened, content = (fence[1], fence[2].lower()), []
            continue
        closes = fence is not None and fence[1].startswith(opened[0]) and not fence[2] and not fence[3].strip()
        if line is not None and not closes:
            content.append(line)
        elif opened[1] in languages:
            named = content
        elif not opened[1]:
            bare = content
        if closes:
            opened = None
    found = bare if named is None else named
    return None if found is None else textwrap.dedent("".join(found))
