"""From the text of an answer to tokens: LaTeX, Unicode and keyboard spellings become one."""

from __future__ import annotations

import re

from rlvr.verify.math.lexicon import COMMANDS, LOWERED, RAISED, SYMBOLS, TYPOGRAPHY, Token, resolve
from rlvr.verify.math.limits import LONGEST, LONGEST_LITERAL, MOST_TOKENS, Fault, OverLimit
from rlvr.verify.verifier import unwrap

_RAISED = re.compile(f"[{''.join(RAISED)}]+")
_LOWERED = re.compile(f"[{''.join(LOWERED)}]+")
_BARE_DOLLAR = re.compile(r"(?<!\\)\$")
_MONEY_DOLLAR = re.compile(r"(?<!\\)\$(?= ?[-+]?[0-9.])|(?<=[0-9])(?<!\\)\$")
_ORDINAL = re.compile(
    r"(?<=[0-9])(?:\^?\{?\\(?:text|mathrm)\{(?:st|nd|rd|th)\}\}?|\^\{(?:st|nd|rd|th)\}|(?:st|nd|rd|th)\b)"
)
_BACKSLASHES = re.compile(r"\\+")
_DOUBLED = re.compile(r"\\\\[A-Za-z]{2}")
_GLUED = re.compile(r"q?quad")
_STYLE = re.compile(r"\\(?:display|text)style(?![A-Za-z])")
_TRAILING = " \t\r\n.,;:~\\"  # punctuation, spacing and row breaks

_EXPONENT = r"(?:[eE][+-]?[0-9]{1,9}(?![0-9]))?"
_PLAIN = rf"[0-9]+(?:\.[0-9]*|\{{,\}}[0-9]+)?{_EXPONENT}|\.[0-9]+{_EXPONENT}"
_GROUP = r"[1-9][0-9]{{0,2}}(?:(?:\{{,\}}|,\\!\ ?|\\[,:;!]{}|\ )[0-9]{{3}})+(?![0-9])(?:\.[0-9]*)?"
_UPRIGHT = (
    r"text|mathrm|textbf|textrm|textit|textsf|textnormal|texttt|mbox|hbox|operatorname\*?|mathbf|mathit|mathsf|mathbb"
)
_PATTERN = rf"""(?P<space>\s+|~|\\[ ,:;!>\n]|\\(?:left|right)\s*\.)
    |(?P<n>GROUPS|{_PLAIN})
    |(?P<w>[A-Za-z]+)
    |\\(?P<macro>{_UPRIGHT})\s*\{{(?P<upright>[^{{}}]*)\}}
    |\\(?P<env>begin|end)\s*\{{(?P<kind>[A-Za-z]+\*?)\}}(?:\s*\{{[lcr|\s]*\}})?
    |\\(?P<m>[A-Za-z]+)\*?
    |(?P<o>\\.|<=|>=|!=|=<|==|~=|\*\*|.)"""
_OUTSIDE = re.compile(_PATTERN.replace("GROUPS", _GROUP.format("|,")), re.VERBOSE | re.DOTALL)
_INSIDE = re.compile(_PATTERN.replace("GROUPS", _GROUP.format("")), re.VERBOSE | re.DOTALL)  # brackets
_NO_EXPONENT = re.compile(r"[0-9]+")
_MIXED = re.compile(r"[0-9]+ ([1-9][0-9]{2})\s?/\s?([0-9]{3,9})(?![0-9])")
_TIMES_TEN = re.compile(r"\s*10\s*\^")
_SEPARATORS = re.compile(r"\{,\}|,\\!\ ?|\\[,:;!]|,|\ ")
_SINGLE = {  # what can only be a sign by itself, wherever it stands
    sign: token for sign, token in SYMBOLS.items() if len(sign) == 1 and not sign.isalnum() and sign not in "\\<>=!~*. "
}
_BRACKETS = {"(": 1, "[": 1, "{{": 1, "langle": 1, ")": -1, "]": -1, "}}": -1, "rangle": -1}


def normal_form(text: str) -> str:
    """One spelling of the typography: ASCII and LaTeX commands, without the marks around the whole.

    Raises OverLimit for over LONGEST characters.
    """
    if len(text) > LONGEST:
        raise OverLimit(f"over {LONGEST} characters")
    if "\\\\" in text:
        text = _once_escaped(text)
    text = unwrap(text)
    styled = _STYLE.match(text)
    if styled:
        text = unwrap(text[styled.end() :])
    if not text.isascii():
        text = text.translate(TYPOGRAPHY)
        text = _RAISED.sub(lambda m: "^{" + "".join(RAISED[c] for c in m[0]) + "}", text)
        text = _LOWERED.sub(lambda m: "_{" + "".join(LOWERED[c] for c in m[0]) + "}", text)
    if "th" in text or "nd" in text or "rd" in text or "st" in text:
        text = _ORDINAL.sub("", text)
    if "$" in text:
        if len(_BARE_DOLLAR.findall(text)) % 2:
            text = _MONEY_DOLLAR.sub(r"\\$", text)
        text = _BARE_DOLLAR.sub(" ", text)
    return text.strip().rstrip(_TRAILING)


