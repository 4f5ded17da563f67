"""Faults of the cache's state: slots, rings, crops, copies, reused prefixes; and of positions that no short
text reaches."""

from typing import Any

import torch
from torch import Tensor

from pellucid.engine import cache, layer_cache, transformer
from pellucid.engine.attentions.linear import RunningSumCache
from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.cache import Cache
from pellucid.engine.layer_cache import Int8Cache, KeyValueCache, SlotCache
from pellucid.engine.transformer import Transformer
from pellucid.generation import slots
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.window import Window
from tests.faults.fault import Patch, fault, replacing
from tests.faults.in_kernels import replace_fused


@fault("state", subject="llama", check="cached", at="blocks.0.attn.k_all[")
@replacing(layer_cache, "write_slots")
def single_tokens_are_written_one_slot_late(right: Any, buffer: Tensor, new: Tensor, places: Tensor) -> None:
    """A decode step writes its key into the slot after its own."""
    late = places + 1 if new.shape[2] == 1 else places
    right(buffer, new, late.clamp_max(buffer.shape[2] - 1))


@fault("state", subject="gpt2", check="cached", at="blocks.0.attn.k_all[")
@replacing(layer_cache, "write_slots")
def rows_of_different_lengths_share_the_first_rows_slots(
    right: Any, buffer: Any, new: Any, places: Any
) -> Any:
    """Slots of a ragged batch are those of its first row."""
    return right(buffer, new, places if places.ndim == 1 else places[:1].expand_as(places))


@fault("state", subject="qwen2", check="scheduled", at="blocks.0.attn.v_all[")
@replacing(KeyValueCache, "write")
def values_are_written_where_keys_of_the_next_chunk_go(
    right: Any, self: Any, k: Tensor, v: Tensor, places: Tensor
) -> None:
    """The values of a chunk after the first are written one slot early."""
    right(self, k, v, places)
    if places.ndim == 1 and int(places[0]) > 0 and k.shape[2] > 1:
        layer_cache.write_slots(self.buffers[1], v, places - 1)


@fault("state", subject="llama", check="scheduled", at="engine/cache.py: reserve")
@replacing(Cache, "crop")
def cropped_row_keeps_its_length(right: Any, self: Any, length: Any) -> None:
    """Cropping forgets the tokens but not how many there were."""
    before = self.host_lengths.copy()
    right(self, length)
    if isinstance(length, int) and 0 < length < int(before.max()):
        self.set_lengths(before)


@fault("state", subject="gpt2", check="scheduled", at="blocks.0.attn.k_all[")
@replacing(SlotCache, "copy_row")
def copied_row_shares_nothing_after_its_first_chunk(
    right: Any, self: Any, source: Any, target: Any, length: Any
) -> Any:
    """A fork copies the first eight slots of a row alone."""
    return right(self, source, target, min(length, 8))


@fault("state", subject="llama", check="decoded", at="blocks.0.attn.v_all[")
@replacing(SlotCache, "copy_row")
def copy_forgets_the_values(right: Any, self: Any, source: int, target: int, length: int) -> None:
    """A fork copies the keys and not the values."""
    self.buffers[0][target, :, :length].copy_(self.buffers[0][source, :, :length])


@fault("state", subject="llama", check="scheduled", at="embedded")
def prefix_of_another_text_is_reused(patch: Patch) -> None:
    """A slot is taken for one that shares a prefix, by the length of the texts alone."""
    patch.setattr(slots, "count_equal", lambda one, other: min(len(one), len(other)))


@fault("state", subject="qwen3", check="scheduled", at="engine/cache.py: reserve")
@replacing(slots.CacheSlots, "reset")
def a_slot_is_reused_without_a_reset(right: Any, self: Any, slot: int) -> None:
    """A slot that is taken again keeps the length of its last text in the cache."""
    self.tokens[slot], self.whole_chunks[slot] = [], 0


