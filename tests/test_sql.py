"""The `sql` verifier: what results are equal, what a query may not do, and whose fault is what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.records import Task
from rlvr.verify.spec import verifier_from
from rlvr.verify.sql import Sql
from rlvr.verify.verifier import VerifierBroken

pytest.importorskip("duckdb")

SETUP = """
CREATE TABLE people(id INTEGER, name VARCHAR, age INTEGER, pay DOUBLE, city VARCHAR);
INSERT INTO people VALUES (1, 'Ann', 30, 1.5, 'Oslo'), (2, 'Bob', 30, 2.5, NULL), (3, 'Cid', 41, 0.1, 'Rome'),
  (4, 'Dan', 25, 0.2, 'Rome'), (5, 'Eve', 25, 0.3, '');
"""


@pytest.fixture(scope="module")
def plain() -> Iterator[Sql]:
    verifier = Sql(fenced=False)
    yield verifier
    verifier._worker.stop()


def task(gold: Any, setup: Any = SETUP) -> Task:
    return Task("t1", "Write a query.", gold, meta={"setup": setup})


def outcome(verifier: Sql, query: str, gold: Any) -> tuple[str, str]:
    found = verifier(query, task(gold))
    return found.label, found.reason


SAME = [
    ("SELECT name FROM people", "SELECT name FROM people ORDER BY id DESC", True),  # a multiset
    ("SELECT age FROM people", "SELECT DISTINCT age FROM people", False),  # of which duplicates count
    ("SELECT id, name FROM people", "SELECT name, id FROM people", False),
    ("SELECT id AS a FROM people", "SELECT id AS b FROM people", True),
    ("SELECT id FROM people", "SELECT id, id FROM people", False),
    ("SELECT count(*) FROM people", "SELECT 5::TINYINT", True),  # widths are not types
    ("SELECT 2::HUGEINT ** 0 * 12345678901234567890123", "SELECT 12345678901234567890124", False),
    ("SELECT 1", "SELECT '1'", False),
    ("SELECT 1", "SELECT true", False),
    ("SELECT 1", "SELECT 1.0::DOUBLE", False),
    ("SELECT 1.50::DECIMAL(4,2)", "SELECT 1.5::DECIMAL(9,3)", True),
    ("SELECT 1.5::DECIMAL(4,2)", "SELECT 1.5::DOUBLE", False),
    ("SELECT 0.1::DOUBLE + 0.2::DOUBLE", "SELECT 0.3::DOUBLE", True),
    ("SELECT 0.3::DOUBLE", "SELECT 0.301::DOUBLE", False),
    ("SELECT NULL", "SELECT 0", False),
    ("SELECT NULL", "SELECT ''", False),
    ("SELECT NULL", "SELECT NULL::DOUBLE", True),
    ("SELECT 'nan'::DOUBLE", "SELECT 'nan'::DOUBLE", True),
    ("SELECT 'nan'::DOUBLE", "SELECT NULL::DOUBLE", False),
    ("SELECT 'inf'::DOUBLE", "SELECT '-inf'::DOUBLE", False),
    ("SELECT city FROM people WHERE id = 5", "SELECT city FROM people WHERE id = 2", False),
    ("SELECT DATE '2020-01-01'", "SELECT '2020-01-01'", False),
    ("SELECT [1, 2]", "SELECT [2, 1]", False),
    ("SELECT {'a': 1.5::DOUBLE}", "SELECT {'a': 0.5::DOUBLE + 1}", True),
    ("SELECT {'a': 1}", "SELECT {'b': 1}", False),
    ("SELECT name FROM people WHERE false", "SELECT name FROM people WHERE id > 99", True),
    ("SELECT name FROM people WHERE false", "SELECT name FROM people", False),
    ("SELECT 'a'::BLOB", "SELECT 'a'", False),
    (
        "SELECT pay, id FROM people",
        "SELECT CASE id WHEN 1 THEN 2.5 WHEN 2 THEN 1.5 ELSE pay END, id FROM people",
        False,
    ),
]


@pytest.mark.parametrize(("gold", "query", "equal"), SAME)
def test_results_are_equal_by_type_and_as_multisets(plain: Sql, gold: str, query: str, equal: bool) -> None:
    assert outcome(plain, query, gold) == (("right", "equal") if equal else ("wrong", "different"))
    assert outcome(plain, gold, gold) == ("right", "equal")


ORDERED = [
    ("SELECT name FROM people ORDER BY id", "SELECT name FROM people", True),  # as it happens: they are stored so
    ("SELECT name FROM people ORDER BY id", "SELECT name FROM people ORDER BY id DESC", False),
    ("SELECT name, age FROM people ORDER BY age", "SELECT name, age FROM people ORDER BY age, id DESC", True),  # ties
    ("SELECT name, age FROM people ORDER BY age", "SELECT name, age FROM people ORDER BY age DESC", False),
    ("SELECT name, age FROM people ORDER BY 2 DESC", "SELECT name, age FROM people ORDER BY age DESC, name DESC", True),
    ("SELECT name AS n, age FROM people ORDER BY n", "SELECT name, age FROM people ORDER BY name", True),
    ("SELECT name FROM people ORDER BY age", "SELECT name FROM people ORDER BY age, id DESC", False),  # a hidden key
    ("(SELECT 1 AS a) UNION ALL (SELECT 2) ORDER BY a DESC", "SELECT 2 UNION ALL SELECT 1 ORDER BY 1 DESC", True),
    ("SELECT * FROM (SELECT id FROM people ORDER BY id) LIMIT 5", "SELECT id FROM people ORDER BY id DESC", True),
]


@pytest.mark.parametrize(("gold", "query", "equal"), ORDERED)
def test_order_counts_where_the_gold_orders(plain: Sql, gold: str, query: str, equal: bool) -> None:
    assert outcome(plain, query, gold)[0] == ("right" if equal else "wrong")


def test_the_policies_are_switches(plain: Sql) -> None:
    def label(query: str, gold: str, **settings: Any) -> str:
        verifier = Sql(fenced=False, **settings)
        object.__setattr__(verifier, "_worker", plain._worker)
        return verifier(query, task(gold)).label

    backwards = "SELECT id FROM people ORDER BY id DESC"
    assert label(backwards, "SELECT id FROM people ORDER BY id", order="never") == "right"
    assert label(backwards, "SELECT id FROM people", order="always") == "wrong"
    assert label("SELECT name, id FROM people", "SELECT id, name FROM people", names=True) == "right"
    assert label("SELECT id AS x, name FROM people", "SELECT id, name FROM people", names=True) == "wrong"
    assert label("SELECT 2.0::DOUBLE", "SELECT 2", ints_as_floats=True) == "right"
    assert label("SELECT 2.0::DECIMAL(3,1)", "SELECT 2", ints_as_floats=True) == "right"
    assert label("SELECT true", "SELECT 1", ints_as_floats=True) == "wrong"
    assert label("SELECT 2.1::DOUBLE", "SELECT 2.0::DOUBLE", tolerance=0.1) == "right"
    assert label("SELECT 0.1::DOUBLE + 0.2::DOUBLE", "SELECT 0.3::DOUBLE", tolerance=0.0) == "wrong"


def test_near_numbers_are_matched_whatever_the_order_of_rows(plain: Sql) -> None:
    gold = "SELECT unnest([1.0, 1.0 + 1e-12, 5.0])::DOUBLE, unnest([9.0, 1.0, 0.0])::DOUBLE"
    other = "SELECT unnest([1.0 + 1e-12, 1.0, 5.0])::DOUBLE, unnest([9.0, 1.0, 0.0])::DOUBLE"
    assert outcome(plain, other, gold) == ("right", "equal")
    assert outcome(plain, other.replace("9.0", "8.0"), gold) == ("wrong", "different")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "no_answer"), ("SELEC 1", "sql_error"), ("SELECT nope FROM people", "sql_error"),
        ("SELECT 1; SELECT 5", "not_a_query"),
        ("DROP TABLE people", "not_a_query"), ("SET threads = 4", "not_a_query"),
        ("INSERT INTO people VALUES (9)", "not_a_query"), ("COPY people TO '{out}'", "not_a_query"),
        ("ATTACH '{out}'", "not_a_query"), ("INSTALL httpfs", "not_a_query"), ("LOAD httpfs", "not_a_query"),
        ("SELECT * FROM read_csv('{file}')", "sql_error"), ("SELECT * FROM read_text('{file}')", "sql_error"),
        ("SELECT * FROM glob('/*')", "sql_error"), ("SELECT * FROM '{file}'", "sql_error"),
        ("SELECT getenv('HOME')", "sql_error"), ("EXPLAIN SELECT 1", "not_a_query"), ("COMMIT", "not_a_query"),
        ("SELECT * FROM range(20000)", "over_limit"), ("SELECT 1" + " " * 100_000 + "+ 1", "over_limit"),
        ("WITH x AS (DELETE FROM people RETURNING id) SELECT * FROM x", "sql_error"),
    ],
)  # fmt: skip
def test_what_a_query_may_not_do_is_wrong(plain: Sql, tmp_path: Path, query: str, reason: str) -> None:
    out = tmp_path / "out"
    query = query.format(out=out, file=__file__)
    assert outcome(plain, query, "SELECT count(*) FROM people") == ("wrong", reason)
    assert not out.exists()
    assert outcome(plain, "SELECT 5", "SELECT count(*) FROM people") == ("right", "equal")


def test_a_query_that_does_not_end_is_killed_and_the_next_one_runs() -> None:
    verifier = Sql(fenced=False, seconds=1.0, memory_mb=128)
    assert outcome(verifier, "SELECT 1", "SELECT 1")[0] == "right"
    began = time.monotonic()
    endless = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE (a.range * b.range) % 7 = 3"
    assert outcome(verifier, endless, "SELECT 1") == ("wrong", "timeout")
    assert time.monotonic() - began < 5
    assert outcome(verifier, "SELECT 1", "SELECT 1")[0] == "right"
    hungry = "SELECT list(a.range) FROM range(100000000) a"
    assert outcome(verifier, hungry, "SELECT 1")[1] in ("sql_error", "timeout")
    verifier._worker.stop()


@pytest.mark.parametrize(
    ("gold", "setup", "reason"),
    [
        (None, SETUP, "the answer is a query"), ("", SETUP, "the answer is a query"), ("SELECT 1", 7, "meta['setup']"),
        ("SELECT nope", SETUP, "sql_error"), ("SELECT 1", "CREATE TABLE", "setup"),
        ("SELECT 1; SELECT 2", SETUP, "not_a_query"),
        ("SELECT * FROM range(20000)", SETUP, "over_limit"),
    ],
)  # fmt: skip
def test_a_fault_of_the_gold_is_unknown(plain: Sql, gold: Any, setup: Any, reason: str) -> None:
    found = plain("SELECT 1", task(gold, setup))
    assert found.label == "unknown"
    assert found.reason.startswith("bad_gold: ")
    assert reason in found.reason


def test_a_sequence_does_not_count_from_one_query_to_the_next(plain: Sql) -> None:
    setup = "CREATE SEQUENCE s; CREATE TABLE t AS SELECT 1 AS a"
    assert plain("SELECT nextval('s')", task("SELECT a FROM t", setup)).reason == "sql_error"


def test_the_query_stands_in_the_last_sql_block(plain: Sql) -> None:
    verifier = Sql()
    object.__setattr__(verifier, "_worker", plain._worker)
    text = "First\n```sql\nSELECT 2\n```\nno:\n```sql\nSELECT 1\n```\nDone."
    assert outcome(verifier, text, "SELECT 1") == ("right", "equal")
    assert outcome(verifier, "SELECT 1", "SELECT 1") == ("wrong", "no_answer")


def test_settings_are_checked_and_a_missing_database_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verifier_from("sql(names=True)") == Sql(names=True)
    with pytest.raises(ValueError, match="order is"):
        Sql(order="sometimes")  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(VerifierBroken, match=r"pip install 'rlvr\[sql\]'"):
        Sql()("SELECT 1", task("SELECT 1"))
