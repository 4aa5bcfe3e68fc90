"""Messages to exact token ids and back, for any chat template, without ever re-tokenising what was sampled.

A template is a black box that turns messages into text. The renderer renders marked messages once, takes the text that
follows the assistant's own words (the *tail*: end of turn, new messages, generation prompt), and encodes it in one
call; the ids that were sampled stand before it untouched. Control tokens are honoured only where the template itself
wrote them: spelled out in outside text (a user's words, a tool's result) they stay plain text. What a template does to
a conversation is checked at start-up and kept as `facts`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import jinja2

from rlvr.records import Message, Prompt

THINK = ("<think>", "</think>")
WINDOWS = 2**15  # texts of two or three tokens that are remembered, some megabytes at most
GIVE_TEMPLATE = 'give a template: chat = { chat_template = "..." }'
NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class TemplateError(ValueError):
    """The chat template cannot do what is asked of it; the message says what would work."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the start-up checks found out about a chat template."""

    end_of_turn: int | None  # the control token that closes an assistant turn
    append_only: bool  # what was rendered before stays as it was when the conversation goes on
    keeps_thinking: bool  # thinking of earlier turns stays in view
    opens_thinking: bool  # the generation prompt itself opens the thinking
    content_verbatim: bool  # no trimming, no escapes
    joint_equals_split: bool  # prompt + turn + delta are the ids that encoding the whole conversation gives
    roles: frozenset[str]  # of "system", "tool", and always "user" and "assistant"
    notes: tuple[str, ...]  # each departure in words


