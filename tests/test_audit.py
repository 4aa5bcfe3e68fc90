"""An audit says of a verifier what is so: known verifiers come out as they are, whatever they do to the audit."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr.audit import peer
from rlvr.audit.asking import Asked, NotAudited
from rlvr.audit.corpus import corpus
from rlvr.audit.document import as_json, as_markdown
from rlvr.audit.fail_on import limits
from rlvr.audit.page import page
from rlvr.audit.run import Verdicts, audited
from rlvr.audit.summary import Summary, summary
from rlvr.audit.tables import tables
from rlvr.audit.targets import PEERS, target
from rlvr.cli import main

ROOT = Path(__file__).parents[1]
FUNCTIONS = """
import json, os, time
from fractions import Fraction
from rlvr.records import Verdict

TRUTH = {{(gold, answer) for gold, answer in json.load(open({truth!r}))}}

def oracle(answer, gold): return (gold, answer) in TRUTH
def never(answer, gold): return False
def raises(answer, gold): raise KeyError("broken")
def nothing(answer, gold): return None
def exact(answer, gold): return answer == gold
def strips(answer, gold): return answer.strip() == gold
def strips_stops(answer, gold): return answer.strip().rstrip(".").strip() == gold

def tolerant(answer, gold):
    try:
        a, g = Fraction(answer), Fraction(gold)
    except ValueError:
        return answer == gold
    return abs(a - g) <= Fraction(1, 10**4) * max(abs(a), abs(g))

def sleeps(answer, gold):
    if answer.startswith("(") and "," not in answer:
        time.sleep(60)
    return answer == gold

def gives_up(text, task): return Verdict("wrong", 0.0, "timeout")

def dies(answer, gold):
    if answer.endswith(","):
        os._exit(3)
    return answer == gold

