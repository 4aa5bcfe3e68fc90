"""Writes word_problems.jsonl, a small set of grade-school word problems: `python recipes/data/make_word_problems.py`.

Every situation below was written by hand for this project; only its numbers, names and things are drawn, from a fixed
seed, so that each answer comes out as an integer or a short decimal. A situation is used five times. `meta.steps`
counts the arithmetic operations of the obvious solution. Golds are computed here; tests work a sample of them out by
hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random

Number = int | Fraction
Situation = Callable[[Random], tuple[str, Number, int]]  # random numbers -> (question, answer, steps)
PER_SITUATION = 5
SITUATIONS: list[Situation] = []
# fmt: off
NAMES = [
    "Ada", "Amir", "Anouk", "Bela", "Bruno", "Carla", "Chen", "Dalia", "Dario", "Elif", "Emeka", "Esther", "Farid",
    "Fiona", "Goran", "Hana", "Hugo", "Ines", "Ivo", "Jana", "Jonas", "Kavya", "Kofi", "Lena", "Lior", "Malik",
    "Marta", "Mei", "Nadia", "Nils", "Olga", "Omar", "Paula", "Pavel", "Priya", "Quinn", "Rafa", "Rosa", "Sami",
    "Selma", "Tariq", "Tessa", "Uma", "Viktor", "Wanda", "Yara", "Yusuf", "Zoe",
]
# fmt: on


def situation(f: Situation) -> Situation:
    SITUATIONS.append(f)
    return f


def names(r: Random, n: int) -> list[str]:
    return r.sample(NAMES, n)


def dollars(cents: int) -> str:
    return f"${cents // 100}" if cents % 100 == 0 else f"${cents // 100}.{cents % 100:02d}"


def plain(x: Number) -> str:
    """An exact decimal. Raises ValueError when two places are not enough for it."""
    hundredths = Fraction(x) * 100
    if hundredths.denominator != 1:
        raise ValueError(f"{x} needs more than two decimal places")
    whole, rest = divmod(int(hundredths), 100)
    return str(whole) if rest == 0 else f"{whole}.{rest:02d}".rstrip("0")


@situation
def egg_cartons(r: Random) -> tuple[str, Number, int]:
    size, full = r.choice([6, 10, 12]), r.randint(7, 24)
    return (
        f"A farm packs {size * full} eggs into cartons that hold {size} eggs each. How many cartons does it fill?",
        full,
        1,
    )


@situation
def cooler_evening(r: Random) -> tuple[str, Number, int]:
    noon, drop = r.randint(19, 33), r.randint(4, 15)
    place = r.choice(["harbour", "airport", "village square", "mountain hut"])
    return (
        f"At noon the thermometer at the {place} showed {noon} degrees. By midnight the temperature had fallen"
        f" by {drop} degrees. What did the thermometer show at midnight?",
        noon - drop,
        1,
    )


@situation
def ribbon(r: Random) -> tuple[str, Number, int]:
    tenths, pieces = r.choice([5, 8, 12, 15, 25, 35]), r.randint(3, 9)
    thing = r.choice(["badges", "medals", "gift boxes", "bookmarks"])
    return (
        f"Each of the {pieces} {thing} needs a ribbon of {plain(Fraction(tenths, 10))} metres. How many metres"
        " of ribbon are needed altogether?",
        Fraction(tenths * pieces, 10),
        1,
    )


@situation
def stadium_share(r: Random) -> tuple[str, Number, int]:
    bottom = r.choice([3, 4, 5, 6, 8])
    visitors = bottom * r.randint(12, 60)
    kind = r.choice(["children", "students", "members of the club", "people with a season ticket"])
    return f"Of {visitors} visitors at a match, 1/{bottom} were {kind}. How many {kind} came?", visitors // bottom, 1


@situation
def older_brother(r: Random) -> tuple[str, Number, int]:
    a, b = names(r, 2)
    young, gap = r.randint(4, 13), r.randint(2, 9)
    return f"{a} is {young} years old. {b} is {gap} years older than {a}. How old is {b}?", young + gap, 1


@situation
def sticker_album(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    had, packs, each = r.randint(20, 90), r.randint(3, 9), r.choice([4, 5, 6, 7])
    return (
        f"{a} had {had} stickers and then bought {packs} packs with {each} stickers in each. How many stickers"
        f" does {a} have now?",
        had + packs * each,
        2,
    )


@situation
def change_at_the_till(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    thing, price = r.choice([("notebooks", 145), ("pens", 85), ("apples", 60), ("postcards", 95), ("erasers", 75)])
    count, note = r.randint(3, 6), r.choice([1000, 2000])
    return (
        f"{a} buys {count} {thing} at {dollars(price)} each and pays with a {dollars(note)} bill. How many"
        f" dollars does {a} get back?",
        Fraction(note - count * price, 100),
        2,
    )


@situation
def train_ride(r: Random) -> tuple[str, Number, int]:
    speed, hours, rest = r.choice([60, 70, 80, 90, 120]), r.randint(2, 4), r.randint(15, 95)
    return (
        f"A train travels at {speed} kilometres per hour for {hours} hours and then has {rest} kilometres left"
        " to its last station. How long, in kilometres, is the whole route?",
        speed * hours + rest,
        2,
    )


@situation
def orchard(r: Random) -> tuple[str, Number, int]:
    fruit = r.choice(["apples", "pears", "plums", "oranges"])
    baskets, each, bad = r.randint(6, 15), r.randint(18, 40), r.randint(9, 50)
    return (
        f"Workers in an orchard picked {baskets} baskets with {each} {fruit} in each. After sorting, {bad}"
        f" {fruit} were thrown away. How many good {fruit} remained?",
        baskets * each - bad,
        2,
    )


@situation
def sale_price(r: Random) -> tuple[str, Number, int]:
    percent, price = r.choice([10, 20, 25, 30, 40]), 20 * r.randint(2, 9)
    thing = r.choice(["coat", "backpack", "pair of boots", "tent", "bicycle helmet"])
    return (
        f"A {thing} normally costs ${price}. In a sale the price is cut by {percent}%. How many dollars does the"
        f" {thing} cost in the sale?",
        price - Fraction(price * percent, 100),
        2,
    )


@situation
def leaking_tank(r: Random) -> tuple[str, Number, int]:
    rate, minutes, left = r.randint(3, 9), r.randint(12, 40), r.randint(25, 180)
    return (
        f"A water tank held {rate * minutes + left} litres when it started to leak {rate} litres every minute."
        f" How many litres were left in the tank after {minutes} minutes?",
        left,
        2,
    )


@situation
def reading_plan(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    days, each, read = r.randint(4, 12), r.randint(12, 25), r.randint(30, 99)
    return (
        f"{a} is reading a book of {days * each + read} pages and has finished {read} of them. Reading {each}"
        f" pages a day, how many more days does {a} need to finish the book?",
        days,
        2,
    )


@situation
def choir_rows(r: Random) -> tuple[str, Number, int]:
    rows, each = r.randint(4, 9), r.randint(5, 12)
    high = r.randint(10, rows * each - 8)
    return (
        f"A choir of {high} girls and {rows * each - high} boys stands in {rows} equal rows. How many singers"
        " are in each row?",
        each,
        2,
    )


@situation
def museum_closing(r: Random) -> tuple[str, Number, int]:
    start, first, second = r.randint(9, 11), r.choice([35, 40, 50, 55]), r.choice([45, 65, 75, 80])
    return (
        f"A guided tour of a museum starts at {start}:00. It spends {first} minutes in the first hall and"
        f" {second} minutes in the second. How many minutes after {start + 1}:00 does it end?",
        first + second - 60,
        2,
    )


@situation
def fish_tanks(r: Random) -> tuple[str, Number, int]:
    small, times = r.randint(7, 18), r.randint(3, 6)
    return (
        f"A pet shop keeps {small} goldfish in its small tank and {times} times as many in its large tank. How"
        " many goldfish are there in both tanks together?",
        small + small * times,
        2,
    )


@situation
def printer(r: Random) -> tuple[str, Number, int]:
    rate, minutes, more = r.randint(12, 30), r.randint(3, 8), r.randint(2, 9)
    return (
        f"A printer makes {rate * minutes} posters in {minutes} minutes. At the same pace, how many posters does"
        f" it make in {minutes + more} minutes?",
        rate * (minutes + more),
        2,
    )


@situation
def candle(r: Random) -> tuple[str, Number, int]:
    lost, hours, left = r.choice([12, 15, 18, 25]), r.randint(3, 7), r.randint(4, 15)
    height = Fraction(lost * hours, 10) + left
    return (
        f"A candle is {plain(height)} centimetres tall and gets {plain(Fraction(lost, 10))} centimetres shorter"
        f" in every hour that it burns. How tall is it, in centimetres, after burning for {hours} hours?",
        left,
        2,
    )


@situation
def pen_pals(r: Random) -> tuple[str, Number, int]:
    a, b = names(r, 2)
    total, gap = r.randint(12, 40), r.randint(2, 10)
    return (
        f"{a} and {b} wrote {2 * total + gap} letters altogether this year. {a} wrote {gap} more than {b}. How"
        f" many letters did {b} write?",
        total,
        2,
    )


@situation
def bus_seats(r: Random) -> tuple[str, Number, int]:
    rows, side, empty = r.randint(8, 14), r.choice([2, 3]), r.randint(3, 15)
    return (
        f"A coach has {rows} rows, with {side} seats on each side of the aisle. On one trip {empty} seats stay"
        " empty. How many seats are taken?",
        rows * side * 2 - empty,
        3,
    )


@situation
def library_fine(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    books, days, cents = r.randint(2, 5), r.randint(3, 9), r.choice([10, 15, 20, 25])
    return (
        f"{a} brings {books} books back to the library {days} days late. The fine is {cents} cents for each book"
        f" and each day. How many dollars does {a} have to pay?",
        Fraction(books * days * cents, 100),
        3,
    )


@situation
def lemonade_stand(r: Random) -> tuple[str, Number, int]:
    a, b = names(r, 2)
    cups, price, cost = 2 * r.randint(12, 30), r.choice([50, 75, 125, 150]), r.randint(3, 8)
    return (
        f"{a} and {b} sell {cups} cups of lemonade at {dollars(price)} a cup. They spent ${cost} on lemons and"
        f" sugar and share what is left equally. How many dollars does {a} get?",
        (Fraction(cups * price, 100) - cost) / 2,
        3,
    )


@situation
def pizza_party(r: Random) -> tuple[str, Number, int]:
    a, b = names(r, 2)
    pizzas, cut = r.randint(3, 7), r.choice([6, 8, 10, 12])
    bottom = r.choice([k for k in (2, 3, 4) if pizzas * cut % k == 0])
    more = r.randint(2, 5)
    return (
        f"{a} orders {pizzas} pizzas, each cut into {cut} slices. The guests eat 1/{bottom} of all the slices,"
        f" and then {b} eats {more} more. How many slices are left?",
        pizzas * cut - pizzas * cut // bottom - more,
        4,
    )


@situation
def garden_fence(r: Random) -> tuple[str, Number, int]:
    wide, long, price = r.randint(4, 11), r.randint(12, 20), r.randint(6, 15)
    animal = r.choice(["goats", "chickens", "rabbits", "ducks"])
    return (
        f"A pen for {animal} is a rectangle {long} metres long and {wide} metres wide. A fence costs ${price}"
        " per metre. How many dollars does it cost to fence the pen all the way round?",
        2 * (wide + long) * price,
        3,
    )


@situation
def bakery_trays(r: Random) -> tuple[str, Number, int]:
    trays, each, bag = r.randint(5, 9), r.choice([12, 16, 18, 24]), r.choice([3, 4, 6])
    left = r.randrange(bag, 8 * bag, bag)
    sold = trays * each - left
    treat = r.choice(["rolls", "muffins", "pretzels", "croissants"])
    return (
        f"A baker takes {trays} trays with {each} {treat} on each out of the oven and sells {sold} of them. The"
        f" rest is packed into bags of {bag}. How many bags does the baker fill?",
        left // bag,
        3,
    )


@situation
def average_score(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    x, y, mean = r.randint(60, 80), r.randint(70, 90), r.randint(76, 82)
    return (
        f"{a} scored {x} and {y} points in the first two rounds of a quiz. How many points does {a} need in the"
        f" third round to reach an average of {mean} over the three rounds?",
        3 * mean - x - y,
        3,
    )


@situation
def paint_cans(r: Random) -> tuple[str, Number, int]:
    rooms, walls, per_can = r.randint(3, 6), 4 * r.randint(6, 10), r.choice([8, 12, 16])
    cans, spare = rooms * walls // per_can, rooms * walls % per_can
    if spare:
        cans += 1
    return (
        f"A painter has {rooms} rooms to paint, each with {walls} square metres of wall. One can of paint covers"
        f" {per_can} square metres, and only whole cans are sold. How many cans must the painter buy?",
        cans,
        2,
    )


@situation
def two_cyclists(r: Random) -> tuple[str, Number, int]:
    a, b = names(r, 2)
    fast, slow, hours = r.randint(18, 26), r.randint(11, 17), r.randint(2, 5)
    return (
        f"{a} and {b} start cycling from the same bridge in opposite directions. {a} rides {fast} kilometres per"
        f" hour and {b} {slow} kilometres per hour. How many kilometres apart are they after {hours} hours?",
        (fast + slow) * hours,
        2,
    )


@situation
def savings_jar(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    start, weekly, weeks = r.randint(8, 30), r.randint(4, 9), r.randint(5, 12)
    thing = r.choice(["skateboard", "chess set", "telescope", "drum"])
    price = start + weekly * weeks
    return (
        f"{a} wants a {thing} that costs ${price} and has ${start} in a jar. Each week {a} puts ${weekly} into"
        f" it. After how many weeks is there enough money for the {thing}?",
        weeks,
        2,
    )


@situation
def recipe_scaling(r: Random) -> tuple[str, Number, int]:
    people, grams, guests = r.choice([4, 5, 8]), r.choice([50, 60, 75, 90]), r.randint(9, 15)
    food = r.choice(["rice", "lentils", "pasta", "flour"])
    have = r.randint(2, 4) * 100
    need = grams * guests
    return (
        f"A recipe for {people} people needs {grams * people} grams of {food}. {guests} people are coming, and"
        f" there are {have} grams of {food} in the cupboard. How many more grams of {food} are needed?",
        need - have,
        3,
    )


@situation
def phone_plan(r: Random) -> tuple[str, Number, int]:
    base, free, cents, used = r.randint(8, 15), 50 * r.randint(2, 4), r.choice([5, 10, 20]), r.randint(3, 15)
    return (
        f"A phone plan costs ${base} a month and includes {free} minutes of calls. Every further minute costs"
        f" {cents} cents. How many dollars is the bill for a month with {free + 5 * used} minutes of calls?",
        base + Fraction(5 * used * cents, 100),
        3,
    )


@situation
def flower_bouquets(r: Random) -> tuple[str, Number, int]:
    bunches, roses, tulips = r.randint(4, 9), r.randint(3, 7), r.randint(4, 9)
    cost_r, cost_t = r.choice([2, 3]), 1
    return (
        f"A florist ties {bunches} bouquets, each of {roses} roses and {tulips} tulips. A rose costs ${cost_r}"
        f" and a tulip ${cost_t}. How many dollars do the flowers of all the bouquets cost?",
        bunches * (roses * cost_r + tulips * cost_t),
        4,
    )


@situation
def homework_time(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    each, sums, essay, left = r.randint(4, 9), r.randint(6, 10), r.choice([25, 30, 35, 45]), r.randint(3, 40)
    return (
        f"{a} needs {each} minutes for each of {sums} sums and {essay} minutes for an essay. {a} starts"
        f" {each * sums + essay + left} minutes before dinner. How many minutes are left when everything is done?",
        left,
        3,
    )


@situation
def swimming_lanes(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    pool, laps, days = r.choice([25, 50]), 2 * r.randint(8, 20), r.randint(3, 5)
    return (
        f"{a} swims {laps} lengths of a {pool}-metre pool on each of {days} days a week. How many kilometres is"
        " that in a week?",
        Fraction(pool * laps * days, 1000),
        3,
    )


@situation
def class_trip(r: Random) -> tuple[str, Number, int]:
    pupils, teachers, child, adult = r.randint(18, 28), r.randint(2, 4), r.randint(3, 6), r.randint(7, 10)
    place = r.choice(["zoo", "planetarium", "castle", "aquarium"])
    return (
        f"{pupils} pupils and {teachers} teachers visit the {place}. A ticket costs ${child} for a pupil and"
        f" ${adult} for a teacher. How many dollars do all the tickets cost?",
        pupils * child + teachers * adult,
        3,
    )


@situation
def market_vegetables(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    first, per_first = r.choice([("potatoes", 120), ("carrots", 150), ("onions", 110)])
    second, per_second = r.choice([("tomatoes", 240), ("mushrooms", 360), ("peppers", 320)])
    x, y = r.randint(2, 4), r.choice([Fraction(1, 2), Fraction(3, 2)])
    total = x * per_first + y * per_second
    return (
        f"At the market {first} cost {dollars(per_first)} a kilogram and {second} {dollars(per_second)} a"
        f" kilogram. {a} buys {x} kilograms of {first} and {plain(y)} kilograms of {second} and pays with a $20"
        f" bill. How many dollars does {a} get back?",
        20 - total / 100,
        4,
    )


@situation
def marbles_given_away(r: Random) -> tuple[str, Number, int]:
    a, b, c = names(r, 3)
    k, m = r.choice([(3, 4), (4, 3), (2, 5), (5, 2), (3, 2)])
    left = r.randint(5, 14) * (k - 1) * (m - 1)
    start = left * k * m // ((k - 1) * (m - 1))
    return (
        f"{a} has {start} marbles. {a} gives 1/{k} of them to {b} and then 1/{m} of the rest to {c}. How many"
        f" marbles does {a} still have?",
        left,
        4,
    )


@situation
def theatre_evening(r: Random) -> tuple[str, Number, int]:
    seats, percent = r.choice([12, 16, 20, 24]), r.choice([60, 75, 80, 90])
    rows = r.choice([n for n in (10, 15, 20, 25) if n * seats * percent % 100 == 0])
    price = r.randint(6, 14)
    return (
        f"A theatre has {rows} rows of {seats} seats. On Friday {percent}% of the seats are sold, at ${price}"
        " each. How many dollars does the theatre take?",
        Fraction(rows * seats * percent * price, 100),
        3,
    )


@situation
def work_shift(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    wage, hours, extra = r.choice([12, 14, 16, 18]), r.randint(20, 36), r.randint(3, 7)
    job = r.choice(["cafe", "bookshop", "garage", "greenhouse"])
    return (
        f"{a} earns ${wage} an hour at a {job} and works {hours} hours from Monday to Friday. On Saturday {a} works"
        f" {extra} hours more, which are paid at one and a half times the usual wage. How many dollars does {a} earn"
        " altogether?",
        wage * hours + extra * Fraction(3 * wage, 2),
        4,
    )


@situation
def toy_factory(r: Random) -> tuple[str, Number, int]:
    machines, rate, hours, percent = r.randint(3, 6), r.choice([20, 40, 50]), r.choice([5, 10]), r.choice([2, 4, 5, 10])
    toy = r.choice(["toy cars", "puzzles", "building blocks", "whistles"])
    made = machines * rate * hours
    return (
        f"Each of {machines} machines makes {rate} {toy} an hour. After {hours} hours, {percent}% of all the"
        f" {toy} turn out to be faulty. How many are not faulty?",
        made - Fraction(made * percent, 100),
        4,
    )


@situation
def hiking_club(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    first, more = r.randint(8, 14), r.randint(2, 6)
    third = Fraction(first + first + more, 2)
    return (
        f"On a walk of three days {a} covers {first} kilometres on the first day, {more} kilometres more on the second,"
        " and on the third day exactly the average of the first two. How many kilometres does"
        f" {a} walk in all?",
        first + first + more + third,
        4,
    )


@situation
def fuel_bill(r: Random) -> tuple[str, Number, int]:
    used, hundreds, cents, heads = r.choice([5, 6, 8]), r.randint(2, 6), r.choice([150, 175, 180]), r.choice([2, 4, 5])
    return (
        f"A van needs {used} litres of fuel for every 100 kilometres, and a litre costs {dollars(cents)}."
        f" {heads} friends drive {100 * hundreds} kilometres in it and share the cost equally. How many dollars"
        " does each of them pay?",
        Fraction(used * hundreds * cents, 100 * heads),
        4,
    )


@situation
def bead_necklaces(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    red, blue, made, left = r.randint(6, 12), r.randint(8, 15), r.randint(4, 8), r.randint(15, 60)
    return (
        f"One necklace takes {red} red and {blue} blue beads. {a} opens a bag of {(red + blue) * made + left}"
        f" beads, enough of both colours, and makes {made} necklaces. How many beads are left over?",
        left,
        3,
    )


@situation
def broken_lift(r: Random) -> tuple[str, Number, int]:
    (a,) = names(r, 1)
    floors, steps, trips = r.randint(3, 9), r.choice([16, 18, 20, 22]), r.randint(2, 4)
    return (
        f"The lift is broken, so {a} walks from the ground floor up to floor {floors} and down again {trips}"
        f" times in a day. There are {steps} stairs between one floor and the next. How many stairs does {a}"
        " walk, up and down together?",
        floors * steps * 2 * trips,
        3,
    )


@situation
def photo_prints(r: Random) -> tuple[str, Number, int]:
    small, large, price_s, price_l, post = (
        r.randint(10, 30),
        r.randint(2, 6),
        r.choice([15, 20, 25]),
        r.choice([90, 120]),
        350,
    )
    return (
        f"A small photo print costs {price_s} cents and a large one {dollars(price_l)}. Sending them by post costs"
        f" {dollars(post)}. How many dollars does it cost to order {small} small and {large} large prints by post?",
        Fraction(small * price_s + large * price_l + post, 100),
        4,
    )


@situation
def farm_legs(r: Random) -> tuple[str, Number, int]:
    hens, sheep = r.randint(6, 20), r.randint(4, 15)
    return (
        f"Hens have 2 legs and sheep have 4. A field holds {hens + sheep} animals, of which {hens} are hens and"
        " the others are sheep. How many legs are in the field?",
        2 * hens + 4 * sheep,
        4,
    )


def write(path: Path, seed: int = 20) -> int:
    """Write all problems to `path`; returns how many. The same seed gives the same file."""
    rows = []
    for make in SITUATIONS:
        rng, seen = Random(f"{seed}/{make.__name__}"), set[str]()
        while len(seen) < PER_SITUATION:
            prompt, answer, steps = make(rng)
            if prompt in seen or answer <= 0 or (answer * 100) % 1:  # a share of a cent is nobody's answer
                continue
            seen.add(prompt)
            id = f"{make.__name__}-{len(seen)}"
            rows.append({"id": id, "prompt": prompt, "answer": plain(answer), "meta": {"steps": steps}})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8", newline="\n")
    return len(rows)


if __name__ == "__main__":
    print(write(Path(__file__).with_name("word_problems.jsonl")), "problems")
