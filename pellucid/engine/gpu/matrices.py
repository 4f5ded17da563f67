"""Weights and norms of a module as the kernels read them, where the module has them."""

from typing import Any, NamedTuple

from torch import Tensor

from pellucid.engine.quantized_tensor import QuantizedTensor


class Matrix(NamedTuple):
    """A weight as the kernels read it, where the module has it; `group` is 0 for floats."""

    data: Tensor
    bias: Tensor | None
    scales: Tensor | None
    minimums: Tensor | None
    group: int

    @classmethod
    def read(cls, weight: Tensor | QuantizedTensor, bias: Tensor | None) -> "Matrix":
        """Returns the matrix of a layer's weight."""
        if isinstance(weight, QuantizedTensor):
            group = min(weight.group, weight.shape[1])
            return cls(weight.integers, bias, weight.scales, weight.minimums, group)
        return cls(weight.detach(), bias, None, None, 0)

    @property
    def kind(self) -> tuple[object, ...]:
        """The common part of the matrices that one launch multiplies."""
        return self.data.dtype, self.group, self.bias is None, self.minimums is None

    def describe(self, place: int, absent: Tensor) -> dict[str, Any]:
        """Returns the arguments of the matrix at a place of a launch: weights, biases, scales, minimums."""
        given = {"w": self.data, "b": self.bias, "s": self.scales, "m": self.minimums}
        return {f"{name}{place}": or_absent(value, absent) for name, value in given.items()}


def describe_norm(norm: Any, absent: Tensor) -> dict[str, Any]:
    """Returns the arguments of a norm; `absent` stands for a tensor that is not there."""
    weight, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    return {
        "gain": or_absent(weight, absent),
        "shift": or_absent(bias, absent),
        "has_shift": bias is not None,
        "norm": "none" if weight is None else norm.kind,
        "eps": float(getattr(norm, "eps", 0.0)),
    }


def or_absent(value: Tensor | None, absent: Tensor) -> Tensor:
    """Returns a tensor, or `absent` for one that is not there: a kernel does not read it."""
    return absent if value is None else value.detach()
