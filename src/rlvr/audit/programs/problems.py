"""The problems of the code corpus, ours: a reference, other ways to write it, ways to get it wrong, and its inputs.

What a program is worth is not said here: it is found by running it (`certify.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """`tests` are the inputs that the gold asks about, `more(random)` makes further ones for certificates.

    `form` is how the gold is written: "calls" and "apps" (JSON), "asserts", "program" (statements that catch),
    "pytest", or "script" (standard input and output; an input is then the text). `wrong` has a category before each
    name.
    """

    name: str  # of the function, too
    form: str
    code: str
    others: dict[str, str]
    tests: tuple[Arguments, ...]
    more: Callable[[Random], Arguments]
    wrong: dict[tuple[str, str], str] = field(default_factory=dict)


def ints(r: Random, most: int = 9, low: int = -20, high: int = 20) -> list[int]:
    return [r.randint(low, high) for _ in range(r.randint(0, most))]


def word(r: Random, most: int = 9, letters: str = "abcAB ") -> str:
    return "".join(r.choice(letters) for _ in range(r.randint(0, most)))


# fmt: off
PROBLEMS = (
Problem(
"total", "calls",
"""\
def total(numbers):
    out = 0
    for n in numbers:
        out += n
    return out
""",
{
"library": """\
def total(numbers):
    return sum(numbers)
""",
"recursion": """\
def total(numbers):
    return numbers[0] + total(numbers[1:]) if numbers else 0
""",
"while loop": """\
def total(numbers):
    i, out = 0, 0
    while i < len(numbers):
        out, i = out + numbers[i], i + 1
    return out
""",
"fold": """\
from functools import reduce

def total(numbers):
    return reduce(lambda a, b: a + b, numbers, 0)
""",
},
(([1, 2, 3],), ([],), ([-5],), ([10, -10, 7],), ([10 ** 20, 1],), ([0, 0],)),
lambda r: (ints(r),),
{
("arithmetic", "in floats"): """\
def total(numbers):
    return int(sum(map(float, numbers)))
""",
},
),
Problem(
"is_prime", "asserts",
"""\
def is_prime(n):
    if n < 2:
        return False
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return True
""",
{
"comprehension": """\
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))
""",
"sieve": """\
def is_prime(n):
    if n < 2:
        return False
    sieve = [True] * (n + 1)
    for d in range(2, n + 1):
        for m in range(2 * d, n + 1, d):
            sieve[m] = False
    return sieve[n]
""",
"recursion": """\
def is_prime(n, d=2):
    return n > 1 and (d * d > n or (n % d != 0 and is_prime(n, d + 1)))
""",
},
((0,), (1,), (2,), (9,), (17,), (25,), (49,), (97,), (-3,)),
lambda r: (r.randint(-5, 300),),
{
("edge_case", "1 is prime"): """\
def is_prime(n):
    return n > 0 and all(n % d for d in range(2, n))
""",
("arithmetic", "a root too small"): """\
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5)))
""",
("arithmetic", "odd numbers"): """\
def is_prime(n):
    return n == 2 or (n > 2 and n % 2 == 1)
""",
},
),
Problem(
"reversed_words", "calls",
"""\
def reversed_words(text):
    return ' '.join(reversed(text.split()))
""",
{
"slice": """\
def reversed_words(text):
    return ' '.join(text.split()[::-1])
""",
"loop": """\
def reversed_words(text):
    out = ''
    for w in text.split():
        out = w + (' ' + out if out else '')
    return out
""",
"stack": """\
def reversed_words(text):
    stack, out = text.split(), []
    while stack:
        out.append(stack.pop())
    return ' '.join(out)
""",
},
(('the sky is blue',), ('',), ('one',), ('  two  words ',), ('a b c d',), ('x\ty',)),
lambda r: (word(r, 20),),
{
("edge_case", "spaces kept"): """\
def reversed_words(text):
    return ' '.join(text.split(' ')[::-1])
""",
("arithmetic", "letters turned round too"): """\
def reversed_words(text):
    return text[::-1]
""",
},
),
Problem(
"fibonacci", "asserts",
"""\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
""",
{
"recursion": """\
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
""",
"table": """\
def fibonacci(n):
    table = [0, 1]
    for i in range(2, n + 1):
        table.append(table[i - 1] + table[i - 2])
    return table[n]
""",
"cache": """\
from functools import lru_cache

