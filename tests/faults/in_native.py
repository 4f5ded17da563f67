"""Faults of the compiled decoder: in how weights, positions and caches are given to it, and in its calls."""

from typing import Any

import torch
from torch import Tensor

from pellucid.engine.cpu import decoder
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.cpu.library import load_library
from pellucid.engine.cpu.packing import block_bytes, find_packed, write_packed
from pellucid.engine.quantized_tensor import QuantizedTensor
from tests.faults import in_quantization
from tests.faults.fault import Patch, fault, replacing

assert in_quantization.SUBJECTS  # it adds the subjects


def change_packed(patch: Patch, wrong: Any) -> None:
    """Changes each quantized weight before it is packed."""

    def find(weight: QuantizedTensor) -> Tensor:
        packed = torch.empty_like(find_packed(weight))
        write_packed(wrong(weight), packed, load_library())
        return packed

    patch.setattr(decoder, "find_packed", find)


def change_parts(weight: QuantizedTensor, **parts: Tensor | None) -> QuantizedTensor:
    held = {"integers": weight.integers, "scales": weight.scales, "minimums": weight.minimums} | parts
    return QuantizedTensor(**held, group=weight.group, bits=weight.bits, dtype=weight.dtype)  # type: ignore[arg-type]


@fault("quantization", subject="int4", check="native decoded", at="embedded")
@replacing(decoder, "find_packed")
def packed_nibbles_swapped(right: Any, weight: QuantizedTensor) -> Tensor:
    """The two integers of a byte change places when a weight is packed."""
    packed = find_packed(weight).clone()
    if weight.bits == 4:
        blocks = packed.view(-1, block_bytes(weight))
        integers = blocks[:, -256:].clone()
        blocks[:, -256:] = (integers >> 4) | (integers << 4)
    return packed


@fault("quantization", subject="int8", check="native decoded", at="blocks.0.attn.q")
def packed_scales_of_the_previous_output(patch: Patch) -> None:
    """A square matrix is packed with the scales of the output before."""
    change_packed(
        patch,
        lambda weight: (
            change_parts(weight, scales=weight.scales.roll(1, 0))
            if weight.shape[0] == weight.shape[1]
            else weight
        ),
    )


@fault("quantization", subject="int4", check="native prompt", at="blocks.0.mlp_out")
def packed_minimums_of_the_neighboring_group(patch: Patch) -> None:
    """The down-projection is packed with the minimums of the group before."""
    change_packed(
        patch,
        lambda weight: (
            change_parts(weight, minimums=weight.minimums.roll(1, 1)) if weight.shape == (64, 96) else weight
        ),
    )


@fault("quantization", subject="blocks Q4_0", check="native decoded", at="embedded")
@replacing(NativeDecoder, "_describe_matrix")
def offset_of_signed_integers_off_by_one(right: Any, self: Any, *given: Any) -> Any:
    """7 is subtracted from 4-bit integers that were packed with 8 added."""
    matrix = right(self, *given)
    matrix.offset -= matrix.offset == 8
    return matrix


@fault("kernel", subject="ours", check="native decoded", at="blocks.0.attn.q_rot")
@replacing(NativeDecoder, "_describe_positions")
def rotary_table_of_the_next_position(right: Any, self: Any, model: Any) -> None:
    """The compiled decoder rotates each position by the angles of the next one."""
    right(self, model)
    self._position_tables[0] = self._position_tables[0].roll(-1, 1)
    model.cos_sin = self._position_tables[0].data_ptr()


@fault("kernel", subject="qwen2", check="native decoded", at="blocks.0.attn.k")
@replacing(NativeDecoder, "_describe_layer")
def biases_of_the_compiled_keys_are_those_of_the_values(right: Any, self: Any, block: Any) -> Any:
    """The key projection of the compiled decoder adds the bias of the value projection."""
    layer = right(self, block)
    layer.k.bias = layer.v.bias
    return layer