@fault("state", subject="linear", check="scheduled", at="blocks.0.attn.")
def running_sum_is_not_cleared(patch: Patch) -> None:
    """A row of linear attention that is used again starts from the sum of its last text."""
    patch.setattr(RunningSumCache, "clear", lambda self, rows: None)


@fault("state", subject="linear", check="cached", at="blocks.0.attn.")
@replacing(cache.Cache, "plan")
def running_sum_counts_padding(right: Any, self: Any, count: Any) -> Any:
    """Padding on the right of a ragged prefill is added to the running sum."""
    return right(self, count)._replace(is_token=None)


@fault("state", subject="window", check="scheduled", at="blocks.0.attn.q_rot … z")
@replacing(Cache, "_ring_positions")
def ring_evicts_one_token_early(right: Any, self: Any, ring: Any, lengths: Tensor) -> Tensor:
    """A ring overwrites the oldest position that is still visible."""
    found = right(self, ring, lengths)
    return torch.where(found == lengths - ring.last, self.sentinel, found)


@fault("state", subject="sinks", check="scheduled", at="blocks.0.attn.q_rot … z")
@replacing(Cache, "_ring_slots")
def ring_overwrites_the_sinks(
    right: Any, self: Any, ring: Any, positions: Tensor, end: Tensor, is_token: Any
) -> Tensor:
    """The first positions, which stay visible, take part in the ring."""
    found = right(self, ring, positions, end, is_token)
    return torch.where((found == ring.first) & (positions > ring.first), 0, found)


@fault("state", subject="llama", check="scheduled together", at="blocks.0.attn.")
@replacing(transformer.Transformer, "_make_mask")
def static_step_attends_to_empty_slots(
    right: Any, self: Any, queries: Tensor, keys: Tensor, *more: Any
) -> Any:
    """Where one call decodes all slots, a row attends to slots beyond its length."""
    if queries.ndim == 2 and len(queries) > 1 and queries.shape[1] == 1:
        queries = queries.amax(0, keepdim=True).expand_as(queries)
    return right(self, queries, keys, *more)


@fault("state", subject="gpt2", check="scheduled together", at="blocks.0.attn.k_all[")
@replacing(cache.Cache, "plan")
def static_step_writes_into_rows_that_do_not_decode(right: Any, self: Any, count: int) -> Any:
    """A static step overwrites the last token of the rows that wait."""
    plan = right(self, count)
    if plan.is_token is None or plan.slots.ndim == 1 or count > 1:
        return plan
    return plan._replace(slots=torch.where(plan.is_token, plan.slots, (plan.slots - 1).clamp_min(0)))


@fault("state", subject="gpt2", check="int8 cache", at="blocks.0.attn.k_all")
@replacing(Int8Cache, "write")
def int8_scales_are_twice_too_large(right: Any, self: Any, k: Any, v: Any, places: Any) -> Any:
    """Keys are quantized by max|x| / 63."""
    return right(self, _coarse(k), v, places)


def _coarse(x: Tensor) -> Tensor:
    step = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 40
    return torch.round(x / step) * step


@fault("state", subject="llama", check="int8 cache", at="blocks.0.attn.q_rot … z")
def int8_values_are_read_with_the_keys_scales(patch: Patch) -> None:
    """z is computed from values that carry the scales of the keys."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return (
            right(q, k, v * k.abs().amax(-1, keepdim=True), inputs) if inputs.plan else right(q, k, v, inputs)
        )

    replace_fused(patch, wrong)


# ---- beyond a short text


@fault("length", subject="mistral", check="far decoding", at="blocks.0.attn.k_rot … z")
@replacing(Window, "compute_mask")
def window_is_one_position_wider(right: Any, self: Any, queries: Any, keys: Any) -> Any:
    """Cached queries attend to size + 1 positions."""
    if not isinstance(queries, Tensor):
        return right(self, queries, keys)
    back = queries[..., :, None] - keys[..., None, :]
    return (back >= 0) & (back <= self.size)


@fault("length", subject="window", check="fused", at="blocks.0.attn.q_rot … z")
def window_is_ignored_by_the_kernel(patch: Patch) -> None:
    """A model with a window runs the kernel's causal mask, which shows all of the past."""
    patch.setattr(Window, "causal", True)


