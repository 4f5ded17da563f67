r"""Splitting of a text into documents: a rule with a name.

    file              the whole file
    line              each line
    paragraph         lines between blank ones (a line of spaces and tabs is blank)
    separator=TEXT    lines between those that hold TEXT alone; separator=U+001E names a character
    jsonl             each line is a JSON object, and one of its fields is the document

A line ends with \n or \r\n. The one that ends a document's last line is not part of the document (except
under `file`); every other character is kept as it is. Where no line lies between two borders there is no
document. All of this is done on bytes, before decoding: in UTF-8 the byte of \n is always a line's end.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from pellucid.base.errors import ConfigError, unknown

Pieces = Iterator[tuple[int, bytes]]
"""Documents, each with the place of its first byte."""

Rule = Callable[[Iterable[bytes], int], Pieces]
"""From the chunks of a file, whose first byte is at the given place, to its documents."""


def whole(chunks: Iterable[bytes], at: int) -> Pieces:
    if document := b"".join(chunks):
        yield at, document


def lines(chunks: Iterable[bytes], at: int) -> Pieces:
    for block in whole_lines(chunks):
        # The block ends with a newline: nothing follows the last one.
        for line in block[:-1].split(b"\n"):
            yield at, line.removesuffix(b"\r")
            at += len(line) + 1


def between(border: bytes) -> Rule:
    """Yields the text between lines that match a separator as a whole."""
    # The newline of the line before leads the pattern, because a leading literal is searched for fast;
    # that of the border itself is only looked at, since it leads the next border. So places in the searched
    # text are one more than in the block, which is where a line begins rather than where the one before ends.
    pattern = re.compile(rb"\n" + border + rb"\r?(?=\n)")

    def stretches(chunks: Iterable[bytes], at: int) -> Pieces:
        pieces: list[bytes] = []
        first = at
        for block in whole_lines(chunks):
            start = 0
            for found in pattern.finditer(b"\n" + block):
                end, after = found.span()
                if pieces:
                    pieces.append(block[start:end])
                    yield first, _join(pieces)
                elif start < end:
                    yield first, block[start : end - 1].removesuffix(b"\r")
                start, first = after, at + after
            if start < len(block):
                pieces.append(block[start:])
            at += len(block)
        if pieces:
            yield first, _join(pieces)

    return stretches


def _join(pieces: list[bytes]) -> bytes:
    """Returns the document without its last line's end, and empties the list to save memory."""
    if not pieces[-1]:
        pieces.pop()
    pieces[-1] = pieces[-1].removesuffix(b"\n").removesuffix(b"\r")
    document = b"".join(pieces)
    pieces.clear()
    return document


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the same bytes in chunks that end with a line; the last line gets an end if it has none."""
    begun: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            begun.append(chunk[:end])
            yield b"".join(begun)
            begun = []
        if end < len(chunk):
            begun.append(chunk[end:])
    if begun:
        begun.append(b"\n")
        yield b"".join(begun)


RULES: dict[str, Rule] = {
    "file": whole,
    "line": lines,
    "paragraph": between(rb"[ \t]*"),
    "jsonl": lines,
}


def rule(name: str) -> Rule:
    """Returns the rule of this name.

    >>> list(rule("separator=***")([b"one\\ntwo\\n***\\nthree"], 0))
    [(0, b'one\\ntwo'), (12, b'three')]
    """
    if name in RULES:
        return RULES[name]
    kind, _, separator = name.partition("=")
    if kind == "separator" and separator:
        return between(re.escape(_line(separator)))
    if kind == "separator":
        raise ConfigError(
            "split='separator' must say which: separator=*** or, for a character, separator=U+001E."
        )
    known = [*RULES, "separator=TEXT"]
    raise ConfigError(unknown("split", name, known))


def _line(separator: str) -> bytes:
    code = re.fullmatch(r"U\+([0-9A-Fa-f]{4,6})", separator)
    try:
        line = (chr(int(code[1], 16)) if code else separator).encode()
    except (ValueError, OverflowError):  # beyond Unicode, or half a character
        line = b"\n"
    if re.search(rb"[\r\n]", line):
        raise ConfigError(f"the separator {separator!r} cannot stand on one line.")
    return line
