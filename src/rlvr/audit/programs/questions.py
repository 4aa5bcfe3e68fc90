"""The questions of the code corpus: programs whose worth is known, in the texts in which models hand them in.

What a program does was found by running it when the corpus was made (`make.py`); this file only reads that and puts
programs into texts. A text is right iff its last Python block is a right program. The same for every seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rlvr.audit.programs.cheats import hostile

DATA = Path(__file__).with_name("programs.jsonl")
FENCED = "```python\n{}\n```"
PLACED = 6  # texts around a problem's programs, of each table below; they take turns


class Program(NamedTuple):
    """`text` is what is handed in, all of it."""

    part: Literal["pairs", "hostile"]
    form: str
    gold: str  # one for each problem
    category: str
    rewrite: str
    text: str
    equal: bool


# (category, name, text): {c} is the right program, {w} a wrong one, {i} the right one, indented
_RIGHT = (
    ("fence", "py", "```py\n{c}```"),
    ("fence", "capitals", "```Python\n{c}```"),
    ("fence", "python3", "```python3\n{c}```"),
    ("fence", "tildes", "~~~python\n{c}~~~"),
    ("fence", "four backticks", "````python\n{c}````"),
    ("fence", "a space before the language", "``` python\n{c}```"),
    ("fence", "no language", "```\n{c}```"),
    ("fence", "more behind the language", '```python title="solution.py"\n{c}```'),
    ("fence", "indented, in a list", "1. This way:\n\n   ```python\n{i}   ```\n"),
    ("fence", "never closed", "The code:\n```python\n{c}"),
    ("fence", "at the very start and end", "```python\n{c}```"),
    ("prose", "around", "We go through the input once.\n\n```python\n{c}```\n\nIt takes linear time."),
    ("prose", "a heading", "## Solution\n\n```python\n{c}```\n\n**Complexity:** $O(n)$"),
    ("prose", "code in the line", "Use `def f(x): return x` as a start:\n\n```python\n{c}```\nNot `print(x)`."),
    ("prose", "after thoughts", "<think>\nMaybe\n```python\n{w}```\nNo, that is wrong.\n</think>\n\n```python\n{c}```"),
    ("prose", "long thoughts", "Hm, let me see. " * 2000 + "\n\n```python\n{c}```"),
    ("blocks", "a draft before it", "First:\n```python\n{w}```\nThat fails. Better:\n```python\n{c}```"),
    ("blocks", "output behind it", "```python\n{c}```\n\nIt prints:\n\n```text\n42\n```"),
    ("blocks", "output behind it, no language", "```python\n{c}```\n\nIt prints:\n\n```\n42\n```"),
    ("blocks", "JSON behind it", '```python\n{c}```\n\n```json\n{"answer": 42}\n```'),
    ("blocks", "a shell before it", "```bash\npip install numpy\n```\n\n```python\n{c}```"),
    ("blocks", "twice", "```python\n{c}```\n\nOnce more:\n\n```python\n{c}```"),
)
_WRONG = (
    ("placed", "the right one taken back", "```python\n{c}```\nNo, rather:\n```python\n{w}```"),
    ("placed", "in thoughts only", "<think>\n```python\n{c}```\n</think>\n\n```python\n{w}```"),
    ("placed", "an empty block behind it", "```python\n{c}```\n\n```python\n```"),
    ("placed", "prose only", "I would add up all numbers in a loop and return the total."),
    ("placed", "nothing", ""),
    ("placed", "another language", "```javascript\nfunction f(x) { return x; }\n```"),
    ("placed", "a promise", "```python\n# as above\n```"),
    ("placed", "in a comment", "```python\n{h}```"),
    ("placed", "in a text", "```python\nsolution = '''\n{c}'''\n```"),
)


def questions() -> Iterator[Program]:
    heads, programs = data()
    for number, (problem, head) in enumerate(heads.items()):
        asked = [
            (row["category"], row["rewrite"], FENCED.replace("{}", row["code"]), row["equal"])
            for row in programs[problem]
        ]
        asked += _placed(programs[problem], number)
        for category, rewrite, text, equal in asked:
            yield Program("pairs", head["form"], head["gold"], category, rewrite, text, equal)
    for category, rewrite, gold, text in hostile():
        yield Program("hostile", "asserts", gold, category, rewrite, text, False)


def _placed(rows: list[dict[str, Any]], number: int) -> Iterator[tuple[str, str, str, bool]]:
    """Some of both tables around a problem's reference and one of its mutations that loads and ends."""
    right = rows[0]["code"]
    wrong = next(
        row["code"] for row in rows if not row["equal"] and row["category"] in ("edge_case", "order", "printed")
    )
    marks = {
        "{c}": right, "{w}": wrong, "{i}": "".join(f"   {line}\n" for line in right.splitlines()),
        "{h}": "".join(f"# {line}\n" for line in right.splitlines()),
    }  # fmt: skip
    for table, equal in ((_RIGHT, True), (_WRONG, False)):
        for i in range(PLACED):
            category, rewrite, text = table[(number * PLACED + i) % len(table)]
            for mark, code in marks.items():
                text = text.replace(mark, code)
            yield category, rewrite, text, equal


@cache
def data() -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """(the problems, the programs of each)."""
    heads: dict[str, dict[str, Any]] = {}
    programs: dict[str, list[dict[str, Any]]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "gold" in row:
            heads[row["problem"]] = row
            programs[row["problem"]] = []
        else:
            programs[row["problem"]].append(row)
    return heads, programs
