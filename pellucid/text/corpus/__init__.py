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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pellucid.errors import ConfigError, FileError, did_you_mean
from pellucid.text.corpus import sources, split
from pellucid.text.corpus.decode import Decoder
from pellucid.text.corpus.records import records
from pellucid.text.corpus.report import Count, Report
from pellucid.text.corpus.unpack import chunks, without_bom

__all__ = ["PARTS", "Corpus", "Count", "Document", "Report"]

PARTS = ("train", "validation")


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
    errors: str = "strict"
    """Bytes that are no UTF-8: `strict` refuses them, `replace` counts them and puts U+FFFD."""
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

    def __post_init__(self) -> None:
        split.rule(self.split)
        if self.errors not in ("strict", "replace"):
            raise ConfigError(f"errors must be 'strict' or 'replace', not {self.errors!r}.")
        if not 0 <= self.validation < 1:
            raise ConfigError(f"validation={self.validation} is no share: use 0 (none) up to below 1.")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed={self.seed} is out of range: use 0 to 2**64 - 1.")
        if self.chunk < 1:
            raise ConfigError(f"chunk={self.chunk} reads nothing: use 1 or more bytes.")
        named = [self.sources] if isinstance(self.sources, str | Path) else self.sources
        self.files = sources.files(named)

    def documents(self, part: str | None = None) -> Iterator[Document]:
        """Every document that is neither empty nor a copy, or those of one part; `report` counts all."""
        if part is not None and part not in PARTS:
            raise ConfigError(f"no part {part!r}; have {', '.join(PARTS)}." + did_you_mean(part, PARTS))
        return self._documents(part)

    def _documents(self, wanted: str | None) -> Iterator[Document]:
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
                f"there is no text in {', '.join(map(sources.shown, self.files[:3]))}"
                f"{', …' if len(self.files) > 3 else ''}: {report.bytes} bytes in {report.files} "
                f"{'file' if report.files == 1 else 'files'}, nothing but white space."
            )

    def _texts(self, file: str, report: Report) -> Iterator[tuple[int, str, bytes]]:
        """Offset, text and UTF-8 of each document of a file, the empty ones too."""
        decoder = Decoder(sources.shown(file), replace=self.errors == "replace")
        before = report.bytes
        stream, start = without_bom(_counted(chunks(file, self.chunk), report))
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


def _counted(stream: Iterator[bytes], report: Report) -> Iterator[bytes]:
    for chunk in stream:
        report.bytes += len(chunk)
        yield chunk