def verl(data_source, solution_str, ground_truth, extra_info=None): return 1.0 if solution_str == ground_truth else -1.0
def trl(completions, answer, **columns): return [float(c == a) for c, a in zip(completions, answer)]
"""


@pytest.fixture(scope="module")
def math():
    return corpus("math")


@pytest.fixture(scope="module")
def few(math):
    """A tenth of the mathematics, all golds of it whole, and the ladder."""
    golds = sorted({p.gold for p in math.pairs if p.part == "pairs"})[::10]
    return replace(math, pairs=tuple(p for p in math.pairs if p.part == "ladder" or p.gold in golds))


@pytest.fixture(scope="module")
def functions(tmp_path_factory, math):
    folder = tmp_path_factory.mktemp("functions")
    truth = folder / "truth.json"
    truth.write_text(json.dumps([(p.gold, p.answer) for p in math.pairs if p.equal]))
    file = folder / "functions.py"
    file.write_text(FUNCTIONS.format(truth=str(truth)))
    return file


def audit(functions: Path, name: str, asked, seconds: float = 5.0, log: Path | None = None) -> Verdicts:
    return audited(replace(target(f"{functions}:{name}"), name=name), asked, seconds, log)


def rows(verdicts: list[Verdicts], key: str) -> list[tuple[str, ...]]:
    return list(next(t for t in tables(verdicts) if t.key == key).rows)


# ---- known verifiers -------------------------------------------------------------------------------------
def test_a_perfect_verifier_is_found_perfect(functions, math):
    seen = summary(audit(functions, "oracle", math))
    assert (seen.rejected, seen.failed, seen.accepted, seen.ladder_accepted, seen.hostile_accepted) == (0, 0, 0, 0, 0)
    assert seen.equal > 2500
    assert seen.different > 500


def test_one_that_always_says_no_has_no_failures_and_one_that_always_raises_has_nothing_else(functions, few):
    no = summary(audit(functions, "never", few))
    assert (no.rejected, no.failed, no.accepted) == (no.equal, 0, 0)
    for name in ("raises", "nothing"):
        bad = summary(audit(functions, name, few))
        assert (bad.rejected, bad.failed, bad.accepted) == (0, bad.equal, 0)


def test_a_relative_tolerance_shows_as_a_step_at_its_inverse(functions, few):
    # n + 1 is within 1e-4 * (n + 1) of n from n = 9999 on
    verdicts = audit(functions, "tolerant", few)
    assert verdicts.step == 9999
    sizes = {row[0]: row[2] for row in rows([verdicts], "T6b")}
    assert [sizes[f"10^{d}"] for d in (0, 1, 2)] == ["0", "0", "0"]
    assert {sizes[f"10^{d}"] for d in range(4, 13)} == {"100%"}
    assert sizes["n + 1 accepted from n ="] == "9,999"
    assert audit(functions, "exact", few).step is None


def test_a_stripped_full_stop_moves_the_row_of_white_space_and_punctuation_alone(functions, few):
    before, after = (
        {r[0]: r[2] for r in rows([audit(functions, name, few)], "T2")} for name in ("strips", "strips_stops")
    )
    assert {name for name in before if before[name] != after[name]} == {"whitespace_punct"}
    assert after["whitespace_punct"] == "0"


@pytest.mark.parametrize("shape", ["verl", "trl"])
def test_functions_of_verl_and_trl_are_audited_as_they_are(functions, few, shape):
    ours, theirs = (audit(functions, name, few) for name in ("exact", shape))
    assert {k: r.outcome for k, r in ours.replies.items()} == {k: r.outcome for k, r in theirs.replies.items()}


# ---- hostile verifiers -----------------------------------------------------------------------------------
def test_one_that_hangs_is_killed_at_its_deadline_and_the_others_are_judged(functions, few):
    asked = replace(few, pairs=tuple(p for p in few.pairs if p.kind == "integer" and p.part == "pairs"))
    verdicts = audit(functions, "sleeps", asked, seconds=0.4)
    late = {p.id for p in asked.pairs if p.answer.startswith("(")}
    assert late
    assert {k for k, r in verdicts.replies.items() if r.reason == "timeout"} == late
    assert verdicts.killed >= len(late)
    assert all(verdicts.replies[p.id].outcome == "accept" for p in asked.pairs if p.answer == p.gold)


def test_one_that_dies_costs_only_the_pair_it_was_at(functions, few):
    asked = replace(few, pairs=tuple(p for p in few.pairs if p.kind == "integer" and p.part == "pairs"))
    verdicts = audit(functions, "dies", asked)
    died = {p.id for p in asked.pairs if p.answer.endswith(",")}
    assert died
    assert {k for k, r in verdicts.replies.items() if r.reason == "died"} == died


def test_a_verifier_that_says_itself_that_time_is_over_is_not_killed(functions, few):
    told = audit(functions, "gives_up", replace(few, pairs=few.pairs[:20]))
    assert {r.reason for r in told.replies.values()} == {"timeout"}
    assert told.killed == 0


def test_megabytes_are_sent_ahead_without_being_copied_again_and_again(functions):
    asked = Asked(target(f"{functions}:never").command, 5.0)
    try:
        replies = list(asked.ask([("1", "x" * 3_000_000)] * 40))
    finally:
        asked.close()
    assert {r.outcome for r in replies} == {"reject"}


def test_a_verifier_that_cannot_be_built_is_a_sentence():
    with pytest.raises(NotAudited, match="did you mean 'numeric'"):
        Asked(target("numerik").command, 5.0)


# ---- logs and tables -------------------------------------------------------------------------------------
def test_an_interrupted_audit_goes_on_where_it_stopped(functions, few, tmp_path):
    log = tmp_path / "log.jsonl"
    whole = audit(functions, "exact", few, log=log)
    lines = log.read_text().splitlines()
    cut = len(lines) // 2
    log.write_text("\n".join(lines[:cut]) + "\n" + lines[cut][:9])
    seen: list[int] = []
    again = audited(replace(target(f"{functions}:exact"), name="exact"), few, 5.0, log, seen.append)
    assert seen[0] == cut  # of the whole, cut - 1 were known, the next was asked
    assert {k: r.outcome for k, r in again.replies.items()} == {k: r.outcome for k, r in whole.replies.items()}
    assert rows([again], "T2") == rows([whole], "T2")


def test_a_log_of_another_corpus_is_not_used(functions, few, tmp_path):
    log = tmp_path / "log.jsonl"
    audit(functions, "exact", few, log=log)
    seen: list[int] = []
    other = replace(few, pairs=few.pairs[1:])
    audited(replace(target(f"{functions}:exact"), name="exact"), other, 5.0, log, seen.append)
    assert seen[0] == 1


def test_tables_do_not_depend_on_the_order_of_verdicts(functions, few):
    verdicts = audit(functions, "strips", few)
    shuffled = list(few.pairs)
    random.Random(1).shuffle(shuffled)
    again = replace(verdicts, corpus=replace(few, pairs=tuple(shuffled)))
    for one, other in zip(tables([verdicts]), tables([again])):
        assert sorted(one.rows) == sorted(other.rows)


def test_two_that_judge_alike_disagree_nowhere(functions, few):
    one, other = audit(functions, "strips", few), replace(audit(functions, "strips", few), name="again")
    assert rows([one, other], "T5") == [("strips", "", "0.0%"), ("again", "0.0%", "")]


def test_the_json_has_a_letter_for_every_pair_and_the_page_escapes_names(functions, few):
    verdicts = replace(audit(functions, "strips", few), name="<script>alert(1)</script>")
    told = as_json([verdicts], "rlvr audit x")
    (one,) = told["verifiers"]
    assert len(one["outcomes"]) == len(few.pairs)
    accepted = sum(r.outcome == "accept" for r in verdicts.replies.values())
    assert one["outcomes"].count("A") == accepted
    json.dumps(told, allow_nan=False)
    html = page([verdicts], "Audit of <b>x</b>")
    assert "<script>alert(1)" not in html
    assert "<b>x</b>" not in html
    assert "| whitespace_punct |" in as_markdown([verdicts])


# ---- limits and the command ------------------------------------------------------------------------------
def counts(**changes: int) -> Summary:
    return replace(Summary(100, 0, 0, 50, 0, 20, 0, 10, 0), **changes)


def test_limits_are_read_and_their_mistakes_named():
    assert [(x.measure, x.most) for x in limits(["false_accept, hostile", "false_reject>0.05"])] == [
        ("false_accept", 0.0), ("hostile", 0.0), ("false_reject", 0.05),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no measure 'acuracy'"):
        limits(["acuracy"])
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        limits(["ladder>5"])


def test_the_command_exits_with_1_over_a_limit_and_writes_its_files(functions, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(
            ["audit", f"{functions}:strips", "--corpus", "numbers", "--out", str(tmp_path), "--fail-on", "false_reject"]
        )
    assert stopped.value.code == 1
    assert "false_reject" in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"audit.md", "audit.json", "audit.html", "raw"}
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "numeric", "--fail-on", "false_accept,false_reject,ladder,hostile,killed", "--json"])
    assert stopped.value.code == 0
    assert json.loads(capsys.readouterr().out)["verifiers"][0]["all"]["accepted"] == 0


def test_a_wrap_without_a_place_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "numeric", "--wrap", "Answer:"])
    assert stopped.value.code == 2
    assert "no {}" in capsys.readouterr().err


# ---- our own verifiers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["numeric", "choice", "json_schema"])
def test_ours_refuse_nothing_right_and_accept_nothing_wrong(name):
    chosen = target(name)
    verdicts = audited(chosen, corpus(chosen.corpus), 5.0)
    seen = summary(verdicts)
    assert (seen.rejected, seen.failed, seen.accepted, seen.ladder_accepted, seen.hostile_accepted) == (0, 0, 0, 0, 0)
    assert verdicts.killed == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")
def test_code_refuses_no_right_program_and_pays_no_wrong_one():
    """Every fourth program, and everything hostile; make audit asks them all."""
    chosen, whole = target("code"), corpus("code")
    honest = [p for p in whole.pairs if p.part == "pairs"]
    some = {p.id for p in honest[::4]} | {p.id for p in honest if p.rewrite == "Solution with a method"}
    asked = replace(whole, pairs=tuple(p for p in whole.pairs if p.part == "hostile" or p.id in some))
    verdicts = audited(chosen, asked, 15.0)
    assert chosen.name == "code(seconds=2)"
    seen = summary(verdicts)
    assert (seen.rejected, seen.failed, seen.accepted, seen.hostile_accepted, verdicts.killed) == (0, 0, 0, 0, 0)
    assert {verdicts.replies[p.id].reason for p in asked.pairs if p.category == "endless"} <= {"timeout"}


@pytest.mark.parametrize("name", ["math", "wide"])
def test_mathematics_is_judged_without_a_wrong_acceptance(name):
    verdicts = audited(target("math"), corpus(name), 5.0)
    seen = summary(verdicts)
    assert (seen.accepted, seen.ladder_accepted, seen.hostile_accepted, verdicts.killed) == (0, 0, 0, 0)
    for half in ("tuned", "frozen"):
        assert summary(verdicts, half).false_reject <= 0.005
    golds = [verdicts.replies[p.id].outcome for p in verdicts.corpus.pairs if p.rewrite == "the same text"]
    assert set(golds) <= {"accept"}


# ---- peers -----------------------------------------------------------------------------------------------
def test_what_a_peer_raises_or_returns_is_told_apart():
    def says(result):
        return peer.judged(lambda gold, text: result, "1", "1")

    def fails(error):
        def ask(gold, text):
            raise error

        return peer.judged(ask, "1", "1")

    assert says(True) == ("accept", "accepted")
    assert says(False) == ("reject", "rejected")
    assert says(None) == ("failure", "no truth value: NoneType")
    assert fails(peer.Unread("no_answer")) == ("failure", "no_answer")
    assert fails(TimeoutError()) == ("failure", "own_time_limit")
    assert fails(ZeroDivisionError()) == ("failure", "exception ZeroDivisionError")
    assert fails(SystemExit()) == ("failure", "exception SystemExit")


def test_a_peer_that_is_not_installed_is_named_as_such():
    with pytest.raises(NotAudited, match="mathruler is not installed"):
        Asked(target("mathruler", python=sys.executable).command, 5.0)


def test_every_peer_has_an_adapter_and_an_environment():
    assert set(PEERS) == set(peer.PEERS)
    made = {path.stem.removeprefix("requirements-") for path in (ROOT / "audit_peers").glob("requirements-*.txt")}
    assert {p.environment for p in PEERS.values()} == made


def test_the_committed_audit_speaks_of_the_corpora_as_they_are():
    told = json.loads((ROOT / "benchmarks/results/audit.json").read_text())
    assert {c["name"]: c["digest"] for c in told["corpora"]} == {
        c: corpus(c).digest for c in ("math", "numbers", "choice", "json", "code")
    }
    assert set(PEERS) <= {v["name"] for v in told["verifiers"]} | set(told["absent"])


def test_a_verifier_that_no_corpus_fits_is_not_held_against_mathematics() -> None:
    with pytest.raises(ValueError, match="no corpus for sql yet"):
        target("sql")
    assert target("sql", corpus="math").corpus == "math"
