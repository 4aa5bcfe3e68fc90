"""The doctor finds each fault that was planted, and nothing in the healthy twin beside it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rlvr import organisms
from rlvr.assemble import asked_by, plan_of, set_up, tasks_of
from rlvr.cli import main
from rlvr.doctor import columns
from rlvr.doctor.examine import Examined, at_start, by_settings, by_tasks, examine
from rlvr.doctor.patient import Patient
from rlvr.engine.load import Loaded, load_model
from rlvr.recipe import Recipe, load_recipe, make_recipe, recipes_dir, shipped
from rlvr.records import Task
from rlvr.run import train

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def nano() -> Loaded:
    return load_model("nano")


def recipe(**settings: Any) -> Recipe:
    sums = {"name": "running_sums", "n": 200}
    return make_recipe({"tasks": sums, "max_tokens": 24, "group_size": 16, "eval": {"problems": 20}, **settings})


def sums(n: int = 40, **changes: Callable[[Task], Any]) -> list[Task]:
    """Running sums with their golds or prompts changed."""
    made, *_ = tasks_of(recipe(tasks={"name": "running_sums", "n": n}))
    return [replace(task, **{name: change(task) for name, change in changes.items()}) for task in made]


def found(examined: Examined) -> set[str]:
    return {finding.check for finding in examined.findings}


# ---- models that are made here -----------------------------------------------------------------------------
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def talker(template: str | None = None, eos: str | None = "<|im_end|>", context: int = 512) -> Loaded:
    """Random weights, one token a byte, chat control tokens, and a template of tests/templates."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(letters, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    backend.add_tokens([AddedToken(t, normalized=False) for t in ("<think>", "</think>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos)
    if template:
        tokenizer.chat_template = (HERE / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=context, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    stops = frozenset() if eos is None else frozenset({backend.token_to_id(eos)})
    return Loaded(LlamaForCausalLM(config).eval(), tokenizer, "talker", None, stops, 0)


QUESTIONS = [
    Task(str(i), f"How many legs have {i + 2} cats and a stool?", answer=str(4 * (i + 2) + 3)) for i in range(20)
]


def written(folder: Path, body: str) -> str:
    file = folder / f"check_{abs(hash(body))}.py"
    file.write_text(body, encoding="utf-8")
    return f"{file}:f"


SWALLOWS = """
def f(answer, gold):
    try:
        return float(answer.split("#")[-1]) == float(gold["value"])
    except Exception:
        return 0.0
"""
COMPARES = """
def f(answer, gold):
    try:
        return float(answer.split("#")[-1]) == float(gold)
    except ValueError:
        return 0.0
"""
TWICE = """
import re
def strip(text):
    found = re.search(r"\\\\boxed\\{(.*)\\}", text)
    return found[1] if found else None
def f(answer, gold):
    once = strip(answer)
    return 0.0 if once is None else float(strip(once) == gold)
"""
ONCE = TWICE.replace("strip(once) == gold", "once == gold")
PARTS = """
def f(answer, gold):
    return {"score": float(answer.split("#")[-1] == gold), "length": 100.0 * len(answer)}
"""


def without_end(folder: Path) -> Loaded:
    """nano with every mention of an end token taken out of its files."""
    copy = folder / "endless"
    shutil.copytree(organisms.folder("nano"), copy)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        told = json.loads((copy / name).read_text())
        told.pop("eos_token", None)
        (copy / name).write_text(json.dumps(told | {"eos_token_id": None}))
    return load_model(copy)


def conversations(thought: str) -> list[Task]:
    turns = (
        {"role": "user", "content": "Think of a number."},
        {"role": "assistant", "content": f"{thought}Done."},
        {"role": "user", "content": "Which one was it?"},
    )
    return [Task(str(i), turns, answer=str(i)) for i in range(8)]


Case = Callable[[Path, Loaded], Examined]
# fault -> (its name, the case, the healthy twin). Where no model here could solve a twin's tasks, none is sampled.
TEN: dict[str, tuple[str, Case, Case]] = {
    "column swapped": (
        "columns_swapped",
        lambda d, m: examine(
            recipe(verifier="hash_marker(marker='#')"),
            tasks=sums(prompt=lambda t: t.answer, answer=lambda t: t.prompt),
            model=m,
        ),
        lambda d, m: examine(recipe(verifier="hash_marker(marker='#')"), tasks=sums(), model=m),
    ),
    "verifier error mapped to 0": (
        "never_right",
        lambda d, m: examine(recipe(verifier=written(d, SWALLOWS)), model=m),
        lambda d, m: examine(recipe(verifier=written(d, COMPARES)), model=m),
    ),
    "box stripped twice": (
        "stripped_twice",
        lambda d, m: examine(
            recipe(verifier=written(d, TWICE)), tasks=QUESTIONS, model=talker("chatml"), rollouts=False
        ),
        lambda d, m: examine(
            recipe(verifier=written(d, ONCE)), tasks=QUESTIONS, model=talker("chatml"), rollouts=False
        ),
    ),
    "thinking dropped": (
        "thinking_dropped",
        lambda d, m: examine(
            recipe(verifier="last_box"),
            tasks=conversations("<think>\nSeven.\n</think>\n\n"),
            model=talker("qwen3"),
            rollouts=False,
        ),
        lambda d, m: examine(
            recipe(verifier="last_box"), tasks=conversations(""), model=talker("qwen3"), rollouts=False
        ),
    ),
    "end token missing": (
        "end_missing",
        lambda d, m: examine(recipe(), model=without_end(d)),
        lambda d, m: examine(recipe(), model=m),
    ),
    "top-p with unscored log-probs": (
        "cut_support",
        lambda d, m: examine(recipe(top_p=0.95), model=m),
        lambda d, m: examine(recipe(top_p=0.95, method="grpo,tis"), model=m),
    ),
    "everything truncated": (
        "all_truncated",
        lambda d, m: examine(recipe(max_tokens=2), model=m),
        lambda d, m: examine(recipe(max_tokens=16), model=m),
    ),
    "group constant": (
        "silent_groups",
        lambda d, m: examine(recipe(), tasks=sums(answer=lambda t: str(int(t.answer) + 1000)), model=m),
        lambda d, m: examine(recipe(method="dapo"), model=m),
    ),
    "part that drowns": (
        "part_drowns",
        lambda d, m: examine(recipe(verifier=written(d, PARTS), parts={"length": 1.0}), model=m),
        lambda d, m: examine(recipe(verifier=written(d, PARTS), parts={"length": 1e-5}), model=m),
    ),
    "gold that cannot be parsed": (
        "gold_unreadable",
        lambda d, m: examine(
            recipe(verifier="hash_marker(marker='#', inner=numeric())"),
            tasks=sums(answer=lambda t: "twenty" if t.answer == "20" else t.answer, n=200),
            model=m,
        ),
        lambda d, m: examine(recipe(verifier="hash_marker(marker='#', inner=numeric())"), model=m),
    ),
}


@pytest.mark.parametrize("fault", TEN)
def test_each_of_ten_faults_is_found_and_its_twin_is_healthy(fault: str, tmp_path: Path, nano: Loaded) -> None:
    name, case, twin = TEN[fault]
    assert name in found(case(tmp_path, nano))
    healthy = twin(tmp_path, nano)
    assert [str(f) for f in healthy.findings] == []


def test_thinking_that_a_template_keeps_is_no_finding() -> None:
    told = conversations("<think>\nSeven.\n</think>\n\n")
    kept = examine(recipe(verifier="last_box"), tasks=told, model=talker("chatml"), rollouts=False)
    assert kept.findings == ()


# ---- recipes that are shipped ------------------------------------------------------------------------------
RECIPES = sorted(str(file.relative_to(recipes_dir()).with_suffix("")) for file in recipes_dir().rglob("*.toml"))


def test_recipes_of_papers_are_among_those_looked_at() -> None:
    assert {*shipped(), "methods/bpo"} <= {*RECIPES}


@pytest.mark.parametrize("name", RECIPES)
def test_no_shipped_recipe_gives_a_warning(name: str) -> None:
    """With all that needs no download: settings always, tasks where they are here, the model where it is bundled."""
    chosen = load_recipe(recipes_dir() / f"{name}.toml")
    plan = plan_of(chosen)
    assert by_settings(Patient(chosen, plan)) == []
    if chosen.tasks["name"] != "hub":
        asked = asked_by(chosen, plan)
        assert by_tasks(Patient(chosen, plan, asked)) == []
    if chosen.model in organisms.names():
        assert examine(chosen, model=load_model(chosen.model)).findings == ()


SOLUTIONS = [r"So we get $\frac{1}{2}$, that is \boxed{\frac{1}{2}}.", r"\boxed{(3, \frac{\pi}{2})}"]


@pytest.mark.parametrize("golds", [[*SOLUTIONS, "14", r"x^2 + 1"], SOLUTIONS])
def test_a_gold_in_the_form_that_the_math_recipe_asks_for_is_right(golds: list[str]) -> None:
    """The recipe's own tasks lie on the hub; these are of their kind: worked solutions and short answers."""
    chosen = load_recipe("math")
    tasks = [Task(str(i), f"Problem {i}: what is it?", answer=gold) for i, gold in enumerate(golds)]
    plan = plan_of(chosen)
    assert (
        by_tasks(Patient(chosen, plan, asked_by(chosen.model_copy(update={"eval": recipe().eval}), plan, tasks))) == []
    )


@pytest.mark.parametrize("method", ["+dapo", "+ppo", "+kl", "+sft"])
def test_papers_of_other_kinds_are_healthy_on_the_quickstart(method: str, nano: Loaded) -> None:
    """Groups that are dropped, a critic, a reference, and demonstrations that nobody sampled."""
    assert examine(load_recipe("quickstart", method=method), model=nano).findings == ()


# ---- what else it finds ------------------------------------------------------------------------------------
def words(body: str) -> str:
    return f"def f(answer, gold):\n    return {body}\n"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("pays_anything", "1.0"),
        ("pays_anything", "0.1 + (answer == gold)"),  # a little for anything: right_above is 0
        ("pays_shotgun", "float(gold in answer.split())"),
        ("pays_empty", "float(answer in ('', gold))"),
        ("pays_echo", "float(answer == gold or answer.endswith('stool?'))"),
        ("pays_endless", "float(answer.startswith(gold) and ' ' not in answer and '\\n' not in answer)"),
        ("never_right", "0.0"),
        ("no_verdict", "1.0 / 0.0"),
        ("gold_refused", "float(answer == gold and gold[0] != '5')"),
    ],
)
def test_reward_functions_that_can_be_cheated_or_are_broken(name: str, body: str, tmp_path: Path) -> None:
    checked = recipe(verifier=written(tmp_path, words(body)))
    plan = plan_of(checked)
    told = by_tasks(Patient(checked, plan, asked_by(checked, plan, QUESTIONS)))
    assert name in {f.check for f in told}
    sound = recipe(verifier=written(tmp_path, words("float(answer.strip() == gold)")))
    assert by_tasks(Patient(sound, plan_of(sound), asked_by(sound, plan_of(sound), QUESTIONS))) == []