def _once_escaped(text: str) -> str:
    """Without the second backslash of every pair, where all stand in pairs, as when escapes were written twice."""
    if _DOUBLED.search(text) and all(len(run) % 2 == 0 for run in _BACKSLASHES.findall(text)):
        return text.replace("\\\\", "\\")
    return text


def tokens(text: str, thousands: bool = True) -> list[Token]:
    """The tokens of a text in normal form.

    Digits in groups of three (`1,234`, `1{,}234`, `1\\,234`) are one number; a comma always separates inside brackets,
    and everywhere if not `thousands`.
    Raises Fault for a character or command that mathematics has not, OverLimit for too many of them.
    """
    out: list[Token] = []
    depth = 0 if thousands else 1000  # of brackets in which a comma separates
    at, end = 0, len(text)
    while at < end:
        if len(out) > MOST_TOKENS:
            raise OverLimit(f"over {MOST_TOKENS} tokens")
        symbol = text[at]
        if symbol in _SINGLE:
            at += 1
            token = _SINGLE[symbol]
            if token is not None:
                out.append(token)
                depth += _BRACKETS.get(token.kind, 0)
            continue
        found = (_INSIDE if depth > 0 else _OUTSIDE).match(text, at)
        assert found is not None
        group = found.lastgroup
        at = found.end()
        if group == "space":
            continue
        if group == "n":
            raw = found["n"]
            if raw.isdigit() and len(raw) <= LONGEST_LITERAL:
                out.append(Token("n", raw))
            else:
                at = _number(text, found, out)
        elif group == "w":
            run = found["w"]
            if run in "xX" and out and out[-1].kind == "n" and _TIMES_TEN.match(text, at):
                out.append(SYMBOLS["*"])  # type: ignore[arg-type]
            else:
                out += resolve(run)
        elif group == "m":
            name = found["m"]
            if name not in COMMANDS:
                if glued := _GLUED.match(name):  # \quadx
                    at = found.start() + 1 + glued.end()
                    continue
                raise Fault("unparsable", f"\\{name} is not known")
            token = COMMANDS[name]
            if token is not None:
                out.append(token)
                depth += _BRACKETS.get(token.kind, 0)
        elif group == "o":
            symbol = found["o"]
            if symbol not in SYMBOLS:
                raise Fault("unparsable", f"{symbol!r} is not known")
            token = SYMBOLS[symbol]
            if token is not None:
                out.append(token)
                depth += _BRACKETS.get(token.kind, 0)
        elif group == "upright":
            out += _upright(found["macro"], found["upright"])
        else:
            out.append(Token(found["env"], found["kind"]))
    if len(out) > MOST_TOKENS:
        raise OverLimit(f"over {MOST_TOKENS} tokens")
    return out


def _number(text: str, found: re.Match[str], out: list[Token]) -> int:
    """Append the number that was found, or its first part where the rest is something else; where it ends."""
    raw = found["n"]
    if not raw.isdigit():
        if " " in raw and (mixed := _MIXED.match(text, found.start())) and int(mixed[1]) < int(mixed[2]):
            found = _NO_EXPONENT.match(text, found.start())  # type: ignore[assignment]  # 5 427/500 is 5 and a part
            raw = found[0]
        if ("e" in raw or "E" in raw) and ("+" in raw or "-" in raw) and "." not in raw and raw[0] != "1":
            found = _NO_EXPONENT.match(text, found.start())  # type: ignore[assignment]  # 2e-3 is two e less three
            raw = found[0]
        if "{,}" in raw and not re.search(r"[0-9]\{,\}[0-9]{3}(?![0-9])", raw):
            raw = raw.replace("{,}", ".")  # the decimal comma
        else:
            raw = _SEPARATORS.sub("", raw)
    if len(raw) > LONGEST_LITERAL:
        raise OverLimit(f"a number of over {LONGEST_LITERAL} digits")
    out.append(Token("n", raw))
    return found.end()


def _upright(macro: str, content: str) -> list[Token]:
    """The tokens in \\text{...} and its kin: letters that stand alone are units or words, not variables."""
    content = content.strip()
    if macro == "mathbb":
        return [Token("text", content)]
    if not content:
        return []
    if len(content) == 1 and content.isalpha() and content.isascii():
        if content in "ei" and macro in ("mathrm", "mathit", "operatorname", "text"):
            return [Token("c", content)]
        return [Token("v" if macro in ("mathbf", "mathit") else "w", content)]
    content = content.replace(".", " ") if not any(c.isdigit() for c in content) else content
    inner = tokens(content)
    return [Token("w", t.value) if t.kind == "v" and len(t.value) == 1 else t for t in inner]
