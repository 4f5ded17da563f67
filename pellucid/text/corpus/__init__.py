"""Any text of a person as a stream of documents, in memory that does not grow with the text.

    corpus = Corpus(["letters/", "notes.jsonl.xz"], split="paragraph", validation=0.05)
    for document in corpus.documents("train"):
        …
    corpus.report.duplicates

Reading takes a chunk and the largest document, a few times over; each file is open only while it is read.
Leaving out copies takes about 110 bytes more for each document kept, twice that while their table grows.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pellucid.base.errors import ConfigError, FileError, ResourceError, unknown
from pellucid.text.corpus import sources, split
from pellucid.text.corpus.bad_files import (
    HEAD,
    REPLACE,
    SKIP,
    STOP,
    BadFile,
    BadFilesError,
    check_choice,
    check_is_text,
)
from pellucid.text.corpus.decode import Decoder, EncodingError, records
from pellucid.text.corpus.unpack import chunks, without_bom

__all__ = ["PARTS", "BadFile", "BadFilesError", "Corpus", "Count", "Document", "Report"]

PARTS = ("train", "validation")


@dataclass
class Count:
    """The documents of one part."""

    documents: int = 0
    bytes: int = 0
    """Of the documents' UTF-8."""
    characters: int = 0
    duplicates: int = 0
    """Duplicates omitted; no other count includes them."""


@dataclass
class Report:
    """The counts so far: they grow while the documents are read, and are whole when the last one is."""

    files: int = 0
    empty_files: int = 0
    bytes: int = 0
    """Read, after decompression: all that the files hold."""
    byte_order_marks: int = 0
    """Files that began with one; it is dropped."""
    replaced_bytes: int = 0
    empty: int = 0
    """Documents of nothing but white space, omitted."""
    parts: dict[str, Count] = field(default_factory=lambda: {"train": Count(), "validation": Count()})

    @property
    def documents(self) -> int:
        return sum(part.documents for part in self.parts.values())

    @property
    def characters(self) -> int:
        return sum(part.characters for part in self.parts.values())

    @property
    def duplicates(self) -> int:
        return sum(part.duplicates for part in self.parts.values())


class Document(NamedTuple):
    text: str
    file: str
    offset: int
    """Where it begins in the file, in bytes after decompression; for a JSON line, where the line begins."""
    part: str