@pytest.mark.parametrize(
    ("verifier", "answer"), [("instructions", [["no_such_check", {}]]), ("json_schema", {"pattern": "x"})]
)
def test_tests_that_cannot_be_read_are_golds_that_cannot_be_read(verifier: str, answer: Any) -> None:
    chosen = recipe(verifier=verifier)
    tasks = [Task(str(i), f"Do {i}.", answer=answer) for i in range(4)]
    told = by_tasks(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), tasks)))
    assert [f.check for f in told] == ["gold_unreadable"]


def test_a_task_that_names_no_verifier_that_there_is() -> None:
    chosen = recipe()
    tasks = [replace(t, verifier="nummeric") for t in QUESTIONS]
    (broken,) = by_tasks(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), tasks)))
    assert broken.check == "verifier_broken"
    assert "did you mean 'numeric'" in broken.says


def test_what_a_renderer_or_a_verifier_may_raise_does_not_keep_a_run_from_going(
    tmp_path: Path, nano: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "swapped", lambda patient: 1 / 0)
    run = train(small(), tmp_path / "run", sinks=("jsonl",), model=load_model("nano"))
    assert run.summary["status"] == "finished"
    events = (tmp_path / "run/events.jsonl").read_text()
    assert "The doctor could not look this run over: ZeroDivisionError" in events


