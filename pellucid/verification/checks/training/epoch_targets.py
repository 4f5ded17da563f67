"""Checks which tokens a run trains and evaluates on, against its token files: in an epoch each token of the
training files is a target once, and the validation rows are the validation files."""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pellucid.base.formatting import pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.data import manifest
from pellucid.data.rows import Batch, Rows
from pellucid.data.rows.mixture import Mixture
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.records import Records
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.training_batch import (
    IN_FILES,
    contains,
    copy_from_start,
    find_tokens,
)
from pellucid.verification.verdict import Finding, Verdict

COUNTED, QUICK_COUNTED = 2e7, 2e6
"""The most tokens of an epoch that are counted."""
SEARCHED_ROWS = 16
"""Validation rows that are searched for in the training files."""
LONG = 16
"""Tokens from which on a row that is found elsewhere is not found there by chance."""


class Miscount(NamedTuple):
    """The first pair of an id and its target that comes another number of times than in the files."""

    id: int
    target: int
    got: int
    wanted: int


def measure_epoch(subject: RunSubject) -> Finding:
    """Counts each pair of an id and its target in one epoch of the rows, and in the token files."""
    source, recipe = subject.past.source, subject.past.recipe
    parts = source.train.sources if isinstance(source.train, Mixture) else [source.train]
    most = QUICK_COUNTED if subject.quick else COUNTED
    if not all(isinstance(rows, IN_FILES | Records) for rows in parts):
        return Finding(Verdict.SKIPPED, "its text is generated without end, so there is no epoch")
    size = sum(_size(rows) for rows in parts)
    if size > most:
        return Finding(Verdict.UNKNOWN, f"an epoch has {size:,} tokens; up to {most:,.0f} are counted")
    count = 0
    for rows in parts:
        got, wanted = _pair(take_epoch(rows, recipe.data.batch_size)), _pair(_list_pairs(rows))
        if found := find_miscount(got, wanted):
            message = _describe(subject, found, "an epoch of the training rows", "the training files")
            return Finding(Verdict.BUG, f"{len(got):,} targets for {len(wanted):,}", "targets", message)
        count += len(got)
    return Finding(Verdict.EQUAL, f"{count:,} targets, each after the id before it")


def _size(rows: Rows) -> int:
    if isinstance(rows, Records):
        return sum(len(ids) for ids, _ in rows.records)
    return sum(shard.tokens for shard in find_tokens(rows).shards)


def take_epoch(rows: Rows, size: int) -> Iterator[tuple[Ids, Ids]]:
    """Yields ids and targets of the counted positions of one epoch, and of a batch beyond it, which has none
    where all is right."""
    reader = copy_from_start(rows)
    reader.epochs = 1
    for _ in range(reader.count_batches(size, 1) + 1):
        yield take_counted(reader.take(size, slice(0, size)))


def take_counted(batch: Batch) -> tuple[Ids, Ids]:
    """Returns the ids and targets of a batch whose targets count."""
    counted = batch.targets != IGNORE_INDEX
    return batch.ids[counted], batch.targets[counted]


def _list_pairs(rows: Rows) -> Iterator[tuple[Ids, Ids]]:
    """Yields each id of the files with the id after it, as rows of this kind have them."""
    if isinstance(rows, Records):
        for ids, targets in rows.records:
            yield take_counted(Batch(ids, targets))
    elif isinstance(rows, Packed | Padded):
        yield from list_documents(rows.order.tokens, rows.order.bos)
    else:
        ids = _read_shards(find_tokens(rows))
        yield ids[:-1], ids[1:]
        if isinstance(rows, Windows):  # a ring
            yield ids[-1:], ids[:1]


def _read_shards(tokens: Tokens) -> Ids:
    """Returns all ids as the files have them, past the code that finds rows and documents in them."""
    return np.concatenate(
        [np.asarray(shard.ids, np.int64) for shard in tokens.shards] or [np.empty(0, np.int64)]
    )


def list_documents(tokens: Tokens, bos: int | None) -> Iterator[tuple[Ids, Ids]]:
    """Yields ids and targets of all documents of each file: without a bos, the first token is only an id."""
    for shard in tokens.shards:
        targets = np.asarray(shard.ids, np.int64)
        ids = np.concatenate([targets[:0], [0], targets[:-1]]) if len(targets) else targets
        ends = np.asarray(shard.ends, np.int64)
        begins = np.unique(np.concatenate([[0], ends[:-1]])) if len(ends) else ends
        begins = begins[begins < len(targets)]
        if bos is not None:
            ids[begins] = bos
            yield ids, targets
        else:
            keep = np.ones(len(targets), bool)
            keep[begins] = False
            yield ids[keep], targets[keep]


