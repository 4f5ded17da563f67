"""The report of one pass over a corpus: counts of files, documents, bytes and everything set aside."""

from dataclasses import dataclass, field


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
class CorpusReport:
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
