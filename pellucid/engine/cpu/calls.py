"""One call of the compiled step: its tokens, and the structure that points to them."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import UsageError
from pellucid.engine.cache import Cache
from pellucid.engine.cpu import structures as c

Table = np.ndarray[Any, np.dtype[np.int32]]


class TokenCall:
    """The tokens [3 N] of a call (ids, positions, the row of each), the places of those whose logits are
    wanted, and its structure.

    A call that decodes is made once for the same texts and filled again for each token: making it takes as
    long as a step of a small model.
    """

    def __init__(self, caches: Sequence[Cache], rows: Sequence[c.CCacheRow], tokens: Table, wanted: Table):
        kinds = {cache.layers[0].buffers[0].dtype for cache in caches}
        if len(kinds) > 1:
            raise UsageError(f"the caches of one call must be of one type, not {', '.join(map(str, kinds))}.")
        self.tokens, self.wanted, self.n_rows = tokens, wanted, len(caches)
        self.caches = [weakref.ref(cache) for cache in caches]
        self.described = (c.CCacheRow * len(rows))(*rows)
        self.structure = c.CCall(
            n_tokens=tokens.shape[1],
            n_wanted=len(wanted),
            n_rows=len(caches),
            cache=c.CACHES[dtype_name(kinds.pop())],
            ids=tokens[0].ctypes.data,
            positions=tokens[1].ctypes.data,
            rows=tokens[2].ctypes.data,
            wanted=wanted.ctypes.data,
            caches=ctypes.addressof(self.described),
        )
        self.address = ctypes.byref(self.structure)

    @classmethod
    def make_decode(cls, caches: Sequence[Cache], rows: Sequence[c.CCacheRow]) -> "TokenCall":
        """Returns a call of one token of each text, with its logits, to be filled in."""
        tokens = np.zeros((3, len(caches)), np.int32)
        tokens[2] = np.arange(len(caches))
        return cls(caches, rows, tokens, tokens[2].copy())

    @property
    def is_decode(self) -> bool:
        return bool(self.tokens.shape[1] == self.n_rows)

    def is_of(self, rows: Sequence[tuple[Cache, Sequence[int]]]) -> bool:
        """Returns whether these are its texts, in its order."""
        return len(rows) == len(self.caches) and all(
            own() is cache for own, (cache, _) in zip(self.caches, rows, strict=True)
        )

    def fill(self, rows: Sequence[tuple[Cache, Sequence[int]]]) -> int:
        """Takes the next token of each text, which the caches then count; returns the farthest position."""
        ids, positions, _ = self.tokens
        farthest = 0
        for place, (cache, some) in enumerate(rows):
            position = int(cache.host_lengths[0])
            if position >= cache.capacity:
                cache.reserve(1)  # which says so
            ids[place], positions[place] = some[0], position
            farthest = max(farthest, position)
            cache.advance(1)
        return farthest

    def prepare(self, threads: int, logits: Tensor, recorded: Any) -> None:
        self.structure.threads = threads
        self.structure.logits = logits.data_ptr()
        self.structure.recorded = None if recorded is None else ctypes.addressof(recorded)


def can_read(cache: Cache) -> bool:
    """Returns whether a cache is of a type that the compiled step reads."""
    return dtype_name(cache.layers[0].buffers[0].dtype) in c.CACHES
