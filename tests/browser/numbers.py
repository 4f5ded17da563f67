"""Numbers on which a formatter is likely to err: ties, neighbors of ties, ends of the range, any bits."""

import math
import random
import struct

DIGITS = range(2, 9)
EDGES = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 2.2250738585072014e-308, 2.225073858507201e-308,
    1.7976931348623157e308, 2.0**53, 2.0**53 + 2, 2.0**64, 1e21, 1e22, 1e23, 123456789012345680000.0, 0.1,
    1 / 3, 1.03125, 2.675, 1.005, 0.5, 1.5, 2.5, 0.25, 0.125, 8.5, 9.5, 99.5, 0.00001, 0.0001,
    0.00012345, 0.000099995,
]  # fmt: skip


def draw_numbers(count: int, seed: int = 0) -> list[float]:
    """Returns `count` numbers, the same for a seed."""
    rng = random.Random(seed)
    drawn = [*EDGES, *(10.0**power for power in range(-30, 31)), *map(_carry, range(-12, 13))]
    kinds = (_tie, _half, _any_bits, _subnormal, _beside_a_tie, _decimal, _whole)
    while len(drawn) < count:
        drawn.append(rng.choice((1, -1)) * rng.choice(kinds)(rng))
    return drawn[:count]


def _carry(power: int) -> float:
    """Rounds up to a further digit: 9.9999995, 99.999995."""
    return 9.9999995 * 10.0**power


def _tie(rng: random.Random) -> float:
    """Has exactly one digit more than will be shown, a 5, in binary too: 1.03125 for five digits."""
    k = rng.randint(1, 12)
    number = 5**k * (2 * rng.randint(0, 10 ** rng.randint(1, 8)) + 1)
    return number / 10**k if number < 2**53 else number / 2.0**k


def _half(rng: random.Random) -> float:
    return rng.randrange(10 ** rng.randint(1, 9)) + 0.5


def _beside_a_tie(rng: random.Random) -> float:
    return math.nextafter(_tie(rng), rng.choice((-math.inf, math.inf)))


def _any_bits(rng: random.Random) -> float:
    (number,) = struct.unpack("<d", rng.randbytes(8))
    return float(number)


def _subnormal(rng: random.Random) -> float:
    return rng.randrange(1, 2 ** rng.randint(1, 52)) * 5e-324


def _decimal(rng: random.Random) -> float:
    """Is written with a 5 last, but lies beside it in binary: 2.675."""
    return float(f"{rng.randrange(10 ** rng.randint(1, 8))}5e{rng.randint(-20, 30)}")


def _whole(rng: random.Random) -> float:
    return float(rng.randrange(10 ** rng.randint(1, 25)))
