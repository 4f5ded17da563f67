"""JSON lines: each line an object, one field of it the document."""

import json
from typing import Any

from pellucid.base.errors import FileError, did_you_mean
from pellucid.text.corpus.decode import Decoder, EncodingError
from pellucid.text.corpus.split import Pieces


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
