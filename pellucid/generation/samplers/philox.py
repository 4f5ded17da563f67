"""Philox4x64-10, a counter-based random number generator: a number is a function of a key and a counter.

Salmon, Moraes, Dror and Shaw 2011, Parallel random numbers: as easy as 1, 2, 3. It is `np.random.Philox`,
which takes longer to make than one of its numbers.
"""

MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
"""Of the key, from round to round: the golden ratio and √3 − 1."""
ROUNDS = 10
MASK = 2**64 - 1


def draw_bits(key: tuple[int, int], counter: int) -> int:
    """Returns 64 random bits.

    >>> import numpy as np
    >>> own = draw_bits((7, 1), 5)
    >>> own == np.random.Philox(key=[7, 1], counter=[4, 0, 0, 0]).random_raw()  # it counts, then computes
    True
    """
    first, second = key
    a, b, c, d = counter & MASK, counter >> 64, 0, 0
    for _ in range(ROUNDS):
        left, right = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = right >> 64 ^ b ^ first, right & MASK, left >> 64 ^ d ^ second, left & MASK
        first, second = first + INCREMENTS[0] & MASK, second + INCREMENTS[1] & MASK
    return a
