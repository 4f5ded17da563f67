"""The copy of the tokenizer inside a folder of token files, so that the ids can always be decoded."""

import hashlib
from pathlib import Path

from pellucid.base.errors import FileError, file_error
from pellucid.base.files import whole_file
from pellucid.data.manifest import TokenizerEntry
from pellucid.text.from_files import from_pretrained
from pellucid.text.tokenizer import Tokenizer

FOLDER = "tokenizer"
_FILES = ("tokenizer.json", "tokenizer_config.json", "encoder.json", "vocab.bpe")


def read_files(tokenizer: Path) -> dict[str, bytes]:
    """Returns the contents of the tokenizer files in a folder, by name."""
    folder = tokenizer.parent if tokenizer.name == "tokenizer.json" else tokenizer
    try:
        return {name: (folder / name).read_bytes() for name in _FILES if (folder / name).is_file()}
    except OSError as error:
        raise file_error("read", error.filename or folder, error) from None


def describe(tokenizer: Tokenizer, files: dict[str, bytes]) -> TokenizerEntry:
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
    found = describe(tokenizer, read_files(out / FOLDER))
    if found != expected:
        raise FileError(
            f"{out / FOLDER} is not the tokenizer of these token files: its checksum is "
            f"{found.sha256[:16]}…, not {expected.sha256[:16]}…. Restore that one, or prepare the text again."
        )
    return tokenizer
