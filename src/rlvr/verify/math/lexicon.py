"""The words of mathematics: what commands, letters and symbols stand for."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rlvr.verify.math.units import UNITS, words


class Token(NamedTuple):
    """`kind` is "n" number, "v" variable, "c" constant, "f" function, "w" word, "text" a set's name, or the symbol."""

    kind: str
    value: str = ""


def _tokens(table: str) -> dict[str, Token]:
    """From lines of a token, as kind or kind=value, and the names that stand for it."""
    found: dict[str, Token] = {}
    for line in table.strip().splitlines():
        head, *names = line.split()
        kind, _, value = head.partition("=") if len(head) > 2 else (head, "", "")
        found |= {name: Token(kind, value) for name in names}
    return found


GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau"
    " upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega Pi ell hbar"
)
FUNCTIONS = words(
    "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc asin acos atan"
    " arcsinh arccosh arctanh arsinh arcosh artanh asinh acosh atanh"
    " ln log lg exp sqrt cbrt abs Abs sgn sign floor ceil ceiling max min gcd lcm mod binom"
)
_SPELLED = {  # other names of functions and letters
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arcsinh": "arsinh", "arccosh": "arcosh", "sign": "sgn",
    "arctanh": "artanh", "asinh": "arsinh", "acosh": "arcosh", "atanh": "artanh", "ceiling": "ceil", "Abs": "abs",
    "vartheta": "theta", "varphi": "phi", "varepsilon": "epsilon", "varrho": "rho",
}  # fmt: skip

COMMANDS: dict[str, Token | None] = {
    **{name: Token("v", _SPELLED.get(name, name)) for name in GREEK},
    **{name: Token("f", _SPELLED.get(name, name)) for name in FUNCTIONS},
    **dict.fromkeys(
        words(  # they change how a formula looks, not what it says
            "left right big Big bigg Bigg bigl bigr bigm Bigl Bigr Bigm biggl biggr Biggl Biggr middle displaystyle"
            " textstyle scriptstyle limits nolimits quad qquad thinspace enspace space therefore mathrm mathbf mathit"
            " mathsf mathcal bm boldsymbol rm bf it hfill noindent small large Large normalsize hline mathstrut strut"
            " nonumber mathop boxed fbox ensuremath"
        )
    ),
    **_tokens("""
        c=pi       pi
        c=inf      infty infin
        c=i        imath
        *          cdot times ast cdotp
        /          div
        frac       frac dfrac tfrac cfrac sfrac nicefrac
        over       over
        binom      binom dbinom tbinom
        choose     choose
        root       root
        of         of
        <=         le leq leqslant leqq
        >=         ge geq geqslant geqq
        <          lt
        >          gt
        !=         ne neq
        not        not
        ~          approx approxeq doteq
        =          equiv coloneqq
        in         in
        cup        cup bigcup
        cap        cap
        setminus   setminus smallsetminus backslash
        pm         pm
        mp         mp
        circ       circ
        deg        degree
        {{         lbrace
        }}         rbrace
        [          lbrack
        ]          rbrack
        |          lvert rvert vert mid
        lfloor     lfloor
        rfloor     rfloor
        lceil      lceil
        rceil      rceil
        langle     langle
        rangle     rangle
        and        land wedge
        or         lor vee
        :          colon
        '          prime
        row        cr newline
        pmod       pmod pod
        bmod       bmod
        overline   overline bar
        accent=vec       vec overrightarrow
        accent=hat       hat widehat
        accent=tilde     tilde
        accent=dot       dot
        accent=angle     angle
        accent=triangle  triangle
        text=empty       emptyset varnothing
        text=R           R
        money=USD        dollar textdollar
        money=EUR        euro
        money=GBP        pounds
        money=JPY        yen
    """),
}
SYMBOLS: dict[str, Token | None] = {
    **{symbol: Token(symbol) for symbol in ("<=", ">=", "!=", *"+-*/^_()[]{},;|=<>!:&'%")},
    **dict.fromkeys(("\\-", '"', "\\/", "`")),
    **_tokens("""
        %          \\%
        {{         \\{
        }}         \\}
        |          \\|
        row        \\\\
        <=         =<
        ^          **
        =          ==
        ~          ~=
        _          \\_
        and        \\&
        money=USD  $ \\$
        money=EUR  €
        money=GBP  £
        money=JPY  ¥
        money=INR  ₹
        w=cents    ¢
    """),
}
_WORDS = _tokens("""
    and      and And AND
    or       or Or OR
    %        percent pct percentage
    deg      degrees degree deg
    c=pi     pi
    c=inf    infinity Infinity infty inf
    cup      union
    w=in     in
""")
# Two letters that are a word; any other two are a product of variables.
SHORT_WORDS = words("no on is at of in if to or am as be an we he it me my do go so us up by pm ok al et id")
_ALPHABETS = [frozenset(s) for s in ("abcd", "klmn", "pqrst", "uvw", "xyzw", "ABCDEFGHOPQRSXYZ")]


