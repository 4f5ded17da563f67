"""Text into token files, made once and kept in the folder of a run; with a tokenizer trained on it if asked.

What is held out is the same for every seed of a run, so that runs can be compared. Of a hundred documents and
more it is a share of the documents; of fewer, the last share of the characters of each; or a text of its own.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pellucid.data.batches import SIZE
from pellucid.data.prepare import EncodingProgress, prepare
from pellucid.data.sources.settings import DataSettings
from pellucid.data.tokens import TokenFolder
from pellucid.errors import ConfigError, FileError, did_you_mean
from pellucid.files import read_format, whole_file
from pellucid.interop.resolve import find_tokenizer
from pellucid.text.corpus import Corpus, Document
from pellucid.text.corpus.bad_files import STOP, list_names
from pellucid.text.kinds import DEFAULT, kinds
from pellucid.text.kinds import train as learn
from pellucid.text.tokenizer import Special, Tokenizer

MANY = 100
"""Documents from which on some are held out whole."""
LEARNED_FROM = 30_000_000
"""Characters of the training text that a tokenizer is trained on, at most."""
PROOF, FORMAT, VERSION = "source.json", "pellucid-source", 1
"""Written last: the text has become token files, from these settings."""
EVERY = 10.0
"""Seconds between two words about progress."""

Report = Callable[[str], None]


def vocabulary_for(text_bytes: int) -> int:
    """Returns the vocabulary size for a text: a thousandth of its bytes, as a power of two from 512 to 8,192.

    >>> vocabulary_for(1_100_000), vocabulary_for(10), vocabulary_for(10**9)
    (1024, 512, 8192)
    """
    return int(min(max(2 ** round(math.log2(max(text_bytes, 1) / 1000)), 512), 8192))


@dataclass
class _Parted(Corpus):
    """A corpus of few documents: of each the beginning is to learn from and the end is held out."""

    def _documents(self, wanted: str | None) -> Iterator[Document]:
        for document in super()._documents(None):
            text = document.text
            cut = int(len(text) * (1 - self.validation))
            after = document.offset + len(text[:cut].encode())
            for part, piece, at in (
                ("train", text[:cut], document.offset),
                ("validation", text[cut:], after),
            ):
                if piece and wanted in (None, part):
                    yield Document(piece, document.file, at, part)


@dataclass
class _Beside(Corpus):
    """A text to learn from, and beside it one to be judged by, all of it, none of which is learned from."""

    judge: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        asked: dict[str, Any] = {"on_bad_file": self.on_bad_file, "setting": self.setting}
        try:
            self._held_out = Corpus([self.judge], self.split, unique=False, **asked)
        except FileError as error:
            raise ConfigError(
                f"data.validation must be a share from 0 to 0.9, or a text; got {self.judge!r}: {error}"
            ) from None
        judged = set(map(os.path.realpath, self._held_out.files))
        learned = [file for file in self.files if os.path.realpath(file) not in judged]
        if not learned:
            raise ConfigError(
                f"data.validation={self.judge!r} is all of the text, and nothing is left to learn from: name "
                "another, or a share such as 0.1."
            )
        self._learned = Corpus(learned, self.split, **asked)
        self.files = (*self._learned.files, *self._held_out.files)

    def _keep(self, files: tuple[str, ...]) -> None:
        super()._keep(files)
        for corpus, what in ((self._learned, "to learn from"), (self._held_out, "to judge by")):
            corpus.mark_checked([file for file in corpus.files if file in files])
            if not corpus.files:
                raise FileError(f"no text is left {what}: all of its files were skipped.")

    def _documents(self, wanted: str | None) -> Iterator[Document]:
        for part, corpus in (("train", self._learned), ("validation", self._held_out)):
            for document in corpus.documents() if wanted in (None, part) else ():
                self.report = corpus.report
                yield document._replace(part=part)


def encode(data: DataSettings, cache: Path, report: Report, own: Tokenizer | None) -> TokenFolder:
    """Token files of a text, made now or found made; by the model's own tokenizer, where it has one."""
    proof, out = cache / PROOF, cache / "tokens"
    asked = {
        "path": data.path if isinstance(data.path, str) else list(data.path),
        "split": data.split,
        "on_bad_file": data.on_bad_file,
        "tokenizer": data.tokenizer if own is None else "the model's own",
        "vocab_size": data.vocab_size,
        "validation": data.validation,
    }
    if proof.exists():
        _compare(proof, asked)
        return TokenFolder(out)
    corpus = _corpus(data, report)
    if own is not None:
        own.save(cache / "tokenizer", force=True)
    tokenizer = cache / "tokenizer" if own is not None else _tokenizer(data, corpus, cache, report)
    prepare(corpus, tokenizer, out, _workers(corpus), _lines(report))
    with whole_file(proof) as file:
        file.write(json.dumps({"format": FORMAT, "version": VERSION} | asked, indent=1).encode())
    return TokenFolder(out)