def test_a_nested_box_verifier_is_stripped_twice() -> None:
    chosen = recipe(verifier="last_box(inner=last_box())")
    told = by_tasks(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), QUESTIONS)))
    assert [f.check for f in told] == ["stripped_twice"]


def test_a_prompt_that_asks_for_a_box_where_the_verifier_reads_a_mark() -> None:
    told = []
    for verifier in ("hash_marker", "last_box"):
        chosen = recipe(verifier=verifier, prompt="{prompt}\nPut the answer into \\boxed{}.")
        told.append(by_tasks(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), QUESTIONS))))
    (form,), healthy = told
    assert form.check == "form"
    assert "`\\boxed{...}`" in form.says
    assert "`#### ...`" in form.says
    assert healthy == []


def test_swapped_columns_of_words() -> None:
    chosen = recipe(verifier="hash_marker")
    turned = [replace(t, prompt=t.answer, answer=t.prompt) for t in QUESTIONS]
    told = by_tasks(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), turned)))
    assert "columns_swapped" in {f.check for f in told}


SHEEP = "Each of the 3 pens holds <<4*2=8>>8 legs.\nThat makes 24.\n#### 24"


@pytest.mark.parametrize(
    ("prompt", "gold", "turned"),
    [
        (SHEEP, "In 3 pens are 2 sheep each. How many legs are that?", True),  # a row of gsm8k, the wrong way round
        (f"2 sheep?\n{SHEEP}\n\nHow many legs have 9 sheep?", "36", False),  # worked examples, then a question
        (f"Is it right?\n{SHEEP}", "No, two sheep have eight legs each pen", False),  # a solution to be judged
        (f"End with\n#### and the number.\n{SHEEP[:20]}", "Why?", False),
    ],
)
def test_worked_solutions_that_stand_in_the_place_of_questions(prompt: str, gold: str, turned: bool) -> None:
    chosen = recipe(verifier="hash_marker")
    tasks = [Task(str(i), prompt, answer=gold) for i in range(20)]
    told = [*columns.swapped(Patient(chosen, plan_of(chosen), asked_by(chosen, plan_of(chosen), tasks)))]
    assert [f.check for f in told] == ["columns_swapped"] * turned
    assert all("20 prompts are worked solutions" in f.says and "#### 24' is asked" in f.says for f in told)


