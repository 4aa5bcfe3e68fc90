"""Teachers: loaded beside the policy or behind a server, held against a plain forward pass; what is refused, and when
they have no say."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlvr.assemble import Setup, check_models, plan_of, set_up, training_of
from rlvr.batch import Batch
from rlvr.doctor.examine import examine
from rlvr.engine import lora
from rlvr.engine.load import ModelError, load_model
from rlvr.engine.memory import estimate, teacher_config
from rlvr.engine.protocol import Unsupported
from rlvr.engine.teacher import ServedTeacher, TeacherBroken, foreign_ends
from rlvr.loop import Stopped, Training
from rlvr.method import Method
from rlvr.methods.grpo import grpo
from rlvr.methods.opdvr import opdvr
from rlvr.metrics import Clock
from rlvr.organisms import folder
from rlvr.pack import pack
from rlvr.recipe import Recipe, load_recipe, make_recipe
from rlvr.recipe.file import RecipeError
from rlvr.recipe.keys import settings
from rlvr.run import dry_run, train
from rlvr.server import Server as Address
from rlvr.server import ServerFailed
from rlvr.streams import declare
from rlvr.views import Look, View

torch.set_num_threads(1)
SMALL = {
    "model": "nano",
    "teacher": "mini",
    "method": "opdvr(mode='opd')",
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 2,
    "prompts_per_step": 4,
    "group_size": 4,
    "max_tokens": 16,
    "lr": 1e-3,
    "eval": {"problems": 0},
    "threads": 1,
}


def recipe(**changed: Any) -> Recipe:
    return make_recipe({k: v for k, v in {**SMALL, **changed}.items() if v is not None})


def started(made: Recipe, method: Method | None = None) -> tuple[Training, Setup]:
    plan = plan_of(made, method)
    setup = set_up(made, plan, want=frozenset({"entropy"}))
    return training_of(setup, plan, Path("unused")), setup


def scored(training: Training) -> Batch:
    """The batch of a first step."""
    running = training.plan.at(training.plan.start())
    kept, seen = training.collect(running, 1, Clock())
    return training.score(pack(kept, dtype=training.dtype), running, seen)


def plain(name: str, batch: Batch, temperature: float = 1.0) -> Tensor:
    """[N] log-probs of the trained tokens under a bundled model: a row at a time, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder(name), dtype=torch.float32).eval()
    assert batch.chains is not None
    out = []
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        ids = batch.chains.row(i)
        with torch.no_grad():
            logp = (model(ids[None]).logits[0] / temperature).log_softmax(-1)
        out.append(logp[places - 1, ids[places]])
    return torch.cat(out)


# ---- loaded here -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_teachers_log_probs_are_those_of_a_plain_pass_at_the_policys_temperature(temperature: float) -> None:
    training, _ = started(recipe(temperature=temperature))
    batch = scored(training)
    torch.testing.assert_close(batch["teacher_logp"], plain("mini", batch, temperature), atol=2e-4, rtol=0)
    assert bool(batch["teacher_known"].all())
    assert not any(p.requires_grad for p in training.engine.models["teacher"].model.parameters())  # type: ignore


def test_a_teacher_computes_in_its_own_numbers() -> None:
    training, _ = started(recipe(teacher={"model": "mini", "dtype": "bfloat16"}))
    assert training.engine.models["teacher"].model.dtype == torch.bfloat16  # type: ignore[attr-defined]
    batch = scored(training)
    assert float((batch["teacher_logp"] - plain("mini", batch)).abs().mean()) < 0.1


def test_with_an_adapter_the_teacher_stays_a_model_of_its_own() -> None:
    training, _ = started(recipe(lora={"rank": 2}))
    assert not lora.adapted(training.engine.models["teacher"].model)  # type: ignore[attr-defined]
    batch = scored(training)
    torch.testing.assert_close(batch["teacher_logp"], plain("mini", batch), atol=2e-4, rtol=0)