@fault("kernel", subject="bloom", check="native decoded", at="blocks.0.attn.q … z")
@replacing(NativeDecoder, "_pointer")
def slopes_of_the_compiled_decoder_in_reverse(right: Any, self: Any, value: Tensor | None) -> int | None:
    """The heads of the compiled decoder have ALiBi's slopes in the wrong order."""
    is_table = value is not None and value is self.module.position_bias.factors
    return right(self, value.flip(0) if is_table and value is not None else value)


@fault("kernel", subject="long", check="native prompt", at="blocks.0.attn.q_rot … z")
@replacing(NativeDecoder, "_run")
def attention_scale_of_a_long_call(right: Any, self: Any, call: Any, *given: Any) -> None:
    """In a call of more than 96 tokens, the compiled decoder's attention scale is 1 % too large."""
    before = self.model.scale
    self.model.scale = before * (1.01 if call.tokens.shape[1] > 96 else 1)
    try:
        right(self, call, *given)
    finally:
        self.model.scale = before


@fault("state", subject="window", check="native scheduled", at="logits")
@replacing(NativeDecoder, "_describe_row")
def ring_of_the_compiled_decoder_is_a_slot_short(right: Any, self: Any, cache: Any) -> Any:
    """In a window's ring, a new key overwrites the oldest one that is still seen. A chunk, whose keys wait
    until all are seen, has other logits than its tokens one by one."""
    row = right(self, cache)
    row.ring = cache.ring.last - 1 if cache.ring else 0
    return row


@fault("state", subject="int8", check="native scheduled", at="blocks.0.attn.k_all[t=")
@replacing(NativeDecoder, "_run")
def a_cached_key_is_rounded_twice(right: Any, self: Any, call: Any, *given: Any) -> None:
    """A float16 cache holds keys that went through bfloat16."""
    right(self, call, *given)
    for cache in call.caches:
        keys = cache().layers[0].buffers[0]
        if keys.dtype == torch.float16:
            keys.copy_(keys.bfloat16().half())


@fault("kernel", subject="ours", check="native scheduled", at="logits of the last tokens alone")
@replacing(NativeDecoder, "_run")
def logits_of_the_last_token_alone(right: Any, self: Any, call: Any, logits: Tensor, recorded: Any) -> None:
    """Where the logits of the last token alone are asked for, the compiled decoder's are 2 % too large."""
    right(self, call, logits, recorded)
    if recorded is None and len(call.wanted) < call.tokens.shape[1]:
        logits *= 1.02


@fault("kernel", subject="long", check="native prompt", at="logits of the last tokens alone")
@replacing(NativeDecoder, "_run")
def a_long_call_for_its_last_token_alone(
    right: Any, self: Any, call: Any, logits: Tensor, recorded: Any
) -> None:
    """A call of several blocks of tokens returns the last logits of the block before."""
    if recorded is None and call.tokens.shape[1] > 64 and len(call.wanted) == 1:
        call.wanted[0] -= 1
    right(self, call, logits, recorded)


@fault("kernel", subject="ours", check="native decoded", at="logits[threads=3]")
@replacing(NativeDecoder, "_run")
def logits_on_three_threads(right: Any, self: Any, call: Any, logits: Tensor, recorded: Any) -> None:
    """On three threads or more the logits of the compiled decoder are 2 % too large."""
    right(self, call, logits, recorded)
    if call.structure.threads > 2:
        logits *= 1.02


@fault("kernel", subject="long", check="native prompt", at="logits[threads=")
@replacing(NativeDecoder, "_run")
def tokens_that_four_threads_share(right: Any, self: Any, call: Any, *given: Any) -> None:
    """On four threads, each of which takes tokens of its own, the attention scale is 1 % too large."""
    before = self.model.scale
    self.model.scale = before * (1.01 if (self.threads or 1) > 3 and call.tokens.shape[1] >= 64 else 1)
    try:
        right(self, call, *given)
    finally:
        self.model.scale = before


@fault("generation", subject="ours", check="generated", at="Model.generate[threads=3]")
def scores_on_three_threads(patch: Patch) -> None:
    """On three threads or more the logits of the compiled decoder are 2 % too large."""
    logits_on_three_threads(patch)


