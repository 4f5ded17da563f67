"""Documents gathered into batches of pieces, each large enough to be sent to another process."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from pellucid.base.errors import FileError
from pellucid.data.encoders import TextBatch
from pellucid.data.manifest import PARTS, ShardEntry
from pellucid.text.chunking import chunks
from pellucid.text.corpus import Corpus, Document

SIZE = 1 << 20
"""Approximate bytes of text in a batch; more only where a document cannot be cut."""


@dataclass
class FinishedShards:
    """The documents that an earlier run has written into shards: skipped, and checked to be the same."""

    part: str
    entries: list[ShardEntry]
    documents: int = 0
    text_bytes: int = 0

    def __post_init__(self) -> None:
        self._left = list(reversed(self.entries))
        self._hash = hashlib.sha256()

    def contains(self, document: Document) -> bool:
        """Returns whether this document, the next of its part, is in a finished shard."""
        if not self._left:
            return False
        data = document.text.encode()
        self._hash.update(data)
        self.documents += 1
        self.text_bytes += len(data)
        if self.documents == self._left[-1].documents:
            self._compare(self._left.pop())
        return True

    def check_complete(self) -> None:
        """Checks, after the last document, that none is missing."""
        if self._left:
            self._compare(self._left[-1])

    def _compare(self, entry: ShardEntry) -> None:
        found = (self.documents, self.text_bytes, self._hash.hexdigest())
        if found != (entry.documents, entry.text_bytes, entry.text_sha256):
            raise FileError(
                f"the text has changed since {entry.file} was written: it had {entry.documents} documents of "
                f"{entry.text_bytes} bytes with checksum {entry.text_sha256[:16]}…, and has {self.documents} "
                f"of {self.text_bytes} with {found[2][:16]}…. Remove the folder to start again, or name "
                "another."
            )
        self.documents, self.text_bytes, self._hash = 0, 0, hashlib.sha256()


@dataclass
class _BatchBuilder:
    """A batch that is being filled."""

    part: str
    data: list[bytes] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    is_last: bytearray = field(default_factory=bytearray)
    origins: list[tuple[str, int]] = field(default_factory=list)
    size: int = 0

    def add(self, text: str, document: Document, last: bool) -> None:
        data = text.encode()
        self.data.append(data)
        self.lengths.append(len(data))
        self.is_last.append(last)
        self.origins.append((document.file, document.offset))
        self.size += len(data)

    def build(self) -> TextBatch:
        """Returns the batch, and begins the next one."""
        batch = TextBatch(self.part, b"".join(self.data), self.lengths, bytes(self.is_last), self.origins)
        self.data, self.lengths, self.is_last, self.origins, self.size = [], [], bytearray(), [], 0
        return batch


def batch_documents(
    corpus: Corpus, finished: dict[str, FinishedShards], can_chunk: bool
) -> Iterator[TextBatch]:
    """Yields the documents that are not in finished shards; those of one part stay in order."""
    filling = {part: _BatchBuilder(part) for part in PARTS}
    for document in corpus.documents():
        if finished[document.part].contains(document):
            continue
        batch, before = filling[document.part], ""
        if can_chunk and len(document.text) > SIZE // 2:
            for i, piece in enumerate(chunks(document.text)):
                if i:  # one behind: only the last piece ends the document
                    batch.add(before, document, last=False)
                    if batch.size >= SIZE:
                        yield batch.build()
                before = piece
        batch.add(before or document.text, document, last=True)
        if batch.size >= SIZE:
            yield batch.build()
    for part in PARTS:
        finished[part].check_complete()
        if filling[part].lengths:
            yield filling[part].build()
