"""Dropout: which activations are zeroed at random while training, and at which places.

The places: `embedding`, the stream that enters the first block; `pattern`, the attention pattern; `hidden`,
the hidden channels of the MLP; `output`, the output of each sub-layer. A value X at such a place becomes
X.dropped = X ⊙ X.keep. The specification is given X.keep; the fast engine draws it from its RNG.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike, Part

PLACES = ("embedding", "pattern", "hidden", "output")


@dataclass(frozen=True)
class DropoutConfig(Part):
    family: ClassVar[str] = "dropouts"

    @property
    def rates(self) -> Mapping[str, float]:
        """The dropout rate of each place that has one above 0."""
        return {}


@dataclass(frozen=True)
class NoDropout(DropoutConfig):
    """No dropout: every activation is kept."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class Bernoulli(DropoutConfig):
    """Dropout: each number is kept with probability 1 − rate and divided by it, which keeps its mean."""

    kind: ClassVar[str] = "bernoulli"
    formula: ClassVar[str] = "X ⊙ m / (1 − rate), m = 1 with probability 1 − rate, else 0"
    source: ClassVar[str] = "Srivastava et al. 2014, JMLR 15"

    embedding: float = 0.1
    pattern: float = 0.1
    hidden: float = 0.1
    output: float = 0.1

    @property
    def rates(self) -> Mapping[str, float]:
        return {place: rate for place, rate in asdict(self).items() if rate}

    def check(self, config: ConfigLike) -> str | None:
        for place, rate in self.rates.items():
            if not 0 < rate < 1:
                return f"a dropout rate is from 0 to below 1; {place}={rate:g} would keep nothing."
        return None
