"""Min-p: only tokens at least p times as probable as the most probable one are kept."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps


@dataclass(frozen=True)
class MinP(Sampler):
    formula: ClassVar[str] = "s_i if q_i ≥ p · max q, else −∞; q = softmax(s)"
    source: ClassVar[str] = "Nguyen et al. 2024, arXiv:2407.01082"
    order: ClassVar[int] = 120

    min_p: float = field(metadata={"example": 0.05})
    """p, from 0, all tokens, to 1, only those equal to the most probable one.
    Example: 0.05"""

    def find_error(self) -> str | None:
        return None if self.min_p <= 1 else f"takes a share from 0 to 1, not {self.min_p:g}."

    @staticmethod
    def apply(t: Steps, scores: Any, min_p: Any) -> Any:
        probs = t("probs", "softmax", scores)
        bound = t("bound", "scaled_max", probs, share=min_p)
        return t("scores", "keep_at_least", scores, probs, bound)
