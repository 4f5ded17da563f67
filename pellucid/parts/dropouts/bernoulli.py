"""Dropout: each number is kept with probability 1 − rate, and then divided by it, so that its mean stays."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from pellucid.parts import Model
from pellucid.parts.dropouts import Dropout


@dataclass(frozen=True)
class Bernoulli(Dropout):
    formula: ClassVar[str] = "X ⊙ m / (1 − rate), m = 1 with probability 1 − rate, else 0"
    source: ClassVar[str] = "Srivastava et al. 2014, JMLR 15"

    embedding: float = 0.1
    pattern: float = 0.1
    hidden: float = 0.1
    output: float = 0.1

    @property
    def rates(self) -> Mapping[str, float]:
        return {place: rate for place, rate in asdict(self).items() if rate}

    def check(self, model: Model) -> str | None:
        wrong = {place: rate for place, rate in self.rates.items() if not 0 < rate < 1}
        if wrong:
            place, rate = next(iter(wrong.items()))
            return f"a dropout rate is from 0 to below 1; {place}={rate:g} would keep nothing."
        return None
