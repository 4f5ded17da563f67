"""Text into token files, made once and kept in the folder of a run; with a tokenizer trained on it if asked.

What is held out is the same for every seed of a run, so that runs can be compared. Of a hundred documents and
more it is a share of the documents; of fewer, the last share of the characters of each; or a text of its own.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from pellucid.data.batches import SIZE
from pellucid.data.prepare import Progress, prepare
from pellucid.data.tokens import TokenFolder
from pellucid.errors import ConfigError, FileError, did_you_mean
from pellucid.files import read_format, whole_file
from pellucid.text.corpus import Corpus, Document
from pellucid.text.corpus.sources import shown
from pellucid.text.corpus.unpack import chunks
from pellucid.text.kinds import DEFAULT, kinds
from pellucid.text.kinds import train as learn
from pellucid.text.pretrained import from_pretrained
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.training.plan import vocabulary_for

MANY = 100
"""Documents from which on some are held out whole."""
LEARNED_FROM = 30_000_000
"""Characters of the training text that a tokenizer is trained on, at most."""
PROOF, FORMAT, VERSION = "source.json", "pellucid-source", 1
"""Written last: the text has become token files, from these settings."""
EVERY = 10.0
"""Seconds between two words about progress."""

Tell = Callable[[str], None]


class Data(Protocol):
    """What a recipe says of its data."""

    @property
    def path(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def validation(self) -> float | str: ...


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
        self._held_out = Corpus([self.judge], self.split, unique=False)
        judged = set(map(os.path.realpath, self._held_out.files))
        learned = [file for file in self.files if os.path.realpath(file) not in judged]
        if not learned:
            raise ConfigError(
                f"data.validation={self.judge!r} is all of the text, and nothing is left to learn from: name "
                "another, or a share such as 0.1."
            )
        self._learned = Corpus(learned, self.split)
        self.files = (*self._learned.files, *self._held_out.files)

    def _documents(self, wanted: str | None) -> Iterator[Document]:
        for part, corpus in (("train", self._learned), ("validation", self._held_out)):
            for document in corpus.documents() if wanted in (None, part) else ():
                self.report = corpus.report
                yield document._replace(part=part)


def encoded(data: Data, cache: Path, tell: Tell, own: Tokenizer | None) -> TokenFolder:
    """Token files of a text, made now or found made; by the model's own tokenizer, where it has one."""
    proof, out = cache / PROOF, cache / "tokens"
    asked = {
        "path": data.path,
        "split": data.split,
        "tokenizer": data.tokenizer if own is None else "the model's own",
        "vocab_size": data.vocab_size,
        "validation": data.validation,
    }
    if proof.exists():
        _compare(proof, asked)
        return TokenFolder(out)
    corpus = _corpus(data)
    folder = _tokenizer(data, corpus, cache, tell) if own is None else cache / "tokenizer"
    if own is not None:
        own.save(folder)
    try:
        prepare(corpus, folder, out, _workers(corpus), _lines(tell))
    except FileError as error:
        raise FileError(str(error).replace(" (--replace-errors)", "")) from None
    with whole_file(proof) as file:
        file.write(json.dumps({"format": FORMAT, "version": VERSION} | asked, indent=1).encode())
    return TokenFolder(out)


def _compare(proof: Path, asked: dict[str, Any]) -> None:
    found = read_format(proof, "record of a source", FORMAT, VERSION)
    for key, value in asked.items():
        if found.get(key) != value:
            raise FileError(
                f"{proof.parent} was made otherwise: data.{key} was {found.get(key)!r}, and is {value!r} "
                "now. Ask for the same, name another folder with out=, or remove this one."
            )


def _corpus(data: Data) -> Corpus:
    """The texts, and which way some of them are held out."""
    corpus: Corpus
    if isinstance(data.validation, str):
        corpus, share = _Beside([data.path], data.split, judge=data.validation), 0.0
    else:
        corpus, share = Corpus([data.path], data.split, validation=data.validation), data.validation
    for file in corpus.files:
        _need_text(file)
    try:
        few = list(islice(corpus.documents(), MANY))
    except FileError as error:
        raise FileError(str(error).replace(", or have such bytes replaced (--replace-errors)", "")) from None
    if len(few) == MANY or not share:
        return corpus
    return _Parted([data.path], data.split, validation=share)


def _need_text(file: str) -> None:
    """A picture or a program is told from its first bytes; what merely has a wrong letter is read on."""
    head = next(chunks(file, 1 << 13), b"")
    if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16 has a message of its own
        raise FileError(
            f"{shown(file)} is no text: byte {head.index(0)} is 0, as in programs and pictures. Train on "
            "text in UTF-8, or on a folder of it."
        )


def _tokenizer(data: Data, corpus: Corpus, cache: Path, tell: Tell) -> Path:
    """The folder of the tokenizer: the one that is named, or one trained on the training part."""
    kind = data.tokenizer or "bpe"
    if kind not in kinds():
        if not Path(kind).exists():
            raise ConfigError(
                f"data.tokenizer={kind!r} is no folder and no kind of tokenizer; kinds are "
                f"{', '.join(kinds())}.{did_you_mean(kind, kinds())}"
            )
        from_pretrained(kind)
        return Path(kind)
    begun = time.perf_counter()
    tokenizer = _trained(data, kind, corpus, tell)
    tokenizer.save(cache / "tokenizer")
    tell(f"tokenizer: {kind}, {tokenizer.vocab_size:,} tokens, in {time.perf_counter() - begun:.1f} s")
    return cache / "tokenizer"


def _trained(data: Data, kind: str, corpus: Corpus, tell: Tell) -> Tokenizer:
    if kind == "characters":
        # All of the text, held out or not: every character can be read. The one text needs no end of its own.
        documents = [document.text for document in corpus.documents()]
        whole = isinstance(corpus, _Parted | _Beside) and len(documents) <= 2
        return learn(kind, documents, special=Special() if whole else DEFAULT)
    wanted = data.vocab_size or vocabulary_for(_size(corpus))
    tokenizer = learn(kind, _first(corpus, LEARNED_FROM), wanted)
    if kind in ("bpe", "unigram", "wordpiece", "words") and tokenizer.vocab_size < wanted:
        tell(f"the text has no more than {tokenizer.vocab_size:,} different pieces, not {wanted:,}")
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


def _lines(tell: Tell) -> Callable[[Progress], None]:
    """Now and then a line about how far encoding has come."""
    last = time.monotonic()

    def progress(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            share = "" if now.total is None else f" of {now.total / 1e6:.0f}"
            tell(f"encoded {now.bytes / 1e6:.0f}{share} MB, {now.tokens:,} tokens")

    return progress
