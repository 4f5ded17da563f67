"""Text to token files: encoded by every core, in shards, with the same bytes for any number of workers.

    corpus = Corpus(["books/"], validation=0.01)
    manifest = prepare(corpus, Path("tokenizer"), Path("books.tokens"))

The shards depend on the text, the tokenizer and the settings alone: documents stay in order, and a shard is
full when it has `shard_tokens` ids or more at the end of a document. The folder is written shard by shard, so
that an interrupted run continues after the last full shard; the manifest, without which it does not open, is
written last.

Memory. This process holds the batches in flight (a few for each worker, a mebibyte each, or one document
where documents are larger and cannot be cut), the shard's document ends (8 bytes each) and, in the corpus,
the document being read; a worker holds one batch. None of it grows with the corpus, except that removing
duplicates keeps about 110 bytes per document: 27 GB for the 250 million documents of a terabyte.
`unique=False` avoids it.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import ConfigError, FileError, UsageError, file_error
from pellucid.base.files import Kind, check_output, is_partial, make_folders, sweep_folder, whole_file
from pellucid.data.batches import FinishedShards, batch_documents
from pellucid.data.encoders import EncodedBatch, Encoders
from pellucid.data.manifest import (
    FOLDER,
    NAME,
    PARTS,
    PROGRESS,
    Manifest,
    ShardEntry,
    make_tokenizer_entry,
    read,
    read_files,
    shard_name,
    write_copy,
)
from pellucid.data.shard import Shard, ShardWriter, id_type
from pellucid.text.chunking import can_chunk
from pellucid.text.corpus import Corpus
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Tokenizer

WORKERS_PER_CORE = 4
"""Workers per core; more only take memory and time from each other."""
ERRORS = {"stop": "strict"}
"""How manifests spell a choice about bad files, where they differ from the option."""
SHARD_TOKENS = 1 << 25
"""Small enough that an interruption costs seconds, large enough that a terabyte is a few thousand files."""


@dataclass(frozen=True)
class EncodingProgress:
    """How much of a corpus has been encoded and written, by earlier runs too."""

    bytes: int
    """Bytes of text."""
    total: int | None
    """Estimated bytes of all text; None where sources are compressed or a pipe."""
    documents: int
    tokens: int
    rate: float
    """Bytes per second since encoding began."""

    @property
    def seconds_left(self) -> float | None:
        if self.total is None or not self.rate:
            return None
        return max(0.0, (self.total - self.bytes) / self.rate)


def prepare(
    corpus: Corpus,
    tokenizer: Path | Tokenizer,
    out: Path,
    workers: int | None = None,
    progress: Callable[[EncodingProgress], None] = lambda _: None,
    shard_tokens: int = SHARD_TOKENS,
) -> Manifest:
    """Encodes a corpus into a folder, or continues one, and returns its manifest. `tokenizer` is a folder
    of a tokenizer, whose files are copied as they are, or a tokenizer, which is saved."""
    workers = (os.cpu_count() or 1) if workers is None else workers
    check_workers(workers)
    if shard_tokens < 1:
        raise ConfigError(f"shard_tokens={shard_tokens} must be 1 or more.")
    files = tokenizer.files() if isinstance(tokenizer, Tokenizer) else read_files(tokenizer)
    opened = tokenizer if isinstance(tokenizer, Tokenizer) else from_pretrained(tokenizer)
    corpus.check()
    asked = Manifest(make_tokenizer_entry(opened, files), _settings(corpus, shard_tokens))
    check_output(out, TOKEN_FOLDER, force=True, folder=True)
    with _lock_folder(out):
        manifest = _read_finished(out, asked)
        if (out / NAME).exists() and manifest.parts == read(out / NAME).parts:
            (out / PROGRESS).unlink(missing_ok=True)
            return manifest
        is_new = not any(out.iterdir())
        try:
            manifest.write(out, PROGRESS)
            (out / NAME).unlink(missing_ok=True)
            encoders = Encoders(write_copy(files, out), id_type(opened.vocab_size), workers)
            _encode(corpus, manifest, out, encoders, can_chunk(opened), progress)
            manifest.write(out)
            (out / PROGRESS).unlink()
        except Exception:  # an interruption keeps the finished shards
            if is_new and not any(manifest.parts.values()):
                _remove_files(out, list(files))
            raise
    return manifest


def check_workers(workers: int) -> None:
    """Raises where the number of processes is below 1 or more than this machine can run."""
    cores = os.cpu_count() or 1
    if not 1 <= workers <= WORKERS_PER_CORE * cores:
        raise UsageError(
            f"workers={workers:,} is out of range: use 1 to {WORKERS_PER_CORE * cores}, "
            f"{WORKERS_PER_CORE} for each of the {cores} cores of this machine."
        )


def _encode(
    corpus: Corpus,
    manifest: Manifest,
    out: Path,
    encoders: Encoders,
    cut: bool,
    progress: Callable[[EncodingProgress], None],
) -> None:
    shard_tokens = manifest.settings["shard_tokens"]
    finished = {part: FinishedShards(part, list(manifest.parts[part])) for part in PARTS}
    before = sum(manifest.total(part, "text_bytes") for part in PARTS)
    total = _count_bytes(corpus)
    with ExitStack() as stack:
        stack.enter_context(encoders)
        parts = {part: stack.enter_context(_Part(part, manifest, out, shard_tokens)) for part in PARTS}
        start = time.perf_counter()

        def report(expected: int | None) -> EncodingProgress:
            written = sum(part.written for part in parts.values())
            tokens = sum(manifest.total(name, "tokens") + part.tokens for name, part in parts.items())
            rate = written / (time.perf_counter() - start)
            return EncodingProgress(before + written, expected, corpus.report.documents, tokens, rate)

        for encoded in encoders.encode(batch_documents(corpus, finished, cut)):
            parts[encoded.batch.part].add(encoded)
            progress(report(_estimate_total(corpus, total)))
        progress(report(before + sum(part.written for part in parts.values())))
        for part in parts.values():
            part.close()


@dataclass
class _Part:
    """The shards of one part, the last of them being written."""

    name: str
    manifest: Manifest
    out: Path
    shard_tokens: int
    written: int = 0
    """Bytes of text in all shards."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _writer: ShardWriter | None = None

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)  # an unfinished shard is removed

    @property
    def tokens(self) -> int:
        """Tokens of the shard being written."""
        return self._writer.tokens if self._writer else 0

    def add(self, encoded: EncodedBatch) -> None:
        """Writes pieces into the shard; a new one begins where it is full and a document ends."""
        batch, is_last = encoded.batch, np.frombuffer(encoded.batch.is_last, np.bool_)
        if len(encoded.ids) and encoded.ids.max() >= self.manifest.tokenizer.vocab_size:
            raise FileError(
                f"the tokenizer made the id {encoded.ids.max()}, and its ids go from 0 to "
                f"{self.manifest.tokenizer.vocab_size - 1}: its vocabulary is damaged."
            )
        ids_at = np.concatenate([[0], np.cumsum(encoded.lengths)])
        text_at = np.concatenate([[0], np.cumsum(batch.lengths)])
        text, first = memoryview(batch.data), 0
        while first < len(is_last):
            writer = self._writer or self._open()
            sizes = writer.tokens + ids_at[first + 1 :] - ids_at[first]
            full = np.flatnonzero((sizes >= self.shard_tokens) & is_last[first:])
            after = first + int(full[0]) + 1 if len(full) else len(is_last)
            ends = (ids_at[first + 1 : after + 1] - ids_at[first])[is_last[first:after]]
            writer.add(encoded.ids[ids_at[first] : ids_at[after]], ends)
            self._text.update(text[text_at[first] : text_at[after]])
            self._documents += len(ends)
            self._bytes += int(text_at[after] - text_at[first])
            if len(full):
                self.close()
            first = after
        self.written += len(batch.data)

    def _open(self) -> ShardWriter:
        self._file = shard_name(self.name, len(self.manifest.parts[self.name]))
        self._text, self._documents, self._bytes = hashlib.sha256(), 0, 0
        file = self._stack.enter_context(whole_file(self.out / self._file))
        self._writer = ShardWriter(file, self.manifest.tokenizer.vocab_size)
        return self._writer

    def close(self) -> None:
        """Finishes the shard, if one is open, and records it in the progress file."""
        if self._writer is None:
            return
        tokens, sha256 = self._writer.tokens, self._writer.finish()
        self._stack.close()
        self._writer = None
        size = (self.out / self._file).stat().st_size
        self.manifest.parts[self.name].append(
            ShardEntry(self._file, self._documents, tokens, self._bytes, self._text.hexdigest(), size, sha256)
        )
        self.manifest.write(self.out, PROGRESS)


