"""Numbers as they are computed with: exact fractions as long as possible, else binary floats of a chosen precision.

A value is an int or Fraction (exact), a real float of mpmath's low level (a tuple of four), or a complex one (a pair of
those). That level takes the precision as an argument, so threads do not share a setting. Every operation is paid for
out of a budget, by the size of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from mpmath import libmp

from rlvr.verify.math.limits import MOST_BITS, MOST_PRECISION, WORK, OverLimit, Undefined
from rlvr.verify.math.nodes import Exact, bits, whole

Real: TypeAlias = tuple[int, int, int, int]  # sign, mantissa, exponent, bits of the mantissa
Value: TypeAlias = Any  # int | Fraction | Real | tuple[Real, Real]: told apart by type and length, which mypy cannot
NEAREST = "n"
ZERO: Real = libmp.fzero
NOISE = 32  # bits of a float that rounding may have spoilt
NOTHING = -(1 << 40)  # the magnitude of zero
_SHRUNK = 16  # bits that the guard digits may take; ours
_ABOUT_ONE = frozenset(["log", "cos", "acos", "acosh"])  # functions with a zero at an argument of about one
_ROOTS = 32  # degrees up to which a root is faster than a logarithm and an exponential; ours
_HUGE = 1 << 24  # binary exponent beyond which functions are not evaluated

# mpmath caches these. Its cache is not safe when two threads extend it at once; one that is never extended is.
for _constant in (libmp.pi_fixed, libmp.e_fixed, libmp.ln2_fixed, libmp.ln10_fixed):
    _constant(2 * MOST_PRECISION + 1024)


class Budget:
    """Work that is left. Raises OverLimit when it is spent."""

    __slots__ = ("left",)

    def __init__(self, left: int = WORK):
        self.left = left

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise OverLimit("comparing takes too long")


class Field:
    """Arithmetic at one precision.

    `real`: roots and logarithms of negative numbers are Undefined, as people mean it of variables, rather than complex.
    `low` and `high` are the binary exponents of the smallest and the largest number that occurred, where a change of
    the smallest still counts behind a root, a quotient or a product that shrinks it: a float must span them for a
    difference to mean anything. `rough`: there were floats at all.
    """

    __slots__ = ("_logs", "budget", "high", "low", "prec", "real", "rough")

    def __init__(self, prec: int, budget: Budget, real: bool = False):
        self.prec, self.budget, self.real = prec, budget, real
        self.low, self.high, self.rough = 0, 1, False
        self._logs: dict[Exact, Value] = {}  # 2^x + 2^y takes one logarithm

    # Bookkeeping

    def exact(self, value: Exact) -> Exact:
        """The value, noted and paid for. Raises OverLimit where it is too long."""
        if type(value) is int:
            top, bottom = value.bit_length(), 1
        else:
            top, bottom = value.numerator.bit_length(), value.denominator.bit_length()
        size = top if top > bottom else bottom
        if size > 512:
            if size > MOST_BITS:
                raise OverLimit(f"a number of over {MOST_BITS} bits")
            self.budget.spend(1 + (size * size >> 21))
        if -bottom < self.low:
            self.low = -bottom
        if top > self.high:
            self.high = top
        return whole(value)

    def _note(self, value: Value) -> Value:
        """A float, its magnitude noted."""
        if value == ZERO:
            return 0
        if not value[1]:
            raise Undefined("infinite")
        exponent = value[2] + value[3]
        if not -_HUGE < exponent < _HUGE:
            raise OverLimit("a number beyond all measure")
        self.low, self.high = min(self.low, exponent), max(self.high, exponent)
        return value

    def _shrunk(self, bits: int) -> None:
        """A change of an operand is this many bits smaller in the result, as that of 10^200 is in its root."""
        if bits > _SHRUNK:
            self.low -= bits

    def _settled(self, value: Value, scale: int | None = None) -> Value:
        """A float, noted; 0 where nothing but rounding can be left of it, given the magnitude that it was made from.

        Were the noise kept, it would pass for the smallest number that occurs. A complex number loses a part that is
        noise beside the other one.
        """
        if len(value) == 4:
            noisy = scale is not None and value[2] + value[3] < scale - self.prec + NOISE
            return 0 if noisy else self._note(value)
        if scale is None:
            scale = max(part[2] + part[3] for part in value)
        re, im = (ZERO if part[2] + part[3] < scale - self.prec + NOISE else part for part in value)
        if im == ZERO:
            return self._note(re)
        self._note(im)
        if re != ZERO:
            self._note(re)
        return re, im

    def magnitude(self, x: Value) -> int:
        """The binary exponent: |x| is about 2**m; far below all others for 0."""
        if type(x) is not tuple:
            return x.numerator.bit_length() - x.denominator.bit_length() + 1 if x else NOTHING
        parts = x if len(x) == 2 else (x,)
        return max(part[2] + part[3] if part[1] else NOTHING for part in parts)

    def float(self, value: Value) -> Value:
        """The value as a float, real or complex."""
        if type(value) is tuple:
            return value
        self.rough = True
        return libmp.from_rational(value.numerator, value.denominator, self.prec, NEAREST)

    def _two(self, real: Callable[..., Any], pair: Callable[..., Any], x: Value, y: Value) -> Value:
        a, b = self.float(x), self.float(y)
        if len(a) == 4 and len(b) == 4:
            return real(a, b, self.prec, NEAREST)
        return pair(_pair(a), _pair(b), self.prec, NEAREST)

    # The four operations

    def add(self, x: Value, y: Value) -> Value:
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(x + y)
        self.budget.spend(1)
        scale = max(self.magnitude(x), self.magnitude(y))
        return self._settled(self._two(libmp.mpf_add, libmp.mpc_add, x, y), scale)

    def sub(self, x: Value, y: Value) -> Value:
        return self.add(x, self.neg(y))

    def mul(self, x: Value, y: Value) -> Value:
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(x * y)
        self.budget.spend(2 + (self.prec >> 9))
        self._shrunk(-min(self.magnitude(x), self.magnitude(y)))
        return self._settled(self._two(libmp.mpf_mul, libmp.mpc_mul, x, y))

    def div(self, x: Value, y: Value) -> Value:
        if self.is_zero(y):
            raise Undefined("division by zero")
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(Fraction(x) / y)
        self.budget.spend(3 + (self.prec >> 8))
        divisor = self.magnitude(y)
        self._shrunk(max(divisor, 2 * divisor - self.magnitude(x)) if x else 0)
        return self._settled(self._two(libmp.mpf_div, libmp.mpc_div, x, y))

    def neg(self, x: Value) -> Value:
        if type(x) is not tuple:
            return -x
        return libmp.mpf_neg(x) if len(x) == 4 else libmp.mpc_neg(x)

    def is_zero(self, x: Value) -> bool:
        return x == 0 or x == ZERO

    def is_negative(self, x: Value) -> bool:
        """Whether it is a negative real number."""
        if type(x) is not tuple:
            return bool(x < 0)
        return len(x) == 4 and bool(x[0])

    def sign(self, x: Value) -> int:
        """-1, 0 or 1 of a real number. Raises Undefined for a complex one."""
        if type(x) is tuple and len(x) == 2:
            raise Undefined("complex numbers have no order")
        return 0 if self.is_zero(x) else -1 if self.is_negative(x) else 1

    # Powers and functions

    def power(self, x: Value, y: Value) -> Value:
        if type(y) is not tuple and y.denominator == 1:
            return self._integer_power(x, y.numerator)
        if self.is_zero(x):
            if (type(y) is tuple and len(y) == 2) or self.sign(y) <= 0:
                raise Undefined("a power of zero")
            return 0
        if type(y) is not tuple and (y.denominator <= _ROOTS or self.is_negative(x)):
            return self._integer_power(self.root(x, y.denominator), y.numerator)
        if type(y) is not tuple and type(x) is not tuple:
            top, bottom = integer_root(x.numerator, y.denominator), integer_root(x.denominator, y.denominator)
            if top is not None and bottom is not None:
                return self._integer_power(self.exact(Fraction(top, bottom)), y.numerator)
        if self.real and self.is_negative(x):
            raise Undefined("a power of a negative number")
        if type(x) is tuple:
            return self.exp(self.mul(y, self.log(x)))
        if x not in self._logs:
            self._logs[x] = self.log(x)
        return self.exp(self.mul(y, self._logs[x]))

    def _integer_power(self, x: Value, n: int) -> Value:
        if n == 0:
            return 1
        if self.is_zero(x):
            if n < 0:
                raise Undefined("division by zero")
            return 0
        if type(x) is not tuple:
            if x == 1 or x == -1:
                return x if n % 2 else 1
            if abs(n) * max(1, bits(x) - 1) <= MOST_BITS:
                return self.exact(Fraction(x) ** n)
        if abs(n) > MOST_BITS:
            raise OverLimit("an exponent beyond all measure")
        self.budget.spend(4 + (self.prec >> 8) * n.bit_length())
        base = self.float(x)
        scale = self.magnitude(base)
        self._shrunk((1 - n) * scale)
        function = libmp.mpf_pow_int if len(base) == 4 else libmp.mpc_pow_int
        return self._settled(function(base, n, self.prec, NEAREST))

    def root(self, x: Value, n: int) -> Value:
        """The n-th root. An odd one of a negative number is the negative one, not the principal one."""
        if n < 0:
            return self.div(1, self.root(x, -n))
        if not 0 < n <= 1000:
            raise Undefined("a root of this degree")
        if self.is_negative(x):
            if n % 2:
                return self.neg(self.root(self.neg(x), n))
            if self.real:
                raise Undefined("an even root of a negative number")
            if n == 2:
                return ZERO, self.float(self.root(self.neg(x), 2))
            return self.exp(self.div(self.log(x), n))
        if type(x) is not tuple:
            top, bottom = integer_root(x.numerator, n), integer_root(x.denominator, n)
            if top is not None and bottom is not None:
                return self.exact(Fraction(top, bottom))
        self.budget.spend(4 + (self.prec * self.prec >> 16))
        value = self.float(x)
        scale = self.magnitude(value)
        self._shrunk(scale - scale // n)
        if len(value) == 4:
            if n == 2:
                return self._note(libmp.mpf_sqrt(value, self.prec, NEAREST))
            return self._note(libmp.mpf_nthroot(value, n, self.prec, NEAREST))
        if n == 2:
            return self._settled(libmp.mpc_sqrt(value, self.prec, NEAREST))
        return self.exp(self.div(self.log(x), n))

    def exp(self, x: Value) -> Value:
        return 1 if self.is_zero(x) else self.function("exp", x)

    def log(self, x: Value) -> Value:
        if self.is_zero(x):
            raise Undefined("the logarithm of zero")
        if x == 1:
            return 0
        if self.is_negative(x):
            if self.real:
                raise Undefined("the logarithm of a negative number")
            return self.function("log", (self.float(x), ZERO))
        return self.function("log", x)

    def function(self, name: str, x: Value) -> Value:
        """mpmath's function of this name. Raises Undefined at a pole, and outside its domain among real numbers."""
        value = self.float(x)
        scale = self.magnitude(value)
        if scale > 40 and name != "log":
            raise OverLimit(f"{name} of a number beyond all measure")
        self.budget.spend((10 + (self.prec * self.prec >> 14)) * (1 if len(value) == 4 else 3))
        try:
            if len(value) == 2:
                return self._settled(getattr(libmp, f"mpc_{name}")(value, self.prec, NEAREST))
            found = getattr(libmp, f"mpf_{name}")(value, self.prec, NEAREST)
        except libmp.ComplexResult:
            if self.real:
                raise Undefined(f"{name} outside its domain") from None
            return self.function(name, (value, ZERO))
        except (ZeroDivisionError, ValueError):
            raise Undefined(f"{name} has a pole here") from None
        if name == "log":
            self._shrunk(scale)
        elif name == "exp":
            self._shrunk(-self.magnitude(found))
        elif name == "atan":
            self._shrunk(2 * scale)
        elif name == "tanh":
            self._shrunk(3 << scale if scale > 0 else 0)
        if name == "tan" and found[2] + found[3] > self.prec - NOISE:
            raise Undefined("tan has a pole here")
        return self._settled(found, None if name == "exp" else max(scale, 0) if name in _ABOUT_ONE else scale)

    def pi(self) -> Value:
        self.rough = True
        return libmp.mpf_pi(self.prec, NEAREST)

    def e(self) -> Value:
        self.rough = True
        return libmp.mpf_e(self.prec, NEAREST)

    def abs(self, x: Value) -> Value:
        if type(x) is not tuple:
            return abs(x)
        if len(x) == 4:
            return libmp.mpf_abs(x)
        self.budget.spend(4 + (self.prec * self.prec >> 16))
        return self._note(libmp.mpc_abs(x, self.prec, NEAREST))

    def floor(self, x: Value) -> int:
        """The largest integer not above x; a float that is within its own noise of an integer is that integer."""
        if type(x) is not tuple:
            return math.floor(x)
        if len(x) == 2:
            raise Undefined("complex numbers have no order")
        if self.magnitude(x) > self.prec:
            raise OverLimit("a number beyond all measure")
        near = int(libmp.to_int(libmp.mpf_nint(x, self.prec, NEAREST)))
        if self.is_zero(self.sub(x, near)):
            return near
        return int(libmp.to_int(libmp.mpf_floor(x, self.prec, NEAREST)))


def _pair(value: Value) -> tuple[Real, Real]:
    return value if len(value) == 2 else (value, ZERO)


def integer_root(x: int, n: int) -> int | None:
    """The n-th root of x >= 0 where it is an integer."""
    if x < 2:
        return x
    if n == 2:
        root = math.isqrt(x)
        return root if root * root == x else None
    if n >= x.bit_length():
        return None
    root = 1 << x.bit_length() // n + 1
    while (better := ((n - 1) * root + x // root ** (n - 1)) // n) < root:  # Newton's, from above
        root = better
    return root if root**n == x else None