@lru_cache(maxsize=4096)
def resolve(run: str) -> tuple[Token, ...]:
    """What a run of letters stands for: a function, a constant, a unit, a word, or a product of variables."""
    if len(run) == 1:
        return (Token("c", run) if run in "ei" else Token("v", run),)
    if run in FUNCTIONS:
        return (Token("f", _SPELLED.get(run, run)),)
    if run in _WORDS:
        return (_WORDS[run],)
    if run in GREEK:
        return (Token("v", run),)
    if run in UNITS or (run.lower() in SHORT_WORDS and not run.isupper()):
        return (Token("w", run),)
    if len(run) == 2 or any(letters.issuperset(run) for letters in _ALPHABETS):
        return tuple(token for letter in run for token in resolve(letter))
    for name in ("sin", "cos", "tan", "ln", "log", "sqrt", "pi"):  # sinx, pir
        rest = run.removeprefix(name)
        if len(rest) < len(run) and (len(rest) == 1 or rest == "pi"):
            return (*resolve(name), *resolve(rest))
    if run.endswith("pi") and len(run) == 3:
        return (*resolve(run[0]), *resolve("pi"))
    return (Token("w", run),)


def _typography() -> dict[str, str]:
    """Unicode characters and what is written for them on a keyboard or in LaTeX."""
    spelled = {
        "-": "−–—‐‑﹣－", "+": "＋", "*": "×·⋅∙•∗✕⨯", "/": "÷∕⁄／", "<=": "≤⩽≦", ">=": "≥⩾≧", "!=": "≠", "=": "≡＝",
        "\\approx ": "≈", "\\infty ": "∞", "\\pi ": "π", "\\sqrt ": "√", "\\cbrt ": "∛", "\\cup ": "∪", "\\cap ": "∩",
        "\\setminus ": "∖", "\\in ": "∈", "\\emptyset ": "∅øØ", "\\pm ": "±", "\\mp ": "∓", "^\\circ ": "°º", "'": "′’",
        "\\R ": "ℝ", "\\langle ": "⟨〈", "\\rangle ": "⟩〉", "\\lfloor ": "⌊", "\\rfloor ": "⌋", "\\lceil ": "⌈",
        "\\rceil ": "⌉", "|": "∣", ":": "∶：", ",": "，", ";": "；", "(": "（", ")": "）", "[": "［", "]": "］",
        "{": "｛", "}": "｝", "<": "＜", ">": "＞", ".": "．", "%": "％", "\\$": "＄", "\\ell ": "ℓ",
        "": "“”‘\u200b\u200c\u200d\u2060\ufeff\u00ad", "\\,": "\u00a0\u202f\u2009", " ": "\u2002\u2003\u2005\u3000",
    }  # fmt: skip
    table = {character: meant for meant, characters in spelled.items() for character in characters}
    table |= {chr(0xFF10 + digit): str(digit) for digit in range(10)}
    halves = ("½ 1 2", "⅓ 1 3", "⅔ 2 3", "¼ 1 4", "¾ 3 4", "⅕ 1 5", "⅖ 2 5", "⅗ 3 5", "⅘ 4 5", "⅙ 1 6", "⅚ 5 6",
              "⅛ 1 8", "⅜ 3 8", "⅝ 5 8", "⅞ 7 8")  # fmt: skip
    table |= {c: f"\\frac{{{top}}}{{{bottom}}}" for c, top, bottom in map(str.split, halves)}
    names = (
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi phi chi psi"
        " omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega"
    )
    return table | {c: f"\\{name} " for c, name in zip("αβγδεζηθικλμνξρστυφϕχψωΓΔΘΛΞΣΦΨΩ", names.split(" "))}


TYPOGRAPHY = str.maketrans(_typography())
RAISED = {c: str(i) for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {"⁺": "+", "⁻": "-", "ⁿ": "n", "ˣ": "x"}
LOWERED = {c: str(i) for i, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