def _pair(pairs: Iterable[tuple[Ids, Ids]]) -> Ids:
    """Returns pairs of two ids as one number each, in their order of size."""
    found = [(ids.astype(np.int64) << 32) | targets for ids, targets in pairs]
    return np.sort(np.concatenate([*found, np.empty(0, np.int64)]))


def find_miscount(got: Ids, wanted: Ids) -> Miscount | None:
    """Returns the first pair that one of two sorted lists has more often than the other."""
    size = min(len(got), len(wanted))
    differs = np.flatnonzero(got[:size] != wanted[:size])
    if not len(differs) and len(got) == len(wanted):
        return None
    i = int(differs[0]) if len(differs) else size
    pair = min(int(one[i]) for one in (got, wanted) if i < len(one))
    ours, theirs = (
        int(np.searchsorted(one, pair, side="right") - np.searchsorted(one, pair)) for one in (got, wanted)
    )
    return Miscount(pair >> 32, pair & 0xFFFFFFFF, ours, theirs)


def _describe(subject: RunSubject, found: Miscount, where: str, files: str) -> str:
    token = subject.past.source.tokenizer.visible
    return (
        f"{token(found.target)!r} after {token(found.id)!r} is a target {pluralize(found.got, 'time')} in "
        f"{where}; {files} have it {pluralize(found.wanted, 'time')}"
    )


# ---- the validation rows


def measure_validation_rows(subject: RunSubject) -> Finding:
    """Counts the validation targets in the validation files, and searches the rows in the training files."""
    past = subject.past
    source, validation = past.source, past.source.validation
    if not validation.targets:
        return Finding(Verdict.SKIPPED, "the run holds out no text")
    parts = source.train.sources if isinstance(source.train, Mixture) else [source.train]
    if not all(isinstance(rows, IN_FILES) for rows in parts):
        return Finding(Verdict.SKIPPED, "its text is in no token files")
    held_out = [_open_held_out(find_tokens(rows)) for rows in parts]
    size, most = sum(len(tokens) for tokens in held_out), QUICK_COUNTED if subject.quick else COUNTED
    if size > most:
        return Finding(Verdict.UNKNOWN, f"{size:,} tokens are held out; up to {most:,.0f} are counted")
    got = _pair(map(take_counted, validation))
    apart = isinstance(parts[0], Packed | Padded)
    wanted = _pair(itertools.chain(*(_list_held_out(tokens, apart) for tokens in held_out)))
    if found := find_miscount(got, wanted):
        message = _describe(subject, found, "the validation rows", "the validation files")
        return Finding(Verdict.BUG, f"{len(got):,} targets for {len(wanted):,}", "targets", message)
    measured = f"{len(got):,} targets of {pluralize(validation.rows, 'row')} are the validation files"
    searched, seen = _search_training(parts, [row for batch in validation for row in batch.targets], most)
    if searched and seen == searched:
        return Finding(
            Verdict.UNKNOWN,
            f"{measured}; all {searched} rows that were searched for are also in the "
            "training files: a text that repeats itself, or rows that are trained on",
        )
    if searched:
        measured += f"; {seen} of {searched} are also in the training files"
    return Finding(Verdict.EQUAL, measured)


def _open_held_out(tokens: Tokens) -> Tokens:
    """Returns the validation part beside training tokens, opened anew."""
    return Tokens(tokens.folder, manifest.read(tokens.folder / manifest.NAME), "validation")


def _list_held_out(tokens: Tokens, apart: bool) -> Iterator[tuple[Ids, Ids]]:
    entry = tokens.tokenizer
    begin = entry.end if entry.begin is None else entry.begin
    if apart:
        yield from list_documents(tokens, begin)
        return
    ids = _read_shards(tokens)
    before = ids[:0] if begin is None else np.array([begin])
    whole = np.concatenate([before, ids])
    yield whole[:-1], whole[1:]


def _search_training(parts: list[Rows], rows: list[Ids], most: float) -> tuple[int, int]:
    """Returns how many validation rows were searched for in the training files, and how many were found."""
    if sum(_size(part) for part in parts) > most:
        return 0, 0
    long = [targets for row in rows if len(targets := row[row != IGNORE_INDEX]) >= LONG]
    chosen = long[:: max(1, len(long) // SEARCHED_ROWS)][:SEARCHED_ROWS]
    files = [find_tokens(part) for part in parts]
    return len(chosen), sum(any(contains(tokens, row, is_ring=False) for tokens in files) for row in chosen)
