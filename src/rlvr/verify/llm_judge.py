"""The `llm_judge` verifier: a language model behind an OpenAI-compatible address says right or wrong.

The text that is judged was written by a policy that is paid for acceptance, so it is treated as an attack: it stands
between marks that are drawn after it was written, control tokens in it are broken up, and the answer must be one JSON
object of exactly the wanted form. A judge that repeats the mark, or says anything else, has given no verdict. None of
this makes a judge proof against persuasion: audit it (`rlvr audit`) and prefer a verifier that computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rlvr.judges.words import RULES, asking, reply
from rlvr.records import Rollout, Task, Verdict
from rlvr.registry import register
from rlvr.report.store import write_text
from rlvr.server import ADDRESS, Server, ServerAbsent, ServerFailed, ServerRefuses, Threads, retried, unset_key
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import SHOWN, VerifierBroken, fingerprint, gold_text, unknown, words, wrong

RIGHT_OR_WRONG = """{"verdict": "right" or "wrong", "reason": "one sentence"}
It is right only if its final answer agrees with the reference, or, where there is none, answers the question correctly.
An answer that is missing, ambiguous, or several answers at once is wrong."""

MOST_TOKENS = 10_000_000  # that a server may say one request took; ours

log = logging.getLogger("rlvr.verify")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where judges live: an address that speaks OpenAI's chat completions.

    key: the environment variable that holds the key; servers of one's own need none. seconds: for one request, in all.
    retries: further requests after a failure that may pass (busy, timeout, an unreadable answer).
    cache: a folder that keeps verdicts by content, so that no answer is paid for twice.
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    seconds: float = 60.0
    retries: int = 3
    max_tokens: int = 2048
    cache: str | None = None

    def __post_init__(self) -> None:
        if not ADDRESS.match(self.url) or not self.model:
            raise ValueError(
                f"a judge needs an address and a model, as in url='http://localhost:8000/v1', model='name'; got"
                f" {self.url!r}, {self.model!r}"
            )

    def ask(self, form: str, sections: Sequence[tuple[str, str]], answer: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of the judge's JSON. Raises ServerFailed, or VerifierBroken where no request can succeed.

        sections: (heading, text) before the answer. `read` raises ValueError for JSON of the wrong form.
        """
        return self.asked(form, sections, answer, read)[0]

    def asked(
        self,
        form: str,
        sections: Sequence[tuple[str, str]],
        answer: str,
        read: Callable[[Any], T],
        temperature: float = 0,
        vote: int = 0,
    ) -> tuple[T, int]:
        """As `ask`, and the tokens that the server counted for it, in failed tries too; 0 out of the cache."""
        warm = [temperature, vote] if temperature else []
        key = json.dumps([RULES, form, self.url, self.model, self.max_tokens, *warm, *sections, answer])
        place = None
        if self.cache is not None:
            digest = hashlib.sha256(key.encode()).hexdigest()
            place = Path(self.cache).expanduser() / digest[:2] / f"{digest}.json"
            with contextlib.suppress(OSError, ValueError):
                return read(json.loads(place.read_text("utf-8"))), 0
        spent = 0

        def once() -> tuple[Any, T]:
            nonlocal spent
            mark = secrets.token_hex(16)
            content, tokens = self._ask_once(asking(form, sections, answer, mark), temperature)
            spent += tokens
            said = reply(content, mark)
            return said, read(said)

        try:
            said, found = retried(once, self.retries)
        except ServerRefuses as error:
            raise VerifierBroken(f"the judge at {error}") from None
        except ServerFailed as error:
            error.tokens = spent
            raise
        if place is not None:
            _keep(place, said)
        return found, spent

    def _ask_once(self, messages: Sequence[Mapping[str, str]], temperature: float) -> tuple[Any, int]:
        """The words of one reply, and the tokens that the server counted."""
        question = {"model": self.model, "messages": messages, "temperature": temperature}
        said = Server(self.url, self.key, self.seconds).post(
            "chat/completions", question | {"max_tokens": self.max_tokens}
        )
        try:
            told = json.loads(said)
            content = told["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise ServerFailed("the server's reply is no chat completion") from None
        usage = told.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else 0
        return content, tokens if isinstance(tokens, int) and 0 <= tokens < MOST_TOKENS else 0


def _keep(place: Path, said: Any) -> None:
    """Whole or not at all: runs side by side may share the folder. What was said holds where it cannot be kept, too."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(said))
    except OSError as error:
        _not_kept(place.parents[1], error.strerror)


@cache
def _not_kept(folder: Path, why: str) -> None:
    log.warning("the cache %s cannot be written (%s): what a judge says is used, and paid for again", folder, why)


def endpoint_of(verifier: Any) -> Endpoint:
    """The Endpoint that a verifier's fields of the same names describe."""
    return Endpoint(**{f.name: getattr(verifier, f.name) for f in fields(Endpoint)})


def refuse_without_key(name: str, verifier: Any) -> None:
    """Raises VerifierBroken where the verifier names a key that is not set."""
    if lacking := unset_key(name, verifier.key):
        raise VerifierBroken(lacking)


def patience_of(name: str, verifier: Any) -> Patience:
    return Patience(f"{name}: {verifier.model} at {verifier.url}", verifier.seconds, verifier.most_timeouts)


def patient_ask(
    verifier: Any,
    patience: Patience,
    form: str,
    sections: Sequence[tuple[str, str]],
    answer: str,
    task: Task,
    read: Callable[[Any], T],
) -> T:
    """Ask the verifier's endpoint. Raises ServerFailed, and VerifierBroken where nobody has answered for long."""
    try:
        found = endpoint_of(verifier).ask(form, sections, answer, read)
    except ServerAbsent as error:
        patience.overran(task.id, str(error))
        raise
    except ServerFailed:
        patience.answered()
        raise
    patience.answered()
    return found


def prompt_text(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(f"{message.get('role')}: {message.get('content')}" for message in task.prompt)


def judge_side_by_side(
    verifier: Callable[[str, Task], Verdict], items: Sequence[tuple[Rollout | str, Task]], parallel: int
) -> list[Verdict]:
    return Threads(parallel).map(lambda item: verifier(words(item[0]), item[1]), items)


@register("verifier", "llm_judge")
@dataclass(frozen=True, slots=True)
class LlmJudge:
    """Right iff the judge says so, given the question, the gold as reference (None: no reference), and the answer.

    For url, model, key, seconds, retries, max_tokens and cache see `Endpoint`. `parallel` requests run at once;
    `longest` characters are judged at most; `most_timeouts` answers on end to which nobody replies stop the run.
    Reasons: "accepted: why", "rejected: why", "no_answer", "over_limit";
    unknown: "judge_error: why", "bad_gold". Raises VerifierBroken where the server refuses (401, 403, 404).
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    seconds: float = 60.0
    retries: int = 3
    max_tokens: int = 2048
    cache: str | None = None
    parallel: int = 8
    longest: int = 20_000
    most_timeouts: int = MOST_TIMEOUTS
    _patience: Patience = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        endpoint_of(self)
        object.__setattr__(self, "_patience", patience_of("llm_judge", self))

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm_judge", self)

    def prepare(self) -> None:
        refuse_without_key("llm_judge", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        gold = gold_text(task)
        if gold is None and task.answer is not None:
            return unknown("bad_gold")
        if not text.strip():
            return wrong("no_answer")
        if len(text) > self.longest:
            return wrong("over_limit")
        sections = [("Question", prompt_text(task))] + ([("Reference answer", gold)] if gold is not None else [])
        try:
            accepted, why = patient_ask(self, self._patience, RIGHT_OR_WRONG, sections, text, task, _read_verdict)
        except ServerFailed as error:
            return unknown(f"judge_error: {error}"[:300])
        reason = f"{'accepted' if accepted else 'rejected'}: {why}"[:300]
        return Verdict("right" if accepted else "wrong", float(accepted), reason, text[:SHOWN])

    def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
        return judge_side_by_side(self, items, self.parallel)


def _read_verdict(said: Any) -> tuple[bool, str]:
    if not (isinstance(said, dict) and said.keys() == {"verdict", "reason"} and isinstance(said["reason"], str)):
        raise ValueError("the judge's JSON has other keys than verdict and reason")
    if said["verdict"] not in ("right", "wrong"):
        raise ValueError(f"the judge's verdict is {said['verdict']!r:.50}, neither right nor wrong")
    return said["verdict"] == "right", said["reason"]
