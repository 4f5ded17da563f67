"""The growth of a text by the steps of a `tokenizer.json`, bounded so that no file fills the memory.

A step that replaces a character by two is harmless; thirty of them in a row make a gigabyte of one letter.
What counts is the product along a chain, in characters; a step that does not find its pattern leaves the text
as it is.
"""

import base64
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.base.errors import FileError

MOST_GROWTH = 64
"""Times as long as it was that a text may become; the steps of published tokenizers make it 2 to 8 times."""
CHAINS = (("normalizer", "pre_tokenizer"), ("decoder",))
"""What a text passes, one after the other, when it is encoded, and tokens when they are decoded."""
PARTS = ("normalizers", "pretokenizers", "decoders")
UNICODE_GROWTH = 18
"""Characters that a normal form of Unicode makes of one, at most (NFKD of U+FDFA)."""
UNICODE_STEPS = ("NFC", "NFD", "NFKC", "NFKD", "BertNormalizer", "Precompiled")
"""Steps that lengthen a text once, however many of them follow one another without a replacement between."""
_CLASS = re.compile(r"\\[pP]\{[^{}]*\}")
_DIFFERENT = re.compile(r"\}\?")
"""What the library's expressions mean otherwise than Python's: `a{2}?` is `(?:a{2})?` there."""


def check_growth(file: Any, name: str) -> None:
    """Raises a FileError with the step by which a text can become more than `MOST_GROWTH` times as long."""
    if not isinstance(file, Mapping):
        return
    for chain in CHAINS:
        growth, n_forms, n_maps, is_replaced = 1.0, 0, 0, False
        for place, step in (found for part in chain for found in _list_steps(file.get(part), part)):
            kind = "Precompiled" if "precompiled_charsmap" in step else str(step.get("type", "a step"))
            growth *= _measure_growth(step)
            if kind in UNICODE_STEPS:
                growth *= UNICODE_GROWTH if n_forms and is_replaced else 1
                n_forms, is_replaced = n_forms + 1, False
            if kind == "Precompiled":
                longest = _measure_longest(step)
                growth *= longest if n_maps else max(1, longest / UNICODE_GROWTH)
                n_maps += 1
            is_replaced |= "content" in step
            if growth > MOST_GROWTH:
                raise FileError(
                    f"{name} could make a text {growth:,.0f} times as long, up to its step {place} ({kind}); "
                    f"{MOST_GROWTH} times is the most. Remove steps that lengthen a text."
                )


def _list_steps(step: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the steps of a part of the file in their order, each with its place in the file."""
    if not isinstance(step, Mapping):
        return
    if step.get("type") != "Sequence":
        yield place, step
    for part in PARTS:
        inner = step.get(part)
        for index, one in enumerate(inner if isinstance(inner, list) else ()):
            yield from _list_steps(one, f"{place}.{part}[{index}]")


def _measure_growth(step: Mapping[str, Any]) -> float:
    """Returns how many times as long one step makes a text at most, forms of Unicode aside; at least 1.

    Its fields decide, because the library reads steps without a type, too.
    """
    match step:
        case {"pattern": {"String": str(found)}, "content": str(new)}:
            return _compare(len(found), len(new))
        case {"pattern": pattern, "content": str(new)}:
            return _compare(_measure_shortest(pattern), len(new))
        case {"prepend": str(new)}:
            return 1 + len(new)
        case {"suffix": str(found)} | {"word_delimiter_token": str(found)}:
            return _compare(len(found), 1)
        case {"type": "ByteLevel"} | {"trim_offsets": _} | {"replacement": _}:
            return 2  # a letter for each byte; a sign before each word
    return 1


def _compare(found: int, new: int) -> float:
    """Returns the growth by replacing matches of at least `found` characters by `new` ones; a match of none
    is found beside every character."""
    return max(1.0, new / found) if found else 1.0 + new


def _measure_shortest(pattern: Any) -> int:
    """Returns 1, or 0 where a pattern may match nothing."""
    expression = pattern.get("Regex") if isinstance(pattern, Mapping) else None
    if not isinstance(expression, str) or _DIFFERENT.search(expression):
        return 0
    try:  # what Python cannot read may match anything
        with warnings.catch_warnings(action="ignore"):
            parsed = re._parser.parse(_CLASS.sub("x", expression))  # type: ignore[attr-defined]
        return min(1, int(parsed.getwidth()[0]))
    except (re.error, RecursionError, OverflowError, ValueError):
        return 0


def _measure_longest(step: Mapping[str, Any]) -> int:
    """Returns the characters of the longest text that a precompiled map has: after the size of its tree and
    the tree, they follow one another, each with a zero byte at its end."""
    try:
        held = base64.b64decode(step["precompiled_charsmap"])
        texts = held[4 + int.from_bytes(held[:4], "little") :].split(b"\0")
        return max(len(text.decode("utf-8", "replace")) for text in texts)
    except (KeyError, TypeError, ValueError):  # the library says what is wrong with it
        return 1
