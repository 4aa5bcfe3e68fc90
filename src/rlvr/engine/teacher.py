"""A teacher: a frozen model that says how likely it finds the policy's own tokens, loaded here or behind a server.

The ids that the policy wrote go to it as they are, so its tokenizer must give every token of the policy's the same id.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr.engine.load import Loaded, ModelError
from rlvr.server import Server, ServerFailed, ServerRefuses, Threads, retried

PROBE = "2+3=5, 2*3=6; and so on: A B C D"  # read once by a server, to see whether it reads ids as the policy does
BYTES_A_NAME = 64  # ours: of a reply, what one more id and its log-prob take
BYTES_A_TOKEN = 1024  # ours: of a reply, far above what a token, its log-prob and its place take
TOKEN_ID = re.compile(r"token_id:(\d{1,9})")
STEPS = 10  # over which failures are counted, as for verdicts


class TeacherBroken(RuntimeError):
    """The teacher cannot work at all: the run stops. The sentence says what to do."""


def refuse_other_tokenizer(policy: Loaded, teacher: Loaded) -> None:
    """Raises ModelError where the teacher does not read the policy's ids as the policy does. It may know more tokens,
    and cut text in another way: ids are never cut anew."""
    mine, its = policy.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    other = [(id, token) for token, id in mine.items() if its.get(token) != id]
    if not other:
        return
    id, token = min(other)
    reads = next((t for t, i in its.items() if i == id), None)
    raise ModelError(
        f"{teacher.name} cannot teach {policy.name}: their tokenizers differ in {len(other)} of {len(mine)} tokens; "
        f"the policy's {token!r} has the id {id}, which the teacher reads as "
        f"{'nothing' if reads is None else repr(reads)}. Take a teacher of the same family"
    )


def foreign_ends(policy: frozenset[int], teacher: frozenset[int] | None, mask_end: bool | None) -> frozenset[int]:
    """Ids that end an answer of the policy's and on which the teacher has no say: those that are no end to it, all
    (mask_end True) or none (False). A server does not tell its ends (None)."""
    if mask_end is not None:
        return policy if mask_end else frozenset()
    return frozenset() if teacher is None else policy - teacher


@dataclass(frozen=True, slots=True)
class Heard:
    """What a server says of a row: the log-prob of every id after those before it, nan for the first; at each place
    the likeliest ids with theirs, where they were asked for; and the text that it read."""

    logp: list[float]
    top: list[dict[int, float]]
    text: str | None


@dataclass
class ServedTeacher:
    """A teacher behind an address that speaks OpenAI's completions and echoes a prompt with log-probs (vLLM does).

    unknown_limit: share of rows without a word, over ten steps, above which the run stops. read: tokens that were sent,
    those of further tries included.
    """

    model: str
    server: Server
    retries: int = 3
    parallel: int = 8
    unknown_limit: float = 0.05
    read: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=STEPS))
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def check(self, tokenizer: Any) -> None:
        """One request: is the server there, does it echo log-probs, does it read ids as `tokenizer` does? Raises
        TeacherBroken."""
        ids = tokenizer.encode(PROBE, add_special_tokens=False)
        wrote = tokenizer.decode(ids)
        try:
            text = self._asked(ids).text
        except ServerFailed as error:
            raise TeacherBroken(f"the teacher {self.model} at {self.server.url} does not score: {error}") from None
        if text is not None and not text.startswith(wrote):
            raise TeacherBroken(
                f"the teacher {self.model} at {self.server.url} has another tokenizer: it reads as {text[:60]!r} what "
                f"the policy wrote as {wrote!r}. Take a teacher of the same family"
            )

    def logp(self, rows: Sequence[Sequence[int]]) -> list[list[float] | None]:
        """For each row the log-prob of every id after those before it, nan for the first; None where no usable reply
        came. Raises TeacherBroken where that happens too often, or no request can succeed."""
        return [None if heard is None else heard.logp for heard in self.told(rows, 0)]

    def told(self, rows: Sequence[Sequence[int]], top: int) -> list[Heard | None]:
        """The same, with the `top` likeliest ids at each place."""

        def one(ids: Sequence[int]) -> Heard | ServerFailed:
            try:
                return self._asked(ids, top)
            except ServerFailed as error:
                return error

        heard = Threads(self.parallel).map(one, rows)
        failed = [h for h in heard if isinstance(h, ServerFailed)]
        self.recent.append((len(failed), len(rows)))
        unknown, total = (sum(x) for x in zip(*self.recent))
        if unknown > self.unknown_limit * total:
            raise TeacherBroken(
                f"the teacher {self.model} at {self.server.url} had no word on {unknown} of the last {total} rows "
                f"({failed[0] if failed else 'earlier steps'}), more than unknown_limit = {self.unknown_limit:g}. Mend "
                "the server, give it more time (teacher.seconds, teacher.retries), or raise the limit"
            )
        return [None if isinstance(h, ServerFailed) else h for h in heard]

    def _asked(self, ids: Sequence[int], top: int = 0) -> Heard:
        """What it says of one row."""

        def once() -> Heard:
            with self._lock:
                self.read += len(ids)
            # some servers refuse to write no token at all; what it writes is not looked at
            question = {"model": self.model, "prompt": list(ids), "max_tokens": 1, "echo": True, "temperature": 0}
            question |= {"logprobs": top, "return_tokens_as_token_ids": True} if top else {"logprobs": 1}
            limit = BYTES_A_TOKEN * (len(ids) + 64) + BYTES_A_NAME * top * len(ids)
            return _read(self.server.post("completions", question, limit), len(ids), top)

        try:
            return retried(once, self.retries)
        except ServerRefuses as error:
            raise TeacherBroken(f"the teacher at {error}") from None


def _read(reply: bytes, n: int, top: int) -> Heard:
    """What a reply says of n ids. Raises ServerFailed for a reply of another form."""
    try:
        choice = json.loads(reply)["choices"][0]
        told, text = choice["logprobs"]["token_logprobs"], choice.get("text")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise ServerFailed("the server's reply is no completion with log-probs") from None
    if not isinstance(told, list) or not n <= len(told) <= n + 1:
        count = len(told) if isinstance(told, list) else "no"
        raise ServerFailed(
            f"the server told {count} log-probs of {n} tokens; it has to echo the prompt's, ids as given"
        )
    logp = [math.nan, *map(_log_prob, told[1:n])]
    likeliest = _likeliest(choice["logprobs"].get("top_logprobs"), n) if top else []
    return Heard(logp, likeliest, text if isinstance(text, str) else None)


def _log_prob(x: Any) -> float:
    """Raises ServerFailed for what is none. A token may have no chance at all."""
    try:
        if not isinstance(x, bool) and isinstance(x, int | float) and x <= 1e-3:
            return float(x)
    except OverflowError:  # JSON's integers know no end
        pass
    raise ServerFailed("the server's log-probs are not all log-probs")


def _likeliest(told: Any, n: int) -> list[dict[int, float]]:
    """The ids named at each of n places, as in {"token_id:17": -0.3}."""
    if not isinstance(told, list) or len(told) < n:
        raise ServerFailed("the server told no likeliest tokens (top_logprobs) of its prompt")
    out: list[dict[int, float]] = [{}]
    for named in told[1:n]:
        if not isinstance(named, dict):
            raise ServerFailed("the server's likeliest tokens are no table of names and log-probs")
        ids = {}
        for name, x in named.items():
            found = TOKEN_ID.fullmatch(str(name))
            if found is None:
                raise ServerFailed(
                    f"the server names its likeliest tokens by text ({name!r:.20}), and texts are not ids; it has to "
                    "know return_tokens_as_token_ids, as vLLM does"
                )
            ids[int(found[1])] = _log_prob(x)
        out.append(ids)
    return out


def served(chosen: Any, unknown_limit: float) -> ServedTeacher:
    """The teacher behind the address of a recipe's table."""
    server = Server(chosen.url, chosen.key, chosen.seconds)
    return ServedTeacher(chosen.model, server, chosen.retries, chosen.parallel, unknown_limit)
