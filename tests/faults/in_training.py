"""Faults in a training step: in its batch, loss, gradients, clipping, update, checkpoint and evaluation.

Each subject is a tiny run that is trained with the fault, and whose second step after a checkpoint is then
replayed and judged.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.loader import DataLoader
from pellucid.data.rows import Batch
from pellucid.data.rows.windows import Windows
from pellucid.data.sources.generated import GeneratedRows
from pellucid.engine import attention, block, chunked_loss, dropout, linear, loss, norms, transformer
from pellucid.engine.attentions import softmax
from pellucid.engine.taps import is_explicit
from pellucid.evaluation import loss as evaluation_loss
from pellucid.training import evaluate, objective, optimizers, step
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.state import TrainState
from pellucid.training.weights import WeightAverage, Weights
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.runs import CHECKS
from pellucid.verification.verdict import Finding
from tests.faults.fault import Patch, around, fault, replacing
from tests.faults.subjects import SUBJECTS, Subject
from tests.training.small_run_folders import trained

TEXT = "\n\n".join(f"The {size} cat saw {count} birds." for size in ("old", "new") for count in range(60))
SINGLE = "train.dtype=float32"
NARROW = ("train.dtype=bfloat16", "train.weights=bfloat16")
DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
RUNS: dict[str, tuple[str, ...]] = {
    "run": (),
    "run in float32": (SINGLE,),
    # From the usual start: by fan-in, bfloat16 hides more than three percent of so small a model's gradients.
    "run in bfloat16": (*NARROW, "train.initialization=gpt2"),
    "run in parts": ("train.accumulate=2", SINGLE),
    "run in chunks": ("train.logits_chunk=5", "train.label_smoothing=0.1", "train.z_loss=0.01", SINGLE),
    "run with dropout": (DROPOUT, SINGLE),
    "run with dropout of outputs": (DROPOUT.replace("pattern=0.2", "pattern=0.0"), SINGLE),
    "run with recomputed blocks": (DROPOUT, "train.activation_checkpointing=true"),
    "run with an average": ("train.ema=0.8", SINGLE),
    "run with class weights": ('train.class_weights={"a"=0.2, "b"=3.0}', SINGLE),
    "run with muon": ("optimizer.kind=muon", SINGLE),
    "run of packed rows": ("data.rows=packed", SINGLE),
    "run of text": ("data.path=TEXT", "data.tokenizer=bytes", "model.context_length=24"),
    "run with two validation batches": ("evaluation.batches=2", SINGLE),
}


def verify_run(changes: tuple[str, ...], folder: Path, check: str | None) -> Iterator[Finding]:
    """Trains a run and yields the findings of a check, or of all checks, on it."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        trained(Path(out) / "run", *(change.replace("TEXT", str(folder / "text")) for change in changes))
        subject = RunSubject(Path(out) / "run")
        yield from (known.run(subject) for known in CHECKS if check in (None, known.name))


def write_text(folder: Path) -> None:
    (folder / "text").write_text(TEXT)


SUBJECTS |= {name: Subject(write_text, partial(verify_run, changes)) for name, changes in RUNS.items()}


# ---- the batch


def _with_targets(patch: Patch, change: Callable[[Batch], Any]) -> None:
    def take(right: Any, self: GeneratedRows, count: int, local: slice) -> Batch:
        batch = right(self, count, local)
        return Batch(batch.ids, change(batch), batch.segments)

    around(patch, GeneratedRows, "take", take)


@fault("training", subject="run", check="step batch", at="targets")
def targets_are_shifted_by_one(patch: Patch) -> None:
    """Targets are shifted in the data and once more in the loss: the token after the next is predicted."""
    _with_targets(patch, lambda batch: np.roll(batch.targets, -1, axis=1))


@fault("training", subject="run in float32", check="step batch", at="targets")
def targets_are_not_shifted(patch: Patch) -> None:
    """The targets are the ids themselves, so that a model learns to copy."""
    _with_targets(patch, lambda b: np.where(b.targets == IGNORE_INDEX, b.targets, b.ids))


@fault("training", subject="run in parts", check="step batch", at="ids")
@replacing(step, "forward_backward")
def the_last_micro_batch_is_dropped(right: Any, state: TrainState, batch: DeviceBatch) -> Any:
    """A loop over micro-batches ends one too early."""
    rows = len(batch.ids) // 2
    few = Batch(batch.batch.ids[:rows], batch.batch.targets[:rows])
    return right(state, DeviceBatch(few, batch.ids[:rows], batch.targets[:rows]))


