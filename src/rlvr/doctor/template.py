"""Does the model read what the prompts say? Rendered prompts are decoded again and looked through."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from rlvr.assemble import Setup
from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient
from rlvr.engine.renderer import THINK, TemplateError
from rlvr.records import Task

_THOUGHT = re.compile(rf"{THINK[0]}.*?{THINK[1]}", re.DOTALL)


def prompts(patient: Patient) -> Iterator[Finding]:
    """Prompts that do not render, that lose their thinking or their words, or that do not fit the context."""
    setup = patient.setup
    assert setup is not None
    rendered: list[tuple[Task, list[int]]] = []
    refused: list[tuple[Task, str]] = []
    for task in patient.templated:
        try:
            rendered.append((task, setup.renderer.prompt(task.prompt)))
        except TemplateError as error:
            refused.append((task, str(error)))
    n = len(patient.templated)
    if refused:
        yield Finding(
            "prompt_refused",
            "wrong",
            f"{len(refused)} of {n} prompts cannot be rendered, as task {refused[0][0].id}: {refused[0][1]}.",
            "Mend the prompts of the task source, or `chat`, `system` and `as_chat`.",
        )
    yield from _lost(setup, rendered)
    yield from _too_long(setup, rendered)


def _lost(setup: Setup, rendered: Sequence[tuple[Task, list[int]]]) -> Iterator[Finding]:
    without_thinking: list[Task] = []
    rewritten: list[tuple[Task, str]] = []
    for task, ids in rendered:
        seen = _normal(str(setup.renderer.tokenizer.decode(ids, clean_up_tokenization_spaces=False)))
        for words in _contents(task):
            if _normal(words) in seen:
                continue
            if THINK[1] in words and _normal(_THOUGHT.sub("", words)) in seen:
                without_thinking.append(task)
            else:
                rewritten.append((task, words))
    facts = setup.renderer.facts
    by_turns = [task for task, _ in rendered if task.env is not None]
    if without_thinking or (by_turns and facts is not None and not facts.keeps_thinking):
        yield Finding(
            "thinking_dropped",
            "wrong" if without_thinking else "warning",
            "The chat template takes the thinking of earlier turns out"
            + (f": the prompt of task {without_thinking[0].id} reaches the model without it." if without_thinking
               else ", so each turn of a conversation is trained as a row of its own."),
            'Use a template that keeps it (chat = { chat_template = "..." }), or take the thinking out of the prompts.',
        )  # fmt: skip
    if rewritten:
        task, words = rewritten[0]
        yield Finding(
            "content_rewritten",
            "wrong",
            f"{len({t.id for t, _ in rewritten})} of {len(rendered)} prompts do not reach the model as they are "
            f"written: of task {task.id}, {' '.join(words.split())[:50]!r} comes out otherwise, by the chat template "
            "or by a tokenizer that lacks some of its characters.",
            'Use another template (chat = { chat_template = "..." }), as_chat = false, or other characters.',
        )


def _too_long(setup: Setup, rendered: Sequence[tuple[Task, list[int]]]) -> Iterator[Finding]:
    context, most = setup.lm.context, setup.limits.max_tokens
    if context is None:
        return
    long = [(len(ids), task) for task, ids in rendered if len(ids) >= context]
    tight = [(len(ids), task) for task, ids in rendered if context - most < len(ids) < context]
    if long:
        yield Finding(
            "prompt_too_long",
            "wrong",
            f"{len(long)} of {len(rendered)} prompts leave no room for an answer: task {long[0][1].id} has "
            f"{long[0][0]} tokens, and the model reads at most {context}.",
            "Leave these tasks out, shorten them, or take a model with a longer context.",
        )
    elif tight:
        longest = max(n for n, _ in tight)
        yield Finding(
            "context_tight",
            "warning",
            f"{len(tight)} of {len(rendered)} prompts leave less room than max_tokens = {most}: the longest has "
            f"{longest} tokens, and the model reads at most {context}.",
            f"Set max_tokens = {context - longest} or less, or take a model with a longer context.",
        )


def _contents(task: Task) -> list[str]:
    if isinstance(task.prompt, str):
        return [task.prompt]
    return [m["content"] for m in task.prompt if isinstance(m.get("content"), str)]


def _normal(text: str) -> str:
    """What tokenizers may change without harm: kinds and runs of white space, composed characters."""
    return " ".join(unicodedata.normalize("NFKC", text).split())
