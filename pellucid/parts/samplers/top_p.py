"""Top-p (nucleus sampling): only the smallest set of most probable tokens with probability ≥ p is kept."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import SMALLEST_MASS, Sampler, Steps, TextLike


@dataclass(frozen=True)
class TopP(Sampler):
    formula: ClassVar[str] = (
        "s_i if i is first in rank, or Σ_j q_j over the tokens j before it in rank < p, else −∞; "
        "q = softmax(s); rank: the largest q first, of equals the smaller id"
    )
    source: ClassVar[str] = "Holtzman et al. 2019, arXiv:1904.09751"
    order: ClassVar[int] = 110

    top_p: float = field(metadata={"example": 0.9})
    """p, from 0, the most probable token alone, to 1, all tokens.
    Example: 0.9"""

    def find_error(self) -> str | None:
        return None if self.top_p <= 1 else f"keeps a probability from 0 to 1, not {self.top_p:g}."

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        return {"mass": max(self.top_p, SMALLEST_MASS)} if self.top_p < 1 else None

    @staticmethod
    def apply(t: Steps, scores: Any, mass: Any) -> Any:
        probs = t("probs", "softmax", scores)
        before = t("mass_before", "mass_before", probs, probs, limit=mass)
        return t("scores", "keep_below", scores, before, bound=mass)
