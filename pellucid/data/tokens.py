"""Token files: a folder of them is opened without reading them, and any range of tokens is a slice."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np

from pellucid.base.errors import ConfigError, FileError, unknown
from pellucid.data.manifest import NAME, PARTS, PROGRESS, Manifest, open_copy, read
from pellucid.data.shard import Ids, Shard, id_type
from pellucid.text.tokenizer import Tokenizer


class Tokens:
    """The ids of one part as one sequence, read by token range or by document."""

    def __init__(self, folder: Path, manifest: Manifest, part: str) -> None:
        self.folder, self.part, self.tokenizer = folder, part, manifest.tokenizer
        self.entries = manifest.parts[part]
        self.vocab_size = manifest.tokenizer.vocab_size
        self.shards = [Shard(folder / entry.file) for entry in self.entries]
        for shard, entry in zip(self.shards, self.entries, strict=True):
            for name, found, said in (
                ("vocabulary", shard.vocab_size, self.vocab_size),
                ("tokens", shard.tokens, entry.tokens),
                ("documents", shard.documents, entry.documents),
            ):
                if found != said:
                    raise FileError(f"{shard.path} does not fit its manifest: {name} {found}, not {said}.")
        self.starts = [0, *accumulate(shard.tokens for shard in self.shards)]
        self.document_starts = [0, *accumulate(shard.documents for shard in self.shards)]
        self._size: int = self.starts[-1]

    def __len__(self) -> int:
        """Returns the number of tokens."""
        return self._size

    @property
    def documents(self) -> int:
        count: int = self.document_starts[-1]
        return count

    def read(self, start: int, stop: int) -> Ids:
        """Returns the ids [start, stop); a view of the file where one shard has them all."""
        ids = self.read_unchecked(start, stop)
        if len(ids) and ids.max() >= self.vocab_size:
            at = start + int(np.argmax(ids >= self.vocab_size))
            i = bisect_right(self.starts, at) - 1
            self.shards[i].raise_bad_id(at - self.starts[i])
        return ids

    def read_unchecked(self, start: int, stop: int) -> Ids:
        """Returns the same without the check that every id is a token; the caller checks."""
        if not 0 <= start <= stop <= self._size:
            raise ConfigError(f"tokens {start} to {stop} are out of range: {self.part} has {len(self)}.")
        i = bisect_right(self.starts, start) - 1
        if i < len(self.shards) and stop <= self.starts[i + 1]:
            first = self.starts[i]
            return self.shards[i].ids[start - first : stop - first]
        found = np.empty(stop - start, id_type(self.vocab_size))
        at = start
        while at < stop:
            i = bisect_right(self.starts, at) - 1
            end = min(stop, self.starts[i + 1])
            found[at - start : end - start] = self.shards[i].ids[at - self.starts[i] : end - self.starts[i]]
            at = end
        return found

    def bounds(self, documents: Ids) -> tuple[Ids, Ids]:
        """Returns where the documents of these numbers begin and end."""
        if len(documents) and not 0 <= documents.min() <= documents.max() < self.documents:
            raise ConfigError(f"no document {documents.max()}: {self.part} has {self.documents}, from 0.")
        begins, ends = np.empty_like(documents), np.empty_like(documents)
        shard_of = np.searchsorted(self.document_starts, documents, side="right") - 1
        for i in np.unique(shard_of):
            here = shard_of == i
            local = documents[here] - self.document_starts[i]
            all_ends = self.shards[i].ends
            ends[here] = all_ends[local] + self.starts[i]
            begins[here] = np.where(local > 0, all_ends[local - 1], 0) + self.starts[i]
        return begins, ends

    def document(self, number: int) -> Ids:
        """Returns the ids of one document, with its end token where there is one."""
        begins, ends = self.bounds(np.array([number]))
        return self.read(int(begins[0]), int(ends[0]))

    def verify(self) -> None:
        """Reads everything and checks every checksum, id and document end."""
        for shard, entry in zip(self.shards, self.entries, strict=True):
            shard.verify(entry.sha256)


class TokenFolder:
    """A folder of token files, written by `pellucid data prepare`."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        if not (self.path / NAME).exists():
            unfinished = (self.path / PROGRESS).exists()
            raise FileError(
                f"{folder} is not finished: run the command that prepared it again, and it continues."
                if unfinished
                else f"{folder} is not a folder of token files: it has no {NAME}. Prepare one: "
                f"pellucid data prepare TEXTS --tokenizer DIR -o {folder}"
            )
        self.manifest = read(self.path / NAME)

    def __getitem__(self, part: str) -> Tokens:
        if part not in PARTS:
            raise ConfigError(unknown("the part of a token folder", part, PARTS))
        return self._parts[part]

    @cached_property
    def _parts(self) -> dict[str, Tokens]:
        return {part: Tokens(self.path, self.manifest, part) for part in PARTS}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        return open_copy(self.path, self.manifest.tokenizer)

    def verify(self) -> None:
        """Reads and checks everything; see `Tokens.verify`."""
        _ = self.tokenizer
        for part in PARTS:
            self[part].verify()


# ---- statistics: lengths of documents, and the most frequent tokens

PERCENTILES = (0, 10, 50, 90, 99, 100)
SAMPLED = 10_000_000
"""Tokens, or documents, that are counted; of more, an evenly spaced sample."""
_RUN = 10_000


@dataclass(frozen=True)
class Statistics:
    percentiles: tuple[int, ...]
    """Tokens per document, at PERCENTILES."""
    frequent: tuple[tuple[int, float], ...]
    """Ids and their fractions of the tokens, the most frequent first."""
    counted: int
    """Tokens that were counted."""


def compute_statistics(tokens: Tokens, most: int = 12) -> Statistics:
    """Returns the statistics of one part, which must not be empty."""
    starts = _spaced_starts(len(tokens), SAMPLED)
    sampled = np.concatenate([tokens.read(start, min(start + _RUN, len(tokens))) for start in starts])
    ids, counts = np.unique(sampled, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    frequent = tuple((int(ids[i]), float(counts[i] / len(sampled))) for i in order)
    # method=nearest: a length that a document has, not one between two.
    lengths = np.percentile(_lengths(tokens), PERCENTILES, method="nearest")
    return Statistics(tuple(int(length) for length in lengths), frequent, len(sampled))


def _lengths(tokens: Tokens) -> Ids:
    found = []
    for start in _spaced_starts(tokens.documents, SAMPLED):
        begins, ends = tokens.bounds(np.arange(start, min(start + _RUN, tokens.documents)))
        found.append(ends - begins)
    return np.concatenate(found)


def _spaced_starts(size: int, most: int) -> list[int]:
    """Returns where runs of `_RUN` begin: all of them, or as many, evenly spaced, as hold `most` items."""
    runs = -(-size // _RUN)
    wanted = min(runs, most // _RUN)
    return [i * runs // wanted * _RUN for i in range(wanted)]
