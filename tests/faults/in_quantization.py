"""Faults of quantized weights: in reading and making them, and in what the fast engine makes of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import pellucid
from pellucid.base import quantized
from pellucid.base.quantized import QuantizedWeight, Scheme
from pellucid.engine import linear, transformer
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.formats import model_folder, quantizing, rope_layout
from pellucid.formats.gguf import container, quants
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.reference.op import Array
from tests.faults import loaded
from tests.faults.fault import Patch, fault, replacing
from tests.faults.subjects import SUBJECTS, Subject, verify_loaded, verify_model, void
from tests.formats.gguf import random_models
from tests.model import folders

Q, K = "blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight"


def add(name: str, write: Callable[[Path], object], weights: str | None = None, file: str = "model") -> None:
    """Adds a subject whose model `write` writes, and whose weights are held so."""
    SUBJECTS[name] = Subject(
        lambda folder: void(write(folder / file)),
        lambda folder, check: verify_model(folder / file, check, weights),
    )


def write_stored(scheme: Scheme) -> Callable[[Path], None]:
    """Returns a writer of a folder whose weights are quantized there."""
    model = random_models.model(random_models.LLAMA)
    return lambda path: model_folder.write(path, quantize_pretrained(model, scheme))


def write_stored_blocks(kind: str) -> Callable[[Path], None]:
    """Returns a writer of a folder with the blocks of a GGUF file."""

    def write(path: Path) -> None:
        loaded.quantized(kind)(path.with_suffix(".gguf"))
        pellucid.load(path.with_suffix(".gguf"), weights="file").save(path)

    return write


for _scheme in ("int8", "int4"):
    add(_scheme, lambda path: folders.ours(path, random_models.LLAMA), _scheme)
    add(f"stored {_scheme}", write_stored(Scheme.from_name(_scheme)))
for _kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
    add(f"blocks {_kind}", loaded.quantized(_kind), "file", "model.gguf")
add("stored Q4_0", write_stored_blocks("Q4_0"))
SUBJECTS["blocks Q4_1 in halves"] = Subject(
    SUBJECTS["blocks Q4_1"].prepare,
    lambda folder, check: verify_loaded(
        pellucid.load(folder / "model.gguf", weights="file").in_layout("halves"), check
    ),
)


# ---- the fast engine


def change_parts(
    patch: Patch, wrong: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None]]
) -> None:
    """Changes the integers, scales and minimums that the fast engine widens."""
    right = QuantizedTensor._widen
    patch.setattr(
        QuantizedTensor,
        "_widen",
        lambda self, integers, scales, minimums, dtype: right(
            self, *wrong(integers, scales, minimums), dtype
        ),
    )


@fault("quantization", subject="int4", check="engine weights", at="embed.weight")
def scale_of_the_neighboring_group(patch: Patch) -> None:
    """A number is multiplied with the scale of the group before its own."""
    change_parts(patch, lambda integers, scales, minimums: (integers, scales.roll(1, -1), minimums))


@fault("quantization", subject="int8", check="engine weights", at="embed.weight")
def scale_of_the_previous_row(patch: Patch) -> None:
    """A row is multiplied with the scale of the row before it."""
    change_parts(patch, lambda integers, scales, minimums: (integers, scales.roll(1, 0), minimums))


@fault("quantization", subject="int8", check="engine weights", at="embed.weight")
def integers_widened_unsigned(patch: Patch) -> None:
    """The bytes of the integers are widened as 0 to 255."""
    change_parts(patch, lambda integers, *others: (integers.view(torch.uint8), *others))


@fault("quantization", subject="int4", check="engine weights", at="embed.weight")
def minimum_dropped(patch: Patch) -> None:
    """The minimum of a group is not added."""
    change_parts(patch, lambda integers, scales, minimums: (integers, scales, None))


@fault("quantization", subject="blocks Q5_1", check="engine weights", at="embed.weight")
def minimum_subtracted(patch: Patch) -> None:
    """The minimum of a group is subtracted, as K-quants store it."""
    change_parts(
        patch,
        lambda integers, scales, minimums: (integers, scales, None if minimums is None else -minimums),
    )


@fault("quantization", subject="int8", check="engine weights", at=Q)
@replacing(QuantizedTensor, "_widen")
def scale_of_a_channel_applied_along_the_inputs(
    right: Any, self: QuantizedTensor, integers: Tensor, scales: Tensor, *given: Any
) -> Tensor:
    """In a square matrix, input i is multiplied with the scale of output i."""
    if scales.shape != (self.shape[1], 1):
        return right(self, integers, scales, *given)
    return right(self, integers, torch.ones_like(scales), *given) * scales.T.to(given[-1])


@fault("quantization", subject="int4", check="engine weights", at="embed.weight.scales")
def scale_rounded_to_bfloat16(patch: Patch) -> None:
    """The scales pass through bfloat16 on their way into the engine."""
    right = QuantizedTensor.from_weight

    def wrong(weight: QuantizedWeight, *given: Any) -> QuantizedTensor:
        scales = torch.tensor(weight.scales).bfloat16().half().numpy()
        return right(replace(weight, scales=scales), *given)

    patch.setattr(QuantizedTensor, "from_weight", staticmethod(wrong))


@fault("quantization", subject="int4", check="engine weights", at="embed.weight")
@replacing(QuantizedTensor, "_widen")
def weights_widened_in_bfloat16(
    right: Any, self: QuantizedTensor, integers: Tensor, scales: Tensor, minimums: Any, dtype: Any
) -> Tensor:
    """In a bfloat16 module, scale times integer is rounded before the minimum is added."""
    if dtype != torch.bfloat16 or minimums is None:
        return right(self, integers, scales, minimums, dtype)
    product = right(self, integers, scales, None, dtype)
    return product + minimums.to(dtype).repeat_interleave(self.group, -1)[..., : self.shape[1]]


@fault("quantization", subject="int8", check="specification", at="embedded")
@replacing(QuantizedTensor, "take_rows")
def embedding_row_widened_with_another_row_s_scale(right: Any, self: QuantizedTensor, ids: Tensor) -> Tensor:
    """A token's embedding has the scale of the token before it."""
    return right(self, ids) / self.scales[ids].to(self.dtype) * self.scales[ids - 1].to(self.dtype)


