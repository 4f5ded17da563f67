"""Bytes to text: strict UTF-8, or with every bad byte replaced and counted; and of JSON lines, one field."""

import json
from dataclasses import dataclass
from typing import Any

from pellucid.base.errors import FileError, did_you_mean
from pellucid.text.corpus.split import Pieces

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class EncodingError(FileError):
    """Bytes that are not UTF-8."""


@dataclass
class Decoder:
    """Decodes the documents of one file."""

    file: str
    replace: bool = False
    replaced: int = 0
    """Bytes that were not UTF-8, so far."""

    def text(self, data: bytes, at: int) -> str:
        """Returns the text of bytes that begin at an offset of the file.

        >>> decoder = Decoder("a.txt", replace=True)
        >>> decoder.text(b"caf\\xe9", 0), decoder.replaced
        ('caf�', 1)
        """
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if not self.replace:
                raise self._refusal(data, at, error) from None
        text = data.decode(errors="replace")
        # Nothing but U+FFFD itself decodes to U+FFFD from the bytes EF BF BD, so the rest are ours.
        ours = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
        self.replaced += len(data) - (len(text.encode()) - ours * len(REPLACEMENT.encode()))
        return text

    def _refusal(self, data: bytes, at: int, error: UnicodeDecodeError) -> EncodingError:
        place = at + error.start
        utf16 = place == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff")
        remedy = (
            "It begins as UTF-16 does: convert it with iconv -f UTF-16 -t UTF-8"
            if utf16
            else "Convert the file to UTF-8"
        )
        return EncodingError(
            f"{self.file} is not UTF-8: byte {place} is 0x{data[error.start]:02x} ({error.reason}). {remedy}."
        )


def records(lines: Pieces, field: str, decoder: Decoder) -> Pieces:
    """Yields the field of every line that is not blank, as UTF-8, with the offset of its line."""
    for number, (at, line) in enumerate(lines, 1):
        text = decoder.text(line, at)
        if not text or text.isspace():
            continue
        yield at, _field(text, field, f"{decoder.file}, line {number}", decoder.replace)


def _field(line: str, field: str, where: str, replace: bool) -> bytes:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{where} is not JSON: {error}.") from None
    if not isinstance(record, dict):
        raise FileError(f'{where} is not an object such as {{"{field}": "…"}}: it is {_kind(record)}.')
    if field not in record:
        has = f"has {', '.join(map(repr, list(record)[:8]))}" if record else "is empty"
        raise FileError(f"{where} has no field {field!r}; it {has}." + did_you_mean(field, record))
    text = record[field]
    if not isinstance(text, str):
        raise FileError(f"{where}: the field {field!r} is not text, but {_kind(text)}.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        if replace:
            return text.encode(errors="surrogatepass")  # bad UTF-8, which the decoder replaces and counts
        half = f"\\u{ord(text[error.start]):04x}"
        raise EncodingError(f"{where}: the field {field!r} holds {half}, half a character.") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