def _why_not(path: Path) -> str:
    if not path.is_dir():
        return "it is a file"
    if any((path / name).exists() for name in (NAME, PROGRESS)):
        return ""
    others = sorted(entry.name for entry in path.iterdir() if not is_partial(entry))
    return f"it holds {others[0]}" if others else ""


TOKEN_FOLDER = Kind("a folder of token files", _why_not)


def _read_finished(out: Path, asked: Manifest) -> Manifest:
    """Returns the manifest with the finished shards of an earlier run with these settings, each verified."""
    written = next((out / name for name in (NAME, PROGRESS) if (out / name).exists()), None)
    if written is None:
        sweep_folder(out)
        return asked
    found = read(written)
    if differences := list(found.differences(asked)):
        raise FileError(
            f"{out} was prepared with other settings: {'; '.join(differences)}. Use the same settings, name "
            "another folder, or remove this one."
        )
    for folder in (out, out / FOLDER):
        sweep_folder(folder)
    for part in PARTS:
        for entry in found.parts[part]:
            try:
                Shard(out / entry.file).verify(entry.sha256)
            except FileError:
                break
            asked.parts[part].append(entry)
    return asked


def _remove_files(out: Path, files: list[str]) -> None:
    """Removes the files that a call wrote which failed before its first shard was finished."""
    made = [out / name for name in (PROGRESS, *(shard_name(part, 0) for part in PARTS))]
    with suppress(OSError):
        for path in (*made, *(out / FOLDER / name for name in files)):
            path.unlink(missing_ok=True)
        (out / FOLDER).rmdir()


