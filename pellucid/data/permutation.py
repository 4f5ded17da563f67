"""A random order of any number of things, computed place by place, with nothing stored.

A Feistel network (Luby and Rackoff 1988) turns halves of the bits into each other with keyed hashes, which
can always be undone, so it permutes all numbers of so many bits. Where that leads beyond the numbers asked
for it is applied again until it leads back ("cycle walking", Black and Rogaway 2002).
"""

import hashlib

import numpy as np

from pellucid.data.shard import Ids

ROUNDS = 6


def keys(*numbers: int, count: int) -> list[int]:
    """Numbers of 64 bits that depend on the given ones and on nothing else, for ever."""
    text = ",".join(map(str, numbers)).encode()
    return [
        int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=i.to_bytes(16, "little")).digest(), "little")
        for i in range(count)
    ]


def mixed(x: Ids) -> Ids:
    """Numbers of 64 bits that look drawn at random, one for each given (SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Ids = x ^ (x >> np.uint64(31))
    return mixed


class Permutation:
    """The numbers 0 … size − 1 in an order that the key decides.

    >>> Permutation(8, 1, 2)(np.arange(8)).tolist()
    [6, 5, 1, 7, 4, 2, 3, 0]
    """

    def __init__(self, size: int, *key: int) -> None:
        self.size = size
        self.half = np.uint64(max(1, -(-max(1, (size - 1).bit_length()) // 2)))
        self.mask = np.uint64((1 << int(self.half)) - 1)
        self.keys = np.array(keys(*key, count=ROUNDS), np.uint64)

    def __call__(self, places: Ids) -> Ids:
        """The numbers at these places."""
        found = self._turned(places.astype(np.uint64))
        while len(outside := np.flatnonzero(found >= self.size)):
            found[outside] = self._turned(found[outside])
        return found.astype(np.int64)

    def _turned(self, x: Ids) -> Ids:
        left, right = x >> self.half, x & self.mask
        for key in self.keys:
            left, right = right, left ^ (mixed(right + key) & self.mask)
        return (left << self.half) | right
