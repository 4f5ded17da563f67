"""The manifest of a folder of token files: their counts and checksums, settings, and the copy of a tokenizer.

While a folder is being written its entries are in `progress.json`; `manifest.json` is written last, so a
folder that has one is complete.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pellucid.base import schema
from pellucid.base.errors import FileError, file_error, show
from pellucid.base.files import UNPAIRED, Damaged, need, read_format, validating, whole_file
from pellucid.text.corpus.sources import TOKENS
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Tokenizer

NAME, PROGRESS = "manifest.json", "progress.json"
FORMAT, VERSION = TOKENS, 1
PARTS = ("train", "validation")


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest says of a shard."""

    file: str
    documents: int
    tokens: int
    text_bytes: int
    """Bytes of the documents in UTF-8."""
    text_sha256: str
    """Checksum of that text, by which a restart knows that it has not changed."""
    file_bytes: int
    sha256: str
    """Checksum of the shard's file."""


@dataclass(frozen=True)
class TokenizerEntry:
    sha256: str
    kind: str
    vocab_size: int
    begin: int | None
    """The bos token, where the tokenizer has one; it is not stored."""
    end: int | None
    """The eos token, stored after each document, where the tokenizer has one."""
    pad: int | None


@dataclass
class Manifest:
    tokenizer: TokenizerEntry
    settings: dict[str, Any]
    """What decides the content of the shards: sources with their sizes, and how they are read."""
    parts: dict[str, list[ShardEntry]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def total(self, part: str, count: str) -> int:
        return sum(getattr(entry, count) for entry in self.parts[part])

    def write(self, folder: Path, name: str = NAME) -> None:
        counts = ("documents", "tokens", "text_bytes")
        data = {
            "format": FORMAT,
            "version": VERSION,
            "tokenizer": asdict(self.tokenizer),
            "settings": self.settings,
            "totals": {part: {count: self.total(part, count) for count in counts} for part in PARTS},
            "parts": {part: [asdict(entry) for entry in entries] for part, entries in self.parts.items()},
        }
        with whole_file(folder / name) as file:
            file.write((json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode("utf-8", UNPAIRED))

    def differences(self, other: "Manifest") -> Iterator[str]:
        """Yields a sentence for each setting that differs: its value in this manifest, and in the other."""
        ours, theirs = asdict(self.tokenizer), asdict(other.tokenizer)
        if ours != theirs:
            for key in ours:
                if ours[key] != theirs[key]:
                    yield f"the tokenizer's {key} is {_short(ours[key])}, not {_short(theirs[key])}"
        for key in dict.fromkeys([*self.settings, *other.settings]):
            mine, its = self.settings.get(key), other.settings.get(key)
            if mine != its:
                yield f"{key} is {_short(mine)}, not {_short(its)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


# ---- reading: the file may come from another program


def read(path: Path) -> Manifest:
    """Returns the manifest of a file, or raises a FileError that names what is wrong with it."""
    data = read_format(path, "token-file manifest", FORMAT, VERSION)
    with validating(path):
        return _manifest(data)


def _manifest(data: dict[str, Any]) -> Manifest:
    for key in ("tokenizer", "settings", "totals", "parts"):
        need(isinstance(data.get(key), dict), f"{key!r} is missing or not a table")
    tokenizer = _record(data["tokenizer"], TokenizerEntry, "'tokenizer'")
    need(1 <= tokenizer.vocab_size <= 2**32, f"'vocab_size' is {tokenizer.vocab_size}")
    for name in ("begin", "end", "pad"):
        id = getattr(tokenizer, name)
        need(id is None or id < tokenizer.vocab_size, f"{name!r} is {id}, beyond the vocabulary")
    need(set(data["parts"]) == set(PARTS), f"'parts' are {_short(list(data['parts']))}")
    manifest = Manifest(tokenizer, data["settings"])
    for part in PARTS:
        entries = data["parts"][part]
        need(isinstance(entries, list), f"the shards of {part!r} are not a list")
        for i, given in enumerate(entries):
            entry = _record(given, ShardEntry, f"shard {i} of {part!r}")
            need(entry.file == shard_name(part, i), f"shard {i} of {part!r} is called {entry.file!r}")
            manifest.parts[part].append(entry)
        totals = data["totals"].get(part)
        need(isinstance(totals, dict), f"the totals of {part!r} are not a table")
        for count in ("documents", "tokens", "text_bytes"):
            need(
                totals.get(count) == manifest.total(part, count),
                f"{part!r} has {totals.get(count)!r} {count}, and its shards {manifest.total(part, count)}",
            )
    return manifest


def shard_name(part: str, i: int) -> str:
    return f"{part}-{i:05d}.tokens"


def _record(given: Any, kind: Any, what: str) -> Any:
    """Returns an entry of the manifest: its integers are not negative, its checksums are SHA-256."""
    record = schema.read(schema.fields_of(kind), given, what, kind, error=Damaged)
    for name, value in asdict(record).items():
        is_hash = not name.endswith("sha256") or re.fullmatch("[0-9a-f]{64}", value)
        need(bool(is_hash) and (not isinstance(value, int) or value >= 0), f"{what} has {name}={show(value)}")
    return record


# ---- the copy of the tokenizer inside the folder, so that the ids can always be decoded

FOLDER = "tokenizer"
_FILES = ("tokenizer.json", "tokenizer_config.json", "encoder.json", "vocab.bpe")


def read_files(tokenizer: Path) -> dict[str, bytes]:
    """Returns the contents of the tokenizer files in a folder, by name."""
    folder = tokenizer.parent if tokenizer.name == "tokenizer.json" else tokenizer
    try:
        return {name: (folder / name).read_bytes() for name in _FILES if (folder / name).is_file()}
    except OSError as error:
        raise file_error("read", error.filename or folder, error) from None


def make_tokenizer_entry(tokenizer: Tokenizer, files: dict[str, bytes]) -> TokenizerEntry:
    """Returns the manifest's entry for a tokenizer."""

    def id(name: str | None) -> int | None:
        return None if name is None else tokenizer.id_of(name)

    # tokenizer.json alone decides the ids, unless they come from GPT-2's two files.
    decisive = ("encoder.json", "vocab.bpe") if "vocab.bpe" in files else ("tokenizer.json",)
    digest = hashlib.sha256(b"".join(files.get(name, b"") for name in decisive)).hexdigest()
    special = tokenizer.special
    return TokenizerEntry(
        digest, tokenizer.kind, tokenizer.vocab_size, id(special.bos), id(special.eos), id(special.pad)
    )


def write_copy(files: dict[str, bytes], out: Path) -> Path:
    """Writes the files into a folder of token files, and returns the tokenizer's folder."""
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        with whole_file(folder / name) as file:
            file.write(data)
    return folder


def open_copy(out: Path, expected: TokenizerEntry) -> Tokenizer:
    """Returns the tokenizer of a folder of token files, checked against its manifest."""
    tokenizer = from_pretrained(out / FOLDER)
    found = make_tokenizer_entry(tokenizer, read_files(out / FOLDER))
    if found != expected:
        raise FileError(
            f"{out / FOLDER} is not the tokenizer of these token files: its checksum is "
            f"{found.sha256[:16]}…, not {expected.sha256[:16]}…. Restore that one, or prepare the text again."
        )
    return tokenizer