@contextmanager
def _lock_folder(out: Path) -> Iterator[None]:
    """Locks the folder for this process until it ends, and removes folders that a failure left empty."""
    made = make_folders(out)
    handle = None
    try:
        handle = os.open(out, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise FileError(
            f"{out} is being written by another process: wait for it, or name another folder."
        ) from None
    except OSError as error:
        raise file_error("write", error.filename or out, error) from None
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # it is not empty after a success
                folder.rmdir()
        if handle is not None:
            os.close(handle)


def _settings(corpus: Corpus, shard_tokens: int) -> dict[str, Any]:
    sizes = [os.path.getsize(file) if os.path.isfile(file) else None for file in corpus.files]
    return {
        "sources": [{"file": file, "bytes": size} for file, size in zip(corpus.files, sizes, strict=True)],
        "split": corpus.split,
        "field": corpus.field,
        "errors": ERRORS.get(corpus.on_bad_file, corpus.on_bad_file),
        "validation": corpus.validation,
        "seed": corpus.seed,
        "unique": corpus.unique,
        "shard_tokens": shard_tokens,
    }


def _estimate_total(corpus: Corpus, total: int | None) -> int | None:
    """Returns the estimated bytes of text: those read, and the same fraction of the files not yet read."""
    read = corpus.report.bytes
    if total is None or read < 8 * corpus.chunk:  # too little to extrapolate from
        return total
    found = sum(count.bytes for count in corpus.report.parts.values())
    return round(found + (total - read) * found / read)


def _count_bytes(corpus: Corpus) -> int | None:
    plain = all(os.path.isfile(file) and not file.endswith((".gz", ".xz", ".zst")) for file in corpus.files)
    return sum(map(os.path.getsize, corpus.files)) if plain else None
