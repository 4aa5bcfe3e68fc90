"""The `instructions` verifier: a response keeps to checkable instructions, as in IFEval ("no commas", "two sections").

Names and parameters are those of IFEval (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language
Models"); definitions follow its published text, written anew, without tokenisers: a word is a run of letters, digits
and underscores, a sentence ends in . ! or ? before space. `language:response_language` is left out: it needs a
guessing model.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import LONGEST_ANSWER, SHOWN, fingerprint, unknown, wrong

Check = Callable[..., bool]
CHECKS: dict[str, Check] = {}


class BadInstruction(ValueError):
    """An instruction that cannot be checked as it is written; the text says what is wrong."""


@register("verifier", "instructions")
@dataclass(frozen=True, slots=True)
class Instructions:
    """Right iff the response keeps to every instruction of the gold: [[name, {parameter: value}], ...].

    IFEval's own columns are read too: {"instruction_id_list": [...], "kwargs": [...]}, where a parameter that is None
    is not there. `partial` pays the share kept. An empty response keeps to none. Parts: 1 or 0 for each instruction,
    under its name, with #2, #3 where a name comes again. Reasons: "followed", "not_followed", "no_answer",
    "over_limit" (100 000 characters); unknown: "bad_gold: ..." (a name that nobody checks, a parameter that is missing,
    unknown or of the wrong type), "no_checks".
    """

    partial: bool = False

    @property
    def fingerprint(self) -> str:
        return fingerprint("instructions", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        try:
            asked = read_instructions(task.answer)
        except BadInstruction as error:
            return unknown(f"bad_gold: {error}"[:300])
        if not asked:
            return unknown("no_checks")
        if len(text) > LONGEST_ANSWER:
            return wrong("over_limit")
        parts: dict[str, float] = {}
        for name, parameters in asked:
            number = sum(key.partition("#")[0] == name for key in parts) + 1
            key = name if number == 1 else f"{name}#{number}"
            parts[key] = float(bool(text.strip()) and CHECKS[name](text, **parameters))
        share = sum(parts.values()) / len(parts)
        if share == 1:
            return Verdict("right", 1.0, "followed", text[:SHOWN], parts)
        reason = "not_followed" if text.strip() else "no_answer"
        return Verdict("wrong", share if self.partial else 0.0, reason, text[:SHOWN], parts)


def read_instructions(gold: Any) -> list[tuple[str, dict[str, Any]]]:
    """(name, parameters) of each instruction, checked. Raises BadInstruction."""
    if isinstance(gold, Mapping) and {"instruction_id_list", "kwargs"} <= gold.keys():
        names, tables = gold["instruction_id_list"], gold["kwargs"]
        if not (isinstance(names, Sequence) and isinstance(tables, Sequence) and len(names) == len(tables)):
            raise BadInstruction("instruction_id_list and kwargs are lists of one length")
        gold = [[n, {k: v for k, v in (t or {}).items() if v is not None}] for n, t in zip(names, tables)]
    if not isinstance(gold, Sequence) or isinstance(gold, str):
        raise BadInstruction("instructions are a list of [name, parameters]")
    asked = []
    for entry in gold:
        if not (isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[1], Mapping)):
            raise BadInstruction(f"an instruction is [name, parameters], not {entry!r:.100}")
        name, parameters = entry
        if name not in CHECKS:
            raise BadInstruction(f"no check is called {name!r}; there are {', '.join(CHECKS)}")
        _check_parameters(name, parameters)
        asked.append((name, dict(parameters)))
    return asked


def _check_parameters(name: str, given: Mapping[str, Any]) -> None:
    wanted = {k: v for k, v in get_type_hints(CHECKS[name]).items() if k not in ("text", "return")}
    if wanted.keys() != given.keys():
        raise BadInstruction(f"{name} has the parameters {sorted(wanted)}, not {sorted(given)}")
    for key, value in given.items():
        kind = wanted[key]
        if kind is int:
            fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        elif kind is str:
            fits = isinstance(value, str) and bool(value.strip())
        else:
            fits = isinstance(value, list) and bool(value) and all(isinstance(x, str) and x.strip() for x in value)
        if key.endswith("relation"):
            fits = value in _RELATIONS
        if not fits:
            raise BadInstruction(f"{name}: {key} cannot be {value!r:.100}")


def check(name: str) -> Callable[[Check], Check]:
    """Decorator: the function decides the instruction of this name; its keywords are the parameters."""

    def add(function: Check) -> Check:
        assert "text" in inspect.signature(function).parameters
        CHECKS[name] = function
        return function

    return add


_RELATIONS: dict[str, Callable[[int, int], bool]] = {"less than": int.__lt__, "at least": int.__ge__}
_WORD = re.compile(r"\w+")


def _counts(text: str) -> str:
    return text.casefold()


@check("keywords:existence")
def _existence(text: str, keywords: list[str]) -> bool:
    return all(_counts(word) in _counts(text) for word in keywords)


@check("keywords:frequency")
def _frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _RELATIONS[relation](_counts(text).count(_counts(keyword)), frequency)


@check("keywords:forbidden_words")
def _forbidden(text: str, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"(?<!\w){re.escape(_counts(word))}(?!\w)", _counts(text)) for word in forbidden_words)


@check("keywords:letter_frequency")
def _letters(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _RELATIONS[let_relation](text.lower().count(letter.lower()), let_frequency)


@check("length_constraints:number_words")
def _words(text: str, num_words: int, relation: str) -> bool:
    return _RELATIONS[relation](len(_WORD.findall(text)), num_words)


# After a full stop that ends no sentence.
_ABBREVIATION = re.compile(r"\b(?:(?i:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|fig|inc|jr|sr)|[A-Z])\.$")
_SENTENCE_END = re.compile(r"[.!?]{1,40}+[\"'”’)\]*_]{0,8}+(?=\s|$)")


def sentences(text: str) -> int:
    """How many sentences there are; a last one without an end counts, a list's "1." and "Dr." end none."""
    count, start = 0, 0
    for end in _SENTENCE_END.finditer(text):
        since = max(start, end.start() - 12)
        before = text[since : end.start() + 1]
        number = since == start and re.fullmatch(r"\s*\d{1,3}\.", before)
        if end[0][0] == "." and (number or (end.end() < len(text) and _ABBREVIATION.search(before))):
            continue
        count, start = count + 1, end.end()
    return count + bool(_WORD.search(text, start))


