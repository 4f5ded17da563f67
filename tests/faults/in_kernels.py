"""Faults of the kernels that people run: fused attention, one query, joined products, blocks of rows,
padding, packed rows; explicit values stay right."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.engine import attention, block, chunked_loss, linear, positions, transformer
from pellucid.engine.attentions.linear import LinearAttention
from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.block import Block
from pellucid.engine.taps import current_watcher, is_explicit
from tests.agreement import other_activation
from tests.faults.fault import Patch, fault, replacing

Attend = Callable[[Callable[..., Tensor], Tensor, Tensor, Tensor, Any], Tensor]


def replace_fused(patch: Patch, wrong: Attend) -> None:
    """Replaces z = right(q, k, v, inputs) of the fused attention kernel."""
    right = SoftmaxAttention._attend_fused

    def attend(self: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return wrong(functools.partial(right, self), q, k, v, inputs)

    patch.setattr(SoftmaxAttention, "_attend_fused", attend)


@fault("kernel", subject="llama", check="decoded", at="blocks.0.attn.q_rot … z")
def one_query_reads_key_heads_in_turn(patch: Patch) -> None:
    """With one query, query head h reads key head h mod K instead of ⌊h K / H⌋."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        if q.shape[2] > 1 or groups == 1:
            return right(q, k, v, inputs)
        order = torch.arange(q.shape[1]).view(groups, -1).T.flatten()
        return right(q[:, order], k, v, inputs)[:, order.argsort()].contiguous()

    replace_fused(patch, wrong)


