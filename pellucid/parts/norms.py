"""Normalization of a position's channels."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part, Shapes


@dataclass(frozen=True)
class NormConfig(Part):
    family: ClassVar[str] = "norms"
    values: ClassVar[tuple[str, ...]]
    """The named values that it computes, in order."""

    def parameters(self, width: int) -> Shapes:
        """Returns shapes by name; a `bias` exists where the config asks for one."""
        return {"weight": (width,), "bias": (width,)}


@dataclass(frozen=True)
class NoNorm(NormConfig):
    """No normalization: the identity."""

    kind: ClassVar[str] = "none"
    values: ClassVar[tuple[str, ...]] = ()

    def parameters(self, width: int) -> Shapes:
        return {}


@dataclass(frozen=True)
class LayerNormConfig(NormConfig):
    """LayerNorm: subtract the mean, divide by √(variance + eps); population variance."""

    kind: ClassVar[str] = "layer_norm"
    values: ClassVar[tuple[str, ...]] = ("mean", "centered", "rstd", "normed", "out")
    formula: ClassVar[str] = "(X − μ) / √(σ² + eps) ⊙ γ + β"
    source: ClassVar[str] = "Ba et al. 2016, arXiv:1607.06450"

    eps: float = 1e-5


@dataclass(frozen=True)
class RmsNormConfig(NormConfig):
    """RMSNorm: divide by √(mean square + eps), without subtracting the mean."""

    kind: ClassVar[str] = "rms_norm"
    values: ClassVar[tuple[str, ...]] = ("rstd", "normed", "out")
    formula: ClassVar[str] = "X / √(mean(X²) + eps) ⊙ γ"
    source: ClassVar[str] = "Zhang and Sennrich 2019, arXiv:1910.07467"

    eps: float = 1e-5