@fault("quantization", subject="int4", check="specification", at="embedded")
@replacing(QuantizedTensor, "take_rows")
def minimum_of_an_embedding_row_dropped(right: Any, self: Any, ids: Any) -> Any:
    """A token's embedding is scale times integer alone."""
    return self._widen(self.integers[ids], self.scales[ids], None, self.dtype)


@fault("quantization", subject="int8", check="specification", at="logits")
def tied_unembedding_left_unquantized(patch: Patch) -> None:
    """The embedding is quantized, and the logits are computed with floats as they were before."""
    right = transformer.Transformer.unembedding.fget
    assert right is not None

    def wrong(self: Any) -> Any:
        weight = right(self)
        if not isinstance(weight, QuantizedTensor):
            return weight
        lost = 0.4 * torch.sin(torch.arange(weight.shape[0] * weight.shape[1]).view(weight.shape))
        return weight.dequantize() + (lost * weight.scales.float()).to(weight.dtype)

    patch.setattr(transformer.Transformer, "unembedding", property(wrong))


@fault("quantization", subject="int4", check="decoded", at="blocks.0.attn.q")
@replacing(linear, "linear")
def one_row_multiplied_with_the_scales_of_other_outputs(
    right: Any, x: Tensor, weight: Any, bias: Tensor | None
) -> Tensor:
    """The product of a single row reads the scales of the output before."""
    if isinstance(weight, QuantizedTensor) and x.numel() == weight.shape[1]:
        weight = weight._widen(weight.integers, weight.scales.roll(1, 0), weight.minimums, x.dtype)
    return right(x, weight, bias)


# ---- files


def change_integers(patch: Patch, kind: str, wrong: Callable[[Array], Array]) -> None:
    """Changes the integers of the blocks of a GGUF type."""
    patch.setitem(quants.BY_CODE, quants.BY_NAME[kind].code, replace(quants.BY_NAME[kind], integers=wrong))


def change_blocks(patch: Patch, wrong: Callable[[QuantizedWeight], QuantizedWeight]) -> None:
    """Changes a quantized weight after its blocks were read."""
    right = container.read_blocks
    patch.setattr(container, "read_blocks", lambda *given: wrong(right(*given)))


@fault("quantization", subject="blocks Q4_0", check="file weights", at="embed.weight.integers")
def eight_of_q4_0_not_subtracted(patch: Patch) -> None:
    """4-bit integers without a minimum are read as 0 to 15."""
    change_integers(patch, "Q4_0", quants._nibbles)


@fault("quantization", subject="blocks Q4_1", check="file weights", at="embed.weight.integers")
def nibbles_of_a_block_swapped(patch: Patch) -> None:
    """The high halves of the bytes come before the low ones."""
    change_integers(patch, "Q4_1", lambda blocks: np.roll(quants._nibbles(blocks), 16, -1))