@fault("kernel", subject="qwen2", check="decoded", at="blocks.0.attn.q")
@replacing(linear, "_multiply_rows")
def one_row_loses_its_bias(right: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of a single row is computed without the bias."""
    return right(x, weight, None if x.numel() == weight.shape[1] else bias)


@fault("kernel", subject="llama", check="batched", at="blocks.0.attn.q")
@replacing(linear, "_multiply_rows")
def rows_after_the_last_multiple_of_sixteen_are_dropped(
    right: Any, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """A kernel in blocks of 16 rows leaves the rest zero."""
    y = right(x, weight, bias)
    flat = y.reshape(-1, len(weight))
    if len(flat) > 16 and len(flat) % 16:
        flat[len(flat) // 16 * 16 :] = 0.0
    return flat.view_as(y)


@fault("kernel", subject="gpt2", check="decoded", at="blocks.0.attn.q")
@replacing(linear, "_multiply_rows")
def the_last_block_of_eight_rows_is_computed_twice(
    right: Any, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Where rows are computed in blocks, the second block has the rows of the first."""
    y = right(x, weight, bias)
    flat = y.reshape(-1, len(weight))
    if 8 < len(flat) <= 32:
        flat[8:16] = flat[: len(flat[8:16])].clone()
    return flat.view_as(y)


@fault("kernel", subject="llama", check="chunked prefill", at="blocks.0.attn.q_rot … z")
def causal_mask_of_a_kernel_is_aligned_to_the_first_key(patch: Patch) -> None:
    """With keys before the queries, the kernel's causal mask starts at the first key, not at the last."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        queries, keys = q.shape[2], k.shape[2]
        if queries == 1 or queries == keys or inputs.mask is None:
            return right(q, k, v, inputs)
        mask = torch.ones(queries, keys, dtype=torch.bool).tril()[None, None]
        return right(q, k, v, inputs._replace(mask=mask))

    replace_fused(patch, wrong)


@fault("kernel", subject="llama", check="fused", at="blocks.0.attn.q_rot … z")
def kernel_sees_the_next_token(patch: Patch) -> None:
    """The fused kernel has no causal mask."""
    replace_fused(patch, lambda right, q, k, v, inputs: right(q, k, v, inputs._replace(is_causal=False)))


@fault("kernel", subject="llama", check="padded", at="blocks.0.attn.q_rot … z")
@replacing(transformer.Transformer, "_make_mask")
def kernel_attends_to_padding(
    right: Any, self: Any, queries: Any, keys: Any, is_token: Any, *more: Any
) -> Any:
    """The mask of padded rows shows the padding to the fused kernel."""
    return right(self, queries, keys, is_token if is_explicit() else None, *more)


@fault("kernel", subject="gpt2", check="padded", at="position_ids … positioned")
@replacing(transformer.Transformer, "hidden_states")
def positions_of_padded_rows_count_the_padding(
    right: Any, self: Any, ids: Tensor, *, positions: Tensor | None = None, **more: Any
) -> Tensor:
    """Position ids that are given are ignored: those of a row padded on the left are too large."""
    if positions is not None:
        positions = torch.arange(ids.shape[1]).expand_as(positions)
    return right(self, ids, positions=positions, **more)


@fault("kernel", subject="llama", check="packed rows", at="blocks.0.attn.q_rot … z")
@replacing(transformer.Transformer, "_make_mask")
def documents_of_a_packed_row_see_each_other(
    right: Any, self: Any, queries: Any, keys: Any, is_token: Any, segments: Any, *more: Any
) -> Any:
    """Segments restart the positions, but the mask does not separate them."""
    return right(
        self,
        torch.arange(queries.shape[-1]),
        torch.arange(keys.shape[-1]),
        is_token,
        segments if is_explicit() else None,
        *more,
    )


@fault("kernel", subject="qwen3", check="packed rows", at="blocks.0.attn.q_rot")
@replacing(transformer, "split_segments")
def positions_of_packed_documents_do_not_restart(right: Any, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Every document of a packed row goes on counting where the one before ended."""
    numbers, _ = right(segments)
    return numbers, torch.arange(segments.shape[1]).expand_as(segments)


@fault("kernel", subject="llama", check="training pass", at="blocks.0.attn.k")
def joined_products_are_split_in_another_order(patch: Patch) -> None:
    """Where training joins W_Q, W_K and W_V into one product, K and V change places."""
    right = linear.project

    def wrong(x: Tensor, *layers: Any) -> tuple[Tensor, ...]:
        found = right(x, *layers)
        is_joined = torch.is_grad_enabled() and not is_explicit() and len(found) == 3
        return (found[0], found[2], found[1]) if is_joined else found

    patch.setattr(attention, "project", wrong)


@fault("kernel", subject="bloom", check="fused", at="blocks.0.attn.q … z")
def position_bias_is_dropped_by_the_kernel(patch: Patch) -> None:
    """ALiBi's bias does not reach the fused kernel, which then applies its causal mask alone."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return right(q, k, v, inputs._replace(bias=None))

    replace_fused(patch, wrong)


@fault("kernel", subject="bloom", check="decoded", at="blocks.0.attn.q … z")
def position_bias_of_one_query_is_that_of_the_first_position(patch: Patch) -> None:
    """With one query the bias is taken as if it stood at position 0."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        if q.shape[2] == 1 and inputs.bias is not None:
            inputs = inputs._replace(bias=inputs.bias.flip(-1))
        return right(q, k, v, inputs)

    replace_fused(patch, wrong)


@fault("kernel", subject="llama", check="fused", at="blocks.0.attn.q_rot … z")
def kernel_scales_by_the_number_of_channels(patch: Patch) -> None:
    """The fused kernel divides scores by D instead of √D."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return right(q * q.shape[-1] ** -0.5, k, v, inputs)

    replace_fused(patch, wrong)


@fault("kernel", subject="qwen2", check="fused", at="blocks.0.attn.q_rot … z")
def kernel_repeats_key_heads_instead_of_interleaving(patch: Patch) -> None:
    """Grouped query heads read the key heads in turn where there are several queries."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        if q.shape[2] == 1 or groups == 1:
            return right(q, k, v, inputs)
        order = torch.arange(q.shape[1]).view(groups, -1).T.flatten()
        return right(q[:, order], k, v, inputs)[:, order.argsort()].contiguous()

    replace_fused(patch, wrong)


@fault("kernel", subject="llama", check="batched", at="blocks.0.attn.q_rot … z")
def kernel_mixes_the_rows_of_a_batch(patch: Patch) -> None:
    """The second row of a batch attends to the values of the first."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return right(q, k, v if len(v) == 1 else torch.cat((v[:1], v[:-1])), inputs)

    replace_fused(patch, wrong)


@fault("kernel", subject="llama", check="fused", at="embedded … blocks.0.attn_norm.out")
@replacing(F, "rms_norm")
def fused_norm_has_another_epsilon(right: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    """The fused RMSNorm adds ten times the ε of the config."""
    return right(x, shape, weight, 10 * eps)


@fault("kernel", subject="gpt2", check="fused", at="positioned … blocks.0.attn_norm.out")
@replacing(F, "layer_norm")
def fused_layer_norm_loses_its_bias(right: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: Any) -> Any:
    """The fused LayerNorm is called without β."""
    return right(x, shape, weight, None, eps)


@fault("kernel", subject="gpt2", check="fused", at="positioned … blocks.0.attn_norm.out")
@replacing(F, "layer_norm")
def fused_layer_norm_divides_by_one_less(
    right: Any, x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """The fused LayerNorm takes the sample variance, N − 1."""
    count = x.shape[-1]
    centered = x - x.mean(-1, keepdim=True)
    y = centered / (x.var(-1, unbiased=True, keepdim=True) + eps).sqrt()
    return right(x, shape, weight, bias, eps) if count < 2 else y * weight + bias


@fault("kernel", subject="llama", check="float32", at="blocks.0.mlp.act")
def silu_without_gradients_is_gelu(patch: Patch) -> None:
    """The row-invariant SiLU of inference is x σ(1.702 x)."""
    other_activation.plant(
        patch, lambda right, x: x * torch.sigmoid(1.702 * x) if x.dtype == torch.float32 else right(x)
    )


@fault("kernel", subject="llama", check="batched", at="blocks.0.mlp.act")
def last_elements_are_activated_by_another_formula(patch: Patch) -> None:
    """A vectorized loop computes what is left after blocks of 8 elements by another formula."""

    def wrong(right: Any, x: Tensor) -> Tensor:
        y = right(x).clone()
        y.view(-1)[-4:] = torch.relu(x.reshape(-1)[-4:])
        return y

    other_activation.plant(patch, wrong)


@fault("kernel", subject="llama", check="fused", at="blocks.0.attn.q_rot")
@replacing(positions.Positions, "rotation")
def table_of_cosines_is_one_position_late(right: Any, self: Any, places: Tensor, dtype: torch.dtype) -> Any:
    """The float32 table of cosines and sines, which unwatched passes read, is shifted by one position for
    queries and keys alike."""
    is_table = not is_explicit() and dtype != torch.float64
    return right(self, (places + is_table).clamp_max(len(self.angles) - 1), dtype)


@fault("kernel", subject="qwen3", check="fused", at="blocks.0.attn.q_rot")
def sines_of_the_table_have_the_other_sign(patch: Patch) -> None:
    """The table's rotation turns the other way in bfloat16."""
    right = positions.rotate

    def wrong(x: Tensor, rotation: Any) -> Tensor:
        return right(x, rotation._replace(sin=-rotation.sin) if x.dtype == torch.bfloat16 else rotation)

    patch.setattr(attention, "rotate", wrong)


@fault("kernel", subject="llama", check="fused", at="logits")
@replacing(Block, "forward")
def unwatched_pass_halves_each_block(
    right: Any, self: Any, x: Tensor, inputs: Any, cache: Any = None
) -> Tensor:
    """Each block adds half of what it should where nothing is recorded."""
    y = right(self, x, inputs, cache)
    return y if current_watcher() else x + 0.5 * (y - x)


@fault("kernel", subject="linear", check="fused", at="blocks.0.attn.")
@replacing(LinearAttention, "_attend_in_chunks")
def linear_attention_counts_a_chunk_twice(
    right: Any, self: Any, q: Tensor, k: Tensor, values: Tensor, past: Tensor | None
) -> Tensor:
    """The running sum before a chunk includes the chunk itself."""
    own = k.mT @ values
    return right(self, q, k, values, own if past is None else past + own)


@fault("kernel", subject="capped", check="fused", at="blocks.0.attn.q_rot … z")
@replacing(SoftmaxAttention, "_attend_explicit")
def capped_attention_is_not_masked(
    right: Any, self: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any
) -> Tensor:
    """Attention with a soft cap, which no kernel has, forgets the mask where nothing is recorded."""
    return right(self, q, k, v, inputs if is_explicit() else inputs._replace(mask=None))


@fault("kernel", subject="llama", check="fused", at="blocks.0.resid_mid")
def residual_is_added_twice_in_float16(patch: Patch) -> None:
    """x + 2 f(x), in float16 alone."""

    def wrong(x: Tensor, output: Tensor) -> Tensor:
        return x + output * (2 if x.dtype == torch.float16 else 1)

    patch.setattr(block, "make_residual", lambda residual: wrong)


@fault("kernel", subject="llama", check="specification", at="blocks.0.attn.extra")
@replacing(attention.Attention, "forward")
def fast_engine_names_a_value_of_its_own(
    right: Any, self: Any, x: Tensor, inputs: Any, cache: Any = None
) -> Tensor:
    """The fast engine taps a value that the specification does not compute."""
    self.t("extra", x)
    return right(self, x, inputs, cache)


@fault("kernel", subject="llama", check="backward paths", at="loss")
@replacing(chunked_loss, "_sum_chunks")
def chunked_loss_drops_its_last_chunk(
    right: Any, inputs: Any, targets: Tensor, chunk: int, *more: Any
) -> Any:
    """The last, shorter chunk of rows does not count."""
    whole = len(targets) // chunk * chunk
    cut = targets.clone()
    cut[whole:] = -100
    return right(inputs, cut, chunk, *more)


@fault("kernel", subject="gpt2", check="backward paths", at="d.")
@replacing(transformer, "checkpoint")
def recomputed_block_has_another_input(
    right: Any, block: Any, x: Tensor, *inputs: Any, **more: Any
) -> Tensor:
    """Activation checkpointing computes a block again from another input."""
    calls: list[Tensor] = []

    def count(x: Tensor, *rest: Any) -> Tensor:
        calls.append(x)
        return block(x if len(calls) == 1 else 1.01 * x, *rest)

    return right(count, x, *inputs, **more)


@fault("kernel", subject="llama", check="compiled", at="blocks.0.mlp.act")
def compiled_code_has_another_activation(patch: Patch) -> None:
    """Compiled code takes a branch of its own, with the wrong sign."""
    other_activation.plant(patch, lambda right, x: -right(x) if torch.compiler.is_compiling() else right(x))
    patch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


@fault("kernel", subject="llama", check="compiled", at="blocks.0.mlp.act")
def compiled_code_is_of_another_instruction_set(patch: Patch) -> None:
    """Code from a cache that a machine with vectors of half the width has filled: of each 16 numbers, the
    last 8 are not written."""

    def wrong(right: Any, x: Tensor) -> Tensor:
        lanes = torch.arange(x.shape[-1], device=x.device) % 16 < 8
        return right(x) * lanes if torch.compiler.is_compiling() else right(x)

    other_activation.plant(patch, wrong)
    patch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
