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
from tests.faults.fault import Patch, fault
from tests.faults.in_training import NARROW, SINGLE, verify_run, wrap, write_text
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
def an_evaluation_draws_the_run_s_random_numbers(patch: Patch) -> None:
    """The sample of an evaluation is drawn with the generator of the dropout masks."""

    def make(right: Any) -> Any:
        def sample(*given: Any) -> Any:
            torch.rand(1)
            return right(*given)

        return sample

    wrap(patch, evaluate, "sample_text", make)


@fault("training", subject="run with dropout", check="next checkpoint", at="rng.torch")
def the_random_state_is_not_restored(patch: Patch) -> None:
    """A resumed run draws the dropout masks of its beginning once more."""
    patch.setattr(rng, "set_rng_state", lambda tensors: None)


@fault("training", subject="run in float32", check="next checkpoint", at="loader")
def a_resumed_run_skips_a_batch(patch: Patch) -> None:
    """The batch after a checkpoint is taken for read."""

    def make(right: Any) -> Any:
        def load(self: DataLoader, saved: dict[str, int]) -> None:
            right(self, saved | {"at.row": saved["at.row"] + self.count})

        return load

    wrap(patch, DataLoader, "load_state_dict", make)


@fault("training", subject="run of text", check="next checkpoint", at="loader")
def a_checkpoint_has_the_place_of_the_prefetched_batch(patch: Patch) -> None:
    """The loader saves the place of its thread, which is ahead."""

    def make(right: Any) -> Any:
        return lambda self: right(self) | {f"at.{key}": at + self.count for key, at in self._state.items()}

    wrap(patch, DataLoader, "state_dict", make)


@fault("training", subject="run in float32", check="next checkpoint", at="tokens")
def a_resumed_run_counts_its_tokens_from_0(patch: Patch) -> None:
    """The number of tokens is not among the meters that are restored."""

    def make(right: Any) -> Any:
        return classmethod(lambda cls, table: right(table | {"tokens": 0}))

    wrap(patch, Meters, "from_dict", make)


# ---- gradients of masters


@fault("training", subject="run in bfloat16 in parts", check="step sums", at="d.embed.weight")
def masters_add_up_gradients_in_bfloat16(patch: Patch) -> None:
    """The sum over micro-batches is rounded to the 8 significant bits of its terms."""

    def make(right: Any) -> Any:
        def accumulate(self: Weights) -> None:
            right(self)
            for grad in self._master_grads.values():
                grad.copy_(grad.bfloat16())

        return accumulate

    wrap(patch, Weights, "accumulate_grads", make)


# ---- the log


@fault("training", subject="run in float32", check="log figures", at="smoothed@2")
def the_loss_is_smoothed_over_fewer_steps(patch: Patch) -> None:
    """The past counts 0.9 where 0.95 is stated."""
    patch.setattr(state, "SMOOTHING", 0.9)


def _with_step(patch: Patch, count: Callable[[int], int]) -> None:
    def make(right: Any) -> Any:
        return lambda self, tokens, seconds, loss: right(self, count(tokens), seconds, loss)

    wrap(patch, Meters, "add_step", make)


@fault("training", subject="run in float32", check="log figures", at="tokens@1")
def the_log_counts_targets_for_tokens(patch: Patch) -> None:
    """A step counts all tokens but the first of each row."""
    _with_step(patch, lambda tokens: tokens - 4)


@fault("training", subject="run of stories", check="log figures", at="gap@2")
def the_gap_is_measured_in_bits(patch: Patch) -> None:
    """The loss above the floor is divided by ln 2, and its name says nats."""
    wrap(patch, evaluate, "gap_to_floor", lambda right: lambda *given: right(*given) / math.log(2))


@fault("training", subject="run of stories", check="log figures", at="best@2")
def no_evaluation_is_the_best(patch: Patch) -> None:
    """The first evaluation is compared with NaN, and so is every other."""
    patch.setattr(Meters, "add_evaluation", lambda self, loss: loss < self.best_loss)


