"""Typical sampling: tokens whose surprisal is nearest to the entropy are kept, up to probability p."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import SMALLEST_MASS, Sampler, Steps, TextLike


@dataclass(frozen=True)
class TypicalP(Sampler):
    formula: ClassVar[str] = (
        "s_i if i is first in rank, or Σ_j q_j over the tokens j before it in rank < p, else −∞; "
        "q = softmax(s); rank: the smallest |−ln q − H| first, of equals the smaller id"
    )
    source: ClassVar[str] = "Meister et al. 2022, arXiv:2202.00666"
    order: ClassVar[int] = 130

    typical_p: float = field(metadata={"example": 0.95})
    """p, from 0, the most typical token alone, to 1, all tokens.
    Example: 0.95"""

    def find_error(self) -> str | None:
        return None if self.typical_p <= 1 else f"keeps a probability from 0 to 1, not {self.typical_p:g}."

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        return {"mass": max(self.typical_p, SMALLEST_MASS)} if self.typical_p < 1 else None

    @staticmethod
    def apply(t: Steps, scores: Any, mass: Any) -> Any:
        probs = t("probs", "softmax", scores)
        entropy = t("entropy", "entropy", probs)
        typicality = t("typicality", "typicality", probs, entropy)
        before = t("mass_before", "mass_before", probs, typicality, limit=mass)
        return t("scores", "keep_below", scores, before, bound=mass)
