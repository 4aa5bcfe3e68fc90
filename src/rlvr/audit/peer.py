"""The asked side for other people's graders: `python peer.py NAME`, in any interpreter that has the grader.

Only the standard library is imported at the top, and nothing of rlvr. Graders hide what they could not do as "wrong";
so each adapter looks inside: an answer or gold that was not read, an exception and a time limit are failures, with
their reason. Each grader's code is called unmodified.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import resource
import sys
import time
import types
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Ask = Callable[[str, str], Any]  # (gold, text) -> what the grader says
Adapter = tuple[Ask, list[str]]  # and the packages whose versions matter


MEMORY = 4 << 30  # bytes; more than any honest answer wants, and the machine stays usable


class Unread(Exception):
    """The grader found nothing to compare; the text is the reason."""


def math_verify(kind: str) -> Adapter:
    """Its parse() and verify(), as its README says; kind: "both" is parse()'s default."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    found = {"latex": [LatexExtractionConfig()], "expr": [ExprExtractionConfig()]}.get(kind)
    settings: dict[str, Any] = {"raise_on_error": True} | ({} if found is None else {"extraction_config": found})

    def ask(gold: str, text: str) -> Any:
        read_gold = parse(gold, **settings)
        if not read_gold:
            raise Unread("gold_unparsable")
        read = parse(text, **settings)
        if not read:
            raise Unread("unparsable")
        return verify(read_gold, read, raise_on_error=True)

    return ask, ["math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime"]


def minerva() -> Adapter:
    """lm-eval's minerva_math: the final answer's sentence, its normaliser, sympy's parse_latex."""
    utils = load_file("lm_eval", "tasks/minerva_math/utils.py")

    def ask(gold: str, text: str) -> Any:
        answer = utils.get_unnormalized_answer(text)
        if answer == "[invalidanswer]":
            raise Unread("no_answer")
        return utils.is_equiv(utils.normalize_final_answer(answer), utils.normalize_final_answer(gold))

    return ask, ["lm-eval", "sympy", "antlr4-python3-runtime"]


def verl_math_reward() -> Adapter:
    grader = from_verl("math_reward")

    def ask(gold: str, text: str) -> Any:
        if grader.last_boxed_only_string(text) is None:
            raise Unread("no_answer")
        return grader.compute_score(text, gold) > 0

    return ask, ["verl"]


def verl_math_dapo() -> Adapter:
    grader = from_verl("math_dapo")

    def ask(gold: str, text: str) -> Any:
        found = grader.compute_score(text, gold)
        if found["pred"] in (None, "[INVALID]"):
            raise Unread("no_answer")
        return found["score"] > 0

    return ask, ["verl"]


def verl_prime_math() -> Adapter:
    grader = from_verl("prime_math")
    return lambda gold, text: bool(grader.compute_score(text, gold)[0]), ["verl", "sympy", "pylatexenc"]


def prm800k() -> Adapter:
    """PRM800K's grade_answer, in the copy that verl ships; the text is the answer."""
    grader = from_verl("prime_math")
    return lambda gold, text: grader.grade_answer(text, gold), ["verl", "sympy", "pylatexenc"]


def mathruler() -> Adapter:
    grader = importlib.import_module("mathruler.grader")

    def ask(gold: str, text: str) -> Any:
        answer = grader.extract_boxed_content(text)
        if answer == "None":
            raise Unread("no_answer")
        return grader.grade_answer(answer, gold)

    return ask, ["mathruler", "sympy", "pylatexenc"]


PEERS: dict[str, Callable[[], Adapter]] = {
    "math-verify": lambda: math_verify("both"),
    "math-verify-latex": lambda: math_verify("latex"),
    "math-verify-expr": lambda: math_verify("expr"),
    "minerva": minerva,
    "prm800k": prm800k,
    "verl-math-reward": verl_math_reward,
    "verl-math-dapo": verl_math_dapo,
    "verl-prime-math": verl_prime_math,
    "mathruler": mathruler,
}


def package(name: str) -> str:
    """Where an installed package lies. It is not imported: its own __init__ may need what the grader does not."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return next(iter(found.submodule_search_locations))


def load_file(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location("peer_file", os.path.join(package(name), path))
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"{name} has no {path}", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_verl(name: str) -> Any:
    """A module of verl.utils.reward_score without running the __init__ of the packages above, which want torch."""
    root = package("verl")
    for parent in ("verl", "verl.utils", "verl.utils.reward_score"):
        module = types.ModuleType(parent)
        module.__path__ = [os.path.join(root, *parent.split(".")[1:])]
        sys.modules[parent] = module
    metric = types.ModuleType("verl.utils.metric")  # wants torch, and graders use nothing of it
    metric.__dict__["Metric"] = object
    sys.modules["verl.utils.metric"] = metric
    return importlib.import_module(f"verl.utils.reward_score.{name}")


def judged(ask: Ask, gold: str, text: str) -> tuple[str, str]:
    """(accept, reject or failure, reason)."""
    try:
        result = ask(gold, text)
    except Unread as fault:
        return "failure", str(fault)
    except TimeoutError:
        return "failure", "own_time_limit"
    except BaseException as error:  # some time limits are no Exception
        name = type(error).__name__
        return "failure", "own_time_limit" if "Timeout" in name else f"exception {name}"
    if result is True or result is False:
        return ("accept", "accepted") if result else ("reject", "rejected")
    return "failure", f"no truth value: {type(result).__name__}"


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main(name: str) -> None:
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def say(reply: Any) -> None:
        sink.write(json.dumps(reply).encode() + b"\n")
        sink.flush()

    try:
        ask, packages = PEERS[name]()
    except (ImportError, AttributeError) as error:
        say({"absent": f"{name} is not installed for {sys.executable}: {error}"})
        return
    versions = {}
    for part in packages:
        with contextlib.suppress(Exception):
            versions[part] = version(part)
    say({"name": name, "versions": versions, "python": sys.version.split()[0]})
    for line in source:
        gold, text = json.loads(line)
        began, cpu = time.perf_counter(), cpu_seconds()
        outcome, reason = judged(ask, gold, text)
        say([outcome, reason, cpu_seconds() - cpu, time.perf_counter() - began])


if __name__ == "__main__":
    main(sys.argv[1])