@fault("training", subject="run of text", check="step batch", at="ids")
def rows_are_read_in_the_wrong_byte_order(patch: Patch) -> None:
    """The ids of a token file are read as other numbers."""
    around(patch, Windows, "_read_ring", lambda right, self, start: right(self, start) // 2)


# ---- dropout


@fault("training", subject="run with dropout", check="step dropout", at="positioned.keep")
def dropout_does_not_scale_what_it_keeps(patch: Patch) -> None:
    """Kept numbers are not divided by 1 − p."""
    patch.setattr(dropout, "F", SimpleNamespace(dropout=lambda x, p: F.dropout(x, p) * (1 - p)))


@fault("training", subject="run with dropout", check="step dropout", at="positioned.keep")
def dropout_takes_the_probability_of_keeping(patch: Patch) -> None:
    """The rate is read as the probability with which a number is kept."""
    patch.setattr(dropout, "F", SimpleNamespace(dropout=lambda x, p: F.dropout(x, 1 - p)))


@fault("training", subject="run with dropout", check="step gradients", at="d.blocks.1.mlp.down_proj.weight")
def dropout_is_missing_in_the_backward_pass(patch: Patch) -> None:
    """The gradient flows through dropped numbers too."""

    def drop(x: Tensor, p: float) -> Tensor:
        return F.dropout(x.detach(), p) + (x - x.detach())

    patch.setattr(dropout, "F", SimpleNamespace(dropout=drop))


@fault("training", subject="run with dropout of outputs", check="step dropout", at="positioned.keep")
@replacing(dropout.Dropout, "forward")
def dropout_is_never_applied(right: Any, self: Any, x: Any) -> Any:
    """Dropout is active only where values are watched."""
    return right(self, x) if is_explicit() else x


@fault("training", subject="run with recomputed blocks", check="step gradients", at="d.blocks.1.…")
@replacing(transformer, "_checkpoint")
def recomputed_blocks_draw_other_masks(right: Any, block: nn.Module, *inputs: Any) -> Any:
    """The recomputation of a block does not begin with the RNG state of its forward pass."""
    return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)


# ---- weights and checkpoint


@fault("training", subject="run in bfloat16", check="step weights", at="embed.weight")
def bfloat16_copies_are_never_refreshed(patch: Patch) -> None:
    """The optimizer updates the masters, and the model computes with its first weights."""
    patch.setattr(Weights, "copy_to_model", lambda self: None)


@fault("training", subject="run in float32", check="step weights", at="embed.weight.exp_avg_sq")
@replacing(optimizers, "load_state")
def second_moments_are_not_restored(right: Any, optimizer: Optimizer, *saved: Any) -> None:
    """A resumed run begins with v = 0."""
    right(optimizer, *saved)
    for own in optimizer.state.values():
        own["exp_avg_sq"].zero_()


@fault("training", subject="run in float32", check="step loss", at="loss")
def a_resumed_run_begins_with_the_first_rows(patch: Patch) -> None:
    """The position of the data loader is not restored."""
    patch.setattr(DataLoader, "load_state_dict", lambda self, state: None)


# ---- the loss


def _with_total(patch: Patch, total: Callable[[Tensor], Any]) -> None:
    def count(right: Any, targets: Tensor, classes: Tensor | None) -> Any:
        return right(targets, classes)._replace(total=total(targets))

    around(patch, loss, "_count_targets", count)


@fault("training", subject="run in float32", check="step loss", at="loss")
def the_mean_includes_ignored_targets(patch: Patch) -> None:
    """The sum over the counted targets is divided by the number of all positions."""
    _with_total(patch, lambda targets: targets.numel())


@fault("training", subject="run with class weights", check="step loss", at="loss")
def class_weights_are_not_normalized(patch: Patch) -> None:
    """The weighted sum is divided by the number of targets, not by the sum of their weights."""
    _with_total(patch, lambda targets: (targets != IGNORE_INDEX).sum())


@fault("training", subject="run in bfloat16", check="step loss", at="loss")
def the_loss_is_computed_in_bfloat16(patch: Patch) -> None:
    """Logits are not widened to float32 before the softmax of the loss."""
    patch.setattr(loss, "widen", lambda x: x)


@fault("training", subject="run in float32", check="step loss", at="loss")
def the_loss_is_rounded_to_bfloat16(patch: Patch) -> None:
    """A run in float32 computes its loss in bfloat16."""
    patch.setattr(loss, "widen", lambda x: x.bfloat16())