@dataclass
class Corpus:
    """Texts, and how to read them. Two corpora of the same settings and files give the same documents."""

    sources: str | Path | Iterable[str | Path]
    """Files, folders, patterns, or `-` for standard input (which can be read once)."""
    split: str = "file"
    """The rule of text/corpus/split.py; a .jsonl file is always read by its lines."""
    field: str = "text"
    """Which field of a JSON line is the document."""
    on_bad_file: str = STOP
    """What a file that cannot be read as text does: `stop` refuses the corpus with a list of all such files,
    `skip` omits them, `replace` puts U+FFFD for bytes that are not UTF-8, and counts them."""
    validation: float = 0.0
    """The share of documents held out. A hash of the text decides, so copies are never parted."""
    seed: int = 0
    """Another seed holds out other documents."""
    unique: bool = True
    """Leave out exact copies, known by a 128-bit hash: two texts share one by a chance of 3·10⁻³⁹."""
    chunk: int = 1 << 20
    """Bytes read at a time."""
    files: tuple[str, ...] = dataclasses.field(init=False)
    report: Report = dataclasses.field(init=False, default_factory=Report)
    """Of the latest pass."""
    skipped: tuple[BadFile, ...] = dataclasses.field(init=False, default=())
    """Files that `check` omitted."""
    replaced_bytes: int = dataclasses.field(init=False, default=0)
    """Bytes that are not UTF-8 and are replaced, as `check` counted them."""
    setting: str = "on_bad_file="
    """How messages spell the choice about bad files, as the user would set it."""
    _is_checked: bool = dataclasses.field(init=False, default=False, repr=False)

    def __post_init__(self) -> None:
        split.rule(self.split)
        check_choice(self.on_bad_file)
        if not 0 <= self.validation < 1:
            raise ConfigError(f"validation={self.validation} is not a share: use 0 (none) up to below 1.")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed={self.seed} is out of range: use 0 to 2**64 - 1.")
        if self.chunk < 1:
            raise ConfigError(f"chunk={self.chunk} reads nothing: use 1 or more bytes.")
        named = [self.sources] if isinstance(self.sources, str | Path) else self.sources
        self.files = sources.files(named)

    def check(self) -> None:
        """Reads every file once, so that all bad ones are known before work is spent on the good ones.

        They are listed in one `BadFilesError`, or with `skip` moved from `files` to `skipped`. Standard input
        and pipes can be read only once and are not checked.
        """
        if self._is_checked:
            return
        bad = [found for file in self.files if (found := self._find_fault(file))]
        if bad and (self.on_bad_file != SKIP or len(bad) == len(self.files)):
            raise BadFilesError(bad, len(self.files), self.setting)
        self.skipped = tuple(bad)
        omitted = {one.file for one in bad}
        self._keep(tuple(file for file in self.files if file not in omitted))
        self._is_checked = True

    def mark_checked(self, files: Iterable[str]) -> None:
        """Makes these files the corpus; another corpus has checked them."""
        self.files, self._is_checked = tuple(files), True

    def _keep(self, files: tuple[str, ...]) -> None:
        self.files = files

    def _find_fault(self, file: str) -> BadFile | None:
        if file == sources.STDIN or sources.is_pipe(file):
            return None
        try:
            if self.on_bad_file != REPLACE:
                check_is_text(file, next(chunks(file, HEAD), b""))
            report = Report()
            for _ in self._texts(file, report):
                pass
            self.replaced_bytes += report.replaced_bytes
        except ResourceError:  # a disk that fails makes no bad file, which could be omitted
            raise
        except FileError as error:
            return BadFile(file, str(error), isinstance(error, EncodingError))
        return None

    def documents(self, part: str | None = None) -> Iterator[Document]:
        """Yields the documents of one part or all, without empty ones and duplicates; `report` counts all."""
        if part is not None and part not in PARTS:
            raise ConfigError(unknown("part", part, PARTS))
        return self._documents(part)

    def _documents(self, wanted: str | None) -> Iterator[Document]:
        if self.on_bad_file == SKIP:  # a file may be bad at its end, after its first documents
            self.check()
        report = self.report = Report()
        seen: set[bytes] = set()
        salted = hashlib.blake2b(digest_size=16, salt=self.seed.to_bytes(16, "little"))
        border = round(self.validation * 2**64)
        for file in self.files:
            for offset, text, data in self._texts(file, report):
                if not text or text.isspace():
                    report.empty += 1
                    continue
                hashed = salted.copy()
                hashed.update(data)
                digest = hashed.digest()
                part = PARTS[int.from_bytes(digest[:8], "little") < border]
                count = report.parts[part]
                if self.unique:
                    if digest in seen:
                        count.duplicates += 1
                        continue
                    seen.add(digest)
                count.documents += 1
                count.bytes += len(data)
                count.characters += len(text)
                if wanted is None or part == wanted:
                    yield Document(text, file, offset, part)
        if not report.documents:
            raise FileError(
                f"there is no text in {', '.join(map(sources.display_name, self.files[:3]))}"
                f"{', …' if len(self.files) > 3 else ''}: {report.bytes} bytes in {report.files} "
                f"{'file' if report.files == 1 else 'files'}, nothing but white space."
            )

    def _texts(self, file: str, report: Report) -> Iterator[tuple[int, str, bytes]]:
        """Yields offset, text and UTF-8 of each document of a file, empty ones included."""
        decoder = Decoder(sources.display_name(file), replace=self.on_bad_file == REPLACE)
        before = report.bytes
        stream, start = without_bom(_count_bytes(chunks(file, self.chunk), report))
        report.byte_order_marks += start > 0
        is_jsonl = self.split == "jsonl" or sources.is_jsonl(file)
        pieces = split.rule("jsonl" if is_jsonl else self.split)(stream, start)
        if is_jsonl:
            pieces = records(pieces, self.field, decoder)
        for offset, data in pieces:
            replaced = decoder.replaced
            text = decoder.text(data, offset)
            yield offset, text, data if decoder.replaced == replaced else text.encode()
        report.files += 1
        report.empty_files += report.bytes == before
        report.replaced_bytes += decoder.replaced


def _count_bytes(stream: Iterator[bytes], report: Report) -> Iterator[bytes]:
    for chunk in stream:
        report.bytes += len(chunk)
        yield chunk