def test_a_slow_verifier_costs_a_start_no_more_than_its_seconds(
    tmp_path: Path, nano: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr("rlvr.doctor.examine.AT_START", (16, 0.5))  # in full it would ask over a hundred times
    chosen = recipe(verifier=written(tmp_path, "import time\n" + words("time.sleep(0.1) or answer == gold")))
    plan = plan_of(chosen)
    asked = asked_by(chosen, plan)
    setup = set_up(chosen, plan, model=nano, asked=asked)
    began = time.monotonic()
    assert at_start(chosen, plan, asked, setup) == []
    assert time.monotonic() - began < 6  # the budget, one round of eight answers, and a worker's start


def test_groups_of_one_are_silent_under_a_group_relative_method_only() -> None:
    alone = lambda method: by_settings(  # noqa: E731
        Patient(recipe(group_size=1, method=method), plan_of(recipe(group_size=1, method=method)))
    )
    assert [f.check for f in alone("grpo")] == ["lonely_group"]
    assert [f.check for f in alone("rloo")] == ["lonely_group"]
    assert alone("reinforce_pp") == alone("ppo") == alone("sft") == []


def test_prompts_that_do_not_reach_the_model(nano: Loaded) -> None:
    strange = examine(recipe(verifier="numeric"), tasks=QUESTIONS, model=nano, rollouts=False)
    (refused,) = strange.findings  # nano knows no letters but A to D
    assert "no token for 'H' and would read it as <unk>" in refused.says
    trimmed = talker("chatml")
    trimmed.tokenizer.chat_template = trimmed.tokenizer.chat_template.replace(
        "message.content", "message.content | replace('legs', 'arms')"
    )
    rewritten = examine(recipe(verifier="numeric"), tasks=QUESTIONS, model=trimmed, rollouts=False)
    assert found(rewritten) == {"content_rewritten"}
    short = talker("chatml", context=50)  # a prompt has 57 tokens or 58
    long = examine(recipe(verifier="numeric"), tasks=QUESTIONS, model=short, rollouts=False)
    assert found(long) == {"prompt_too_long"}
    tight = examine(recipe(verifier="numeric"), tasks=QUESTIONS, model=talker("chatml", context=70), rollouts=False)
    assert found(tight) == {"context_tight"}
    assert tight.findings[0].mend.startswith("Set max_tokens = 12 or less")
    assert tight.healthy  # a warning


def test_an_end_token_that_does_not_end_is_named(nano: Loaded) -> None:
    deaf = examine(recipe(max_tokens=40), model=replace(nano, stop_ids=frozenset({0})))
    (ignored,) = [f for f in deaf.findings if f.check == "end_ignored"]
    assert "'<eos>'" in ignored.says
    assert "id 2" in ignored.mend


def test_a_sampler_that_disagrees_with_the_trainer_is_found(nano: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.engine.sampler import TorchSampler

    sample = TorchSampler.sample

    async def off(self: TorchSampler, request: Any) -> Any:
        got = await sample(self, request)
        return replace(got, streams={**got.streams, "plain_logp": [x - 0.1 for x in got.streams["plain_logp"]]})

    monkeypatch.setattr(TorchSampler, "sample", off)
    (gap,) = examine(recipe(), model=nano).findings
    assert gap.check == "sampler_gap"
    assert "disagree by 0.1 nats" in gap.says


def test_what_cannot_be_had_is_a_finding_and_the_rest_is_looked_at(tmp_path: Path, nano: Loaded) -> None:
    nowhere = examine(recipe(model=str(tmp_path / "none"), top_p=0.5))
    assert found(nowhere) == {"cut_support", "no_model"}
    assert nowhere.looked_at == ("settings", "64 tasks")
    assert "model" in nowhere.skipped
    absent = examine(recipe(tasks={"name": "jsonl", "path": str(tmp_path / "none.jsonl")}))
    assert found(absent) == {"no_tasks"}
    part = examine(recipe(verifier=written(tmp_path, PARTS), parts={"lenght": 1.0}), model=nano, rollouts=False)
    assert "it tells length, raw" in next(f.says for f in part.findings if f.check == "part_missing")


def test_a_run_that_does_not_fit_is_found_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.doctor import room

    assert examine(recipe(), rollouts=False).findings == ()
    assert room.available("cpu") > 2**28
    monkeypatch.setattr(room, "available", lambda device: 2**20)
    (tight,) = examine(recipe(), rollouts=False).findings
    assert tight.check == "memory"
    assert "there are 0.0 GiB" in tight.says


# ---- the verb, and the start of a run ----------------------------------------------------------------------
def test_the_verb_tells_people_and_programs_and_exits_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    main_ = lambda *arguments: (code_of(arguments), capsys.readouterr().out)  # noqa: E731

    def code_of(arguments: tuple[str, ...]) -> int:
        try:
            main(["doctor", "quickstart", *arguments])
        except SystemExit as stopped:
            return int(stopped.code or 0)
        return 0

    code, out = main_()
    assert (code, out) == (0, "looked at settings, 64 tasks, the model, 128 rollouts: nothing is wrong\n")
    code, out = main_("--set", "top_k=5")
    assert code == 1
    assert out.startswith("WRONG    cut_support\n         top_k = 5 samples from a cut distribution")
    assert 'method = "grpo,tis"' in out
    code, out = main_("--set", "top_k=5", "--json")
    told = json.loads(out)
    assert (code, told["healthy"], [f["check"] for f in told["findings"]]) == (1, False, ["cut_support"])


def small(**settings: Any) -> Recipe:
    given = {"steps": 1, "prompts_per_step": 2, "group_size": 4, "eval": {"problems": 0}}
    return recipe(**{**given, **settings})


def test_a_run_says_at_its_start_what_is_wrong_and_nothing_where_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nano: Loaded
) -> None:
    def notes(run: str, **settings: Any) -> list[str]:
        train(small(**settings), tmp_path / run, sinks=("jsonl",), model=load_model("nano"))
        events = [json.loads(line) for line in (tmp_path / run / "events.jsonl").read_text().splitlines()]
        return [e["text"] for e in events if e["event"] == "note"]

    assert notes("healthy") == []
    assert "doctor" not in capsys.readouterr().err
    (note,) = notes("cut", top_p=0.9)
    assert note.startswith("top_p = 0.9 samples from a cut distribution")
    assert "doctor: top_p = 0.9" in capsys.readouterr().err
    assert notes("off", top_p=0.9, doctor=False) == []


# ---- the page ----------------------------------------------------------------------------------------------
def test_the_page_names_every_finding() -> None:
    from test_docs import ROOT, named_in_table

    page = ROOT / "docs" / "doctor.md"
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "src/rlvr/doctor").glob("*.py")]
    named = {name for text in sources for name in re.findall(r'(?:Finding\(|study,)\s*"([a-z_]+)"', text)}
    named |= {"gold_unreadable", "no_verdict"}  # they share one sentence
    assert named_in_table(page, "finding") == named


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    from test_docs import ROOT, play

    play(ROOT / "docs" / "doctor.md", tmp_path)
