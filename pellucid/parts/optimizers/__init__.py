"""How a gradient becomes a change of the weights: the settings of each rule.

Weights that multiply decay; gains, biases and tables whose rows are looked up do not, where a rule has decay
at all. (minGPT leaves the tables out like this, nanoGPT lets them decay; both leave out gains and biases.)
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pellucid.errors import ConfigError
from pellucid.parts import Part

TABLES = ("embed.weight", "positions.weight", "position_bias.weight")
"""What is looked up by rows, also where the unembedding is tied to it and multiplies."""


def decays(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a parameter is a matrix that multiplies and nothing else."""
    return len(shape) >= 2 and name not in TABLES


@dataclass(frozen=True)
class OptimizerConfig(Part):
    family: ClassVar[str] = "optimizers"

    lr: float = 0.1
    """Learning rate η: the length of a step, before the schedule's factor.
    Example: 1e-3"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if said := self.wrong():
            raise ConfigError(f"the optimizer {self.kind} {said}")

    def wrong(self) -> str | None:
        """Why nothing can be trained with these settings, and what would work; None where it can."""
        for name, value in asdict(self).items():
            if "beta" in name and "warmup" not in name and not 0 <= value < 1:
                return f"needs {name} from 0 to below 1, not {value:g}."
            if name.endswith("eps") and value == 0:
                return f"divides by √v + {name}, so {name} must be above 0; 1e-8 is usual."
        return None

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        """The rule that moves this parameter at this step, and its settings, the schedule's factor aside."""
        return self.kind, asdict(self)

    def betas_at(self, step: int) -> tuple[float, float] | None:
        """Adam's two β at a step, for rules that have them."""
        return None


@dataclass(frozen=True)
class Adaptive(OptimizerConfig):
    """Adam and its kin. With `beta2_start` above 0, β₂ rises from there in a straight line to `beta2`, which
    it reaches at step `beta2_warmup`; the bias of each update is corrected with the β₂ of that update."""

    lr: float = 1e-3
    beta1: float = 0.9
    """Decay β₁ of the running mean of the gradient.
    Example: 0.95"""
    beta2: float = 0.999
    """Decay β₂ of the running mean of the gradient's square.
    Example: 0.98"""
    eps: float = 1e-8
    """ε, added to the root of that mean so that nothing is divided by 0.
    Example: 1e-6"""
    beta2_start: float = 0.0
    """The first β₂, which then rises to beta2 over beta2_warmup steps. 0: constant.
    Example: 0.5"""
    beta2_warmup: int = 0
    """Steps over which β₂ rises from beta2_start. 0: constant.
    Example: 200"""

    def wrong(self) -> str | None:
        if self.beta2_start > self.beta2:
            return f"warms β₂ up, so beta2_start={self.beta2_start:g} must not be above beta2={self.beta2:g}."
        if (self.beta2_start > 0) != (self.beta2_warmup > 0) or self.beta2_warmup < 0:
            return (
                "warms β₂ up from beta2_start above 0 over beta2_warmup above 0 steps; set both, or neither."
            )
        return super().wrong()

    def betas_at(self, step: int) -> tuple[float, float]:
        if step >= self.beta2_warmup:
            return self.beta1, self.beta2
        return self.beta1, self.beta2_start + (self.beta2 - self.beta2_start) * (step / self.beta2_warmup)

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        return self.kind, {"lr": self.lr, "betas": self.betas_at(step), "eps": self.eps}


@dataclass(frozen=True)
class Decaying(Adaptive):
    """Adam with a pull towards 0 on the parameters that `decays` names."""

    weight_decay: float = 0.01
    """Weight decay λ of the matrices; gains, biases and tables do not decay.
    Example: 0.1"""

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        kind, settings = super().rule(name, shape, step)
        return kind, settings | {"weight_decay": self.weight_decay if decays(name, shape) else 0.0}
