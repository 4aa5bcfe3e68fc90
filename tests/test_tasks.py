"""Task families: golds by hand, solutions by a second method, splits, and the countdown verifier; the word problems."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import operator
import random
import re
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from types import ModuleType

import pytest

from rlvr.records import Task
from rlvr.registry import get
from rlvr.tasks import DataError
from rlvr.tasks.synthetic import choice, countdown, modular_chains, running_sums
from rlvr.verify.countdown import CountdownVerifier, Unparsable, parse
from rlvr.verify.spec import verifier_from

FAMILIES = (running_sums, modular_chains, choice, countdown)
DATA = Path(__file__).parent.parent / "recipes" / "data"
OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def by_id(tasks: tuple[Task, ...], id: str) -> Task:
    return next(t for t in tasks if t.id == id)


def python_value(expression: str) -> int:
    """What Python's own grammar makes of + - * and parentheses: a second method, without eval."""

    def walk(node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            return node.value
        assert isinstance(node, ast.BinOp)
        sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(node.op)]
        return OPS[sign](walk(node.left), walk(node.right))

    return walk(ast.parse(expression, mode="eval").body)


# families


def test_a_running_sum_worked_by_hand() -> None:
    task = by_id(running_sums(200, levels=(2, 2)) + running_sums(80, split="eval", levels=(2, 2)), "running_sums/08+16")
    assert (task.prompt, task.answer, task.meta["steps"]) == ("08+16=", "24", ["24"])
    assert task.meta["demo"] == "24#24"
    assert task.meta["level"] == 2


def test_a_modular_chain_worked_by_hand() -> None:
    # 2+1 = 3; 3+11 = 14 = 2 mod 12; 2*10 = 20 = 8 mod 12
    task = by_id(modular_chains(2000), "modular_chains/2;+1;+11;*10%12")
    assert task.prompt == "2;+1;+11;*10%12="
    assert task.meta["steps"] == ["2+1=3", "3+11=2", "2*10=8"]
    assert task.meta["demo"] == "2+1=3\n3+11=2\n2*10=8\n#8"
    assert task.answer == "8"


def test_a_choice_worked_by_hand() -> None:
    # 7*12 = 84, 84*7 = 588, 11+588 = 599; somebody who works from left to right gets 18*84 = 1512
    task = by_id(choice(2000), "choice/11+7*12*7")
    assert task.meta["steps"] == ["7*12=84", "84*7=588", "11+588=599"]
    assert task.meta["options"][task.answer] == "599"
    assert "1512" in task.meta["options"].values()


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_running_sum_demo_is_right(split: str) -> None:
    for t in running_sums(800, split=split):
        terms = [int(x) for x in t.prompt.removesuffix("=").split("+")]
        sums = list(accumulate(terms))[1:]
        assert max(sums) <= 99
        assert t.meta["demo"] == ",".join(f"{s:02d}" for s in sums) + f"#{sum(terms):02d}"
        assert int(t.answer) == sum(terms)


def test_every_modular_chain_demo_is_right() -> None:
    for t in modular_chains(800):
        chain, m = t.prompt.removesuffix("=").split("%")
        start, *links = chain.split(";")
        whole = int(start)  # exact integers, reduced once at the end
        for k, link in enumerate(links):
            whole = OPS[link[0]](whole, int(link[1:]))
            left, shown = t.meta["steps"][k].split("=")
            assert left.endswith(link)
            assert int(shown) == whole % int(m)
        assert t.answer == str(whole % int(m))
        assert t.meta["demo"].split("\n") == [*t.meta["steps"], f"#{t.answer}"]


def test_every_choice_has_one_right_option_and_a_right_demo() -> None:
    letters = Counter()
    for t in choice(800):
        question, _, rest = t.prompt.partition("?\n")
        products = re.findall(r"[+-]?[\d*]+", question)
        value = sum((-1 if p[0] == "-" else 1) * math.prod(int(x) for x in p.strip("+-").split("*")) for p in products)
        options = dict(line.split(":") for line in rest.splitlines()[:-1])
        assert [k for k, v in options.items() if int(v) == value] == [t.answer]
        assert len(set(options.values())) == 4
        assert t.meta["options"] == options
        assert t.meta["demo"].endswith(f"\n#{t.answer}")
        assert int(t.meta["steps"][-1].split("=")[1]) == value
        letters[t.answer] += 1
    assert min(letters.values()) > 150  # of 800; a fair draw gives 200, standard deviation 12


