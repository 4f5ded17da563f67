"""Constraint: only tokens with which the output can still match the regex, schema or grammar are kept."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.parts.samplers import Sampler, Steps, TextLike


@dataclass(frozen=True)
class ConstraintMask(Sampler):
    formula: ClassVar[str] = "s_i if the state of the constraint allows i, else −∞"
    source: ClassVar[str] = "Willard and Louf 2023, arXiv:2307.09702"
    order: ClassVar[int] = 80

    def inputs(self, text: TextLike) -> dict[str, Any] | None:
        return None if text.allowed is None else {"allowed": text.allowed}

    @staticmethod
    def apply(t: Steps, scores: Any, allowed: Any) -> Any:
        return t("scores", "mask", scores, allowed)
