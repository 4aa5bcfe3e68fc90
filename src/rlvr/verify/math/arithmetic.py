"""Numbers as they are computed with: exact fractions as long as possible, else binary floats of a chosen precision.

A value is an int or Fraction (exact), a real float of mpmath's low level (a tuple of four), or a complex one (a pair of
those). That level takes the precision as an argument, so threads do not share a setting. Every operation is paid for
out of a budget, by the size of its operands.
"""

from __future__ import annotations

import math
import threading
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
_HUGE = 1 << 24  # binary exponent beyond which functions are not evaluated

_constants = threading.Lock()
_ready: list[bool] = []


def _prepare() -> None:
    """Compute the constants once to more than will ever be asked for: mpmath's own cache of them is not safe when two
    threads extend it at once, and a cache that is never extended is."""
    with _constants:
        if not _ready:
            for constant in (libmp.pi_fixed, libmp.e_fixed, libmp.ln2_fixed, libmp.ln10_fixed):
                constant(2 * MOST_PRECISION + 1024)
            _ready.append(True)


class Budget:
    """Work that is left, in about microseconds. Raises OverLimit when it is spent."""

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
    `low` and `high` are the binary exponents of the smallest and the largest number that occurred: a float must span
    them for a difference to mean anything.
    """

    __slots__ = ("budget", "high", "low", "prec", "real")

    def __init__(self, prec: int, budget: Budget, real: bool = False):
        if not _ready:
            _prepare()
        self.prec, self.budget, self.real = prec, budget, real
        self.low, self.high = 0, 1

    # Bookkeeping

    def exact(self, value: Exact) -> Exact:
        """The value, noted and paid for. Raises OverLimit where it is too long."""
        top, bottom = value.numerator.bit_length(), value.denominator.bit_length()
        size = max(top, bottom)
        if size > 512:
            if size > MOST_BITS:
                raise OverLimit(f"a number of over {MOST_BITS} bits")
            self.budget.spend(1 + (size * size >> 19))
        if top and top - bottom < self.low:
            self.low = top - bottom
        if -bottom < self.low:
            self.low = -bottom
        if top > self.high:
            self.high = top
        return whole(value)

    def note(self, value: Value) -> Value:
        """A float, with its magnitude noted; a complex one without imaginary part as a real one."""
        if len(value) == 2:
            re, im = value
            if im == ZERO:
                value = re
            elif im[1]:
                self._magnitude(im[2] + im[3])
            if not re[1]:
                return value
            self._magnitude(re[2] + re[3])
            return value
        if value[1]:
            self._magnitude(value[2] + value[3])
        elif value != ZERO:
            raise Undefined("infinite")
        return value

    def _magnitude(self, exponent: int) -> None:
        if exponent < self.low:
            self.low = exponent
        elif exponent > self.high:
            self.high = exponent
        if not -_HUGE < exponent < _HUGE:
            raise OverLimit("a number beyond all measure")

    def float(self, value: Value) -> Any:
        """The value as a float, real or complex."""
        if type(value) is tuple:
            return value
        return libmp.from_rational(value.numerator, value.denominator, self.prec, NEAREST)

    def _complex(self, value: Any) -> tuple[Real, Real]:
        return value if len(value) == 2 else (value, ZERO)

    def _both(self, real: Callable[..., Any], pair: Callable[..., Any], x: Value, y: Value, cost: int) -> Value:
        self.budget.spend(cost)
        a, b = self.float(x), self.float(y)
        if len(a) == 4 and len(b) == 4:
            return self.note(real(a, b, self.prec, NEAREST))
        return self.note(pair(self._complex(a), self._complex(b), self.prec, NEAREST))

    # The four operations

    def add(self, x: Value, y: Value) -> Value:
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(x + y)
        return self._both(libmp.mpf_add, libmp.mpc_add, x, y, 1)

    def sub(self, x: Value, y: Value) -> Value:
        return self.add(x, self.neg(y))

    def mul(self, x: Value, y: Value) -> Value:
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(x * y)
        return self._both(libmp.mpf_mul, libmp.mpc_mul, x, y, 2 + (self.prec >> 9))

    def div(self, x: Value, y: Value) -> Value:
        if self.is_zero(y):
            raise Undefined("division by zero")
        if type(x) is not tuple and type(y) is not tuple:
            return self.exact(Fraction(x) / y)
        return self._both(libmp.mpf_div, libmp.mpc_div, x, y, 3 + (self.prec >> 8))

    def neg(self, x: Value) -> Value:
        if type(x) is not tuple:
            return -x
        return libmp.mpf_neg(x) if len(x) == 4 else libmp.mpc_neg(x)

    def is_zero(self, x: Value) -> bool:
        return not x if type(x) is not tuple else x == ZERO

    def sign(self, x: Value) -> int:
        """-1, 0 or 1 of a real number. Raises Undefined for a complex one."""
        if type(x) is not tuple:
            return (x > 0) - (x < 0)
        if len(x) == 2:
            raise Undefined("complex numbers have no order")
        return int(libmp.mpf_sign(x))

    # Powers and functions

    def power(self, x: Value, y: Value) -> Value:
        if type(y) is not tuple and y.denominator == 1:
            return self._integer_power(x, y.numerator)
        if self.is_zero(x):
            if (type(y) is tuple and len(y) == 2) or self.sign(y) <= 0:
                raise Undefined("a power of zero")
            return 0
        if type(y) is not tuple:
            return self._rational_power(x, Fraction(y))
        base, exponent = self.float(x), self.float(y)
        if len(base) == 4 and len(exponent) == 4 and self.sign(x) > 0:
            return self.exp(self.mul(y, self.log(x)))
        if self.real:
            raise Undefined("a power of a negative number")
        return self.exp(self.mul(y, self.log(x)))

    def _integer_power(self, x: Value, n: int) -> Value:
        if type(x) is not tuple:
            if not x and n < 0:
                raise Undefined("division by zero")
            if x in (0, 1, -1):
                return x if n % 2 or (x == 0 and n) else 1
            if abs(n) * max(1, bits(x) - 1) <= MOST_BITS:
                return self.exact(Fraction(x) ** n)
        if abs(n) > MOST_BITS:
            raise OverLimit("an exponent beyond all measure")
        if self.is_zero(x) and n < 0:
            raise Undefined("division by zero")
        self.budget.spend(4 + (self.prec >> 8) * n.bit_length())
        base = self.float(x)
        function = libmp.mpf_pow_int if len(base) == 4 else libmp.mpc_pow_int
        return self.note(function(base, n, self.prec, NEAREST))

    def _rational_power(self, x: Value, y: Fraction) -> Value:
        return self._integer_power(self.root(x, y.denominator), y.numerator)

    def root(self, x: Value, n: int) -> Value:
        """The n-th root. An odd one of a negative number is the negative one, not the principal one."""
        if n < 0:
            return self.div(1, self.root(x, -n))
        if not 0 < n <= 1000:
            raise Undefined("a root of this degree")
        is_real = type(x) is not tuple or len(x) == 4
        if is_real and self.sign(x) < 0:
            if n % 2:
                return self.neg(self.root(self.neg(x), n))
            if self.real:
                raise Undefined("an even root of a negative number")
            if n == 2:
                return self.note((ZERO, self.float(self.root(self.neg(x), 2))))
            return self.exp(self.div(self.log(x), n))
        if type(x) is not tuple:
            top, bottom = integer_root(x.numerator, n), integer_root(x.denominator, n)
            if top is not None and bottom is not None:
                return self.exact(Fraction(top, bottom))
        self._pay()
        value = self.float(x)
        if len(value) == 2:
            if n == 2:
                return self.note(libmp.mpc_sqrt(value, self.prec, NEAREST))
            return self.exp(self.div(self.log(x), n))
        if n == 2:
            return self.note(libmp.mpf_sqrt(value, self.prec, NEAREST))
        return self.note(libmp.mpf_nthroot(value, n, self.prec, NEAREST))

    def _pay(self, times: int = 1) -> None:
        self.budget.spend(times * (6 + (self.prec * self.prec >> 14)))

    def exp(self, x: Value) -> Value:
        if self.is_zero(x):
            return 1
        return self.function("exp", x)

    def log(self, x: Value) -> Value:
        if self.is_zero(x):
            raise Undefined("the logarithm of zero")
        if x == 1:
            return 0
        is_real = type(x) is not tuple or len(x) == 4
        if is_real and self.sign(x) < 0 and self.real:
            raise Undefined("the logarithm of a negative number")
        return self.function("log", x, pair=is_real and self.sign(x) < 0)

    def function(self, name: str, x: Value, pair: bool = False) -> Value:
        """mpmath's function of this name, of a real number unless `pair`."""
        value = self.float(x)
        parts = value if len(value) == 2 else (value,)
        if any(p[1] and p[2] + p[3] > 40 for p in parts) and name != "log":
            raise OverLimit(f"{name} of a number beyond all measure")
        self._pay(1 if len(value) == 4 else 3)
        try:
            if len(value) == 2 or pair:
                return self.note(getattr(libmp, f"mpc_{name}")(self._complex(value), self.prec, NEAREST))
            return self.note(getattr(libmp, f"mpf_{name}")(value, self.prec, NEAREST))
        except libmp.ComplexResult:
            if self.real:
                raise Undefined(f"{name} outside its domain") from None
            return self.function(name, x, pair=True)
        except (ZeroDivisionError, ValueError):
            raise Undefined(f"{name} has a pole here") from None

    def pi(self) -> Value:
        return libmp.mpf_pi(self.prec, NEAREST)

    def e(self) -> Value:
        return libmp.mpf_e(self.prec, NEAREST)

    def abs(self, x: Value) -> Value:
        if type(x) is not tuple:
            return abs(x)
        if len(x) == 4:
            return libmp.mpf_abs(x)
        self._pay()
        return self.note(libmp.mpc_abs(x, self.prec, NEAREST))

    def floor(self, x: Value) -> int:
        """The largest integer not above x; a float that is within its own noise of an integer is that integer."""
        if type(x) is not tuple:
            return math.floor(x)
        if len(x) == 2:
            raise Undefined("complex numbers have no order")
        if x[2] + x[3] > MOST_BITS:
            raise OverLimit("a number beyond all measure")
        near = int(libmp.to_int(libmp.mpf_nint(x, self.prec, NEAREST)))
        noise = self.magnitude(self.sub(x, near))
        if noise is None or noise < max(self.high, 1) - self.prec + 32:
            return near
        return int(libmp.to_int(libmp.mpf_floor(x, self.prec, NEAREST)))

    def magnitude(self, x: Value) -> int | None:
        """The binary exponent: 2**(m-1) <= |x| < 2**m, up to one for fractions and complex numbers; None for 0."""
        if type(x) is not tuple:
            if not x:
                return None
            return x.numerator.bit_length() - x.denominator.bit_length() + 1
        if len(x) == 4:
            return x[2] + x[3] if x[1] else None
        parts = [p[2] + p[3] for p in x if p[1]]
        return max(parts) if parts else None


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
