"""Faults in what lies between the steps of a run: its checkpoints, its evaluations, its log and its data."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.data.loader import DataLoader
from pellucid.data.rows.document_order import DocumentOrder
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.sources import source
from pellucid.data.sources.validation import Validation
from pellucid.data.tokens import TokenFolder
from pellucid.training import evaluate, state
from pellucid.training.saving import rng
from pellucid.training.state import Meters
from pellucid.training.weights import WeightAverage, Weights
from tests.faults.fault import Patch, around, fault, replacing
from tests.faults.in_training import NARROW, SINGLE, verify_run, write_text
from tests.faults.subjects import SUBJECTS, Subject

OF_TEXT = ("data.path=TEXT", "data.tokenizer=bytes", "model.context_length=24", SINGLE)
RUNS: dict[str, tuple[str, ...]] = {
    "run of stories": ("data.path=stories:easy", "model.context_length=32", SINGLE),
    "run of documents": (*OF_TEXT, "data.rows=packed", "data.split=paragraph"),
    "run of streams": (*OF_TEXT, "data.rows=streams"),
    "run in bfloat16 in parts": (*NARROW, "train.accumulate=2"),
}
SUBJECTS |= {name: Subject(write_text, partial(verify_run, changes)) for name, changes in RUNS.items()}


# ---- between two checkpoints


@fault("training", subject="run with an average", check="next checkpoint", at="embed.weight")
def weights_stay_averaged_after_an_evaluation(patch: Patch) -> None:
    """Training goes on from the averaged weights, and the others become the average."""

    @contextmanager
    def use(self: WeightAverage) -> Iterator[None]:
        self._swap()
        yield

    patch.setattr(WeightAverage, "use", use)


@fault("training", subject="run with dropout", check="next checkpoint", at="rng.torch")
@replacing(evaluate, "sample_text")
def an_evaluation_draws_the_run_s_random_numbers(right: Any, *given: Any) -> Any:
    """The sample of an evaluation is drawn with the generator of the dropout masks."""
    torch.rand(1)
    return right(*given)


@fault("training", subject="run with dropout", check="next checkpoint", at="rng.torch")
def the_random_state_is_not_restored(patch: Patch) -> None:
    """A resumed run draws the dropout masks of its beginning once more."""
    patch.setattr(rng, "set_rng_state", lambda tensors: None)


@fault("training", subject="run in float32", check="next checkpoint", at="loader")
@replacing(DataLoader, "load_state_dict")
def a_resumed_run_skips_a_batch(right: Any, self: DataLoader, saved: dict[str, int]) -> None:
    """The batch after a checkpoint is taken for read."""
    right(self, saved | {"at.row": saved["at.row"] + self.count})


@fault("training", subject="run of text", check="next checkpoint", at="loader")
@replacing(DataLoader, "state_dict")
def a_checkpoint_has_the_place_of_the_prefetched_batch(right: Any, self: Any) -> Any:
    """The loader saves the place of its thread, which is ahead."""
    return right(self) | {f"at.{key}": at + self.count for key, at in self._state.items()}


@fault("training", subject="run in float32", check="next checkpoint", at="tokens")
def a_resumed_run_counts_its_tokens_from_0(patch: Patch) -> None:
    """The number of tokens is not among the meters that are restored."""
    right = Meters.from_dict
    patch.setattr(Meters, "from_dict", lambda table: right(table | {"tokens": 0}))


# ---- gradients of masters


@fault("training", subject="run in bfloat16 in parts", check="step sums", at="d.embed.weight")
@replacing(Weights, "accumulate_grads")
def masters_add_up_gradients_in_bfloat16(right: Any, self: Weights) -> None:
    """The sum over micro-batches is rounded to the 8 significant bits of its terms."""
    right(self)
    for grad in self._master_grads.values():
        grad.copy_(grad.bfloat16())


# ---- the log


@fault("training", subject="run in float32", check="log figures", at="smoothed@2")
def the_loss_is_smoothed_over_fewer_steps(patch: Patch) -> None:
    """The past counts 0.9 where 0.95 is stated."""
    patch.setattr(state, "SMOOTHING", 0.9)


def _with_step(patch: Patch, count: Callable[[int], int]) -> None:
    def add(right: Any, self: Any, tokens: int, seconds: float, loss: float) -> Any:
        return right(self, count(tokens), seconds, loss)

    around(patch, Meters, "add_step", add)


@fault("training", subject="run in float32", check="log figures", at="tokens@1")
def the_log_counts_targets_for_tokens(patch: Patch) -> None:
    """A step counts all tokens but the first of each row."""
    _with_step(patch, lambda tokens: tokens - 4)


@fault("training", subject="run of stories", check="log figures", at="gap@2")
def the_gap_is_measured_in_bits(patch: Patch) -> None:
    """The loss above the floor is divided by ln 2, and its name says nats."""
    around(patch, evaluate, "gap_to_floor", lambda right, *given: right(*given) / math.log(2))


@fault("training", subject="run of stories", check="log figures", at="best@2")
def no_evaluation_is_the_best(patch: Patch) -> None:
    """The first evaluation is compared with NaN, and so is every other."""
    patch.setattr(Meters, "add_evaluation", lambda self, loss: loss < self.best_loss)


@fault("training", subject="run of text", check="validation loss", at="bits_per_byte")
def bits_per_byte_are_those_of_a_token(patch: Patch) -> None:
    """The loss is not divided by the bytes of a target."""
    patch.setattr(evaluate, "bits_per_byte", lambda loss, size: loss / math.log(2) * 1.5)


@fault("training", subject="run of stories", check="validation loss", at="bits_per_byte")
@replacing(evaluate, "bits_per_byte")
def end_tokens_count_as_bytes(right: Any, loss: Any, size: Any) -> Any:
    """The token that ends a text is counted by the letters of its name."""
    return right(loss, size + 0.05)


@fault("training", subject="run of stories", check="validation loss", at="accuracy")
@replacing(evaluate, "compute_loss")
def the_accuracy_is_that_of_the_five_likeliest(right: Any, forward: Any, batches: Any, *more: Any) -> Any:
    """A target counts as found where it is among the five most likely tokens."""
    kept = list(batches)
    found = right(forward, kept, *more)
    hits = targets_seen = 0
    for ids, targets, *rest in kept:
        with torch.no_grad():
            logits: Tensor = forward(ids, *rest)
        hits += int((logits.topk(5).indices == targets[..., None]).sum())
        targets_seen += int((targets >= 0).sum())
    return found._replace(accuracy=hits / targets_seen)


# ---- the data


@fault("training", subject="run of documents", check="epoch targets", at="targets")
@replacing(DocumentOrder, "bounds")
def every_second_document_is_skipped(right: Any, self: Any, n: Any) -> Any:
    """Of the documents of an epoch, those of even numbers are read twice."""
    return right(self, n - n % 2)


@fault("training", subject="run of text", check="epoch targets", at="targets")
@replacing(Windows, "__init__")
def the_last_window_of_an_epoch_is_dropped(
    right: Any, self: Windows, tokens: Any, length: int, *more: Any
) -> None:
    """An epoch has only the whole windows of the text."""
    right(self, tokens, length, *more)
    self.per_epoch = len(tokens) // length


@fault("training", subject="run of streams", check="epoch targets", at="targets")
@replacing(Streams, "take")
def streams_miss_a_token_between_two_batches(right: Any, self: Streams, count: int, local: slice) -> Any:
    """Each batch of a stream begins one token too late."""
    batch = right(self, count, local)
    targets = batch.targets.copy()
    targets[:, 0] = -100
    return type(batch)(batch.ids, targets)


@fault("training", subject="run of text", check="validation rows", at="targets")
@replacing(source, "_validate")
def validation_rows_are_taken_from_training(right: Any, data: Any, folder: TokenFolder, *more: Any) -> Any:
    """The held-out rows are cut from the training files."""
    folder._parts["validation"] = folder["train"]
    return right(data, folder, *more)


@fault("training", subject="run of documents", check="validation rows", at="targets")
@replacing(Validation, "__iter__")
def the_last_validation_row_is_evaluated_twice(right: Any, self: Validation) -> Iterator[Any]:
    """The first row is left out for it."""
    for batch in right(self):
        order = np.r_[len(batch.ids) - 1, 1 : len(batch.ids)]
        yield type(batch)(batch.ids[order], batch.targets[order], batch.segments[order])
