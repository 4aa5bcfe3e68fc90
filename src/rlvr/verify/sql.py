"""The `sql` verifier: a query gives the same result as the gold query, on the same tables.

Both run in DuckDB, in memory, in read-only transactions, in a process of its own that is killed at its deadline,
without files, network, extensions or settings (`enable_external_access=false`, `lock_configuration=true`). The dialect
is DuckDB's. Needs the extra `sql` (duckdb).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.sandbox.wire import Tree, tree_of
from rlvr.verify.blocks import last_block
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import LONGEST_ANSWER, LONGEST_TEXT, VerifierBroken, fingerprint, right, unknown, wrong
from rlvr.verify.worker import Handler, Worker, WorkerFailed

GREEDY_ROWS = 1000  # rows that differ in floats alone and are matched one by one; ours
ROOM_MB = 2048  # address space beyond the database's own limit: the interpreter, its libraries, their arenas


@register("verifier", "sql")
@dataclass(frozen=True, slots=True)
class Sql:
    """Right iff the last SQL block gives the rows of the gold query. `task.meta["setup"]` is SQL that makes the tables.

    Rows are compared as a multiset, and in order if the gold ends in ORDER BY (`order` "always", "never"); rows that
    tie in the gold's order may come in any order, where its keys are columns of the result. Columns are compared by
    position, or by name (`names=True`, in any order). Values are compared by type: 1 is not '1' nor true, nor 1.0
    unless `ints_as_floats`; NULL equals NULL and nothing else; floats are near within `tolerance` (relative and
    absolute: sums depend on their order), decimals compare by value. `fenced=False` takes the whole text as the query.

    Reasons: "equal", "different", "no_answer", "not_a_query" (anything but one SELECT), "sql_error", "timeout",
    "over_limit" (rows, or 100 000 characters), "crash" (memory); unknown: "bad_gold: ...". Gold queries that take over
    `seconds`, `most_timeouts` on end, stop the run. Raises VerifierBroken without duckdb.
    """

    order: Literal["gold", "always", "never"] = "gold"
    names: bool = False
    ints_as_floats: bool = False
    tolerance: float = 1e-9
    max_rows: int = 10_000
    seconds: float = 10.0
    memory_mb: int = 512
    fenced: bool = True
    most_timeouts: int = MOST_TIMEOUTS
    _worker: Worker = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)
    _gold: Callable[[str, str], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.order not in ("gold", "always", "never"):
            raise ValueError(f"sql: order is 'gold', 'always' or 'never', not {self.order!r}")
        if not (self.seconds > 0 and self.memory_mb > 0 and self.max_rows > 0 and 0 <= self.tolerance < 1):
            raise ValueError("sql: seconds, memory_mb and max_rows are above 0, tolerance is in [0, 1)")
        settings = {"memory_mb": self.memory_mb, "max_rows": self.max_rows}
        object.__setattr__(self, "_worker", Worker("rlvr.verify.sql:open_database", settings))
        object.__setattr__(self, "_patience", Patience("sql: a gold query", self.seconds, self.most_timeouts))
        object.__setattr__(self, "_gold", lru_cache(256)(self._run))

    @property
    def fingerprint(self) -> str:
        return fingerprint("sql", self)

    def prepare(self) -> None:
        if importlib.util.find_spec("duckdb") is None:
            raise VerifierBroken("the verifier sql needs DuckDB: pip install 'rlvr[sql]'")

    def __call__(self, text: str, task: Task) -> Verdict:
        self.prepare()
        setup = task.meta.get("setup", "")
        if not (isinstance(task.answer, str) and task.answer.strip() and isinstance(setup, str)):
            return unknown("bad_gold: the answer is a query and meta['setup'] the SQL that makes its tables")
        if len(text) > LONGEST_TEXT:
            return wrong("over_limit")
        query = last_block(text, ("sql", "duckdb", "postgresql", "sqlite")) if self.fenced else text
        if query is None or not query.strip():
            return wrong("no_answer")
        if len(query) > LONGEST_ANSWER:
            return wrong("over_limit", query)
        try:
            gold = self._gold(setup, task.answer)
        except TimeoutError:
            self._patience.overran(task.id)
            return unknown("bad_gold: timeout")
        except WorkerFailed as error:
            self._patience.answered()
            self._patience.heard.failed("failed", f"task {task.id}: the gold query gave no result: {error}")
            return unknown(f"bad_gold: {error}"[:300])
        self._patience.answered()
        if "fault" in gold:
            return unknown(f"bad_gold: {gold['fault']}: {gold['detail']}"[:300])
        try:
            got = self._run(setup, query)
        except TimeoutError:
            return wrong("timeout", query)
        except WorkerFailed:
            return wrong("crash", query)
        if "fault" in got:
            return wrong(got["fault"], query)
        return right(query) if self._same(got, gold) else wrong("different", query)

    def _run(self, setup: str, query: str) -> Any:
        return self._worker.ask(json.dumps({"setup": setup, "query": query}), self.seconds)

    def _same(self, got: Mapping[str, Any], gold: Mapping[str, Any]) -> bool:
        rows: list[list[Tree]] = got["rows"]
        if len(got["columns"]) != len(gold["columns"]) or len(rows) != len(gold["rows"]):
            return False
        if self.names:
            ours, theirs = ([name.casefold() for name in result["columns"]] for result in (got, gold))
            if sorted(ours) != sorted(theirs):
                return False
            if len(set(ours)) == len(ours):
                places = [ours.index(name) for name in theirs]
                rows = [[row[place] for place in places] for row in rows]
        keys = {"gold": gold["order"], "always": [], "never": None}[self.order]
        start = 0
        for block in [gold["rows"]] if keys is None else _ties(gold["rows"], keys):
            if not self._same_rows(rows[start : start + len(block)], block):
                return False
            start += len(block)
        return True

    def _same_rows(self, got: list[list[Tree]], wanted: list[list[Tree]]) -> bool:
        """As multisets. Rows that agree in all but numbers that may be near are matched among themselves."""
        ours, theirs = self._alike(got), self._alike(wanted)
        if {k: len(v) for k, v in ours.items()} != {k: len(v) for k, v in theirs.items()}:
            return False
        return all(self._matched(sorted(ours[key]), sorted(rows)) for key, rows in theirs.items())

    def _alike(self, rows: list[list[Tree]]) -> dict[str, list[list[float]]]:
        """{the row without its numbers: the numbers of each such row}"""
        groups: dict[str, list[list[float]]] = defaultdict(list)
        for row in rows:
            numbers: list[float] = []
            rest = [self._without_numbers(cell, numbers) for cell in row]
            groups[json.dumps(rest)].append(numbers)
        return groups

    def _without_numbers(self, cell: Tree, numbers: list[float]) -> Tree:
        if isinstance(cell, list):
            return [self._without_numbers(x, numbers) for x in cell]
        value: float | None = None
        if isinstance(cell, dict):
            ((tag, body),) = cell.items()
            if tag == "f":
                value = float(body)
            elif self.ints_as_floats and tag in "iD":
                value = float(int(body, 16) if tag == "i" else body)
            elif isinstance(body, list):
                return {tag: [self._without_numbers(x, numbers) for x in body]}
        elif self.ints_as_floats and type(cell) is int:
            value = float(cell)
        if value is None or not math.isfinite(value):
            return cell
        numbers.append(value)
        return "number"

    def _matched(self, got: list[list[float]], wanted: list[list[float]]) -> bool:
        if all(self._near(a, b) for a, b in zip(got, wanted)):
            return True
        if len(got) > GREEDY_ROWS:
            return False
        left = list(got)
        for row in wanted:
            found = next((i for i, other in enumerate(left) if self._near(other, row)), None)
            if found is None:
                return False
            del left[found]
        return True

    def _near(self, a: Sequence[float], b: Sequence[float]) -> bool:
        return all(math.isclose(x, y, rel_tol=self.tolerance, abs_tol=self.tolerance) for x, y in zip(a, b))


def _ties(rows: list[list[Tree]], keys: Sequence[int]) -> list[list[list[Tree]]]:
    """Runs of rows that agree in the key columns; without keys every row stands alone."""
    blocks: list[list[list[Tree]]] = []
    for row in rows:
        if blocks and keys and all(blocks[-1][-1][key] == row[key] for key in keys):
            blocks[-1].append(row)
        else:
            blocks.append([row])
    return blocks


# The worker's side


def open_database(settings: Mapping[str, Any]) -> tuple[None, Handler]:
    """Answers {"setup", "query"} with {"columns", "rows", "order"} or {"fault", "detail"}."""
    import resource

    import duckdb

    most = (settings["memory_mb"] + ROOM_MB) << 20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": f"{settings['memory_mb']}MB",
        "threads": "1",
        "lock_configuration": "true",
    }
    made: dict[str, Any] = {}  # {setup: its database}, the last one: a task's rollouts come together

    def answer(question: Mapping[str, str]) -> dict[str, Any]:
        setup = question["setup"]
        if setup not in made:
            while made:
                made.popitem()[1].close()
            database = duckdb.connect(":memory:", config=config)
            try:
                if setup.strip():
                    database.execute(setup)
            except duckdb.Error as error:
                database.close()
                return {"fault": "setup", "detail": str(error)[:300]}
            made[setup] = database
        with made[setup].cursor() as cursor:
            try:
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                return _answered(cursor, question["query"], settings["max_rows"])
            except duckdb.Error as error:
                return {"fault": "sql_error", "detail": str(error)[:300]}

    return None, answer


def _answered(cursor: Any, query: str, most: int) -> dict[str, Any]:
    statements = cursor.extract_statements(query)
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        return {"fault": "not_a_query", "detail": "write one SELECT"}
    rows = cursor.execute(query).fetchmany(most + 1)
    if len(rows) > most:
        return {"fault": "over_limit", "detail": f"more than {most} rows"}
    columns = [column[0] for column in cursor.description]
    parsed = json.loads(cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()[0])
    cells = [[tree_of(x, _cell) for x in row] for row in rows]
    return {"columns": columns, "rows": cells, "order": _order(parsed, columns)}


def _cell(value: Any) -> Tree:
    """Types of SQL that are none of Python's plain ones: decimals by value, the others by type and text."""
    kind = type(value).__name__
    return {"D": str(value.normalize())} if kind == "Decimal" else {kind: str(value)}


def _order(parsed: Mapping[str, Any], columns: Sequence[str]) -> list[int] | None:
    """Result columns that the query ends in ordering by; [] where a key is no such column; None without ORDER BY."""
    if parsed.get("error"):
        return None
    names = [name.casefold() for name in columns]
    for modifier in parsed["statements"][0]["node"]["modifiers"]:
        if modifier["type"] == "ORDER_MODIFIER":
            keys = [_column(order["expression"], names) for order in modifier["orders"]]
            return [] if None in keys else [key for key in keys if key is not None]
    return None


def _column(expression: Mapping[str, Any], names: Sequence[str]) -> int | None:
    if expression["class"] == "COLUMN_REF":
        name = expression["column_names"][-1].casefold()
        return names.index(name) if names.count(name) == 1 else None
    if expression["class"] == "CONSTANT":  # a position; its spelling differs between versions of DuckDB
        text = str(expression.get("literal", {}).get("text") or expression.get("value", {}).get("value"))
        return int(text) - 1 if text.isdigit() and 0 < int(text) <= len(names) else None
    return None