def test_every_countdown_demo_reaches_its_target_with_the_given_numbers() -> None:
    for t in countdown(800):
        given, target = t.prompt.removesuffix("=").split(":")
        expression = t.meta["demo"].rpartition("#")[2]
        assert python_value(expression) == int(target) == int(t.answer)
        assert sorted(re.findall(r"\d+", expression), key=int) == given.split(",")
        for step in t.meta["steps"]:
            left, right = step.split("=")
            assert python_value(left) == int(right)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_named_verifier_accepts_every_demo_and_refuses_a_neighbour(family) -> None:
    for t in family(200):
        judge = verifier_from(t.verifier)
        assert judge(t.meta["demo"], t).label == "right"
        assert judge("", t).label == "wrong"
        spoiled = t.meta["demo"].rpartition("#")[0] + ("#E" if family is choice else "#1000")
        assert judge(spoiled, t).label == "wrong"


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_repeat_by_seed_and_splits_share_no_question(family) -> None:
    random.seed(0)
    state = random.getstate()
    first = family(500, seed=3)
    assert random.getstate() == state  # no global random numbers
    assert family(500, seed=3) == first
    assert family(50, seed=3) == first[:50]
    assert family(500, seed=4) != first
    prompts = {t.prompt for t in first}
    assert len(prompts) == len({t.id for t in first}) == 500
    held_out = [t for seed in range(4) for t in family(200, seed=seed, split="eval")]
    assert not {t.id for t in held_out} & {t.id for s in (3, 4) for t in family(500, seed=s)}
    assert {t.id.split("/")[0] for t in first} == {t.made_by for t in first} == {family.__name__}
    assert get("tasks", family.__name__) is family


def test_levels_bound_the_size() -> None:
    assert {t.prompt.count("+") + 1 for t in running_sums(300, levels=(3, 4))} == {3, 4}
    assert {len(t.meta["steps"]) for t in modular_chains(100, levels=(6, 6))} == {6}
    assert {len(t.meta["numbers"]) for t in countdown(100, levels=(3, 3))} == {3}
    assert {t.prompt.partition("%")[2] for t in modular_chains(200, moduli=(6, 8))} == {"6=", "7=", "8="}


def test_impossible_draws_say_what_would_work() -> None:
    with pytest.raises(DataError, match=r"n = 5000, but levels 2\.\.2 hold only about 2\d\d different train"):
        running_sums(5000, levels=(2, 2))
    with pytest.raises(DataError, match=r"levels = \(2, 9\) must be \(fewest, most\) within 2\.\.5"):
        running_sums(5, levels=(2, 9))
    with pytest.raises(DataError, match=r"moduli = \(1, 9\) must be \(smallest, largest\) within 2\.\.99"):
        modular_chains(5, moduli=(1, 9))
    with pytest.raises(DataError, match='"train" or "eval"'):
        choice(5, split="test")


# the countdown verifier

TASK = Task("c", "2,3,7:35=", "35", "countdown", meta={"numbers": [2, 3, 7]})
ANY = Task("c", "2,3,7:35=", 21, "countdown", meta={"numbers": [2, 3, 7], "use": "any"})


@pytest.mark.parametrize(
    ("text", "task", "reason"),
    [
        ("(2+3)*7", TASK, "equal"),
        ("2+3=5\n5*7=35\n#(2+3)*7", TASK, "equal"),
        (" 7 * ( (3) + 2 ) = 35 ", TASK, "equal"),
        ("7×(2+3)", TASK, "equal"),
        ("(2+3)*7=36", TASK, "different"),  # the claim is false
        ("2+3*7", TASK, "different"),  # 23: * binds tighter
        ("7*3-2", TASK, "different"),  # 19
        ("2-3-7", TASK, "different"),  # -8, not 6: from left to right
        ("7*5", TASK, "wrong_numbers"),
        ("35", TASK, "wrong_numbers"),
        ("(2+3)*7*1", TASK, "wrong_numbers"),
        ("3*7", TASK, "wrong_numbers"),
        ("3*7", ANY, "equal"),
        ("3*7*1", ANY, "wrong_numbers"),
        ("3*3*7-7*2*3", ANY, "wrong_numbers"),
        ("", TASK, "no_answer"),
        ("(2+3)*7 #", TASK, "no_answer"),
        ("(2+3)*7 is it", TASK, "unparsable"),
        ("-3+2*7", TASK, "unparsable"),
        ("2 3", TASK, "unparsable"),
        ("(2+3*7", TASK, "unparsable"),
        ("2+3)*7", TASK, "unparsable"),
        ("7**2-3", TASK, "unparsable"),
        ("35=(2+3)*7", TASK, "unparsable"),
        ("(2+3)*7=35=35", TASK, "unparsable"),
        ("²+3*7", TASK, "unparsable"),
        ("__import__('os')", TASK, "unparsable"),
    ],
)
def test_countdown_verdicts(text: str, task: Task, reason: str) -> None:
    verdict = CountdownVerifier()(text, task)
    assert verdict.reason == reason
    assert verdict.label == ("right" if reason == "equal" else "wrong")


