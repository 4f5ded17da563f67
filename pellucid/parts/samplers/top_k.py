"""Top-k: only the k tokens with the largest scores are kept, and those with the same score as the k-th."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps


@dataclass(frozen=True)
class TopK(Sampler):
    formula: ClassVar[str] = "s_i if s_i ≥ the k-th largest score, else −∞"
    source: ClassVar[str] = "Fan et al. 2018, arXiv:1805.04833"
    order: ClassVar[int] = 100

    top_k: int = field(metadata={"example": 50})
    """k; more than there are tokens keeps all.
    Example: 50"""

    def find_error(self) -> str | None:
        return None if self.top_k >= 1 else f"keeps at least 1 token, not {self.top_k}; omit it to keep all."

    @staticmethod
    def apply(t: Steps, scores: Any, top_k: Any) -> Any:
        bound = t("bound", "kth_largest", scores, k=top_k)
        return t("scores", "keep_at_least", scores, scores, bound)
