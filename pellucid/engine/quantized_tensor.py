"""A quantized weight in the fast engine: integers, scales and minimums as buffers, widened where it is used.

    W[o, i] = scales[o, g] · integers[o, i] + minimums[o, g],    g = ⌊i / group⌋

A product with it is computed in the compute dtype, as with a weight of floats: in float64 from numbers
widened in float64, in other types from numbers widened in float32 and rounded once. An 8-bit integer times a
float16 is exact in float32, so a widened number has one rounding, that of the sum with the minimum.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from pellucid.base.quantized import QuantizedWeight
from pellucid.engine.precision import wide_dtype


class QuantizedTensor(nn.Module):
    """A matrix [out in] of int8 integers, with float16 scales and minimums [out groups].

    `.to(dtype)` changes the compute dtype, and never the integers, scales or minimums.
    """

    integers: Tensor
    scales: Tensor
    minimums: Tensor | None
    marker: Tensor

    def __init__(
        self,
        integers: Tensor,
        scales: Tensor,
        minimums: Tensor | None,
        group: int,
        bits: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.group, self.bits = group, bits
        self.register_buffer("integers", integers)
        self.register_buffer("scales", scales)
        self.register_buffer("minimums", minimums)
        marker = torch.empty(0, dtype=dtype, device=integers.device)
        self.register_buffer("marker", marker, persistent=False)  # has the compute dtype, and follows `.to`

    @classmethod
    def from_weight(
        cls, weight: QuantizedWeight, device: Any = "cpu", dtype: torch.dtype = torch.float32
    ) -> Self:
        """Returns a copy of the weight on a device."""
        given = (weight.integers, weight.scales, weight.minimums)
        parts = (None if part is None else torch.tensor(part, device=device) for part in given)
        integers, scales, minimums = parts
        assert integers is not None and scales is not None
        return cls(integers, scales, minimums, weight.group, weight.bits, dtype)

    def to_weight(self) -> QuantizedWeight:
        """Returns a copy of the weight as the files hold it."""
        parts = (self.integers, self.scales, self.minimums)
        integers, scales, minimums = (None if part is None else part.cpu().numpy().copy() for part in parts)
        assert integers is not None and scales is not None
        return QuantizedWeight(integers, scales, minimums, self.group, self.bits)

    @property
    def shape(self) -> torch.Size:
        return self.integers.shape

    @property
    def ndim(self) -> int:
        return 2

    def __len__(self) -> int:
        return len(self.integers)

    @property
    def device(self) -> torch.device:
        return self.integers.device

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype: that of what is computed with the weight."""
        return self.marker.dtype

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """Returns scale · integer (+ minimum), [out in], in a type, by default the compute dtype."""
        return self._widen(self.integers, self.scales, self.minimums, dtype or self.dtype)

    def take_rows(self, ids: Tensor) -> Tensor:
        """Returns the rows [… in] of these outputs in the compute dtype; no other row is widened."""
        minimums = None if self.minimums is None else self.minimums[ids]
        return self._widen(self.integers[ids], self.scales[ids], minimums, self.dtype)

    def _widen(self, integers: Tensor, scales: Tensor, minimums: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Returns the numbers [… in] of integers [… in], scales and minimums [… groups]."""
        wide, width = wide_dtype(dtype), self.shape[1]
        if width % self.group:  # the last group is filled up, and cut off again
            integers = nn.functional.pad(integers, (0, -width % self.group))
        numbers: Tensor = integers.unflatten(-1, (-1, self.group)).to(wide)  # a copy, computed in place
        numbers.mul_(scales.to(wide).unsqueeze(-1))
        if minimums is not None:
            numbers.add_(minimums.to(wide).unsqueeze(-1))
        return numbers.flatten(-2)[..., :width].to(dtype).contiguous()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the buffers; a function that converts floats sees integers, and the marker alone as a
        float."""
        for name in ("scales", "minimums"):
            if (part := self._buffers[name]) is not None:
                self._buffers[name] = part.view(torch.int16)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("scales", "minimums"):
            if (part := self._buffers[name]) is not None:
                self._buffers[name] = part.view(torch.float16)
        return self

    def extra_repr(self) -> str:
        minimums = "" if self.minimums is None else ", minimums"
        return f"{tuple(self.shape)}, int{self.bits}, group={self.group}{minimums}, {self.dtype}"