@check("length_constraints:number_sentences")
def _sentences(text: str, num_sentences: int, relation: str) -> bool:
    return _RELATIONS[relation](sentences(text), num_sentences)


def _parts(text: str, divider: str) -> list[str] | None:
    """The parts between dividers; None where one in the middle is empty."""
    parts = [part.strip() for part in text.strip().split(divider)]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return parts if all(parts) else None


@check("length_constraints:number_paragraphs")
def _paragraphs(text: str, num_paragraphs: int) -> bool:
    """Divided by ***."""
    parts = _parts(text, "***")
    return parts is not None and len(parts) == num_paragraphs


@check("length_constraints:nth_paragraph_first_word")
def _first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Divided by an empty line; counted from 1."""
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    word = paragraphs[nth_paragraph - 1].split()[0].strip("\"'“”‘’*_.,;:!?()[]")
    return _counts(word) == _counts(first_word)


@check("detectable_content:number_placeholders")
def _placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many [like this]."""
    return len(re.findall(r"\[[^\[\]\n]+\]", text)) >= num_placeholders


@check("detectable_content:postscript")
def _postscript(text: str, postscript_marker: str) -> bool:
    marker = "".join(_counts(postscript_marker).split())
    return any("".join(_counts(line).split()).startswith(marker) for line in text.splitlines()[1:])


@check("detectable_format:number_bullet_lists")
def _bullets(text: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with * or -."""
    return sum(bool(re.match(r"\s*(?:\*(?!\*)|-(?!-))\s*\S", line)) for line in text.splitlines()) == num_bullets


@check("detectable_format:constrained_response")
def _constrained(text: str) -> bool:
    return sum(f"My answer is {word}." in text for word in ("yes", "no", "maybe")) == 1


@check("detectable_format:number_highlighted_sections")
def _highlights(text: str, num_highlights: int) -> bool:
    """At least so many *like this* or **like this**."""
    found = re.findall(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*", text)
    return sum(bool((bold or slanted).strip()) for bold, slanted in found) >= num_highlights


@check("detectable_format:multiple_sections")
def _sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many headings of the word and a number."""
    return len(re.findall(rf"(?<!\w){re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


@check("detectable_format:json_format")
def _json(text: str) -> bool:
    body = re.sub(r"\A```(?:json)?|```\Z", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


@check("detectable_format:title")
def _title(text: str) -> bool:
    """A line with <<a title>>."""
    spans = [(line.find("<<"), line.rfind(">>"), line) for line in text.splitlines()]
    return any(0 <= start < end and line[start:end].strip("<> \t") for start, end, line in spans)


@check("combination:two_responses")
def _two_responses(text: str) -> bool:
    """Two different ones, divided by ******."""
    parts = _parts(text, "******")
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


@check("combination:repeat_prompt")
def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return _counts(text.strip()).startswith(_counts(prompt_to_repeat.strip()))


@check("startend:end_checker")
def _end(text: str, end_phrase: str) -> bool:
    return _counts(text.strip().strip('"').rstrip()).endswith(_counts(end_phrase.strip()))


@check("startend:quotation")
def _quotation(text: str) -> bool:
    bare = text.strip()
    return len(bare) > 2 and bare[0] == bare[-1] == '"' and bool(bare.strip('"').strip())


@check("change_case:capital_word_frequency")
def _capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return _RELATIONS[capital_relation](sum(word.isupper() for word in _WORD.findall(text)), capital_frequency)


@check("change_case:english_capital")
def _capital(text: str) -> bool:
    return text.isupper()


@check("change_case:english_lowercase")
def _lowercase(text: str) -> bool:
    return text.islower()


@check("punctuation:no_comma")
def _no_comma(text: str) -> bool:
    return "," not in text
