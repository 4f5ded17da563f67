"""Formatting of text for people: counts, bytes and durations with units, and escaped control characters."""

import math
import re
import unicodedata

_HIDDEN = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)
"""Letters and marks by category that show nothing: fillers and joiners."""
_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Variation selectors, which show nothing by themselves."""
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


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
    """Returns whether a terminal shows the character, or a space for it, and does nothing else."""
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


def pluralize(number: int, noun: str) -> str:
    """
    >>> pluralize(1, "value"), pluralize(2000, "value")
    ('1 value', '2,000 values')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_number(value: float, digits: int) -> str:
    """Returns a number with this many significant digits.

    >>> format_number(1 / 3, 5), format_number(-2.0, 5), format_number(-0.0, 5), format_number(-math.inf, 5)
    ('0.33333', '-2', '0', '-∞')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value + 0.0:.{digits}g}"


def format_bytes(count: float) -> str:
    """
    >>> format_bytes(999), format_bytes(999_999), format_bytes(2_500_000), format_bytes(577_267e9)
    ('999 B', '1 MB', '2.5 MB', '577,267 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if (rounded := float(f"{count / size:.3g}")) >= 1:
            return f"{rounded:g} {unit}" if rounded < 1000 else f"{count / size:,.0f} {unit}"
    return f"{count:,.0f} B"


def parse_bytes(text: str) -> int | None:
    """Returns the bytes that a size such as 50kB or "1.5 MB" means; None where it has no unit of bytes.

    >>> parse_bytes("50kB"), parse_bytes("1.5 MB"), parse_bytes("7b"), parse_bytes("100")
    (50000, 1500000, 7, None)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kmg]?)b\s*", text, re.IGNORECASE)
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else None


def format_count(count: float) -> str:
    """
    >>> format_count(999), format_count(12_300), format_count(4.56e6)
    ('999', '12.3k', '4.56M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:g}"


def format_clock(seconds: float) -> str:
    """Returns an elapsed or remaining time as a clock shows it.

    >>> format_clock(7), format_clock(754), format_clock(3723), format_clock(273_906)
    ('0:07', '12:34', '1:02:03', '3 d 4:05:06')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02}:{rest:02}" if hours or days else f"{minutes}:{rest:02}"
    return f"{days} d {text}" if days else text


def format_duration(seconds: float) -> str:
    """Returns an estimated time with its unit.

    >>> format_duration(42), format_duration(3660), format_duration(200_000)
    ('42 s', '1 h 1 min', '56 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 10 else f"{seconds / 3600:.0f} h"