@fault("length", subject="yarn", check="far decoding", at="blocks.0.attn.q_rot")
@replacing(transformer.Positions, "rotation")
def scaling_ends_at_the_trained_length(right: Any, self: Any, places: Tensor, dtype: torch.dtype) -> Any:
    """Positions beyond the trained length have the angles of the last trained one."""
    return right(self, places.clamp_max(self.config.positions.original_context), dtype)


@fault("length", subject="yarn", check="fused", at="blocks.0.attn.q_rot … z")
@replacing(SoftmaxAttention, "__init__")
def attention_factor_of_yarn_is_dropped_by_the_engine(right: Any, self: Any, config: Any, path: str) -> None:
    """The fast engine scales the scores by 1/√D alone."""
    right(self, config, path)
    self.scale = config.d_head**-0.5


@fault("length", subject="gpt2", check="far decoding", at="position_ids … positioned")
@replacing(transformer.Positions, "add_to")
def learned_positions_stop_before_the_end_of_the_context(right: Any, self: Any, x: Any, places: Any) -> Any:
    """The last eight positions have the row of the one before them."""
    return right(self, x, places.clamp_max(self.config.context_length - 9))


@fault("length", subject="bloom", check="far decoding", at="blocks.0.attn.k … z")
@replacing(transformer.PositionBias, "forward")
def distances_are_clamped_at_half_of_the_context(
    right: Any, self: Any, queries: Tensor, keys: Tensor, dtype: torch.dtype
) -> Any:
    """ALiBi's bias stops growing with the distance."""
    near = keys.clamp_min(int(queries.min()) - self.config.context_length // 2)
    return right(self, queries, near, dtype)


@fault("length", subject="long", check="long prompt", at="blocks.0.attn.")
@replacing(Causal, "compute_mask")
def second_chunk_forgets_the_first(own: Any, self: Any, queries: Any, keys: Any) -> Any:
    """A chunk after the first attends to its own tokens alone."""
    found = own(self, queries, keys)
    if not isinstance(queries, Tensor) or queries.shape[-1] in (1, keys.shape[-1]):
        return found
    return found & (keys[..., None, :] >= queries[..., :1, None])


@fault("length", subject="long", check="long prompt", at="blocks.0.attn.q_rot")
@replacing(transformer.Positions, "rotation")
def positions_restart_in_every_chunk(right: Any, self: Any, places: Tensor, dtype: torch.dtype) -> Any:
    """The angles of a chunk after the first start at 0."""
    is_chunk = places.ndim == 1 and len(places) > 1 and int(places[0]) >= 64
    return right(self, places - places[0] if is_chunk else places, dtype)


@fault("length", subject="t5", check="far decoding", at="blocks.0.attn.")
@replacing(transformer.PositionBias, "forward")
def buckets_of_far_distances_are_those_of_near_ones(
    right: Any, self: Any, queries: Tensor, keys: Tensor, dtype: torch.dtype
) -> Any:
    """T5's bias of a distance beyond 40 is that of 40 less."""
    near = torch.where(queries.min() - keys > 40, keys + 40, keys)
    return right(self, queries, near, dtype)


@fault("state", subject="llama", check="scheduled", at="blocks.1.resid_post … final_norm.out")
@replacing(Transformer, "forward_packed")
def logits_of_the_token_before_the_last(right: Any, self: Any, rows: Any, wanted: Any) -> Tensor:
    """Where the logits of the last token alone are asked for, those of the token before are returned."""
    count = sum(len(ids) for _, ids in rows)
    is_last = len(rows) == 1 and list(wanted) == [count - 1] and count > 1
    return right(self, rows, [count - 2] if is_last else wanted)
