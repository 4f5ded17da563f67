"""Checks what a replayed step reads: its batch, and the dropout masks that it draws."""

import copy
import math
from collections.abc import Iterator

import numpy as np

from pellucid.base.formatting import pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.rows import Batch, Rows
from pellucid.data.rows.mixture import Mixture
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens
from pellucid.verification.checks.training.batch_gradients import join_rows
from pellucid.verification.checks.training.replayed_step import KEEP
from pellucid.verification.checks.training.run_subject import ReplayedStep, RunSubject
from pellucid.verification.verdict import Finding, Verdict

IN_FILES = Windows | Streams | Packed | Padded
"""Rows that are cut from token files."""
SEARCHED = 2e7
"""The most tokens of a file in which a row is searched for."""
KEY = 8
"""How many ids find a place in a file; the others are compared there."""
DEVIATIONS = 6.0
"""Standard deviations that the dropped fraction of a mask may be from its rate: more has a chance of 2e-9."""


def measure_batch(subject: RunSubject) -> Finding:
    """Checks ids, targets and micro-batches of the step."""
    replay = subject.replay
    batch, size = replay.recorder.batch.batch, replay.state.model.config.vocab_size
    seen = join_rows([micro.rows for micro in replay.micro_batches])
    for name in ("ids", "targets", "segments"):
        ours, theirs = getattr(batch, name), getattr(seen, name)
        if not _is_equal(ours, theirs):
            rows = f"{len(batch.ids)} rows of the batch, {len(seen.ids)} of its micro-batches"
            message = f"the {name} that the loss reads are not those of the batch: {rows}"
            return Finding(Verdict.BUG, rows, name, message)
    for name, values in (("ids", batch.ids), ("targets", batch.targets[batch.targets != IGNORE_INDEX])):
        if values.size and not 0 <= values.min() <= values.max() < size:
            message = f"{name} go from {values.min()} to {values.max()}; the vocabulary has {size} tokens"
            return Finding(Verdict.BUG, "outside of the vocabulary", name, message)
    if place := find_wrong_target(batch):
        return _describe_target(subject, batch, place)
    found = _search_file(subject.past.source.train, batch)
    if found is False:
        message = "the first row of the batch is not in the token files of the run"
        return Finding(Verdict.BUG, "not in the data", "ids", message)
    counted = int((batch.targets != IGNORE_INDEX).sum())
    measured = f"{counted:,} of {batch.targets.size:,} targets count in step {replay.step}"
    return Finding(Verdict.EQUAL, measured + "; a row was found in the token files" * bool(found))


def _is_equal(ours: Ids | None, theirs: Ids | None) -> bool:
    return ours is theirs if ours is None or theirs is None else np.array_equal(ours, theirs)


def find_wrong_target(batch: Batch) -> tuple[int, int] | None:
    """Returns the first counted target that is not the id after it, in its row and segment.

    The last target of a row is not followed by an id, and the last one before padding by padding only.
    """
    ids, targets = batch.ids, batch.targets
    counted = targets != IGNORE_INDEX
    followed = np.cumsum(counted[:, ::-1], axis=1)[:, ::-1][:, 1:] > 0
    if batch.segments is not None:
        followed = batch.segments[:, 1:] == batch.segments[:, :-1]
    wrong = np.argwhere(counted[:, :-1] & followed & (targets[:, :-1] != ids[:, 1:]))
    return (int(wrong[0][0]), int(wrong[0][1])) if len(wrong) else None


def _describe_target(subject: RunSubject, batch: Batch, place: tuple[int, int]) -> Finding:
    row, t = place
    token = subject.past.source.tokenizer.visible
    ids, targets = batch.ids[row], batch.targets[row]
    message = (
        f"in row {row} of the batch, position {t} reads {token(int(ids[t]))!r} and must predict the id after "
        f"it, {token(int(ids[t + 1]))!r}; its target is {token(int(targets[t]))!r}"
    )
    if (shift := _find_shift(ids, targets)) is not None:
        where = "later" if shift > 0 else "earlier"
        message += f": the targets are those of {pluralize(abs(shift), 'position')} {where}"
    return Finding(Verdict.BUG, f"row {row}, position {t}", "targets", message)


def _find_shift(ids: Ids, targets: Ids) -> int | None:
    """Returns by how many positions the targets of a row are shifted, where a small shift explains all."""
    for shift in (1, -1, 2):
        at = np.arange(len(ids)) + 1 + shift
        here = (at >= 0) & (at < len(ids)) & (targets != IGNORE_INDEX)
        if here.any() and (targets[here] == ids[at[here]]).all():
            return shift
    return None


# ---- in the token files


