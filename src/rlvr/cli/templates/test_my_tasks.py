"""my_tasks gives tasks that can be answered, the same for the same seed, and no question in both splits."""

from pathlib import Path

from rlvr.registry import load_path
from rlvr.verify.spec import verifier_from

my_tasks = load_path(f"{Path(__file__).with_name('my_tasks.py')}:my_tasks")


def test_equal_seeds_give_equal_tasks() -> None:
    assert my_tasks(20, seed=3) == my_tasks(20, seed=3)
    assert my_tasks(20, seed=3) != my_tasks(20, seed=4)


def test_the_splits_share_no_question() -> None:
    train, held_out = my_tasks(200, below=40), my_tasks(200, split="eval", below=40)
    assert not {t.prompt for t in train} & {t.prompt for t in held_out}


def test_the_gold_is_right_and_another_answer_is_wrong() -> None:
    for task in my_tasks(20):
        verifier = verifier_from(task.verifier)
        assert verifier(f"the larger one is {task.answer}", task).label == "right"
        assert verifier("-1", task).label == "wrong"
