"""Muon: the momentum of a hidden matrix, turned into a nearly orthogonal one, so that every direction moves
alike; AdamW for the rest.

Five steps of Newton and Schulz bring all singular values near 1 (not to 1: they end between about 0.7 and
1.2). A matrix with more rows than columns moves √(rows / columns) times as far.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.parts.optimizers import OptimizerConfig
from pellucid.parts.optimizers.adamw import AdamW


@dataclass(frozen=True)
class MuonConfig(OptimizerConfig):
    formula: ClassVar[str] = (
        "m ← β m + (1 − β) G; X ← ((1 − β) G + β m) / ‖·‖; "
        "five times X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X; W ← W − η (√max(1, rows / columns) X + λ W)"
    )
    source: ClassVar[str] = "Jordan 2024, kellerjordan.github.io/posts/muon"

    lr: float = 0.02
    """Learning rate of the hidden matrices.
    Example: 0.01"""
    beta: float = 0.95
    """Decay β of the momentum of the hidden matrices.
    Example: 0.9"""
    weight_decay: float = 0.1
    """Weight decay λ of the hidden matrices.
    Example: 0.05"""
    steps: int = 5
    """Iterations of Newton and Schulz in each update.
    Example: 6"""
    adam_lr: float = 6e-4
    """Learning rate of AdamW, which updates everything but the hidden matrices.
    Example: 1e-3"""
    adam_beta1: float = 0.9
    """AdamW's β₁.
    Example: 0.95"""
    adam_beta2: float = 0.95
    """AdamW's β₂.
    Example: 0.98"""
    adam_eps: float = 1e-8
    """AdamW's ε.
    Example: 1e-6"""
    adam_weight_decay: float = 0.1
    """AdamW's weight decay.
    Example: 0.01"""
    adam_beta2_start: float = 0.0
    """AdamW's first β₂, which then rises to adam_beta2. 0: constant.
    Example: 0.5"""
    adam_beta2_warmup: int = 0
    """Steps over which AdamW's β₂ rises. 0: constant.
    Example: 200"""

    def wrong(self) -> str | None:
        if not 1 <= self.steps < 100:
            return f"takes 1 to 99 steps of Newton and Schulz, not {self.steps}; 5 is usual."
        return super().wrong() or self.rest.wrong()

    @property
    def rest(self) -> AdamW:
        """The optimizer of everything that is no hidden matrix."""
        return AdamW(
            self.adam_lr,
            self.adam_beta1,
            self.adam_beta2,
            self.adam_eps,
            self.adam_beta2_start,
            self.adam_beta2_warmup,
            self.adam_weight_decay,
        )

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        if hidden(name, shape):
            return self.kind, {
                "lr": self.lr,
                "beta": self.beta,
                "weight_decay": self.weight_decay,
                "steps": self.steps,
            }
        return self.rest.rule(name, shape, step)

    def betas_at(self, step: int) -> tuple[float, float]:
        return self.rest.betas_at(step)


def hidden(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a parameter is a matrix inside a block."""
    return name.startswith("blocks.") and len(shape) == 2
