"""Documents gathered into batches of pieces, each large enough to be worth handing to another process."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from pellucid.data.encoders import TextBatch
from pellucid.data.manifest import PARTS, Entry
from pellucid.errors import FileError
from pellucid.text.corpus import Corpus, Document
from pellucid.text.seams import pieces

SIZE = 1 << 20
"""Bytes of text in a batch, about; more only where one document cannot be cut."""


@dataclass
class Finished:
    """The documents that an earlier run has put into shards: counted off, and held to be the same."""

    part: str
    entries: list[Entry]
    documents: int = 0
    text_bytes: int = 0

    def __post_init__(self) -> None:
        self._left = list(reversed(self.entries))
        self._hash = hashlib.sha256()

    def takes(self, document: Document) -> bool:
        """Whether this document is in a finished shard."""
        if not self._left:
            return False
        data = document.text.encode()
        self._hash.update(data)
        self.documents += 1
        self.text_bytes += len(data)
        if self.documents == self._left[-1].documents:
            self._compare(self._left.pop())
        return True

    def end(self) -> None:
        """There are no more documents; none may be missing."""
        if self._left:
            self._compare(self._left[-1])

    def _compare(self, entry: Entry) -> None:
        found = (self.documents, self.text_bytes, self._hash.hexdigest())
        if found != (entry.documents, entry.text_bytes, entry.text_sha256):
            raise FileError(
                f"the text has changed since {entry.file} was made from it: it took {entry.documents} "
                f"documents of {entry.text_bytes} bytes with checksum {entry.text_sha256[:16]}…, and now "
                f"there are {self.documents} of {self.text_bytes} with {found[2][:16]}…. Remove the folder "
                "to start afresh, or name another."
            )
        self.documents, self.text_bytes, self._hash = 0, 0, hashlib.sha256()


@dataclass
class _Open:
    """A batch that is being filled."""

    part: str
    data: list[bytes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    whole: bytearray = field(default_factory=bytearray)
    places: list[tuple[str, int]] = field(default_factory=list)
    size: int = 0

    def add(self, text: str, document: Document, last: bool) -> None:
        data = text.encode()
        self.data.append(data)
        self.lengths.append(len(data))
        self.whole.append(last)
        self.places.append((document.file, document.offset))
        self.size += len(data)

    def close(self) -> TextBatch:
        batch = TextBatch(self.part, b"".join(self.data), self.lengths, bytes(self.whole), self.places)
        self.data, self.lengths, self.whole, self.places, self.size = [], [], bytearray(), [], 0
        return batch


def batches(corpus: Corpus, finished: dict[str, Finished], can_cut: bool) -> Iterator[TextBatch]:
    """The documents that are still to be encoded; those of one part stay in order."""
    filling = {part: _Open(part) for part in PARTS}
    for document in corpus.documents():
        if finished[document.part].takes(document):
            continue
        batch, before = filling[document.part], ""
        if can_cut and len(document.text) > SIZE // 2:
            for i, piece in enumerate(pieces(document.text)):
                if i:  # one behind, since only the last piece ends the document
                    batch.add(before, document, last=False)
                    if batch.size >= SIZE:
                        yield batch.close()
                before = piece
        batch.add(before or document.text, document, last=True)
        if batch.size >= SIZE:
            yield batch.close()
    for part in PARTS:
        finished[part].end()
        if filling[part].lengths:
            yield filling[part].close()
