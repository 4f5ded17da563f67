"""Encodes the text of a run into token files, once, in the folder of the run; trains a tokenizer if asked.

The validation part is the same for every seed of a run, so that runs can be compared. Of a hundred documents
and more it is a fraction of the documents; of fewer, the last fraction of the characters of each; or another
text.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pellucid.base.errors import ConfigError, FileError, did_you_mean
from pellucid.base.files import read_format, whole_file
from pellucid.data.batches import SIZE
from pellucid.data.prepare import EncodingProgress, prepare
from pellucid.data.sources.settings import DataSettings
from pellucid.data.tokens import TokenFolder
from pellucid.formats.resolve import find_tokenizer
from pellucid.text.corpus import Corpus, Document
from pellucid.text.corpus.bad_files import list_names
from pellucid.text.kinds import DEFAULT, kinds
from pellucid.text.kinds import train as learn
from pellucid.text.tokenizer import Special, Tokenizer

MANY = 100
"""Documents from which on whole documents are held out."""
LEARNED_FROM = 30_000_000
"""Characters of the training text that a tokenizer is trained on, at most."""
PROOF, FORMAT, VERSION = "source.json", "pellucid-source", 1
"""The file that is written last, with the settings of the token files."""
EVERY = 10.0
"""Seconds between two lines about progress."""

Report = Callable[[str], None]


def vocabulary_for(text_bytes: int) -> int:
    """Returns the vocabulary size for a text: a thousandth of its bytes, as a power of two from 512 to 8,192.

    >>> vocabulary_for(1_100_000), vocabulary_for(10), vocabulary_for(10**9)
    (1024, 512, 8192)
    """
    return int(min(max(2 ** round(math.log2(max(text_bytes, 1) / 1000)), 512), 8192))


@dataclass
class _DividedTexts(Corpus):
    """A corpus of few documents: the beginning of each is training text, and its end validation text."""

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
class _ValidationText(Corpus):
    """A training text, and another text that is all validation; files in both are validation only."""

    validation_path: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        asked: dict[str, Any] = {"on_bad_file": self.on_bad_file, "setting": self.setting}
        try:
            self._validation = Corpus([self.validation_path], self.split, unique=False, **asked)
        except FileError as error:
            raise ConfigError(
                "data.validation must be a fraction from 0 to 0.9, or the path of a text; got "
                f"{self.validation_path!r}: {error}"
            ) from None
        held_out = set(map(os.path.realpath, self._validation.files))
        files = [file for file in self.files if os.path.realpath(file) not in held_out]
        if not files:
            raise ConfigError(
                f"data.validation={self.validation_path!r} is all of the text, so there is no training text: "
                "name another, or a fraction such as 0.1."
            )
        self._train = Corpus(files, self.split, **asked)
        self.files = (*self._train.files, *self._validation.files)

    def _keep(self, files: tuple[str, ...]) -> None:
        super()._keep(files)
        for corpus, part in ((self._train, "training"), (self._validation, "validation")):
            corpus.mark_checked([file for file in corpus.files if file in files])
            if not corpus.files:
                raise FileError(f"there is no {part} text left: all of its files were skipped.")

    def _documents(self, wanted: str | None) -> Iterator[Document]:
        for part, corpus in (("train", self._train), ("validation", self._validation)):
            for document in corpus.documents() if wanted in (None, part) else ():
                self.report = corpus.report
                yield document._replace(part=part)


def encode(data: DataSettings, cache: Path, report: Report, own: Tokenizer | None) -> list[TokenFolder]:
    """Returns the token files of a text, one folder; or of each text of a mixture. They are made once.

    `own` is the tokenizer of the model to start from.
    """
    proof, texts, folders = cache / PROOF, [data], [cache / "tokens"]
    if data.mixture_weights:
        texts = [replace(data, path=path, mixture_weights=()) for path in data.paths]
        folders = [cache / f"tokens-{i}" for i in range(len(texts))]
    asked = {
        "path": data.path if isinstance(data.path, str) else list(data.path),
        "split": data.split,
        "on_bad_file": data.on_bad_file,
        "tokenizer": data.tokenizer if own is None else "the model's own",
        "vocab_size": data.vocab_size,
        "validation": data.validation,
        "mixture": bool(data.mixture_weights),
    }
    if proof.exists():
        _compare(proof, asked)
        return list(map(TokenFolder, folders))
    corpora = [_open_corpus(text, report) for text in texts]
    if own is not None:
        own.save(cache / "tokenizer", force=True)
    tokenizer = cache / "tokenizer" if own is not None else _make_tokenizer(data, corpora, cache, report)
    for corpus, folder in zip(corpora, folders, strict=True):
        prepare(corpus, tokenizer, folder, _count_workers(corpus), _report_progress(report))
    with whole_file(proof) as file:
        file.write(json.dumps({"format": FORMAT, "version": VERSION} | asked, indent=1).encode())
    return list(map(TokenFolder, folders))


def _compare(proof: Path, asked: dict[str, Any]) -> None:
    found = read_format(proof, "record of a source", FORMAT, VERSION)
    for key, value in asked.items():
        before = found.get(key)
        if before != value:
            raise FileError(
                f"{proof.parent} was made with other settings: data.{key} was {before!r}, and is {value!r} "
                "now. Use the same setting, name another folder with out=, or remove this one."
            )


def check_texts(data: DataSettings) -> Corpus:
    """Returns the texts of a recipe as one corpus; bad files are refused or omitted."""
    asked: dict[str, Any] = {"on_bad_file": data.on_bad_file, "setting": "data.on_bad_file="}
    corpus: Corpus
    if isinstance(data.validation, str):
        corpus = _ValidationText(data.paths, data.split, validation_path=data.validation, **asked)
    else:
        corpus = Corpus(data.paths, data.split, validation=data.validation, **asked)
    corpus.check()
    return corpus


def _open_corpus(data: DataSettings, report: Report) -> Corpus:
    """Returns the texts, divided into training and validation parts."""
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
    divided = _DividedTexts(
        corpus.files, data.split, on_bad_file=data.on_bad_file, validation=data.validation
    )
    divided.mark_checked(corpus.files)
    return divided


def named_tokenizer(data: DataSettings) -> Path | Tokenizer | None:
    """Returns the tokenizer that a recipe names, or its folder; None where one is to be trained."""
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


def _make_tokenizer(
    data: DataSettings, corpora: Sequence[Corpus], cache: Path, report: Report
) -> Path | Tokenizer:
    """Returns the tokenizer that is named, or the folder of one trained on the training parts."""
    if (named := named_tokenizer(data)) is not None:
        return named
    kind = data.tokenizer or "bpe"
    begun = time.perf_counter()
    tokenizer = _train_tokenizer(data, kind, corpora, report)
    tokenizer.save(cache / "tokenizer", force=True)
    report(f"tokenizer: {kind}, {tokenizer.vocab_size:,} tokens, in {time.perf_counter() - begun:.1f} s")
    return cache / "tokenizer"


def _train_tokenizer(data: DataSettings, kind: str, corpora: Sequence[Corpus], report: Report) -> Tokenizer:
    if kind == "characters":
        # From the validation part as well, so that all of it can be encoded. A single text needs no end
        # token.
        documents = [document.text for corpus in corpora for document in corpus.documents()]
        is_single = isinstance(corpora[0], _DividedTexts | _ValidationText) and len(documents) <= 2
        return learn(kind, documents, special=Special() if is_single else DEFAULT)
    most = LEARNED_FROM // len(corpora)
    wanted = data.vocab_size or vocabulary_for(sum(len(text) for text in _read_first(corpora, most)))
    tokenizer = learn(kind, _read_first(corpora, most), wanted)
    if kind in ("bpe", "unigram", "wordpiece", "words") and tokenizer.vocab_size < wanted:
        report(f"the text has no more than {tokenizer.vocab_size:,} different pieces, not {wanted:,}")
    return tokenizer


def _read_first(corpora: Sequence[Corpus], most: int) -> Iterator[str]:
    """Yields at most `most` characters of each training part, from its beginning."""
    for corpus in corpora:
        left = most
        for document in corpus.documents("train"):
            yield document.text[:left]
            left -= len(document.text)
            if left <= 0:
                break


def _count_workers(corpus: Corpus) -> int:
    """Returns how many processes encode: one for each core, but no more than there are batches of text."""
    size = sum(os.path.getsize(file) for file in corpus.files if os.path.isfile(file))
    return min(os.cpu_count() or 1, 1 + size // SIZE)


def _report_progress(report: Report) -> Callable[[EncodingProgress], None]:
    """Returns a function that reports how far encoding has come, at most once in `EVERY` seconds."""
    last = time.monotonic()

    def progress(now: EncodingProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            share = "" if now.total is None else f" of {now.total / 1e6:.0f}"
            report(f"encoded {now.bytes / 1e6:.0f}{share} MB, {now.tokens:,} tokens")

    return progress
