"""Optimizers: the settings of each update rule.

Weight decay applies to weight matrices; gains, biases and embedding tables do not decay. (minGPT also exempts
the tables, nanoGPT does not; both exempt gains and biases.)
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pellucid.base.errors import ConfigError
from pellucid.parts import Part

TABLES = ("embed.weight", "positions.weight", "position_bias.weight")
"""Embedding tables, also where the unembedding is tied to one of them."""


def decays(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether weight decay applies: the parameter is a matrix and not an embedding table."""
    return len(shape) >= 2 and name not in TABLES


@dataclass(frozen=True)
class OptimizerConfig(Part):
    family: ClassVar[str] = "optimizers"

    lr: float = 0.1
    """Learning rate η: the length of a step, before the schedule's factor.
    Example: 1e-3"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if error := self.find_error():
            raise ConfigError(f"the optimizer {self.kind} {error}")

    def find_error(self) -> str | None:
        """Returns why these settings cannot train, and what would work; None where they can."""
        for name, value in asdict(self).items():
            if "beta" in name and "warmup" not in name and not 0 <= value < 1:
                return f"needs {name} from 0 to below 1, not {value:g}."
            if name.endswith("eps") and value == 0:
                return f"divides by √v + {name}, so {name} must be above 0; 1e-8 is usual."
        return None

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        """Returns the update rule of a parameter at a step, and its settings without the schedule's
        factor."""
        return self.kind, asdict(self)

    def betas_at(self, step: int) -> tuple[float, float] | None:
        """Returns Adam's β₁ and β₂ at a step, None for rules without them."""
        return None


@dataclass(frozen=True)
class Adaptive(OptimizerConfig):
    """Adam and its variants. With `beta2_start` above 0, β₂ rises linearly from there to `beta2`, which it
    reaches at step `beta2_warmup`; the bias of each update is corrected with the β₂ of that update."""

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

    def find_error(self) -> str | None:
        if self.beta2_start > self.beta2:
            return f"warms β₂ up, so beta2_start={self.beta2_start:g} must not be above beta2={self.beta2:g}."
        if (self.beta2_start > 0) != (self.beta2_warmup > 0) or self.beta2_warmup < 0:
            return (
                "warms β₂ up from beta2_start above 0 over beta2_warmup above 0 steps; set both, or neither."
            )
        return super().find_error()

    def betas_at(self, step: int) -> tuple[float, float]:
        if step >= self.beta2_warmup:
            return self.beta1, self.beta2
        return self.beta1, self.beta2_start + (self.beta2 - self.beta2_start) * (step / self.beta2_warmup)

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        return self.kind, {"lr": self.lr, "betas": self.betas_at(step), "eps": self.eps}


@dataclass(frozen=True)
class Decaying(Adaptive):
    """Adam with weight decay of the parameters for which `decays` is true."""

    weight_decay: float = 0.01
    """Weight decay λ of the matrices; gains, biases and tables do not decay.
    Example: 0.1"""

    def rule(self, name: str, shape: tuple[int, ...], step: int) -> tuple[str, dict[str, Any]]:
        kind, settings = super().rule(name, shape, step)
        return kind, settings | {"weight_decay": self.weight_decay if decays(name, shape) else 0.0}


@dataclass(frozen=True)
class Sgd(OptimizerConfig):
    """Stochastic gradient descent: a step against the gradient."""

    kind: ClassVar[str] = "sgd"
    formula: ClassVar[str] = "θ ← θ − η g"
    source: ClassVar[str] = "Robbins and Monro 1951, Annals of Mathematical Statistics 22"


@dataclass(frozen=True)
class Momentum(OptimizerConfig):
    """Momentum: gradients accumulate, in a constant direction to 1 / (1 − β) times the gradient."""

    kind: ClassVar[str] = "momentum"
    formula: ClassVar[str] = "m ← β m + g; θ ← θ − η m"
    source: ClassVar[str] = "Polyak 1964"

    beta: float = 0.9
    """Decay β of the momentum.
    Example: 0.95"""


@dataclass(frozen=True)
class AveragingMomentum(OptimizerConfig):
    """Momentum as an exponential moving average of the gradients (torch's `dampening` = β)."""

    kind: ClassVar[str] = "averaging_momentum"
    formula: ClassVar[str] = "m ← β m + (1 − β) g; θ ← θ − η m"

    beta: float = 0.9
    """Decay β of the momentum.
    Example: 0.95"""


@dataclass(frozen=True)
class Adam(Adaptive):
    """Adam: the running mean of the gradient over the root of that of its square; no weight decay."""

    kind: ClassVar[str] = "adam"
    formula: ClassVar[str] = "θ ← θ − η m̂ / (√v̂ + ε), m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)"
    source: ClassVar[str] = "Kingma and Ba 2014, arXiv:1412.6980"


@dataclass(frozen=True)
class AdamL2(Decaying):
    """Adam with an L2 penalty: λθ is added to the gradient, so that it enters both moments."""

    kind: ClassVar[str] = "adam_l2"
    formula: ClassVar[str] = "g ← g + λ θ before both moments; θ ← θ − η m̂ / (√v̂ + ε)"
    source: ClassVar[str] = "Loshchilov and Hutter 2017, arXiv:1711.05101, Algorithm 2"


@dataclass(frozen=True)
class AdamW(Decaying):
    """AdamW: Adam with decoupled weight decay, which shrinks weights independently of their gradients.

    The settings are those of GPT-3 (Brown et al. 2020, arXiv:2005.14165, appendix B).
    """

    kind: ClassVar[str] = "adamw"
    formula: ClassVar[str] = "θ ← θ − η (m̂ / (√v̂ + ε) + λ θ)"
    source: ClassVar[str] = "Loshchilov and Hutter 2017, arXiv:1711.05101"

    lr: float = 6e-4
    beta2: float = 0.95
    weight_decay: float = 0.1


@dataclass(frozen=True)
class MuonConfig(OptimizerConfig):
    """Muon: the momentum of a hidden matrix is orthogonalized, so that every direction moves equally; AdamW
    for the other parameters.

    Five Newton-Schulz iterations bring all singular values near 1 (they end between about 0.7 and 1.2). A
    matrix with more rows than columns moves √(rows / columns) times as far.
    """

    kind: ClassVar[str] = "muon"
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
    """Newton-Schulz iterations in each update.
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

    def find_error(self) -> str | None:
        if not 1 <= self.steps < 100:
            return f"takes 1 to 99 Newton-Schulz iterations, not {self.steps}; 5 is usual."
        return super().find_error() or self.adamw.find_error()

    @property
    def adamw(self) -> AdamW:
        """The optimizer of the parameters that are not hidden matrices."""
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
        if is_hidden_matrix(name, shape):
            return self.kind, {
                "lr": self.lr,
                "beta": self.beta,
                "weight_decay": self.weight_decay,
                "steps": self.steps,
            }
        return self.adamw.rule(name, shape, step)

    def betas_at(self, step: int) -> tuple[float, float]:
        return self.adamw.betas_at(step)


def is_hidden_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a parameter is a matrix inside a block."""
    return name.startswith("blocks.") and len(shape) == 2