@lru_cache(None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
""",
"matrix": """\
def fibonacci(n):
    def times(x, y):
        (a, b), (c, d) = x
        (e, f), (g, h) = y
        return ((a * e + b * g, a * f + b * h), (c * e + d * g, c * f + d * h))
    out, step = ((1, 0), (0, 1)), ((1, 1), (1, 0))
    while n:
        if n % 2:
            out = times(out, step)
        step, n = times(step, step), n // 2
    return out[0][1]
""",
},
((0,), (1,), (2,), (7,), (10,), (20,)),
lambda r: (r.randint(0, 18),),
{
("off_by_one", "starts at 1, 1"): """\
def fibonacci(n):
    a, b = 1, 1
    for _ in range(n):
        a, b = b, a + b
    return a
""",
("arithmetic", "by a formula in floats, cut off"): """\
def fibonacci(n):
    return int(1.618033988749895 ** n / 5 ** 0.5)
""",
},
),
Problem(
"minmax", "asserts",
"""\
def minmax(numbers):
    low = high = numbers[0]
    for n in numbers:
        if n < low:
            low = n
        if n > high:
            high = n
    return low, high
""",
{
"library": """\
def minmax(numbers):
    return min(numbers), max(numbers)
""",
"sorting": """\
def minmax(numbers):
    ordered = sorted(numbers)
    return (ordered[0], ordered[-1])
""",
"recursion": """\
def minmax(numbers):
    if len(numbers) == 1:
        return numbers[0], numbers[0]
    low, high = minmax(numbers[1:])
    return min(low, numbers[0]), max(high, numbers[0])
""",
},
(([3, 1, 2],), ([5],), ([-1, -7],), ([2, 2, 2],), ([0, 10, -10],)),
lambda r: ([0, *ints(r)],),
{
("edge_case", "begins at zero"): """\
def minmax(numbers):
    low = high = 0
    for n in numbers:
        low, high = min(low, n), max(high, n)
    return low, high
""",
("order", "the larger first"): """\
def minmax(numbers):
    return max(numbers), min(numbers)
""",
},
),
Problem(
"letters", "asserts",
"""\
def letters(text):
    out = {}
    for c in text:
        if c.isalpha():
            c = c.lower()
            out[c] = out.get(c, 0) + 1
    return out
""",
{
"counter": """\
from collections import Counter

def letters(text):
    return Counter(c for c in text.lower() if c.isalpha())
""",
"comprehension": """\
def letters(text):
    low = [c for c in text.lower() if c.isalpha()]
    return {c: low.count(c) for c in low}
""",
"defaultdict": """\
from collections import defaultdict

def letters(text):
    out = defaultdict(int)
    for c in filter(str.isalpha, text.lower()):
        out[c] += 1
    return out
""",
},
(('Hello',), ('',), ('a1a!',), ('aA',), ('  ',), ('zzz',)),
lambda r: (word(r, 15, 'abAB 1!'),),
{
("edge_case", "capitals apart"): """\
def letters(text):
    return {c: text.count(c) for c in text if c.isalpha()}
""",
("edge_case", "zeros counted too"): """\
def letters(text):
    import string
    return {c: text.lower().count(c) for c in string.ascii_lowercase}
""",
},
),
Problem(
"common", "asserts",
"""\
def common(a, b):
    out = set()
    for x in a:
        if x in b:
            out.add(x)
    return out
""",
{
"operator": """\
def common(a, b):
    return set(a) & set(b)
""",
"comprehension": """\
def common(a, b):
    return {x for x in a if x in b}
""",
"method": """\
def common(a, b):
    return set(a).intersection(b)
""",
},
(([1, 2, 3], [2, 3, 4]), ([], [1]), ([1, 1], [1]), ([5], [6]), ([0, 1, 2], [2, 1, 0])),
lambda r: (ints(r, 6, 0, 6), ints(r, 6, 0, 6)),
{
("operator", "all of both"): """\
def common(a, b):
    return set(a) | set(b)
""",
},
),
Problem(
"average", "calls",
"""\
def average(numbers):
    if not numbers:
        return 0.0
    return sum(numbers) / len(numbers)
""",
{
"loop": """\
def average(numbers):
    total = 0
    for n in numbers:
        total += n
    return total / len(numbers) if numbers else 0.0
""",
"exception": """\
def average(numbers):
    try:
        return sum(numbers) / len(numbers)
    except ZeroDivisionError:
        return 0.0
""",
"fraction": """\
from fractions import Fraction

def average(numbers):
    return float(Fraction(sum(numbers), len(numbers) or 1))
""",
},
(([1, 2],), ([],), ([4, 4],), ([-1, 1],), ([1, 2, 4],), ([7],)),
lambda r: (ints(r),),
{
("operator", "whole division"): """\
def average(numbers):
    return float(sum(numbers) // len(numbers)) if numbers else 0.0
""",
("edge_case", "none where there is nothing"): """\
def average(numbers):
    return sum(numbers) / len(numbers) if numbers else None
""",
("exception", "nothing for nothing"): """\
def average(numbers):
    return sum(numbers) / len(numbers)
""",
},
),
Problem(
"flat", "calls",
"""\
def flat(nested):
    out = []
    for x in nested:
        if isinstance(x, list):
            out.extend(flat(x))
        else:
            out.append(x)
    return out
""",
{
"stack": """\
def flat(nested):
    stack, out = [nested], []
    while stack:
        x = stack.pop()
        if isinstance(x, list):
            stack.extend(reversed(x))
        else:
            out.append(x)
    return out
""",
"generator": """\
def flat(nested):
    def walk(x):
        if isinstance(x, list):
            for y in x:
                yield from walk(y)
        else:
            yield x
    return list(walk(nested))
""",
"sum of lists": """\
def flat(nested):
    return sum((flat(x) if isinstance(x, list) else [x] for x in nested), [])
""",
},
(([1, [2, [3]]],), ([],), ([[], [[]]],), ([1, 2],), ([[[['a']]], 'b'],)),
lambda r: ([ints(r, 3), [ints(r, 2), 1], 2],),
{
("edge_case", "one level only"): """\
def flat(nested):
    return [y for x in nested for y in (x if isinstance(x, list) else [x])]
""",
},
),
Problem(
"balanced", "apps",
"""\
def balanced(text):
    pairs = {')': '(', ']': '[', '}': '{'}
    stack = []
    for c in text:
        if c in '([{':
            stack.append(c)
        elif c in pairs:
            if not stack or stack.pop() != pairs[c]:
                return False
    return not stack
""",
{
"erasing": """\
def balanced(text):
    text = ''.join(c for c in text if c in '()[]{}')
    before = None
    while text != before:
        before = text
        text = text.replace('()', '').replace('[]', '').replace('{}', '')
    return text == ''
""",
"match": """\
def balanced(text):
    open_ = []
    for c in text:
        match c:
            case '(':
                open_.append(')')
            case '[':
                open_.append(']')
            case '{':
                open_.append('}')
            case ')' | ']' | '}':
                if not open_ or open_.pop() != c:
                    return False
    return len(open_) == 0
""",
},
(('()',), ('([)]',), ('',), ('(',), (')',), ('{[()]}x',), ('(]',), ('][',)),
lambda r: (word(r, 6, '()[]'),),
{
("edge_case", "counts only"): """\
def balanced(text):
    return all(text.count(a) == text.count(b) for a, b in ('()', '[]', '{}'))
""",
("edge_case", "one kind only"): """\
def balanced(text):
    depth = 0
    for c in text:
        depth += (c in '([{') - (c in ')]}')
        if depth < 0:
            return False
    return depth == 0
""",
},
),
Problem(
"rotate", "calls",
"""\
def rotate(items, k):
    if not items:
        return []
    k = k % len(items)
    return items[-k:] + items[:-k]
""",
{
"comprehension": """\
def rotate(items, k):
    n = len(items)
    return [items[(i - k) % n] for i in range(n)]
""",
"deque": """\
from collections import deque

def rotate(items, k):
    d = deque(items)
    d.rotate(k)
    return list(d)
""",
"steps": """\
def rotate(items, k):
    items = list(items)
    for _ in range(k % len(items) if items else 0):
        items.insert(0, items.pop())
    return items
""",
},
(([1, 2, 3, 4], 1), ([], 3), ([1, 2, 3], 0), ([1, 2, 3], 7), ([1, 2, 3], -1), ([9], 5)),
lambda r: (ints(r, 6), r.randint(-9, 9)),
{
("order", "the other way"): """\
def rotate(items, k):
    k = k % len(items) if items else 0
    return items[k:] + items[:k]
""",
("edge_case", "no modulus"): """\
def rotate(items, k):
    return items[-k:] + items[:-k]
""",
},
),
Problem(
"gcd", "apps",
"""\
def gcd(a, b):
    while b:
        a, b = b, a % b
    return abs(a)
""",
{
"recursion": """\
def gcd(a, b):
    return abs(a) if b == 0 else gcd(b, a % b)
""",
"library": """\
import math

def gcd(a, b):
    return math.gcd(a, b)
""",
"counting down": """\
def gcd(a, b):
    a, b = abs(a), abs(b)
    if not a or not b:
        return a or b
    return next(d for d in range(min(a, b), 0, -1) if a % d == b % d == 0)
""",
},
((12, 18), (7, 0), (0, 0), (-4, 6), (17, 5), (100, 100)),
lambda r: (r.randint(-60, 60), r.randint(-60, 60)),
{
("edge_case", "a sign left"): """\
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a
""",
("operator", "the multiple"): """\
import math

def gcd(a, b):
    return math.lcm(a, b)
""",
},
),
Problem(
"roman", "calls",
"""\
def roman(n):
    signs = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'),
             (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]
    out = ''
    for value, sign in signs:
        while n >= value:
            out += sign
            n -= value
    return out
""",
{
"by digits": """\
def roman(n):
    ones = ['', 'I', 'II', 'III', 'IV', 'V', 'VI', 'VII', 'VIII', 'IX']
    def digit(d, one, five, ten):
        return ones[d].replace('X', ten).replace('V', five).replace('I', one)
    hundreds, tens = digit(n // 100 % 10, 'C', 'D', 'M'), digit(n // 10 % 10, 'x', 'L', 'C').replace('x', 'X')
    return 'M' * (n // 1000) + hundreds + tens + ones[n % 10]
""",
"recursion": """\
def roman(n):
    for v, s in zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
                    'M CM D CD C XC L XL X IX V IV I'.split()):
        if n >= v:
            return s + roman(n - v)
    return ''
""",
},
((1,), (4,), (9,), (14,), (40,), (399,), (1994,), (2024,)),
lambda r: (r.randint(1, 2999),),
{
("edge_case", "no subtraction"): """\
def roman(n):
    out = ''
    for v, s in zip((1000, 500, 100, 50, 10, 5, 1), 'MDCLXVI'):
        out += s * (n // v)
        n %= v
    return out
""",
},
),
Problem(
"two_sum", "asserts",
"""\
def two_sum(numbers, target):
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                return (i, j)
    return None
""",
{
"combinations": """\
from itertools import combinations

def two_sum(numbers, target):
    for (i, a), (j, b) in combinations(enumerate(numbers), 2):
        if a + b == target:
            return i, j
""",
"generator": """\
def two_sum(numbers, target):
    n = len(numbers)
    pairs = ((i, j) for i in range(n) for j in range(i + 1, n))
    return next(((i, j) for i, j in pairs if numbers[i] + numbers[j] == target), None)
""",
},
(([2, 7, 11], 9), ([3, 3], 6), ([1, 2], 4), ([], 0), ([5, 1, 5], 10), ([0, -1, 1], 0)),
lambda r: (ints(r, 6, -4, 4), r.randint(-4, 4)),
{
("edge_case", "one twice"): """\
def two_sum(numbers, target):
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            if a + b == target:
                return i, j
    return None
""",
("type", "an empty tuple for None"): """\
def two_sum(numbers, target):
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == target:
                return (i, j)
    return ()
""",
},
),
Problem(
"compress", "apps",
"""\
def compress(text):
    out = ''
    i = 0
    while i < len(text):
        j = i
        while j < len(text) and text[j] == text[i]:
            j += 1
        out += text[i] + str(j - i)
        i = j
    return out
""",
{
"groupby": """\
from itertools import groupby

def compress(text):
    return ''.join(f'{c}{len(list(run))}' for c, run in groupby(text))
""",
"regular expression": """\
import re

def compress(text):
    return re.sub(r'(.)\\1*', lambda m: m[1] + str(len(m[0])), text, flags=re.S)
""",
"recursion": """\
def compress(text):
    if not text:
        return ''
    n = len(text) - len(text.lstrip(text[0]))
    return text[0] + str(n) + compress(text[n:])
""",
},
(('aaab',), ('',), ('a',), ('abab',), ('zzzzzzzzzzzz',), ('  ',)),
lambda r: (word(r, 9, 'ab'),),
{
("edge_case", "counts over all"): """\
def compress(text):
    return ''.join(c + str(text.count(c)) for c in dict.fromkeys(text))
""",
("edge_case", "no 1 written"): """\
from itertools import groupby

def compress(text):
    out = ''
    for c, run in groupby(text):
        n = len(list(run))
        out += c + (str(n) if n > 1 else '')
    return out
""",
},
),
Problem(
"transposed", "calls",
"""\
def transposed(rows):
    if not rows:
        return []
    out = []
    for j in range(len(rows[0])):
        out.append([row[j] for row in rows])
    return out
""",
{
"zip": """\
def transposed(rows):
    return [list(column) for column in zip(*rows)]
""",
"map": """\
def transposed(rows):
    return list(map(list, zip(*rows)))
""",
"indices": """\
def transposed(rows):
    n, m = len(rows), len(rows[0]) if rows else 0
    return [[rows[i][j] for i in range(n)] for j in range(m)]
""",
},
(([[1, 2], [3, 4]],), ([],), ([[1, 2, 3]],), ([[1], [2]],), ([['a']],)),
lambda r: ([[r.randint(0, 9) for _ in range(m)] for m in [r.randint(1, 4)] for _ in range(r.randint(1, 4))],),
{
("type", "rows as tuples"): """\
def transposed(rows):
    return list(zip(*rows))
""",
("order", "rows turned round"): """\
def transposed(rows):
    return [list(c) for c in zip(*rows[::-1])]
""",
},
),
Problem(
"withdraw", "program",
"""\
def withdraw(balance, amount):
    if amount <= 0:
        raise ValueError('the amount is above zero')
    if amount > balance:
        raise ValueError('not so much')
    return balance - amount
""",
{
"one test": """\
def withdraw(balance, amount):
    if not 0 < amount <= balance:
        raise ValueError(amount)
    return balance - amount
""",
"afterwards": """\
def withdraw(balance, amount):
    left = balance - amount
    if left < 0 or left >= balance:
        raise ValueError
    return left
""",
},
((10, 3), (10, 10), (10, 11), (5, 0), (5, -1), (0, 1), (100, 1)),
lambda r: (r.randint(0, 9), r.randint(-3, 12)),
{
("exception", "swallowed"): """\
def withdraw(balance, amount):
    try:
        if not 0 < amount <= balance:
            raise ValueError(amount)
    except ValueError:
        pass
    return balance - amount
""",
("exception", "another kind"): """\
def withdraw(balance, amount):
    if not 0 < amount <= balance:
        raise KeyError(amount)
    return balance - amount
""",
("exception", "returned, not raised"): """\
def withdraw(balance, amount):
    if not 0 < amount <= balance:
        return ValueError(amount)
    return balance - amount
""",
("exception", "none for a bad amount"): """\
def withdraw(balance, amount):
    return balance - amount if 0 < amount <= balance else None
""",
},
),
Problem(
"factorial", "program",
"""\
def factorial(n):
    if n < 0:
        raise ValueError('n is negative')
    out = 1
    for i in range(2, n + 1):
        out *= i
    return out
""",
{
"recursion": """\
def factorial(n):
    if n < 0:
        raise ValueError(n)
    return 1 if n < 2 else n * factorial(n - 1)
""",
"library": """\
import math

def factorial(n):
    return math.factorial(n)
""",
"product": """\
from math import prod

def factorial(n):
    if n < 0:
        raise ValueError
    return prod(range(1, n + 1))
""",
},
((0,), (1,), (5,), (25,), (-1,)),
lambda r: (r.randint(-3, 12),),
{
("exception", "1 below zero"): """\
def factorial(n):
    out = 1
    for i in range(2, n + 1):
        out *= i
    return out
""",
("arithmetic", "in floats"): """\
import math

def factorial(n):
    if n < 0:
        raise ValueError
    return round(math.gamma(n + 1))
""",
},
),
Problem(
"chunks", "pytest",
"""\
def chunks(items, size):
    out = []
    for i in range(0, len(items), size):
        out.append(items[i:i + size])
    return out
""",
{
"comprehension": """\
def chunks(items, size):
    return [items[i:i + size] for i in range(0, len(items), size)]
""",
"recursion": """\
def chunks(items, size):
    return [items[:size]] + chunks(items[size:], size) if items else []
""",
"islice": """\
from itertools import islice

def chunks(items, size):
    it = iter(items)
    return list(iter(lambda: list(islice(it, size)), []))
""",
},
(([1, 2, 3, 4], 2), ([1, 2, 3], 2), ([], 3), ([1], 5), ([1, 2, 3], 1)),
lambda r: (ints(r), r.randint(1, 4)),
{
("edge_case", "the rest is lost"): """\
def chunks(items, size):
    return [items[i:i + size] for i in range(0, len(items) - size + 1, size)]
""",
},
),
Problem(
"palindrome", "pytest",
"""\
def palindrome(text):
    kept = [c.lower() for c in text if c.isalnum()]
    return kept == kept[::-1]
""",
{
"two ends": """\
def palindrome(text):
    kept = ''.join(filter(str.isalnum, text)).lower()
    i, j = 0, len(kept) - 1
    while i < j:
        if kept[i] != kept[j]:
            return False
        i, j = i + 1, j - 1
    return True
""",
"recursion": """\
def palindrome(text):
    text = ''.join(c for c in text.lower() if c.isalnum())
    return len(text) < 2 or (text[0] == text[-1] and palindrome(text[1:-1]))
""",
},
(('Anna',), ('',), ('ab',), ('A man, a plan, a canal: Panama',), ('a',), ('ab a',)),
lambda r: (word(r, 6, 'aAb ,'),),
{
("edge_case", "capitals count"): """\
def palindrome(text):
    kept = [c for c in text if c.isalnum()]
    return kept == kept[::-1]
""",
("edge_case", "spaces count"): """\
def palindrome(text):
    return text.lower() == text.lower()[::-1]
""",
},
),
Problem(
"digits", "asserts",
"""\
def digits(n):
    out = []
    n = abs(n)
    while True:
        out.insert(0, n % 10)
        n //= 10
        if n == 0:
            return out
""",
{
"text": """\
def digits(n):
    return [int(c) for c in str(abs(n))]
""",
"map": """\
def digits(n):
    return list(map(int, str(n).lstrip('-')))
""",
"recursion": """\
def digits(n):
    n = abs(n)
    return digits(n // 10) + [n % 10] if n > 9 else [n]
""",
},
((123,), (0,), (-45,), (7,), (10 ** 20,), (100,)),
lambda r: (r.randint(-99999, 99999),),
{
("order", "backwards"): """\
def digits(n):
    return [int(c) for c in reversed(str(abs(n)))]
""",
("edge_case", "nothing for zero"): """\
def digits(n):
    n, out = abs(n), []
    while n:
        out.insert(0, n % 10)
        n //= 10
    return out
""",
("type", "digits as text"): """\
def digits(n):
    return list(str(abs(n)))
""",
},
),
Problem(
"merged", "calls",
"""\
def merged(a, b):
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i])
            i += 1
        else:
            out.append(b[j])
            j += 1
    return out + a[i:] + b[j:]
""",
{
"sorting": """\
def merged(a, b):
    return sorted(a + b)
""",
"library": """\
import heapq

def merged(a, b):
    return list(heapq.merge(a, b))
""",
"recursion": """\
def merged(a, b):
    if not a or not b:
        return a or b
    if a[0] <= b[0]:
        return [a[0]] + merged(a[1:], b)
    return [b[0]] + merged(a, b[1:])
""",
},
(([1, 3], [2, 4]), ([], []), ([1], []), ([], [2]), ([1, 1], [1]), ([5, 6], [1, 2])),
lambda r: (sorted(ints(r, 5)), sorted(ints(r, 5))),
{
("edge_case", "doubles lost"): """\
def merged(a, b):
    return sorted(set(a + b))
""",
("edge_case", "the rest is lost"): """\
def merged(a, b):
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i])
            i += 1
        else:
            out.append(b[j])
            j += 1
    return out
""",
("order", "not merged"): """\
def merged(a, b):
    return a + b
""",
},
),
Problem(
"binary_search", "apps",
"""\
def binary_search(items, x):
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low if low < len(items) and items[low] == x else -1
""",
{
"library": """\
from bisect import bisect_left

def binary_search(items, x):
    i = bisect_left(items, x)
    return i if items[i:i + 1] == [x] else -1
""",
"linear": """\
def binary_search(items, x):
    return items.index(x) if x in items else -1
""",
},
(([1, 3, 5], 3), ([], 1), ([1], 1), ([1, 3], 2), ([2, 2, 2], 2), ([1, 2, 3, 4], 4), ([1, 2], 9)),
lambda r: (sorted(ints(r, 7, 0, 6)), r.randint(0, 6)),
{
("edge_case", "any of equal ones"): """\
def binary_search(items, x):
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == x:
            return middle
        if items[middle] < x:
            low = middle + 1
        else:
            high = middle - 1
    return -1
""",
("exception", "raises where it is missing"): """\
def binary_search(items, x):
    return items.index(x)
""",
("endless", "the middle stays"): """\
def binary_search(items, x):
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < x:
            low = middle
        else:
            high = middle
    return low if low < len(items) and items[low] == x else -1
""",
},
),
Problem(
"initials", "pytest",
"""\
def initials(names):
    return {name: ''.join(part[0] for part in name.split()) for name in names}
""",
{
"loop": """\
def initials(names):
    out = {}
    for name in names:
        short = ''
        for part in name.split():
            short += part[:1]
        out[name] = short
    return out
""",
"zip": """\
def initials(names):
    return dict(zip(names, (''.join(p[0] for p in n.split()) for n in names)))
""",
},
((['Ada Lovelace'],), ([],), (['a b c', 'd'],), ([''],)),
lambda r: ([word(r, 6) for _ in range(r.randint(0, 3))],),
{
("edge_case", "two letters at most"): """\
def initials(names):
    return {n: ''.join(p[0] for p in n.split()[:2]) for n in names}
""",
("type", "pairs, no table"): """\
def initials(names):
    return [(n, ''.join(p[0] for p in n.split())) for n in names]
""",
},
),
Problem(
"both_ends", "asserts",
"""\
def both_ends(text):
    data = text.encode()
    return data[:1], data[-1:], len(data)
""",
{
"tuple by hand": """\
def both_ends(text):
    data = bytes(text, 'utf-8')
    return tuple([data[0:1], data[len(data) - 1:] if data else b'', len(data)])
""",
"memory": """\
def both_ends(text):
    data = bytearray(text, 'utf-8')
    return bytes(data[:1]), bytes(data[-1:]), len(data)
""",
},
(('abc',), ('',), ('é',), ('x',), ('ab',)),
lambda r: (word(r, 5, 'aé€b'),),
{
("type", "text for bytes"): """\
def both_ends(text):
    return text[:1], text[-1:], len(text.encode())
""",
("edge_case", "letters for bytes"): """\
def both_ends(text):
    return text[:1].encode(), text[-1:].encode(), len(text)
""",
("type", "bytearrays"): """\
def both_ends(text):
    data = bytearray(text, 'utf-8')
    return data[:1], data[-1:], len(data)
""",
},
),
Problem(
"collatz", "calls",
"""\
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
{
"recursion": """\
def collatz(n):
    return 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)
""",
"list": """\
def collatz(n):
    path = [n]
    while path[-1] != 1:
        x = path[-1]
        path.append(3 * x + 1 if x & 1 else x >> 1)
    return len(path) - 1
""",
},
((1,), (2,), (3,), (7,), (27,), (64,)),
lambda r: (r.randint(1, 60),),
{
("endless", "counts on"): """\
def collatz(n):
    steps = 0
    while n != 0:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
("off_by_one", "1 is a step"): """\
def collatz(n):
    steps = 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
},
),
Problem(
"unique", "apps",
"""\
def unique(items):
    seen, out = [], []
    for x in items:
        if x not in seen:
            seen.append(x)
            out.append(x)
    return out
""",
{
"dictionary": """\
def unique(items):
    return list(dict.fromkeys(items))
""",
"comprehension": """\
def unique(items):
    return [x for i, x in enumerate(items) if x not in items[:i]]
""",
"recursion": """\
def unique(items):
    return [items[0]] + unique([x for x in items if x != items[0]]) if items else []
""",
},
(([3, 1, 3],), ([],), ([1, 1, 1],), (['b', 'a', 'b'],), ([2, 9, 2, 1],)),
lambda r: (ints(r, 8, 0, 4),),
{
("order", "sorted"): """\
def unique(items):
    return sorted(set(items))
""",
("order", "the last one stays"): """\
def unique(items):
    return list(dict.fromkeys(items[::-1]))[::-1]
""",
},
),
Problem(
"leap", "asserts",
"""\
def leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
""",
{
"branches": """\
def leap(year):
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return year % 4 == 0
""",
"library": """\
import calendar

def leap(year):
    return calendar.isleap(year)
""",
"dates": """\
import datetime

def leap(year):
    try:
        datetime.date(year, 2, 29)
    except ValueError:
        return False
    return True
""",
},
((2024,), (1900,), (2000,), (2023,), (2100,)),
lambda r: (r.choice((r.randint(1, 3000), 100 * r.randint(1, 30))),),
{
("edge_case", "every fourth"): """\
def leap(year):
    return year % 4 == 0
""",
("edge_case", "no century"): """\
def leap(year):
    return year % 4 == 0 and year % 100 != 0
""",
("type", "a remainder"): """\
def leap(year):
    return (year % 4 == 0) * (year % 100 != 0 or year % 400 == 0)
""",
},
),
Problem(
"squares", "script",
"""\
n = int(input())
numbers = list(map(int, input().split()))
for x in numbers[:n]:
    print(x * x)
""",
{
"all at once": """\
import sys
n, *numbers = map(int, sys.stdin.read().split())
print('\\n'.join(str(x ** 2) for x in numbers[:n]))
""",
"a main function": """\
def main():
    n = int(input())
    print(*(int(x) ** 2 for x in input().split()[:n]), sep='\\n')

if __name__ == '__main__':
    main()
""",
"bytes": """\
import sys
d = sys.stdin.buffer.read().split()
for x in d[1:int(d[0]) + 1]:
    sys.stdout.write(f'{int(x) * int(x)}\\n')
""",
"spaces at line ends": """\
n = int(input())
for x in input().split()[:n]:
    print(int(x) ** 2, end='  \\n')
""",
"exit at the end": """\
import sys
n = int(input())
for x in input().split()[:n]:
    print(int(x) ** 2)
sys.exit(0)
""",
},
(('3\n1 2 3\n',), ('1\n-4\n',), ('2\n0 10\n',), ('2\n5 6 7\n',)),
lambda r: (f'{r.randint(1, 3)}\n' + ' '.join(str(r.randint(-9, 9)) for _ in range(3)) + '\n',),
{
("printed", "on one line"): """\
n = int(input())
print(*(int(x) ** 2 for x in input().split()[:n]))
""",
("printed", "words beside it"): """\
n = int(input())
for x in input().split()[:n]:
    print('square:', int(x) ** 2)
""",
("exception", "right, then it fails"): """\
n = int(input())
for x in input().split()[:n]:
    print(int(x) ** 2)
raise SystemExit(1)
""",
("printed", "to standard error"): """\
import sys
n = int(input())
for x in input().split()[:n]:
    print(int(x) ** 2, file=sys.stderr)
""",
("samples", "the sample's output"): """\
print('1\\n4\\n9')
""",
("endless", "waits for more"): """\
import time
n = int(input())
for x in input().split()[:n]:
    print(int(x) ** 2, flush=True)
time.sleep(3600)
""",
},
),
Problem(
"longest", "script",
"""\
import sys
words = sys.stdin.read().split()
best = ''
for w in words:
    if len(w) > len(best):
        best = w
print(best, len(best))
""",
{
"library": """\
import sys
w = max(sys.stdin.read().split(), key=len)
print(w, len(w))
""",
"sorting": """\
import sys
w = sorted(sys.stdin.read().split(), key=lambda w: -len(w))[0]
print(f'{w} {len(w)}')
""",
"lines": """\
import fileinput
best = ''
for line in fileinput.input():
    for w in line.split():
        best = w if len(w) > len(best) else best
print(best + ' ' + str(len(best)))
""",
"empty lines behind": """\
import sys
w = max(sys.stdin.read().split(), key=len)
print(w, len(w))
print()
print()
""",
},
(('a bcd ef\n',), ('one two six\n',), ('x\n',), ('to\nbe or\nnotto be\n',)),
lambda r: ('x ' + word(r, 20, 'ab \n') + '\n',),
{
("order", "the last of equals"): """\
import sys
best = ''
for w in sys.stdin.read().split():
    if len(w) >= len(best):
        best = w
print(best, len(best))
""",
("edge_case", "the first line only"): """\
w = max(input().split(), key=len)
print(w, len(w))
""",
("printed", "no space"): """\
import sys
w = max(sys.stdin.read().split(), key=len)
print(w, len(w), sep='')
""",
("printed", "the number first"): """\
import sys
w = max(sys.stdin.read().split(), key=len)
print(len(w), w)
""",
},
),
)
# fmt: on
