"""One training step: batch, forward, loss, backward, clip, update.

    state = TrainState(recipe, source)
    result = train_step(state)          # Stepped; or Skipped, where the loss or a gradient is NaN or Inf

Code that observes a step is a `Hook`, which `train_step` calls at named points: the recorder of sizes, the
search for the first NaN, and the one that keeps the gradients of a rebuilt step.
"""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.shard import Ids
from pellucid.training import optimizers
from pellucid.training.device import peak_memory
from pellucid.training.distributed.sharded import full_tensor, to_local
from pellucid.training.events import Skipped, Stepped
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.state import TrainState


class Nonfinite(NamedTuple):
    """The first value of a step that was NaN or Inf, and what it was computed from."""

    name: str
    about: str = ""


class Hook:
    """Observes a step. A subclass overrides what it needs; one that changes the state changes the run."""

    def before_forward(self, state: TrainState, batch: DeviceBatch) -> None:
        """Called when nothing has been computed and no random number drawn for this batch."""

    def after_backward(self, state: TrainState) -> None:
        """Called when every trainable parameter has its gradient, not yet clipped, in `.grad`."""

    def before_update(self, state: TrainState) -> None:
        """Called when the gradients are clipped."""

    def after_update(self, state: TrainState, batch: DeviceBatch, is_finite: Tensor) -> None:
        """Called when the weights have been updated, if `is_finite`. Reading that waits for the device."""

    def locate_nonfinite(self, state: TrainState, batch: DeviceBatch, loss: float) -> Nonfinite | None:
        """Returns where the NaN or Inf of this step came from; None where this hook does not know."""


def train_step(state: TrainState, hooks: Sequence[Hook] = ()) -> Stepped | Skipped:
    """Updates the weights once, unless the loss or a gradient is NaN or Inf."""
    began = time.perf_counter()
    lr = set_learning_rate(state)
    batch = state.prefetcher.next()
    for hook in hooks:
        hook.before_forward(state, batch)

    loss, tokens = forward_backward(state, batch)
    grads = state.weights.grads()
    grad_norm = full_tensor(nn.utils.get_total_norm(grads))
    is_finite = loss.isfinite() & grad_norm.isfinite()
    for hook in hooks:
        hook.after_backward(state)

    clip_grads(grads, grad_norm, state.recipe.train.clip, is_finite)
    for hook in hooks:
        hook.before_update(state)

    optimizers.update(state.optimizer, is_finite)
    state.weights.copy_to_model()
    for hook in hooks:
        hook.after_update(state, batch, is_finite)

    memory = peak_memory(state.device)
    state.prefetcher.prefetch()
    loss_value, norm_value = torch.stack([loss, grad_norm]).tolist()  # the first wait for the device
    nonfinite = None
    if math.isfinite(loss_value) and math.isfinite(norm_value):
        state.average.update()
    else:
        found = (hook.locate_nonfinite(state, batch, loss_value) for hook in hooks)
        nonfinite = next(filter(None, found), Nonfinite("grad_norm" if math.isfinite(loss_value) else "loss"))
    state.weights.zero_grads()

    meters, seconds = state.meters, time.perf_counter() - began
    meters.add_step(tokens, seconds, None if nonfinite else loss_value)
    if nonfinite:
        return Skipped(meters.step, nonfinite.name, nonfinite.about)
    return Stepped(
        meters.step, loss_value, meters.smoothed_loss, lr, norm_value,
        meters.tokens, tokens / seconds, meters.seconds, memory,
    )  # fmt: skip


def set_learning_rate(state: TrainState) -> float:
    """Sets the optimizer's learning rate, and β₂ while it warms up, for this step; returns the rate."""
    recipe, step = state.recipe, state.meters.step
    factor = recipe.schedule.factor(step, recipe.steps_at(step))
    optimizers.scale_learning_rate(state.optimizer, factor)
    optimizers.set_betas(state.optimizer, recipe.optimizer, step)
    return float(recipe.optimizer.lr * factor)


def forward_backward(state: TrainState, batch: DeviceBatch) -> tuple[Tensor, int]:
    """Computes the gradients of a batch, one micro-batch after the other.

    Returns the mean loss over all counted targets, which are those not ignored, [] float64, and the number of
    tokens, both over all ranks.
    The mean of each micro-batch is weighted by its share of the counted targets, or of their class weights,
    so that their sum is the mean over the whole batch, however the ignored targets are distributed.
    """
    parts = state.recipe.train.accumulate
    counts = [_weigh_targets(state, part) for part in np.array_split(batch.batch.targets, parts)]
    global_count, tokens = state.ranks.sum_numbers(sum(counts), batch.batch.ids.size)
    total = torch.zeros((), device=state.device, dtype=torch.float64)
    segments = [None] * parts if batch.segments is None else batch.segments.chunk(parts)
    micro_batches = zip(batch.ids.chunk(parts), batch.targets.chunk(parts), segments, counts, strict=True)
    for number, (ids, targets, documents, count) in enumerate(micro_batches, start=1):
        # DDP and FSDP exchange gradients once a step, unless those in bfloat16 are added to float32 masters.
        with state.parallel.sync_grads(number == parts or bool(state.weights.bfloat16)):
            loss = state.loss(ids, targets, documents) * (count / (global_count or 1))
            (loss * state.parallel.loss_factor).backward()
        state.weights.accumulate_grads()
        total += loss.detach()
    return state.ranks.all_reduce(total), int(tokens)


def _weigh_targets(state: TrainState, targets: Ids) -> float:
    """Returns the number of counted targets, or the sum of their class weights."""
    counted = targets[targets != IGNORE_INDEX]
    return len(counted) if state.class_weights is None else float(state.class_weights.numpy()[counted].sum())


def clip_grads(grads: Sequence[Tensor], norm: Tensor, limit: float, is_finite: Tensor) -> None:
    """Multiplies the gradients by min(1, limit / norm), in place; a limit of 0 clips nothing."""
    if limit:
        factor = torch.where(is_finite, limit / norm, 1.0).clamp(max=1.0)
        torch._foreach_mul_([to_local(grad) for grad in grads], factor)
