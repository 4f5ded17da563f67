"""A random permutation of any size, computed entry by entry, with nothing stored.

A Feistel network (Luby and Rackoff 1988) mixes each half of the bits with a keyed hash of the other half.
Every round is invertible, so it permutes all integers of that many bits; results outside 0 … size − 1 go
through it again until they are inside ("cycle walking", Black and Rogaway 2002).
"""

import hashlib

import numpy as np

from pellucid.data.shard import Ids

ROUNDS = 6


def derive_keys(*numbers: int, count: int) -> list[int]:
    """Returns `count` 64-bit keys that are a fixed hash of the numbers."""
    text = ",".join(map(str, numbers)).encode()
    return [
        int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=i.to_bytes(16, "little")).digest(), "little")
        for i in range(count)
    ]


def splitmix64(x: Ids) -> Ids:
    """Returns a 64-bit hash of each number (SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: Ids = x ^ (x >> np.uint64(31))
    return hashed


class Permutation:
    """The integers 0 … size − 1 in an order that the key decides.

    >>> Permutation(8, 1, 2)(np.arange(8)).tolist()
    [6, 5, 1, 7, 4, 2, 3, 0]
    """

    def __init__(self, size: int, *key: int) -> None:
        self.size = size
        self.half = np.uint64(max(1, -(-max(1, (size - 1).bit_length()) // 2)))
        self.mask = np.uint64((1 << int(self.half)) - 1)
        self.keys = np.array(derive_keys(*key, count=ROUNDS), np.uint64)

    def __call__(self, indices: Ids) -> Ids:
        """Returns the entries at these indices."""
        found = self._apply_rounds(indices.astype(np.uint64))
        while len(outside := np.flatnonzero(found >= self.size)):
            found[outside] = self._apply_rounds(found[outside])
        return found.astype(np.int64)

    def _apply_rounds(self, x: Ids) -> Ids:
        left, right = x >> self.half, x & self.mask
        for key in self.keys:
            left, right = right, left ^ (splitmix64(right + key) & self.mask)
        return (left << self.half) | right