def _search_file(rows: Rows, batch: Batch) -> bool | None:
    """Returns whether the first row of the batch is in the run's token files; None where that cannot be said
    cheaply: its data are generated, or the files are large."""
    files = list(_token_files(rows))
    if not files or sum(len(tokens) for tokens, _ in files) > SEARCHED:
        return None
    text = _longest_text(batch)
    return None if len(text) < KEY else any(contains(tokens, text, is_ring) for tokens, is_ring in files)


def _token_files(rows: Rows) -> Iterator[tuple[Tokens, bool]]:
    """Yields the tokens that rows are cut from, and whether their end is followed by their beginning."""
    if isinstance(rows, Mixture):
        for source in rows.sources:
            yield from _token_files(source)
    elif isinstance(rows, IN_FILES):
        yield find_tokens(rows), isinstance(rows, Windows)


def find_tokens(rows: Rows) -> Tokens:
    """Returns the tokens that rows of one source are cut from."""
    assert isinstance(rows, IN_FILES)
    return rows.order.tokens if isinstance(rows, Packed | Padded) else rows.tokens


def copy_from_start(rows: Rows) -> Rows:
    """Returns a reader of the same rows from the first one on; the given one stays where it is."""
    reader = copy.copy(rows)
    if isinstance(reader, Mixture):
        reader.sources = [copy.copy(source) for source in reader.sources]
    reader.restore(dict.fromkeys(rows.state(), 0))
    return reader


def _longest_text(batch: Batch) -> Ids:
    """Returns the counted targets of the first row, of one segment: they are consecutive in the file."""
    targets = batch.targets[0]
    segments = np.zeros_like(targets) if batch.segments is None else batch.segments[0]
    numbers, counts = np.unique(segments[targets != IGNORE_INDEX], return_counts=True)
    if not len(numbers):
        return np.empty(0, np.int64)
    text: Ids = targets[(segments == numbers[counts.argmax()]) & (targets != IGNORE_INDEX)]
    return text


def contains(tokens: Tokens, text: Ids, is_ring: bool) -> bool:
    found = np.asarray(tokens.read_unchecked(0, len(tokens)))
    if is_ring:
        found = np.concatenate([found, np.resize(found, len(text))])
    places = np.arange(len(found) - len(text) + 1)
    for i in range(len(text)):
        places = places[found[places + i] == text[i]]
        if not len(places):
            return False
    return True


# ---- dropout


def measure_dropout(subject: RunSubject) -> Finding:
    """Compares the fraction that each mask drops with its rate."""
    replay = subject.replay
    if not replay.rates:
        return Finding(Verdict.SKIPPED, "the run has no dropout")
    if not replay.keep:
        return _describe_unknown_masks(replay)
    worst, names = 0.0, [name for name in replay.rates if f"{name}{KEEP}" not in replay.keep]
    for name, mask in replay.keep.items():
        rate, dropped = replay.rates[name.removesuffix(KEEP)], float((mask == 0).mean())
        deviations = abs(dropped - rate) / math.sqrt(rate * (1 - rate) / mask.size)
        worst = max(worst, deviations)
        scale = float(mask.max())
        if deviations > DEVIATIONS or (scale and abs(scale * (1 - rate) - 1) > 0.01):
            message = (
                f"{name} drops {dropped:.4f} of {mask.size:,} numbers and multiplies the others by "
                f"{scale:.5g}; its rate of {rate:g} asks for {rate:g} and {1 / (1 - rate):.5g}"
            )
            return Finding(Verdict.BUG, f"{deviations:.2g} standard deviations", name, message)
    if names:
        message = f"{names[0]} has a dropout rate of {replay.rates[names[0]]:g}, and nothing of it is dropped"
        return Finding(Verdict.BUG, "not dropped", f"{names[0]}{KEEP}", message)
    measured = f"{worst:.2g} standard deviations, of {pluralize(len(replay.keep), 'mask')}"
    return Finding(Verdict.NOISE, measured)


def _describe_unknown_masks(replay: ReplayedStep) -> Finding:
    """Returns why the masks are not known. A kernel for attention, an adapter, compiled code and another
    device draw in their own way; nothing else does."""
    name, state = next(iter(replay.rates)), replay.state
    in_kernel = state.device.type != "cpu" or state.compiled == "yes"
    in_kernel |= any(not name.endswith(("positioned", "_out", "hidden")) for name in replay.rates)
    if replay.has_drawn and in_kernel:
        return Finding(Verdict.UNKNOWN, "its masks are drawn inside of a kernel or an adapter")
    rate = replay.rates[name]
    message = f"{name} has a dropout rate of {rate:g}, and a step does not draw the numbers of its mask"
    return Finding(Verdict.BUG, "other random numbers", f"{name}{KEEP}", message)