@fault("training", subject="run of text", check="validation loss", at="bits_per_byte")
def bits_per_byte_are_those_of_a_token(patch: Patch) -> None:
    """The loss is not divided by the bytes of a target."""
    patch.setattr(evaluate, "bits_per_byte", lambda loss, size: loss / math.log(2) * 1.5)


@fault("training", subject="run of stories", check="validation loss", at="bits_per_byte")
def end_tokens_count_as_bytes(patch: Patch) -> None:
    """The token that ends a text is counted by the letters of its name."""

    def make(right: Any) -> Any:
        return lambda loss, size: right(loss, size + 0.05)

    wrap(patch, evaluate, "bits_per_byte", make)


@fault("training", subject="run of stories", check="validation loss", at="accuracy")
def the_accuracy_is_that_of_the_five_likeliest(patch: Patch) -> None:
    """A target counts as found where it is among the five most likely tokens."""

    def make(right: Any) -> Any:
        def compute(forward: Any, batches: Any, *more: Any) -> Any:
            kept = list(batches)
            found = right(forward, kept, *more)
            hits = targets_seen = 0
            for ids, targets, *rest in kept:
                with torch.no_grad():
                    logits: Tensor = forward(ids, *rest)
                hits += int((logits.topk(5).indices == targets[..., None]).sum())
                targets_seen += int((targets >= 0).sum())
            return found._replace(accuracy=hits / targets_seen)

        return compute

    wrap(patch, evaluate, "compute_loss", make)


# ---- the data


@fault("training", subject="run of documents", check="epoch targets", at="targets")
def every_second_document_is_skipped(patch: Patch) -> None:
    """Of the documents of an epoch, those of even numbers are read twice."""

    def make(right: Any) -> Any:
        return lambda self, n: right(self, n - n % 2)

    wrap(patch, DocumentOrder, "bounds", make)


@fault("training", subject="run of text", check="epoch targets", at="targets")
def the_last_window_of_an_epoch_is_dropped(patch: Patch) -> None:
    """An epoch has only the whole windows of the text."""

    def make(right: Any) -> Any:
        def begin(self: Windows, tokens: Any, length: int, *more: Any) -> None:
            right(self, tokens, length, *more)
            self.per_epoch = len(tokens) // length

        return begin

    wrap(patch, Windows, "__init__", make)


@fault("training", subject="run of streams", check="epoch targets", at="targets")
def streams_miss_a_token_between_two_batches(patch: Patch) -> None:
    """Each batch of a stream begins one token too late."""

    def make(right: Any) -> Any:
        def take(self: Streams, count: int, local: slice) -> Any:
            batch = right(self, count, local)
            targets = batch.targets.copy()
            targets[:, 0] = -100
            return type(batch)(batch.ids, targets)

        return take

    wrap(patch, Streams, "take", make)


@fault("training", subject="run of text", check="validation rows", at="targets")
def validation_rows_are_taken_from_training(patch: Patch) -> None:
    """The held-out rows are cut from the training files."""

    def make(right: Any) -> Any:
        def validate(data: Any, folder: TokenFolder, *more: Any) -> Any:
            folder._parts["validation"] = folder["train"]
            return right(data, folder, *more)

        return validate

    wrap(patch, source, "_validate", make)


@fault("training", subject="run of documents", check="validation rows", at="targets")
def the_last_validation_row_is_evaluated_twice(patch: Patch) -> None:
    """The first row is left out for it."""

    def make(right: Any) -> Any:
        def walk(self: Validation) -> Iterator[Any]:
            for batch in right(self):
                order = np.r_[len(batch.ids) - 1, 1 : len(batch.ids)]
                yield type(batch)(batch.ids[order], batch.targets[order], batch.segments[order])

        return walk

    wrap(patch, Validation, "__iter__", make)