def _compare(proof: Path, asked: dict[str, Any]) -> None:
    found = read_format(proof, "record of a source", FORMAT, VERSION)
    for key, value in asked.items():
        before = found.get(key, STOP if key == "on_bad_file" else None)  # which older records do not name
        if before != value:
            raise FileError(
                f"{proof.parent} was made otherwise: data.{key} was {before!r}, and is {value!r} "
                "now. Ask for the same, name another folder with out=, or remove this one."
            )


def check_texts(data: DataSettings) -> Corpus:
    """The texts of a recipe, every file of which was read once: bad ones are refused or omitted."""
    asked: dict[str, Any] = {"on_bad_file": data.on_bad_file, "setting": "data.on_bad_file="}
    corpus: Corpus
    if isinstance(data.validation, str):
        corpus = _Beside(data.paths, data.split, judge=data.validation, **asked)
    else:
        corpus = Corpus(data.paths, data.split, validation=data.validation, **asked)
    corpus.check()
    return corpus


def _corpus(data: DataSettings, report: Report) -> Corpus:
    """The texts, and which way some of them are held out."""
    corpus = check_texts(data)
    if corpus.skipped:
        count = len(corpus.skipped)
        report(
            f"skipped {count} of {count + len(corpus.files)} files, which cannot be read as text: "
            + list_names(corpus.skipped)
        )
    if corpus.replaced_bytes:
        report(f"replaced {corpus.replaced_bytes:,} bytes that are not UTF-8 by U+FFFD")
    few = list(islice(corpus.documents(), MANY))
    if len(few) == MANY or isinstance(data.validation, str) or not data.validation:
        return corpus
    parted = _Parted(corpus.files, data.split, on_bad_file=data.on_bad_file, validation=data.validation)
    parted.mark_checked(corpus.files)
    return parted


def named_tokenizer(data: DataSettings) -> Path | Tokenizer | None:
    """The tokenizer that a recipe names, as a folder or a model's own; None where one is to be trained."""
    kind = data.tokenizer or "bpe"
    if kind in kinds():
        return None
    try:
        return find_tokenizer(kind)
    except ConfigError:
        raise ConfigError(
            f"data.tokenizer={kind!r} is neither a kind of tokenizer ({', '.join(kinds())}), nor a "
            f"tokenizer's folder, nor a model.{did_you_mean(kind, kinds())}"
        ) from None


def _tokenizer(data: DataSettings, corpus: Corpus, cache: Path, report: Report) -> Path | Tokenizer:
    """The tokenizer that is named, or the folder of one trained on the training part."""
    if (named := named_tokenizer(data)) is not None:
        return named
    kind = data.tokenizer or "bpe"
    begun = time.perf_counter()
    tokenizer = _train_tokenizer(data, kind, corpus, report)
    tokenizer.save(cache / "tokenizer", force=True)
    report(f"tokenizer: {kind}, {tokenizer.vocab_size:,} tokens, in {time.perf_counter() - begun:.1f} s")
    return cache / "tokenizer"


def _train_tokenizer(data: DataSettings, kind: str, corpus: Corpus, report: Report) -> Tokenizer:
    if kind == "characters":
        # All of the text, held out or not: every character can be read. The one text needs no end of its own.
        documents = [document.text for document in corpus.documents()]
        whole = isinstance(corpus, _Parted | _Beside) and len(documents) <= 2
        return learn(kind, documents, special=Special() if whole else DEFAULT)
    wanted = data.vocab_size or vocabulary_for(_size(corpus))
    tokenizer = learn(kind, _first(corpus, LEARNED_FROM), wanted)
    if kind in ("bpe", "unigram", "wordpiece", "words") and tokenizer.vocab_size < wanted:
        report(f"the text has no more than {tokenizer.vocab_size:,} different pieces, not {wanted:,}")
    return tokenizer


def _first(corpus: Corpus, most: int) -> Iterator[str]:
    """The beginning of the training part."""
    for document in corpus.documents("train"):
        yield document.text[:most]
        most -= len(document.text)
        if most <= 0:
            return


def _size(corpus: Corpus) -> int:
    """Characters of the training part; all that is more than `LEARNED_FROM` is the same."""
    return sum(map(len, _first(corpus, LEARNED_FROM)))


def _workers(corpus: Corpus) -> int:
    """Processes that encode: as many as there are cores, but none that would find nothing to do."""
    size = sum(os.path.getsize(file) for file in corpus.files if os.path.isfile(file))
    return min(os.cpu_count() or 1, 1 + size // SIZE)


def _lines(report: Report) -> Callable[[EncodingProgress], None]:
    """Now and then a line about how far encoding has come."""
    last = time.monotonic()

    def progress(now: EncodingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            share = "" if now.total is None else f" of {now.total / 1e6:.0f}"
            report(f"encoded {now.bytes / 1e6:.0f}{share} MB, {now.tokens:,} tokens")

    return progress