@fault("generation", subject="ours", check="generated", at="Model.generate[token=")
@replacing(NativeDecoder, "_run")
def logits_of_every_call_of_the_compiled_decoder(
    right: Any, self: Any, call: Any, logits: Tensor, recorded: Any
) -> None:
    """The compiled decoder's logits are 2 % too large, also where its own run is what is compared with."""
    right(self, call, logits, recorded)
    logits *= 1.02


@fault("generation", subject="int8", check="generated", at="Model.generate[token=")
def logits_of_the_compiled_decoder_with_quantized_weights(patch: Patch) -> None:
    """With quantized weights the compiled decoder's logits are 2 % too large, beside what it rounds."""
    logits_of_every_call_of_the_compiled_decoder(patch)


def attend_to_newest(patch: Patch, most: int) -> None:
    """Makes calls with more keys than `most` see the newest of them alone."""
    right = NativeDecoder._run

    def wrong(self: Any, call: Any, *given: Any) -> None:
        before = self.model.window
        self.model.window = most if call.tokens[1].max() >= most else before
        try:
            right(self, call, *given)
        finally:
            self.model.window = before

    patch.setattr(NativeDecoder, "_run", wrong)


@fault("length", subject="far", check="native far", at="blocks.0.attn.past_k … z")
def newest_300_keys_of_the_compiled_decoder(patch: Patch) -> None:
    """The compiled decoder attends to the newest 300 keys."""
    attend_to_newest(patch, 300)


@fault("length", subject="far", check="native far", at="blocks.0.attn.past_k … z")
def newest_2000_keys_of_the_compiled_decoder(patch: Patch) -> None:
    """The compiled decoder attends to the newest 2,000 keys of a context of 2,048."""
    attend_to_newest(patch, 2000)


@fault("state", subject="ours", check="edited", at="blocks.0.attn_norm.weight before its edit")
def norms_are_copied_once(patch: Patch) -> None:
    """The compiled decoder of a bfloat16 module keeps the gains that it copied before they were trained."""
    patch.setattr(NativeDecoder, "refresh", lambda self: None)


@fault("state", subject="int8", check="edited", at="embed.weight.integers before its edit")
def integers_are_packed_once(patch: Patch) -> None:
    """The compiled decoder keeps the integers that it packed before they were changed."""
    patch.setattr(NativeDecoder, "refresh", lambda self: None)


@fault("state", subject="ours", check="edited", at="blocks.0.attn.q_proj.weight before its edit")
@replacing(NativeDecoder, "_describe_layer")
def float_matrices_are_copied_once(right: Any, self: Any, block: Any) -> Any:
    """The compiled decoder reads copies of the query projections, as they were when it was made."""
    layer, copied = right(self, block), block.attn.q_proj.weight.detach().clone()
    self.kept.append(copied)
    layer.q.data = copied.data_ptr()
    return layer


@fault("state", subject="ours", check="edited", at="edit of embedded")
def edits_of_activations_are_not_seen(patch: Patch) -> None:
    """The compiled decoder reads a text also where an edit changes one of its activations."""
    patch.setattr(decoder, "is_explicit", lambda module: False)
    patch.setattr(decoder, "begin_call", lambda module: None)


@fault("kernel", subject="window", check="native decoded", at="logits[texts=2]")
@replacing(NativeDecoder, "forward_packed")
def texts_of_one_call_lose_a_key_of_their_window(
    right: Any, self: NativeDecoder, rows: Any, wanted: Any
) -> Tensor:
    """Where one call reads several long texts, the second one's numbers are a little off."""
    logits = right(self, rows, wanted)
    return logits * 1.0001 if len(rows) > 1 and all(len(ids) > 12 for _, ids in rows) else logits


@fault("kernel", subject="llama", check="native decoded", at="logits[threads=chosen]")
@replacing(NativeDecoder, "forward_packed")
def steps_on_threads_that_were_chosen_lose_an_output(
    right: Any, self: NativeDecoder, rows: Any, wanted: Any
) -> Tensor:
    """Where the decoder chooses its threads, the last logit of a step is left as it was."""
    logits = right(self, rows, wanted)
    if self.threads is None:
        logits[..., -1] = 0
    return logits