def test_a_teacher_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    shutil.copytree(folder("mini"), tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    told = json.loads(file.read_text())
    words = told["model"]["vocab"]
    words["3"], words["7"] = words["7"], words["3"]
    file.write_text(json.dumps(told))
    with pytest.raises(ModelError, match=r"differ in 2 of 32 tokens; the policy's '3' has the id 7, .* reads as '7'"):
        started(recipe(teacher=str(tmp_path / "other")))


def test_rows_that_do_not_fit_a_teachers_context_are_not_looked_at(tmp_path: Path) -> None:
    shutil.copytree(folder("mini"), tmp_path / "short")
    file = tmp_path / "short" / "config.json"
    limit = 20
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": limit}))
    batch = scored(started(recipe(teacher=str(tmp_path / "short"), prompts_per_step=8))[0])
    assert batch.chains is not None
    fits = batch.chains.lengths <= limit
    assert bool(fits.any())
    assert not bool(fits.all())
    assert torch.equal(batch["teacher_known"], fits)
    out = ~batch.spread(fits)
    assert torch.equal(batch["teacher_logp"][out], batch["old_logp"][out])


def test_ends_that_are_none_to_the_teacher_are_the_policys_own() -> None:
    both, other, none = frozenset({2, 5}), frozenset({5, 7}), frozenset[int]()
    assert foreign_ends(both, other, None) == {2}
    assert foreign_ends(both, both, None) == foreign_ends(both, None, None) == foreign_ends(both, other, False) == none
    assert foreign_ends(both, other, True) == both
    made = recipe(teacher={"model": "mini", "mask_end": True})
    training, setup = started(made)
    batch = scored(training)
    ends = torch.isin(batch["token"], torch.tensor(sorted(setup.loaded.stop_ids)))
    assert int(ends.sum()) >= 4
    assert torch.equal(batch["teacher_logp"][ends], batch["old_logp"][ends])
    torch.testing.assert_close(batch["teacher_logp"][~ends], plain("mini", batch)[~ends], atol=2e-4, rtol=0)


# ---- recipes ---------------------------------------------------------------------------------------------
def test_a_name_is_short_for_a_table_and_paths_are_found_from_the_recipe(tmp_path: Path) -> None:
    shutil.copytree(folder("nano"), tmp_path / "models" / "old")
    (tmp_path / "r.toml").write_text('teacher = "models/old"\n[tasks]\nname = "running_sums"\n')
    made = load_recipe(tmp_path / "r.toml", ["teacher.dtype=bfloat16"])
    assert made.teacher is not None
    assert (made.teacher.model, made.teacher.dtype) == (str(tmp_path / "models" / "old"), "bfloat16")
    assert make_recipe({"tasks": "running_sums", "teacher": "micro"}).teacher == type(made.teacher)(model="micro")
    assert {s.key for s in settings() if s.key.startswith("teacher.")} >= {"teacher.model", "teacher.url"}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["teacher=3"], "`teacher` is the number 3; wanted a model's name, or a table"),
        (["teachers=micro"], "did you mean `teacher`?"),
        (["teacher.modle=micro"], "did you mean `teacher.model`?"),
        (["teacher.url=http://localhost/v1"], "`teacher.model` must be given"),
        (["teacher=m", "teacher.url=localhost:8000"], 'teacher.url = "localhost:8000" is no address'),
        (["teacher=m", "teacher.url=http://h/v1", "temperature=0.7"], "a server tells log-probs at temperature 1"),
    ],
)
def test_what_is_wrong_with_a_teacher_is_said(sets: list[str], says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("quickstart", sets)
    assert says in str(caught.value)


def test_without_a_teacher_the_method_that_wants_one_is_named(tmp_path: Path) -> None:
    made = recipe(teacher=None)
    for ask in (lambda: train(made, tmp_path / "run"), lambda: dry_run(made)):
        with pytest.raises(Unsupported, match=r'opdvr wants a teacher, and the recipe names none; add .* = "micro"'):
            ask()
    assert not (tmp_path / "run").exists()
    (found,) = [f for f in examine(made, rollouts=False).findings if f.check == "no_teacher"]
    assert found.severity == "wrong"
    with pytest.raises(ModelError, match="did you mean 'mini'"):
        check_models(recipe(teacher="minni"), plan_of(recipe()))


def test_a_teacher_that_nobody_reads_is_not_loaded_and_this_is_said() -> None:
    made = recipe(method="grpo")
    assert "Nothing in this stack reads a teacher: mini is not loaded" in dry_run(made)
    assert "teacher" not in started(made)[0].engine.models  # type: ignore[attr-defined]


def test_memory_counts_the_teacher_by_its_own_numbers() -> None:
    made = recipe(teacher={"model": "micro", "dtype": "bfloat16"})
    config = json.loads((folder("nano") / "config.json").read_text())
    parameters = 32 * 256 + 3 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256
    with_it = estimate(made, config, frozenset({"teacher"}), teacher=teacher_config(made))
    buffers = with_it.standing["teacher"] - 2 * parameters
    assert 0 <= buffers < 2048  # frequencies of positions
    assert with_it.scoring > 0
    assert "teacher" not in estimate(made, config, teacher=teacher_config(made)).standing
    assert "scoring" in dry_run(made)


# ---- behind a server -------------------------------------------------------------------------------------
class Served:
    """A model behind OpenAI's completions, as vLLM has them: echo, and a log-prob for every token of the prompt."""

    def __init__(self, name: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: Callable[[int, dict[str, Any]], Any] = lambda i, reply: reply
        self.loaded, lock = load_model(name), threading.Lock()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    i = len(served.asked)
                    served.asked.append({"path": self.path, **question})
                    served.headers.append(dict(self.headers))
                    reply = served.script(i, served.reply(question))
                status, reply = reply if isinstance(reply, tuple) else (200, reply)
                body = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def reply(self, question: dict[str, Any]) -> dict[str, Any]:
        ids = torch.tensor(question["prompt"])
        with torch.no_grad():
            logp = self.loaded.model(ids[None]).logits[0].log_softmax(-1)
        told = [None, *logp[torch.arange(len(ids) - 1), ids[1:]].tolist(), -0.25]  # and of the token that it writes
        text = self.loaded.tokenizer.decode(ids) + "1"
        logprobs: dict[str, Any] = {"token_logprobs": told, "tokens": [""] * len(told)}
        if question.get("return_tokens_as_token_ids"):
            best = [row.topk(min(question["logprobs"], len(row))) for row in logp]
            named = [{f"token_id:{i}": x for i, x in zip(b.indices.tolist(), b.values.tolist())} for b in best]
            logprobs["top_logprobs"] = [None, *named]
        return {"choices": [{"text": text, "logprobs": logprobs}]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("rlvr.server.time.sleep", lambda seconds: None)
    served = Served("mini")
    thread = threading.Thread(target=lambda: served.http.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield served
    served.http.shutdown()
    served.http.server_close()
    thread.join()


def remote(server: Served, **more: Any) -> dict[str, Any]:
    return {"model": "mini", "url": server.url, "seconds": 20.0, **more}


def test_a_served_teacher_says_what_a_loaded_one_does(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    training, _ = started(recipe(teacher=remote(server, key="MY_KEY")))
    assert len(server.asked) == 1  # the look at the start
    batch = scored(training)
    torch.testing.assert_close(batch["teacher_logp"], plain("mini", batch), atol=2e-4, rtol=0)
    assert bool(batch["teacher_known"].all())
    assert batch.chains is not None
    rows = [batch.chains.row(i).tolist() for i in range(len(batch))]
    assert sorted(q["prompt"] for q in server.asked[1:]) == sorted(rows)
    assert all(q["path"] == "/v1/completions" and q["echo"] and q["model"] == "mini" for q in server.asked)
    assert {h["Authorization"] for h in server.headers} == {"Bearer s3cret"}


def test_a_row_is_asked_again_and_every_token_sent_is_counted(server: Served) -> None:
    training, _ = started(recipe(teacher=remote(server)))
    start = len(server.asked)
    server.script = lambda i, reply: (500, {}) if i in (start, start + 3) else reply
    running = training.plan.at(training.plan.start())
    batch = scored(training)
    assert bool(batch["teacher_known"].all())
    sent = server.asked[start:]
    assert len(sent) == len(batch) + 2
    told = training.update(running.credit(batch), running, 1)
    assert told["score/teacher/tokens"].value() == sum(len(q["prompt"]) for q in sent)


def test_rows_without_an_answer_are_unknown_and_weigh_nothing(server: Served) -> None:
    training, _ = started(recipe(teacher=remote(server, retries=0, parallel=1), unknown_limit=0.5))
    start = len(server.asked)
    bad = {start: (503, {}), start + 1: {"choices": []}, start + 5: {"choices": [{"text": "", "logprobs": None}]}}
    server.script = lambda i, reply: bad.get(i, reply)
    batch = scored(training)
    known = torch.ones(16, dtype=torch.bool)
    known[[0, 1, 5]] = False
    assert torch.equal(batch["teacher_known"], known)
    running = training.plan.at(training.plan.start())
    done = running.weigh(running.credit(batch))
    silent = ~batch.spread(known)
    assert not bool(done["weight"][silent].any())
    assert torch.equal(batch["teacher_logp"][silent], batch["old_logp"][silent])
    assert bool((done["weight"][~silent] == 1 / int((~silent).sum())).all())


def test_too_many_rows_without_an_answer_stop_the_run(server: Served, tmp_path: Path) -> None:
    server.script = lambda i, reply: reply if i == 0 else (503, {})
    with pytest.raises(Stopped) as caught:
        started(recipe(teacher=remote(server, retries=0)))[0].run()
    for part in ("step 1: the teacher mini", "no word on 16 of the last 16 rows", "503", "unknown_limit = 0.05"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (lambda i, reply: (404, {}), "refuses: 404"),
        (lambda i, reply: {"choices": [{"text": "6*7=1"}]}, "no completion with log-probs"),
        (lambda i, reply: {"choices": [{"text": "6*7", "logprobs": {"token_logprobs": [-0.1]}}]}, "echo the prompt"),
        (
            lambda i, reply: {"choices": [{**reply["choices"][0], "text": "what he said"}]},
            "has another tokenizer: it reads as 'what he said' what the policy wrote as '2+3",
        ),
    ],
)
def test_a_server_that_cannot_teach_is_refused_at_the_start(server: Served, script: Any, says: str) -> None:
    server.script = script
    with pytest.raises(TeacherBroken) as caught:
        started(recipe(teacher=remote(server, retries=0)))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "numbers", [[None, -0.5, "x"], [None, -0.5, None], [None, -0.5, 0.5], [None, -0.5, math.nan], [None, True, -1.0]]
)
def test_numbers_that_are_no_log_probs_are_no_word(server: Served, numbers: list[Any]) -> None:
    server.script = lambda i, reply: {"choices": [{"text": "", "logprobs": {"token_logprobs": numbers}}]}
    teacher = ServedTeacher("m", Address(server.url, "K", 5.0), retries=1, unknown_limit=1.0)
    assert teacher.logp([[1, 2, 3]]) == [None]
    assert len(server.asked) == 2
    assert teacher.read == 6


def test_a_token_without_a_chance_is_a_word(server: Served) -> None:
    server.script = lambda i, reply: {
        "choices": [{"text": "", "logprobs": {"token_logprobs": [None, -math.inf, -9999.0]}}]
    }
    (told,) = ServedTeacher("m", Address(server.url, "K", 5.0)).logp([[1, 2, 3]])
    assert told is not None
    assert math.isnan(told[0])
    assert told[1:] == [-math.inf, -9999.0]


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    teacher = ServedTeacher("m", Address("http://127.0.0.1:9/v1", "K", 1.0), retries=0, unknown_limit=1.0)
    assert teacher.logp([[1, 2], [3, 4]]) == [None, None]
    with pytest.raises(ServerFailed):
        teacher._asked([1, 2])


def test_what_a_server_does_not_tell_is_refused_by_name(server: Served) -> None:
    declare("token", "test/teacher_entropy", "entropy of the teacher")

    @dataclass(frozen=True)
    class Sure:
        needs: ClassVar = ("old_logp", View(Look(entropy="test/teacher_entropy"), "teacher"))
        gives: ClassVar = ("advantage",)

        def __call__(self, batch: Batch) -> Tensor:
            return -batch["test/teacher_entropy"]

    method = grpo().firm("sure", advantage=Sure())
    with pytest.raises(Unsupported, match=r"sure wants test/teacher_entropy of the teacher, and a server tells"):
        started(recipe(method="grpo", teacher=remote(server)), method)


def test_the_recipes_table_becomes_the_teacher(server: Served) -> None:
    made = recipe(teacher=remote(server, retries=1, parallel=3), unknown_limit=0.25)
    training, _ = started(made, opdvr(grpo()))
    teacher = training.engine.served["teacher"]  # type: ignore[attr-defined]
    assert (teacher.retries, teacher.parallel, teacher.unknown_limit, teacher.model) == (1, 3, 0.25, "mini")


# ---- the likeliest tokens, where a paper wants them --------------------------------------------------------
def evidence_of(teacher: dict[str, Any], k: int) -> Batch:
    made = recipe(method=f"verpo(by='teacher', k={k}, silent=True)", teacher=teacher)
    training, _ = started(made)
    running = training.plan.at(training.plan.start())
    kept, seen = training.collect(running, 1, Clock())
    return training.score(pack(kept), running, seen)


def test_a_server_that_names_the_whole_vocabulary_tells_what_a_loaded_teacher_does(server: Served) -> None:
    names = ("evidence/cc", "evidence/cd", "evidence/dd", "evidence/cy", "evidence/blank_logp")
    far, here = evidence_of(remote(server), 32), evidence_of({"model": "mini"}, 32)
    assert bool(far["evidence/looked"].all())
    for name in names:
        torch.testing.assert_close(far[name], here[name], atol=2e-3, rtol=1e-3)
    assert {q["logprobs"] for q in server.asked[1:]} == {32}
    assert len(server.asked[1:]) == 3 * len(far)  # a blank, evidence and another's, of every row
    few = evidence_of(remote(server), 4)
    assert float(torch.corrcoef(torch.stack([few["evidence/cy"], here["evidence/cy"]]))[0, 1]) > 0.8


def test_rows_on_which_a_server_fails_get_no_evidence(server: Served) -> None:
    broken = remote(server, retries=0, parallel=1)
    server.script = lambda i, reply: reply if i != 3 else {"choices": []}
    made = recipe(method="verpo(by='teacher', k=8, silent=True)", teacher=broken, unknown_limit=0.5)
    training, _ = started(made)
    running = training.plan.at(training.plan.start())
    kept, seen = training.collect(running, 1, Clock())
    batch = training.score(pack(kept), running, seen)
    assert int((~batch["evidence/looked"]).sum()) == 1
    blind = batch.spread(~batch["evidence/looked"])
    assert not bool(batch["evidence/cc"][blind].any())


def test_a_server_that_names_tokens_by_text_is_told_what_it_has_to_know(server: Served) -> None:
    def by_text(i: int, reply: dict[str, Any]) -> dict[str, Any]:
        top = reply["choices"][0]["logprobs"].get("top_logprobs")
        if top:
            reply["choices"][0]["logprobs"]["top_logprobs"] = [None, *({"7": -0.1} for _ in top[1:])]
        return reply

    server.script = by_text
    with pytest.raises(TeacherBroken, match="return_tokens_as_token_ids, as vLLM does"):
        evidence_of(remote(server, retries=0), 8)


def test_a_paper_that_wants_whole_distributions_cannot_have_them_from_a_server(server: Served) -> None:
    with pytest.raises(Unsupported, match="verpo's k = 64"):
        started(recipe(method="verpo(by='teacher')", teacher=remote(server)))


def test_the_doctor_calls_groups_that_a_teacher_tells_apart_not_silent() -> None:
    made = recipe(group_size=8, prompts_per_step=8)
    for method, silent in (("grpo", True), ("opdvr", False), ("opdvr(mode='opd')", False), ("opd_then_rl", False)):
        asked = made.model_copy(update={"method": method})
        found = {f.check for f in examine(asked, verifier=lambda answer, gold: 0.0).findings}
        assert ("silent_groups" in found) == silent
        assert "first_step" not in found
