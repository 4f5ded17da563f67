"""Which numbers are left out at random while training, and at which places.

The places: `embedding`, the stream that enters the first block; `pattern`, what attention takes from each
position; `hidden`, the hidden channels of the feed-forward; `output`, what each sub-layer writes. A value X
at such a place becomes X.dropped = X ⊙ X.keep. The specification is given X.keep; the fast engine throws
dice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part

PLACES = ("embedding", "pattern", "hidden", "output")


@dataclass(frozen=True)
class Dropout(Part):
    family: ClassVar[str] = "dropouts"

    @property
    def rates(self) -> Mapping[str, float]:
        """The share of numbers that is left out, for each place that leaves out any."""
        return {}