@fault("training", subject="run in parts", check="step loss", at="loss")
def accumulation_takes_the_mean_of_means(patch: Patch) -> None:
    """Micro-batches count alike, however many of their targets count."""
    patch.setattr(step, "_weigh_targets", lambda state, targets: 1.0)


@fault("training", subject="run in parts", check="step loss", at="loss")
@replacing(objective.Objective, "forward")
def accumulation_divides_twice(right: Any, self: Any, *batch: Any) -> Any:
    """The loss of a micro-batch is divided by their number, and weighted by its share of the targets."""
    return right(self, *batch) / self.asked.accumulate


@fault("training", subject="run in chunks", check="step loss", at="loss")
@replacing(chunked_loss, "_score_chunk")
def the_chunked_loss_ignores_label_smoothing(
    right: Any, y: Any, targets: Any, cap: Any, smoothing: Any, z: Any, needs: Any
) -> Any:
    """A fast path of the loss does not know a setting of the slow one."""
    return right(y, targets, cap, 0.0, z, needs)


@fault("training", subject="run in chunks", check="step loss", at="loss")
@replacing(chunked_loss, "_sum_chunks")
def the_last_chunk_is_dropped(right: Any, inputs: Any, targets: Tensor, chunk: int, *more: Any) -> Any:
    """The positions after the last whole chunk have no loss."""
    rest = torch.arange(len(targets)) >= len(targets) // chunk * chunk - chunk
    return right(inputs, targets.masked_fill(rest, IGNORE_INDEX), chunk, *more)


@fault("training", subject="run of packed rows", check="step loss", at="loss")
def packed_documents_see_each_other(patch: Patch) -> None:
    """The segment mask of packed rows does not reach the model."""
    around(patch, objective.Objective, "_logits", lambda right, self, ids, _: right(self, ids, None))


# ---- gradients


@fault("training", subject="run in float32", check="step gradients", at="d.embed.weight")
def a_tied_weight_is_detached(patch: Patch) -> None:
    """The unembedding reads the embedding without its gradient."""
    around(patch, transformer, "linear", lambda right, x, w, b: right(x, w.detach(), b))


@fault("training", subject="run", check="step gradients", at="d.final_norm.weight")
def gradients_are_not_cleared(patch: Patch) -> None:
    """The gradients of a step are added to those of the step before."""
    patch.setattr(Weights, "zero_grads", lambda self: None)


@fault("training", subject="run in chunks", check="step gradients", at="d.final_norm.weight")
@replacing(chunked_loss, "_score_chunk")
def the_z_loss_has_no_gradient(
    right: Any, y: Tensor, targets: Tensor, cap: Any, smoothing: float, z: float, needs: bool
) -> Any:
    """The z-loss is in the value of the chunked loss, and not in its gradient."""
    total, _ = right(y, targets, cap, smoothing, z, needs)
    return total, right(y, targets, cap, smoothing, 0.0, needs)[1]


@fault("training", subject="run in float32", check="step gradients", at="d.blocks.1.attn.k_proj.weight")
@replacing(attention, "project")
def a_joined_projection_mixes_its_gradients(
    right: Any, x: Tensor, *layers: linear.Linear
) -> tuple[Tensor, ...]:
    """The gradient of the keys' part of a joined product goes to the queries."""
    weights = [layer.weight for layer in layers]
    if len(weights) == 3:
        weights[1] = weights[1].detach() + weights[0] - weights[0].detach()
    return tuple(F.linear(x, weight) for weight in weights)


@fault("training", subject="run in float32", check="step gradients", at="d.blocks.1.attn.k_proj.weight")
@replacing(attention, "rotate")
def rotation_has_the_gradient_of_the_identity(right: Any, x: Any, rotation: Any) -> Any:
    """The backward pass of RoPE does not rotate back."""
    return right(x.detach(), rotation) + (x - x.detach())


@fault("training", subject="run in float32", check="step gradients", at="d.final_norm.weight")
def gains_get_no_gradient(patch: Patch) -> None:
    """A fused norm returns no gradient of its gain."""
    wrong = SimpleNamespace(rms_norm=lambda x, shape, w, eps: F.rms_norm(x, shape, w.detach(), eps))
    patch.setattr(norms, "F", wrong)


@fault("training", subject="run in float32", check="step gradients", at="d.embed.weight")
@replacing(linear.Embedding, "forward")
def embedding_gradients_are_divided_by_counts(right: Any, self: Any, ids: Any) -> Any:
    """The gradient of a token's row is divided by how often it is in the batch."""
    return F.embedding(ids, self.weight, scale_grad_by_freq=True)


