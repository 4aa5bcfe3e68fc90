"""Rewrites of the spelling alone: marks, spaces and wrappers that mean nothing, and other styles of the same form.

A rewrite of the text is certified by erasing from both texts what its rule may add: what remains must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rlvr.audit.form import KEYBOARD, UNICODE, show, styled
from rlvr.audit.golds import Gold


class Written(NamedTuple):
    """A rewrite or mutation: its place in the tables, and the text."""

    category: str
    rewrite: str
    text: str
    raw: bool = False  # shown as it is, not in the place where a verifier looks for answers


SCALARS = frozenset(
    ["integer", "round_integer", "power_integer", "fraction", "decimal", "radical", "pi", "polynomial", "two_variables",
     "rational_function", "complex"]
)  # fmt: skip
_SPACE = re.compile(r"\s+")
_GLYPHS = re.compile(r"\\[,;!: ]|~|\\quad|\\displaystyle|\s+")


def _strip(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _no_stop(text: str) -> str:
    return _strip(_strip(text).rstrip("."))


def _no_comma(text: str) -> str:
    return _strip(_strip(text).rstrip(","))


def _no_glyphs(text: str) -> str:
    return _GLYPHS.sub("", text)


def _no_dollars(text: str) -> str:
    for opened, closed in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("\\boxed{", "}"), ("**", "**")):
        if text.startswith(opened) and text.endswith(closed) and len(text) > len(opened) + len(closed):
            return text[len(opened) : -len(closed)]
    return text


def _no_group(text: str) -> str:
    for opened in ("{", "(", "\\text{", "\\mathrm{", "\\mathbf{"):
        if text.startswith(opened) and text[-1:] in "})":
            return text[len(opened) : -1]
    return text


# category, rewrite, template, what erases it, whether it is shown raw
_MARKS: tuple[tuple[str, str, str, Callable[[str], str], bool], ...] = (
    ("whitespace_punct", "trailing full stop", "{}.", _no_stop, False),
    ("whitespace_punct", "trailing newline", "{}\n", _no_stop, False),
    ("whitespace_punct", "full stop and newline", "{}.\n", _no_stop, False),
    ("whitespace_punct", "leading space", " {}", _no_stop, False),
    ("whitespace_punct", "trailing space", "{} ", _no_stop, False),
    ("whitespace_punct", "leading newline", "\n{}", _no_stop, False),
    ("trailing_comma", "trailing comma", "{},", _no_comma, False),
    ("latex_spacing", "leading \\,", "\\,{}", _no_glyphs, False),
    ("latex_spacing", "trailing \\;", "{}\\;", _no_glyphs, False),
    ("latex_spacing", "trailing \\!", "{}\\!", _no_glyphs, False),
    ("latex_spacing", "trailing ~", "{}~", _no_glyphs, False),
    ("latex_spacing", "leading \\quad", "\\quad {}", _no_glyphs, False),
    ("latex_macro", "\\displaystyle", "\\displaystyle {}", _no_glyphs, False),
    ("delimiters", "$...$", "${}$", _no_dollars, True),
    ("delimiters", "$$...$$", "$${}$$", _no_dollars, True),
    ("delimiters", "\\(...\\)", "\\({}\\)", _no_dollars, True),
    ("delimiters", "\\[...\\]", "\\[{}\\]", _no_dollars, True),
    ("delimiters", "\\boxed{...}", "\\boxed{{{}}}", _no_dollars, True),
    ("delimiters", "nothing", "{}", _no_dollars, True),
)
_GROUPS: tuple[tuple[str, str, str], ...] = (("grouping", "(...)", "({})"), ("grouping", "{...}", "{{{}}}"))
_WRAPS = (("text_wrap", "\\text{...}", "\\text{{{}}}"), ("text_wrap", "\\mathrm{...}", "\\mathrm{{{}}}"))
_STYLES = (
    ("latex_macro", "\\dfrac", styled(frac="\\dfrac")),
    ("latex_macro", "\\tfrac", styled(frac="\\tfrac")),
    ("latex_macro", "\\left \\right", styled(left="\\left", right="\\right")),
    ("latex_macro", "\\times", styled(times=" \\times ")),
    ("latex_macro", "\\leq \\geq", styled(less=("\\lt", "\\gt", "\\leq", "\\geq"))),
    ("latex_macro", "short braces", styled(power="", degree="^{\\circ}")),
    ("latex_macro", "bmatrix", styled(matrix="bmatrix")),
    ("latex_macro", "\\mathrm unit", styled(unit=lambda name: f"\\ \\mathrm{{{name}}}")),
    ("latex_spacing", "no space behind commas", styled(comma=",")),
    ("latex_spacing", "\\, behind commas", styled(comma=",\\,")),
    ("keyboard", "keyboard", KEYBOARD),
    ("unicode", "unicode", UNICODE),
    ("unicode", "unicode minus", styled(minus="−")),
)
_FULLWIDTH = str.maketrans("0123456789", "０１２３４５６７８９")
_VULGAR = {"\\frac{1}{2}": "½", "\\frac{1}{4}": "¼", "\\frac{3}{4}": "¾", "\\frac{1}{5}": "⅕", "\\frac{2}{5}": "⅖"}


class BadCertificate(AssertionError):
    """A generator wrote what it must not: the corpus cannot be trusted."""


def marks(text: str) -> Iterator[Written]:
    """Rewrites that need no knowledge of the text: itself, and marks and spaces around it."""
    yield Written("identity", "the same text", text)
    for category, rewrite, template, erase, raw in _MARKS:
        known = category in ("whitespace_punct", "delimiters")
        if known and text == text.strip() and not text.endswith("."):
            yield _certified(Written(category, rewrite, template.format(text), raw), text, erase)


def spellings(gold: Gold) -> Iterator[Written]:
    """Every rewrite of the gold's spelling; each is certified before it is given."""
    yield Written("identity", "the same text", gold.text)
    for category, rewrite, template, erase, raw in _MARKS:
        yield _certified(Written(category, rewrite, template.format(gold.text), raw), gold.text, erase)
    if gold.kind in SCALARS:
        for category, rewrite, template in _GROUPS:
            yield _certified(Written(category, rewrite, template.format(gold.text)), gold.text, _no_group)
    if gold.text.isdigit():
        for category, rewrite, template in _WRAPS:
            yield _certified(Written(category, rewrite, template.format(gold.text)), gold.text, _no_group)
        yield Written("unicode", "full-width digits", gold.text.translate(_FULLWIDTH))
    if gold.text in _VULGAR:
        yield Written("unicode", "vulgar fraction", _VULGAR[gold.text])
    for category, rewrite, style in _STYLES:
        text = show(gold.form, style)
        if text != gold.text and (gold.kind != "matrix" or category not in ("keyboard", "unicode")):
            yield Written(category, rewrite, text)


def _certified(written: Written, text: str, erase: Callable[[str], str]) -> Written:
    if erase(written.text) != erase(text) and erase(written.text) != text:
        raise BadCertificate(f"{written.rewrite!r} changed {text!r} to {written.text!r}")
    return written