@fault("quantization", subject="blocks Q5_0", check="file weights", at="embed.weight.integers")
def fifth_bits_read_from_the_highest_on(patch: Patch) -> None:
    """Bit 31 of a block's fifth bits is given to the first integer."""

    def wrong(blocks: Array) -> Array:
        high = np.unpackbits(blocks["high"], axis=-1, bitorder="little")[:, ::-1]
        return (quants._nibbles(blocks) | (high << 4).view(np.int8)) - np.int8(16)

    change_integers(patch, "Q5_0", wrong)


@fault("quantization", subject="blocks Q4_1", check="file weights", at="embed.weight.minimums")
def minimum_read_with_the_wrong_sign(patch: Patch) -> None:
    """The minimum of a block changes its sign."""
    change_blocks(patch, lambda weight: replace(weight, minimums=-weight.minimums))


@fault("quantization", subject="blocks Q8_0", check="file weights", at="embed.weight.scales")
def scales_of_blocks_in_the_order_of_columns(patch: Patch) -> None:
    """Scales [out groups] are read as [groups out]."""

    def wrong(weight: QuantizedWeight) -> QuantizedWeight:
        groups, out = weight.scales.shape[::-1]
        return replace(weight, scales=np.ascontiguousarray(weight.scales.reshape(groups, out).T))

    change_blocks(patch, wrong)


@fault("quantization", subject="blocks Q4_1 in halves", check="file weights", at=f"{Q}.scales")
@replacing(rope_layout, "_reorder")
def rotary_order_of_integers_without_their_scales(right: Any, weight: Any, layout: str, d_head: int) -> Any:
    """For the other layout of RoPE, the rows of the integers are moved and those of the scales stay."""
    moved = right(weight, layout, d_head)
    if not isinstance(weight, QuantizedWeight):
        return moved
    return replace(moved, scales=weight.scales, minimums=weight.minimums)


@fault("quantization", subject="stored int4", check="file weights", at="embed.weight.integers")
@replacing(model_folder, "_unpack")
def nibbles_of_a_folder_swapped(right: Any, name: Any, packed: Any, *given: Any) -> Any:
    """The high half of a byte is taken for the first integer."""
    return right(name, (packed >> 4) | (packed << 4), *given)


@fault("quantization", subject="stored Q4_0", check="file weights", at="embed.weight.integers")
@replacing(model_folder, "_unpack")
def integers_of_a_folder_read_unsigned(right: Any, name: Any, packed: Any, width: Any, is_signed: Any) -> Any:
    """4-bit integers without minimums are read without the 8 that was added."""
    return right(name, packed, width, False)


@fault("quantization", subject="int4", check="saved", at="embed.weight")
@replacing(model_folder, "_pack")
def a_folder_is_written_with_swapped_nibbles(right: Any, *given: Any) -> Array:
    """Two integers of a byte change places when a model is saved."""
    packed = right(*given)
    return packed if packed.dtype == np.int8 else (packed >> 4) | (packed << 4)


# ---- making them


def change_quantized(patch: Patch, wrong: Callable[[Array, QuantizedWeight], QuantizedWeight]) -> None:
    """Changes each weight that is quantized when the model is opened, given its floats."""
    right = quantized.quantize
    patch.setattr(quantizing, "quantize", lambda floats, scheme: wrong(floats, right(floats, scheme)))


@fault("quantization", subject="int8", check="file weights", at="embed.weight.integers")
def integers_truncated(patch: Patch) -> None:
    """Weights are rounded towards zero."""
    change_quantized(
        patch,
        lambda floats, weight: replace(
            weight, integers=np.trunc(floats / weight.scales.astype(np.float32)).astype(np.int8)
        ),
    )


@fault("quantization", subject="int8", check="file weights", at="embed.weight.scales")
def scale_of_the_whole_matrix(patch: Patch) -> None:
    """All rows have the scale of the largest one."""
    change_quantized(
        patch, lambda floats, weight: replace(weight, scales=np.full_like(weight.scales, weight.scales.max()))
    )


@fault("quantization", subject="int4", check="file weights", at=f"{K}.minimums")
def minimums_of_the_keys_clipped_at_zero(patch: Patch) -> None:
    """A minimum above −0.5 is taken for 0 in the key projection."""

    def wrong(floats: Array, weight: QuantizedWeight) -> QuantizedWeight:
        if weight.shape != (32, 64) or weight.minimums is None:
            return weight
        return replace(weight, minimums=np.where(weight.minimums > -0.5, np.float16(0), weight.minimums))

    change_quantized(patch, wrong)