@fault("training", subject="run", check="step gradients", at="d.embed.weight")
def the_padding_token_is_never_trained(patch: Patch) -> None:
    """Id 0 is taken for padding, and its row gets no gradient."""
    patch.setattr(linear.Embedding, "forward", lambda self, ids: F.embedding(ids, self.weight, 0))


@fault("training", subject="run in float32", check="step gradients", at="d.blocks.1.attn.o_proj.weight")
@replacing(block.Block, "_update_stream")
def a_residual_branch_is_detached(
    right: Any, self: block.Block, layer: str, name: str, x: Tensor, output: Tensor
) -> Any:
    """The output of attention is added to the residual stream without its gradient."""
    return right(self, layer, name, x, output.detach() if layer == "attn" else output)


@fault("training", subject="run in bfloat16", check="step gradients", at="d.…")
@replacing(objective.Objective, "forward")
def bfloat16_gradients_are_three_percent_too_large(
    right: Any, self: objective.Objective, *batch: Any
) -> Tensor:
    """The gradients of a run in bfloat16 have another scale than its loss, by less than their noise."""
    found: Tensor = right(self, *batch)
    return found + 0.03 * (found - found.detach())


@fault("training", subject="run in bfloat16", check="step gradients", at="d.…")
def every_block_of_queries_reads_the_first_keys(patch: Patch) -> None:
    """Attention in compiled training masks each block of queries as if it were the first."""
    patch.setattr(softmax, "QUERIES", 6)
    patch.setattr(softmax, "is_compiled", lambda: True)

    def multiply(right: Any, self: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Any:
        count = q.shape[2]
        return right(self, q, k[:, :, :count], v[:, :, :count], inputs)

    around(patch, softmax.SoftmaxAttention, "_multiply", multiply)


@fault("training", subject="run in float32", check="step gradients", at="d.final_norm.weight")
def products_are_in_bfloat16_unasked(patch: Patch) -> None:
    """Autocast is on in a run that states float32."""
    patch.setattr(objective.Objective, "_precision", lambda self: torch.autocast("cpu", torch.bfloat16))


# ---- norm and clipping


@fault("training", subject="run in float32", check="step norm", at="grad_norm")
def the_norm_misses_a_parameter(patch: Patch) -> None:
    """The gradient norm is that of all gradients but the first."""
    around(patch, torch.nn.utils, "get_total_norm", lambda right, grads: right(grads[1:]))


@fault("training", subject="run", check="step norm", at="grad_norm")
@replacing(step, "clip_grads")
def the_norm_is_that_of_clipped_gradients(
    right: Any, grads: Any, norm: Tensor, limit: float, is_finite: Tensor
) -> None:
    """The logged norm is never above the limit."""
    right(grads, norm, limit, is_finite)
    norm.clamp_(max=limit)


def _clip(grads: Any, norm: Tensor, limit: float, _: Tensor, own: bool, inverse: bool = False) -> None:
    for grad in grads:
        size = grad.norm() if own else norm
        grad.mul_((size / limit if inverse else limit / size).clamp(max=1.0))


@fault("training", subject="run in float32", check="step clipping", at="d.embed.weight.clipped")
def each_gradient_is_clipped_by_itself(patch: Patch) -> None:
    """Every parameter has a factor of its own, so that the direction of the step changes."""
    patch.setattr(step, "clip_grads", partial(_clip, own=True))


@fault("training", subject="run", check="step clipping", at="d.embed.weight.clipped")
def the_clipping_factor_is_inverted(patch: Patch) -> None:
    """Gradients are multiplied by norm / limit."""
    patch.setattr(step, "clip_grads", partial(_clip, own=False, inverse=True))


@fault("training", subject="run in bfloat16", check="step clipping", at="d.embed.weight.clipped")
def gradients_are_not_clipped(patch: Patch) -> None:
    """The norm is computed, and nothing is clipped by it."""
    patch.setattr(step, "clip_grads", lambda grads, norm, limit, is_finite: None)


# ---- the update


@fault("training", subject="run in float32", check="step update", at="blocks.0.attn_norm.weight@6")
def gains_decay(patch: Patch) -> None:
    """Weight decay applies to the gains of norms."""
    patch.setattr(optimizers, "decays", lambda name, shape: name != "embed.weight")


@fault("training", subject="run in float32", check="step update", at="blocks.0.attn.q_proj.weight@6")
def nothing_decays(patch: Patch) -> None:
    """No parameter is in the group with weight decay."""
    patch.setattr(optimizers, "decays", lambda name, shape: False)


@fault("training", subject="run in float32", check="step update", at="blocks.0.attn.q_proj.weight.m@6")
def decay_is_added_to_the_gradient(patch: Patch) -> None:
    """AdamW is Adam with an L2 penalty."""
    patch.setattr(optimizers.torch.optim, "AdamW", torch.optim.Adam)


@fault("training", subject="run in float32", check="step update", at="embed.weight.v@6")
@replacing(optimizers, "set_betas")
def beta2_is_that_of_another_optimizer(right: Any, optimizer: Optimizer, *_: Any) -> None:
    """β₂ is 0.999 whatever the recipe says."""
    for group in optimizer.param_groups:
        group["betas"] = (0.9, 0.999)


@fault("training", subject="run", check="step update", at="embed.weight@6")
@replacing(optimizers, "update")
def the_bias_is_not_corrected(right: Any, optimizer: Optimizer, is_finite: Tensor) -> None:
    """Adam divides by 1 − βᵗ with a t that is far too large."""
    for own in optimizer.state.values():
        own["step"].fill_(10_000)
    right(optimizer, is_finite)


@fault("training", subject="run", check="step update", at="lr")
@replacing(step, "set_learning_rate")
def the_learning_rate_is_one_step_late(right: Any, state: TrainState) -> Any:
    """The schedule is stepped after the update, and once too little."""
    now, state.meters.step = state.meters.step, max(0, state.meters.step - 1)
    found = right(state)
    state.meters.step = now
    return found


@fault("training", subject="run in float32", check="step update", at="embed.weight@6")
def the_schedule_does_not_reach_the_optimizer(patch: Patch) -> None:
    """The log has the scheduled rate, and the optimizer keeps its first."""
    patch.setattr(optimizers, "scale_learning_rate", lambda optimizer, factor: None)


@fault("training", subject="run", check="step update", at="embed.weight@6")
@replacing(optimizers, "make_optimizer")
def the_optimizer_misses_a_parameter(right: Any, named: dict[str, nn.Parameter], settings: Any) -> Any:
    """The embedding is in no group of the optimizer."""
    return right({name: w for name, w in named.items() if name != "embed.weight"}, settings)


@fault("training", subject="run with an average", check="step update", at="embed.weight.ema@6")
def the_average_has_the_wrong_weight(patch: Patch) -> None:
    """θ̄ ← (1 − β) θ̄ + β θ: the average forgets what it should keep."""

    @torch.no_grad()
    def update(self: WeightAverage) -> None:
        for name, mean in self.mean.items():
            mean.lerp_(self.weights.trainable[name], self.beta)

    patch.setattr(WeightAverage, "update", update)


@fault("training", subject="run with muon", check="step update", at="blocks.0.mlp.gate_proj.weight@6")
def muon_does_not_scale_tall_matrices(patch: Patch) -> None:
    """The factor √(rows / columns) is missing."""
    patch.setattr(optimizers, "math", SimpleNamespace(sqrt=lambda x: 1.0))


@fault("training", subject="run with muon", check="step update", at="blocks.0.attn.q_proj.weight@6")
def muon_orthogonalizes_once(patch: Patch) -> None:
    """One Newton-Schulz iteration is made where five are stated."""
    around(patch, optimizers, "orthogonalize", lambda right, x, steps, dtype: right(x, 1, dtype))


# ---- evaluation


@fault("training", subject="run with dropout", check="validation loss", at="validation loss")
@replacing(evaluate, "compute_loss")
def evaluation_keeps_dropout_on(right: Any, forward: Any, *more: Any) -> Any:
    """The model is evaluated in training mode."""
    forward.__self__.model.train()
    return right(forward, *more)


@fault("training", subject="run with an average", check="validation loss", at="validation loss")
def evaluation_uses_the_weights_before_averaging(patch: Patch) -> None:
    """The averaged weights are saved, and others are evaluated."""
    patch.setattr(WeightAverage, "use", lambda self: nullcontext())


@fault("training", subject="run in float32", check="validation loss", at="validation loss")
@replacing(evaluation_loss, "cross_entropy")
def evaluation_counts_ignored_targets(right: Any, logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of a batch is divided by the number of all positions, and multiplied by the counted ones."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.numel()


@fault("training", subject="run with two validation batches", check="validation loss", at="validation loss")
@replacing(evaluate, "compute_loss")
def evaluation_takes_the_mean_of_means(right: Any, forward: Any, batches: Any, *more: Any) -> Any:
    """Batches count alike, however many of their targets count."""
    found = [right(forward, [batch], *more) for batch in batches]
    return found[0]._replace(loss=float(np.mean([one.loss for one in found])))
