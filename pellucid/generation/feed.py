"""The tokens that one request reads in one step of the engine."""

from typing import NamedTuple


class Feed(NamedTuple):
    """Tokens that follow those of a slot.

    Attention is computed segment by segment, in order. The logits of the last `outputs` tokens are returned.
    """

    slot: int
    segments: tuple[tuple[int, ...], ...]
    outputs: int

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.segments))

    @property
    def is_decode(self) -> bool:
        """Returns whether it is one token with its logits."""
        return self.outputs == 1 and self.n_tokens == 1
