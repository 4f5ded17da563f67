"""Text as people see it: nothing in it that a terminal would obey or hide."""

import re
import unicodedata

_HIDDEN = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)
"""Letters and marks by category that show nothing: fillers and joiners."""
_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Variation selectors, which show nothing by themselves."""
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")


def escape_controls(text: str, keep: str = "\n\t") -> str:
    r"""Returns the text with every character that a terminal would obey or hide written as an escape.

    These are control characters, bidirectional and zero-width ones, line and paragraph separators, and lone
    surrogates. Spaces of all widths stay, and so does what is in `keep`.

    >>> print(escape_controls("a\x1b[2Jb\u202ec\u200bd"))
    a\x1b[2Jb\u202ec\u200bd
    """
    if text.isascii() and (text.isprintable() or (keep == "\n\t" and _PLAIN.fullmatch(text))):
        return text
    return "".join(c if c in keep or is_visible(c) else escape(c) for c in text)


def is_visible(char: str) -> bool:
    """Whether a terminal shows the character, or a space for it, and does nothing else."""
    if char.isprintable():
        code = ord(char)
        return code < 0x034F or not (
            code in _HIDDEN or any(first <= code <= last for first, last in _SELECTORS)
        )
    return unicodedata.category(char) == "Zs"


def escape(char: str) -> str:
    r"""Returns the escape of one character: \x1b, or \u202e as JSON has it, two of them beyond \uffff.

    JSON text stays JSON: its own control characters below a space are escapes already.
    """
    if char < " ":
        return f"\\x{ord(char):02x}"
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
