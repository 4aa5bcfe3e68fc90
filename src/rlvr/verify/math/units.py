"""Units of measure with their exact factors, and how a unit is written behind a number.

Two units are the same where their dimensions are and their factors agree: 5 km is 5000 m. A word that is no known
unit counts as a unit of its own (`18 apples`), unless it is a word that changes the sense of an answer.
"""

from __future__ import annotations

from fractions import Fraction

from rlvr.verify.math.limits import Fault
from rlvr.verify.math.nodes import Unit


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Dimensions, then factor and names of each unit.
_TABLE = """
m: 1 m meter meters metre metres; 1000 km kilometer kilometers kilometre kilometres
m: 1/100 cm centimeter centimeters centimetre centimetres; 1/10 dm decimeter decimeters; 1/1000000000 nm nanometers
m: 1/1000 mm millimeter millimeters millimetre millimetres; 0.0254 in inch inches; 0.3048 ft foot feet
m: 0.9144 yd yard yards; 1609.344 mi mile miles
s: 1 s sec secs second seconds; 60 min mins minute minutes; 3600 h hr hrs hour hours; 86400 day days
s: 604800 week weeks wk wks; 1/1000 ms millisecond milliseconds
month: 1 month months; 12 year years yr yrs; 120 decade decades; 1200 century centuries
kg: 1/1000 g gram grams gramme grammes; 1 kg kilogram kilograms kilo kilos; 1/1000000 mg milligram milligrams
kg: 0.45359237 lb lbs pound pounds; 0.028349523125 oz ounce ounces; 1000 tonne tonnes
m^3: 1/1000 L l liter liters litre litres; 1/1000000 ml mL cc milliliter milliliters
gallon: 1 gal gallon gallons; 1/4 quart quarts qt; 1/8 pint pints pt; 1/16 cup cups
m s^-1: 0.44704 mph; 5/18 kph kmh
kg m s^-2: 1 N newton newtons
kg m^2 s^-2: 1 J joule joules; 1000 kJ
kg m^2 s^-3: 1 W watt watts; 1000 kW
s^-1: 1 Hz hertz
A: 1 A amp amps ampere amperes
kg m^2 s^-3 A^-1: 1 V volt volts
USD: 1 dollar dollars USD buck bucks; 1/100 cent cents
EUR: 1 euro euros EUR
GBP: 1 GBP
JPY: 1 yen JPY
INR: 1 rupee rupees INR
unit: 1 unit units
angle: 1 rad radian radians
"""


def _table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        dims, _, units = line.partition(": ")
        powers = [(base, int(exponent or 1)) for base, _, exponent in (part.partition("^") for part in dims.split())]
        for entry in units.split("; "):
            factor, *names = entry.split(" ")
            table |= {name: Unit(tuple(sorted(powers)), Fraction(factor)) for name in names}
    return table


UNITS = _table()
DEGREE = Unit((("angle", 1),), Fraction(1, 180), 1)
SINGLE_LETTERS = frozenset(name for name in UNITS if len(name) == 1)
_PARTS = "half halves third thirds fourth fourths quarter quarters fifth fifths eighth eighths tenth tenths"
SCALES: dict[str, int | Fraction] = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
    "hundredth": Fraction(1, 100), "hundredths": Fraction(1, 100), "thousandth": Fraction(1, 1000),
    "thousandths": Fraction(1, 1000),
    **dict(zip(_PARTS.split(" "), (Fraction(1, n) for n in (2, 2, 3, 3, 4, 4, 4, 4, 5, 5, 8, 8, 10, 10)))),
}  # fmt: skip
DENIALS = words("not no never wrong incorrect false isn aren cannot except neither nor")
# Behind a number these do not count what is counted: they take it back, hedge it or go on talking.
TALK = words(
    "is are was were be been am not no nor isn aren never none nothing wrong incorrect false true right "
    "correct maybe perhaps probably possibly approximately about around roughly nearly almost unless "
    "except but because so since if then than that this these those it its they he she we you i would "
    "could should might may can cannot will do does did don to from with without for by as at on of or "
    "and the a an in into up down off plus minus divided over under more less greater fewer least "
    "most only also both either neither each some any all least other when where which who what why how "
    "here there again wait actually hmm sorry sure answer unknown squared cubed factorial negative opposite "
    "inverse reciprocal below above mod choose half"
)
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}


def scaled(unit: Unit, power: int) -> Unit:
    return Unit(tuple((d, p * power) for d, p in unit.dims), unit.factor**power, unit.turns * power)


def joined(a: Unit, b: Unit) -> Unit:
    dims = dict(a.dims)
    for name, power in b.dims:
        dims[name] = dims.get(name, 0) + power
    kept = tuple(sorted((d, p) for d, p in dims.items() if p))
    return Unit(kept, a.factor * b.factor, a.turns + b.turns)


def named(word: str) -> Unit:
    """The unit that a word names. Raises Fault for a word that cannot be one."""
    known = UNITS.get(word) or UNITS.get(word.lower())
    if known is not None:
        return known
    low = word.lower()
    if len(low) < 3 or low in TALK:
        raise Fault("unparsable", f"{word!r} is no unit")
    if low.endswith("ies") and len(low) > 4:
        low = low[:-3] + "y"
    elif low.endswith(("ches", "shes", "xes", "sses")):
        low = low[:-2]
    elif low.endswith("s") and not low.endswith("ss"):
        low = low[:-1]
    return Unit(((low, 1),), Fraction(1))


def prefix_power(word: str) -> int:
    """2 for "square", 3 for "cubic", else 0."""
    return _POWERS.get(word.lower(), 0)