@pytest.mark.parametrize(
    ("answer", "meta"),
    [
        ("35", {}),
        ("35", {"numbers": "237"}),
        ("35", {"numbers": [2, 3.5]}),
        (None, {"numbers": [2]}),
        (35.5, {"numbers": [2]}),
        ("x", {"numbers": [2]}),
        ("35", {"numbers": [2, 3, 7], "use": "some"}),
    ],
)
def test_a_countdown_task_that_is_itself_broken_is_unknown(answer: object, meta: dict) -> None:
    verdict = CountdownVerifier()("(2+3)*7", Task("c", "p", answer, meta=meta))
    assert (verdict.label, verdict.reason) == ("unknown", "bad_gold")


def test_hostile_countdown_answers_are_refused_at_once() -> None:
    start = time.process_time()
    for text in (
        "(" * 10**6,
        "(" * 199,
        "(" * 90 + "1" + ")" * 90,
        "1" * 10**6,
        "9" * 190,
        "#" * 10**6,
        "1+" * 10**6,
        " " * 10**6 + "\x00",
    ):
        assert CountdownVerifier()(text, TASK).label == "wrong"
    assert time.process_time() - start < 0.5


def test_the_parser_agrees_with_python_on_random_strings() -> None:
    rng, read = random.Random(1), 0
    for _ in range(20_000):
        text = "".join(rng.choice("123++--**()") for _ in range(rng.randint(1, 9)))
        try:
            expected = python_value(text)
        except (SyntaxError, AssertionError, KeyError):
            expected = None  # not Python, or a sign or power, which this grammar lacks
        try:
            value, used, _ = parse(text)
        except Unparsable:
            value = None
        else:
            read += 1
            assert used == Counter(int(x) for x in re.findall(r"\d+", text))
        assert value == expected, text
    assert read > 500


# the word problems

BY_HAND = {
    "egg_cartons-3": 204 / 12,
    "cooler_evening-3": 22 - 12,
    "ribbon-3": 10.5,
    "stadium_share-3": 57,
    "older_brother-3": 17,
    "sticker_album-3": 63 + 35,
    "change_at_the_till-3": 20 - 4.35,
    "train_ride-3": 480 + 45,
    "orchard-3": 220 - 30,
    "sale_price-3": 60 - 18,
    "leaking_tank-3": 152 - 93,
    "reading_plan-3": 92 / 23,
    "choir_rows-3": 48 / 6,
    "museum_closing-3": 125 - 60,
    "fish_tanks-3": 10 + 30,
    "printer-3": 22 * 12,
    "candle-3": 20 - 9,
    "pen_pals-3": 68 / 2,
    "bus_seats-3": 66 - 13,
    "library_fine-3": 3,
    "lemonade_stand-3": (40 - 4) / 2,
    "pizza_party-3": 36 - 12 - 5,
    "garden_fence-3": 38 * 15,
    "bakery_trays-3": 18 / 6,
    "average_score-3": 231 - 66 - 72,
    "paint_cans-3": 10,  # 112 square metres: nine cans cover 108
    "two_cyclists-3": 36 * 3,
    "savings_jar-3": 56 / 8,
    "recipe_scaling-3": 60 * 15 - 400,
    "phone_plan-3": 8 + 2,
    "flower_bouquets-3": 9 * 17,
    "homework_time-3": 104 - 90,
    "swimming_lanes-3": 7,
    "class_trip-3": 156 + 36,
    "market_vegetables-3": 20 - 6 - 1.2,
    "marbles_given_away-3": 48 / 2,
    "theatre_evening-3": 360 * 10,
    "work_shift-3": 264 + 108,
    "toy_factory-3": 1000 - 50,
    "hiking_club-3": 9 + 14 + 11.5,
    "fuel_bill-3": 54 / 5,
    "bead_necklaces-3": 117 - 90,
    "broken_lift-3": 108 * 2 * 2,
    "photo_prints-3": 4.2 + 6 + 3.5,
    "farm_legs-3": 28 + 56,
}


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_word_problems", DATA / "make_word_problems.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_word_problem_of_every_situation_was_worked_out_by_hand() -> None:
    rows = {t.id: t for t in get("tasks", "jsonl")(DATA / "word_problems.jsonl")}
    assert {id.rpartition("-")[0] for id in rows} == {id.rpartition("-")[0] for id in BY_HAND}
    for id, value in BY_HAND.items():
        assert float(rows[id].answer) == pytest.approx(value), rows[id].prompt


def test_word_problems_are_many_different_and_plainly_answered() -> None:
    rows = [json.loads(line) for line in (DATA / "word_problems.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 225
    assert len({row["prompt"] for row in rows}) == 225
    assert all(re.fullmatch(r"\d+(\.\d?[1-9])?", row["answer"]) for row in rows)
    assert all(row["prompt"].endswith("?") and 1 <= row["meta"]["steps"] <= 4 for row in rows)
    assert max(Counter(re.sub(r"[\d.]+|\b[A-Z]\w+", "_", row["prompt"]) for row in rows).values()) <= 5


def test_the_word_problems_file_is_what_its_script_writes(tmp_path: Path) -> None:
    maker().write(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (DATA / "word_problems.jsonl").read_bytes()