class Renderer:
    """Prompts, turns and their decoding for one tokenizer.

    chat: arguments of the template (`{"enable_thinking": False}`, `{"tools": [...]}`, `{"chat_template": "..."}`).
    system: a system message for every prompt that has none of its own.
    as_chat: whether a text prompt becomes a user message (default: where there is a template); False: no template.
    context: the most tokens that the model reads; a prompt of more characters than so many of the longest tokens hold
    is refused without encoding it. Raises TemplateError at once where the template cannot serve.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop_ids: Iterable[int],
        chat: Mapping[str, Any] = NO_ARGUMENTS,
        system: str | None = None,
        as_chat: bool | None = None,
        context: int | None = None,
    ):
        self._window = lru_cache(WINDOWS)(self._decode)  # a few tokens' text: the same few come again and again
        self._behind = lru_cache(WINDOWS)(self._piece)
        self.context, self._longest = context, max(map(len, tokenizer.get_vocab()), default=1)
        self.tokenizer, self.stop_ids, self.chat, self.system = tokenizer, frozenset(stop_ids), dict(chat), system
        self._control = control_tokens(tokenizer)
        self._control_text = {i: s for s, i in self._control.items()}
        self._spelled = re.compile(
            "|".join(re.escape(s) for s in sorted(self._control, key=len, reverse=True)) or r"(?!)"
        )
        self._hidden = self._control_text.keys() - {self._control[mark] for mark in THINK if mark in self._control}
        has_template = bool(tokenizer.chat_template or self.chat.get("chat_template"))
        self.as_chat = has_template if as_chat is None else as_chat
        if self.as_chat and not has_template:
            raise TemplateError(
                "the tokenizer has no chat template, so a prompt cannot become a chat message; set as_chat to false for"
                f" plain text, or {GIVE_TEMPLATE}"
            )
        if system is not None and not self.as_chat:
            raise TemplateError(
                "a system message needs a chat template; put its words into the prompt, or "
                + ("set as_chat to true" if has_template else GIVE_TEMPLATE)
            )
        self._opening = ""  # what the generation prompt writes from its opening of the thinking on
        self._closes = True  # the end of turn belongs to the turn, not to the message after it
        self.facts: Facts | None = self._inspect() if self.as_chat else None

    def prompt(self, prompt: Prompt) -> list[int]:
        """[P] ids that the policy continues. Plain text gets the tokenizer's own leading special tokens (bos).

        Raises TemplateError where the template refuses the prompt, ValueError where it cannot fit the context.
        """
        if self.context is not None and (least := self.fewest(prompt)) > self.context:
            raise ValueError(f"the prompt has at least {least} tokens, and the model reads at most {self.context}")
        if isinstance(prompt, str) and not self.as_chat:
            return self._plain_prompt(prompt)
        messages: Sequence[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not self.as_chat:
            raise TemplateError(
                "the prompt is a list of chat messages, but there is no chat template (or as_chat is false); write the"
                f" prompt as text, or {GIVE_TEMPLATE}"
            )
        for n, message in enumerate(messages):
            if not (isinstance(message, Mapping) and isinstance(message.get("role"), str)):
                raise TemplateError(f'message {n} of the prompt needs a "role" and a "content", got {message!r:.80}')
        if not messages or messages[-1]["role"] == "assistant":
            raise TemplateError(
                "a prompt must end with a message to the assistant, so that the next turn is the policy's"
            )
        if self.system is not None and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.system}, *messages]
        guarded, nonce = self._guarded(messages)
        return self._encode(self._text(guarded), nonce)

    def fewest(self, prompt: Prompt) -> int:
        """A number of tokens that a prompt has at least, by its characters: megabytes need not be encoded."""
        texts = [prompt] if isinstance(prompt, str) else [m.get("content") for m in prompt if isinstance(m, Mapping)]
        return max((len(text) // self._longest for text in texts if isinstance(text, str)), default=0)

    def around(self, prompt: Prompt, template: str) -> tuple[list[int], list[int]]:
        """Ids before and behind a slot in a prompt: `template` holds {slot} and {prompt}, the whole prompt or, in a
        conversation, the words of its last message. What is put between them is encoded by itself."""
        mark = next(f"QZ{n}SZQ" for n in itertools.count() if f"QZ{n}SZQ" not in repr(prompt))
        fill = lambda text: template.replace("{slot}", mark).replace("{prompt}", text)  # noqa: E731
        if not self.as_chat:
            if not isinstance(prompt, str):
                raise TemplateError("a prompt of chat messages needs a chat template; write the prompt as text")
            head, tail = fill(prompt).split(mark)
            plain, full = self._plain(prompt), self.prompt(prompt)
            lead = full[: len(full) - len(plain)] if full[len(full) - len(plain) :] == plain else []
            return [*lead, *self._plain(head)], self._plain(tail)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        if not messages or not isinstance(messages[-1].get("content"), str):
            raise TemplateError("a slot is put into the last message of a prompt, which has to be text")
        messages[-1]["content"] = fill(messages[-1]["content"])
        ids = self.prompt(tuple(messages))
        text, spans = self.spans(ids)
        if text.count(mark) != 1:
            raise TemplateError("the chat template does not show the last message as it is, so nothing can be put in")
        start = text.index(mark)
        end = start + len(mark)
        first = next(n for n, (_, e) in enumerate(spans) if e > start)
        last = next((n for n, (b, e) in enumerate(spans) if b >= end and n > first), len(ids))
        before, behind = text[spans[first][0] : start], text[end : spans[last - 1][1]]  # tokens across the border
        return [*ids[:first], *self._plain(before)], [*self._plain(behind), *ids[last:]]

    def response(self, text: str) -> list[int]:
        """Ids of a response that nobody sampled (a demonstration), with the token that ends the turn.

        Control tokens that it spells out stay plain text. Raises TemplateError where the model has no token to end
        with.
        """
        end = self.facts.end_of_turn if self.facts is not None else self.tokenizer.eos_token_id
        if end is None:
            raise TemplateError(
                "the model has no end-of-sequence token, so a demonstration cannot end; set one in its tokenizer"
            )
        return [*self._plain(text), end]

    def decode(self, ids: Iterable[int]) -> str:
        """The policy's own words: no stop token at the end, no control tokens; the marks of thinking stay."""
        kept = [int(i) for i in ids]
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        return self._decode([i for i in kept if i not in self._hidden])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One display string per token, control tokens spelled out; joined they are the decoded text.

        A character cut across tokens shows at the token that completes it, and the ones before show nothing.
        """
        ids = [int(i) for i in ids]
        out = [piece for piece in map(self._behind, [None, *ids], ids) if piece is not None]
        if len(out) == len(ids):
            return out
        out = []
        context = read = 0  # decoding needs the tokens before: some decoders strip a space at the start
        for end in range(1, len(ids) + 1):
            text = self._window(tuple(ids[context:end]))
            if text.endswith("\ufffd") and end - read < 4 and end < len(ids):  # UTF-8 has at most 4 bytes a character
                out.append("")
                continue
            out.append(text[len(self._window(tuple(ids[context:read]))) :])
            context, read = read, end
        return out

    def _piece(self, before: int | None, id: int) -> str | None:
        """What a token writes behind another one; None where a character is cut."""
        context = () if before is None else (before,)
        text = self._window((*context, id))
        return None if text.endswith("\ufffd") else text[len(self._window(context)) :]

    def spans(self, ids: Iterable[int]) -> tuple[str, list[tuple[int, int]]]:
        """What `decode` makes of these ids, and for each the characters [start, end) of it that it wrote.

        A stop token at the end and a control token wrote none; a character cut across tokens is every one's.
        """
        ids = [int(i) for i in ids]
        last = len(ids)
        while last and ids[last - 1] in self.stop_ids:
            last -= 1
        pieces = self.pieces(ids)
        wrote = ["" if n >= last or id in self._hidden else piece for n, (id, piece) in enumerate(zip(ids, pieces))]
        ends = list(itertools.accumulate(map(len, wrote)))
        spans = list(zip([0, *ends], ends))
        if "" in pieces:
            parts = 0  # tokens before, of a character that is not whole
            for n, (id, piece) in enumerate(zip(ids[:last], pieces)):
                if wrote[n]:
                    spans[n - parts : n] = [spans[n]] * parts
                parts = parts + 1 if not piece and id not in self._hidden else 0
        return "".join(wrote), spans

    def delta(self, last_id: int, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """What to append after a sampled turn whose last id is `last_id`, up to the policy's next word.

        Returns (close, new): the template's ids that close a turn which the policy left open (none if it ended with a
        stop id: that id stays), then the ids of the new messages and the generation prompt. Raises TemplateError where
        the template refuses the messages or has no end-of-turn token.
        """
        facts = self._chat_facts()
        if facts.end_of_turn is None:
            raise TemplateError(
                "the chat template writes no control token after an assistant turn, so the policy cannot end its turn"
                " and a conversation cannot go on; use a template that does, such as ChatML"
            )
        guarded, nonce = self._guarded(messages)
        ids = self._encode(self._tail(guarded, nonce), nonce)
        end = next((n for n, i in enumerate(ids) if i in self.stop_ids), None)
        if end is None:
            raise TemplateError(f"the chat template does not close the turn before {[m['role'] for m in messages]}")
        ended = last_id == ids[end] or (last_id in self.stop_ids and self._closes)
        return ([] if ended else ids[: end + 1]), ids[end + 1 :]

    def chain_ids(self, messages: Sequence[Message]) -> tuple[list[int], list[str]]:
        """What a chat server would send now, but with the sampled ids wherever the template still shows a turn whole.

        A sampled assistant message carries "ids" (as sampled, stop id included) in place of "content". The second list
        has a fate for each of them: "kept"; "rewritten" (the template took the thinking out; the ids of the answer
        stand, and are encoded anew only if a token straddles the border); "dropped". A template that rewrites history
        makes another prefix: the caller forks there, and the first row keeps its tokens.
        """
        facts = self._chat_facts()
        guarded, nonce = self._guarded([{k: v for k, v in m.items() if k != "ids"} for m in messages])
        sampled = [[int(i) for i in m["ids"]] for m in messages if "ids" in m]
        thought = [THINK[1] in self.decode(ids) for ids in sampled]
        number = itertools.count()
        for message, shown in zip(messages, guarded, strict=True):
            if "ids" in message:
                n = next(number)
                answer = f"QZ{nonce}A{n}ZQ"
                shown["content"] = f"{THINK[0]}\nQZ{nonce}T{n}ZQ\n{THINK[1]}\n\n{answer}" if thought[n] else answer
        text = self._text(guarded)
        out: list[int] = []
        fates = ["dropped"] * len(sampled)
        at, skip_close = 0, False

        def add_text(part: str) -> None:
            ids = self._encode(part, nonce)
            out.extend(ids[next((n + 1 for n, i in enumerate(ids) if i in self.stop_ids), 0) :] if skip_close else ids)

        for hit in re.finditer(rf"QZ{nonce}([AT])(\d+)ZQ", text):
            if hit.start() < at:
                continue  # the answer whose thinking was shown
            n = int(hit[2])
            start, ids = hit.start(), sampled[n]
            if hit[1] == "T":
                start = text.rindex(THINK[0], at, start) + len(self._opening)
                at_next = text.index(f"QZ{nonce}A{n}ZQ", hit.end()) + len(f"QZ{nonce}A{n}ZQ")
                fates[n] = "kept"
            else:
                at_next = hit.end()
                fates[n] = "rewritten" if thought[n] else "kept"
                ids = self._answer_ids(ids) if thought[n] else ids
            add_text(text[at:start])
            ended = bool(ids) and ids[-1] in self.stop_ids
            skip_close = ended and ids[-1] != facts.end_of_turn
            out.extend(ids[:-1] if ended and not skip_close else ids)
            at = at_next
        add_text(text[at:])
        return out, fates

    # text and ids

    def _chat_facts(self) -> Facts:
        if self.facts is None:
            raise TemplateError(f"a conversation needs a chat template; {GIVE_TEMPLATE}")
        return self.facts

    def _text(self, messages: Sequence[Message], generate: bool = True) -> str:
        return render(self.tokenizer, messages, self.chat, generate)

    def _decode(self, ids: Sequence[int]) -> str:
        if (fast := getattr(self.tokenizer, "backend_tokenizer", None)) is not None:
            return str(fast.decode(ids, skip_special_tokens=False))  # what the line below does, at a third of its price
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _guarded(self, messages: Sequence[Message]) -> tuple[list[dict[str, Any]], str]:
        """The messages with every spelled-out control token replaced by a word of letters and digits, which survives
        trimming and escaping, and the nonce that makes these words unlike anything in the messages."""
        seen = repr(messages)
        nonce = next(str(n) for n in itertools.count() if f"QZ{n}" not in seen)

        def guard(value: Any, thinks: bool) -> Any:
            if isinstance(value, str):
                return self._spelled.sub(
                    lambda m: m[0] if thinks and m[0] in THINK else f"QZ{nonce}x{self._control[m[0]]}ZQ", value
                )
            if isinstance(value, Mapping):
                return {k: v if k in ("role", "type") else guard(v, thinks) for k, v in value.items()}
            return [guard(v, thinks) for v in value] if isinstance(value, list | tuple) else value

        return [guard(dict(m), thinks=m.get("role") == "assistant") for m in messages], nonce

    def _encode(self, text: str, nonce: str) -> list[int]:
        """Ids of rendered text, control tokens only where the template wrote them.

        All of it in one call; only text in which outsiders spell control tokens is encoded part by part.
        """
        guards = re.compile(rf"QZ{nonce}x(\d+)ZQ")

        def plain(part: str) -> list[int]:
            return self._plain(guards.sub(lambda m: self._control_text[int(m[1])], part))

        if not guards.search(text):
            ids = list(self.tokenizer.encode(text, add_special_tokens=False))
            written = [self._control[s] for s in self._spelled.findall(text)]
            if [i for i in ids if i in self._control_text] == written:  # else a normaliser has made one of other text
                return ids
        out: list[int] = []
        at = 0
        for hit in self._spelled.finditer(text):
            out += [*plain(text[at : hit.start()]), self._control[hit[0]]]
            at = hit.end()
        return out + plain(text[at:])

    def _plain(self, text: str, bos: bool = False) -> list[int]:
        ids = (
            list(self.tokenizer.encode(text, add_special_tokens=bos, split_special_tokens=True)) if text or bos else []
        )
        if not bos and not self._control_text.keys().isdisjoint(ids):
            unknown = self.tokenizer.unk_token
            if unknown is not None and unknown not in text and self._control[unknown] in ids:
                lost = next((c for c in text if self._control[unknown] in self.tokenizer.encode(c)), text[:20])
                raise TemplateError(
                    f"the tokenizer has no token for {lost!r} and would read it as {unknown}; write {text[:40]!r} in"
                    " characters that the model knows, or take another model"
                )
            raise TemplateError(
                f"{type(self.tokenizer).__name__} cannot keep a control token that outside text spells as plain text;"
                " use the model's fast tokenizer (tokenizer.json)"
            )
        return ids

    def _plain_prompt(self, text: str) -> list[int]:
        bare, full = self._plain(text), self._plain(text, bos=True)
        n = len(bare)
        for lead in range(len(full) - n + 1):
            if full[lead : lead + n] == bare:
                full = full[: lead + n]  # some tokenizers also add an end-of-sequence token, which would end the prompt
                break
        if not full:
            raise TemplateError("the prompt is empty: it has no text and the tokenizer adds no bos token")
        return full

    def _answer_ids(self, ids: list[int]) -> list[int]:
        """The sampled ids that follow the thinking; encoded anew only where a token straddles the border."""
        pieces = self.pieces(ids)
        text = "".join(pieces)
        border = text.rindex(THINK[1]) + len(THINK[1])
        border += len(text[border:]) - len(text[border:].lstrip("\n"))
        for n, end in enumerate(itertools.accumulate(map(len, pieces), initial=0)):
            if end == border:
                return ids[n:]
        tail = [ids[-1]] if ids[-1] in self.stop_ids else []
        return self._plain(self.decode(ids).rsplit(THINK[1], 1)[1].lstrip("\n")) + tail

    # the template

    def _tail(self, messages: Sequence[Message], nonce: str, generate: bool = True) -> str:
        return tail(self.tokenizer, messages, self.chat, nonce, generate)

    def _inspect(self) -> Facts:
        """The start-up checks. Raises TemplateError where no conversation can be rendered truly."""
        user, words, later = "QZ0UZQ", "QZ0AZQ", "QZ0VZQ"
        ask, say, more = ({"role": r, "content": c} for r, c in (("user", user), ("assistant", words), ("user", later)))
        notes: list[str] = []
        head = self._text([ask])
        if head.count(user) != 1:
            raise TemplateError(
                f"the chat template shows the user's message {head.count(user)} times; it must show it once"
            )
        if self.system is not None and "QZ0SZQ" not in self._text([{"role": "system", "content": "QZ0SZQ"}, ask]):
            raise TemplateError("the chat template drops the system message; put its words into the prompt")

        end = end_of_turn(self.tokenizer, self.chat)
        if end is None:
            notes.append("no control token follows an assistant turn: conversations of several turns are refused")
        elif end not in self.stop_ids:
            raise TemplateError(
                f"the chat template closes an assistant turn with {self._decode([end])!r}, which is not a stop token;"
                f" add its id {end} to the stop ids"
            )

        closed, following = self._tail([], "0", generate=False), self._tail([more], "0")
        ids = self._encode(following, "0")
        before_end = ids[: ids.index(end)] if end in ids else []
        self._closes = end in self._encode(closed, "0")
        if before_end:
            notes.append(
                f"{self._decode(before_end)!r} stands before the end of a turn: a sampled turn will not contain it"
            )

        history = self._text([ask, say, more]).split(words)[0]
        append_only = True
        if self._text([ask, say], generate=False).split(words)[0] != history:
            notes.append("earlier text changes when a turn is added")
            append_only = False
        if head != history:
            same = len(_common(head, history))
            notes.append(f"the generation prompt ends with {head[same:]!r}, where history has {history[same:]!r}")
            append_only = False
        if not following.startswith(closed.rstrip()):
            notes.append("what follows an assistant turn depends on whether it is the last one")
            append_only = False

        opens = head.rstrip().endswith(THINK[0])
        self._opening = head[head.rindex(THINK[0]) :] if opens else ""
        thinking = {"role": "assistant", "content": f"{THINK[0]}\nQZ0TZQ\n{THINK[1]}\n\n{words}"}
        keeps = "QZ0TZQ" in self._text([ask, thinking, more])
        if not keeps:
            notes.append("the thinking of earlier turns is taken out")

        roles = {"user", "assistant"}
        for role, messages in (
            ("system", [{"role": "system", "content": "QZ0RZQ"}, ask]),
            ("tool", [ask, say, {"role": "tool", "content": "QZ0RZQ"}]),
        ):
            try:
                if "QZ0RZQ" in self._text(messages):
                    roles.add(role)
                else:
                    notes.append(f"messages of the role {role!r} are dropped")
            except TemplateError as error:
                notes.append(f"the role {role!r} is refused: {error}")

        verbatim = joint = True
        for probe in ("  two  spaces\n", "\n\nlines\n\n", '{"a": "<b> & \\n"}'):
            new = {"role": "user", "content": probe}
            if probe not in self._text([ask, say, new]):
                notes.append(f"content is rewritten: {probe!r}")
                verbatim = False
            whole = self._text([ask, {"role": "assistant", "content": "Say 3."}, new])
            parts = (head, "Say 3.", self._tail([new], "0"))
            if [i for part in parts for i in self._encode(part, "0")] != self._encode(whole, "0"):
                joint = False
        if append_only and not joint:
            notes.append("encoding a whole conversation gives other ids than encoding its parts")
        return Facts(
            end_of_turn=end,
            append_only=append_only and keeps,
            keeps_thinking=keeps,
            opens_thinking=opens,
            content_verbatim=verbatim,
            joint_equals_split=joint,
            roles=frozenset(roles),
            notes=tuple(notes),
        )


def control_tokens(tokenizer: Any) -> dict[str, int]:
    """Every special token of a tokenizer, its text to its id."""
    added = {t.content: int(i) for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    return added | dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))


def render(tokenizer: Any, messages: Sequence[Message], chat: Mapping[str, Any], generate: bool) -> str:
    """Messages to text. Raises TemplateError with the template's own reason."""
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(m) for m in messages], tokenize=False, add_generation_prompt=generate, **chat
            )
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(str(m.get("role")) for m in messages)
        raise TemplateError(f"the chat template cannot render messages of the roles {roles}: {error}") from None


def tail(tokenizer: Any, messages: Sequence[Message], chat: Mapping[str, Any], nonce: str, generate: bool) -> str:
    """The text that follows an assistant's own words when these messages come next."""
    words = f"QZ{nonce}AZQ"
    start = [{"role": "user", "content": f"QZ{nonce}UZQ"}, {"role": "assistant", "content": words}]
    text = render(tokenizer, [*start, *messages], chat, generate)
    if text.count(words) != 1:
        raise TemplateError(
            f"the chat template shows an assistant message {text.count(words)} times; it must show it once"
        )
    return text.split(words)[1]


def end_of_turn(tokenizer: Any, chat: Mapping[str, Any] = NO_ARGUMENTS) -> int | None:
    """The id of the first control token that the template writes between an assistant's words and the next message."""
    following = tail(tokenizer, [{"role": "user", "content": "QZ0VZQ"}], chat, "0", True)
    if "QZ0VZQ" not in following:
        raise TemplateError("the chat template drops the second user message")
    between = following.split("QZ0VZQ")[0]
    found = [(between.find(s), -len(s), i) for s, i in control_tokens(tokenizer).items() if s in between]
    return min(found)[2] if found else None


def _common(a: str, b: str) -> str:
    return a[: next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))]
