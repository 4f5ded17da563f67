"""Text that a terminal would obey, hide or turn around, and the question whether any of it arrived."""

import re

from pellucid.base.formatting import is_visible

TITLE = "\x1b]0;PWNED\x07"
"""Sets a terminal's title."""
CODES = [
    TITLE, "\x1b]8;;http://evil\x1b\\", "\x1b]52;c;cm0gLXJm\x07", "\x1b[53mPWNED", "\x1b[3J", "\x1b[9;9H",
    "\x1b[7A", "\x1b[?1049h", "\x1b[6n", "\x1bc", "\x1bP1$r\x1b\\", "\x1b(0", "\x1b[?1000h", "\x9b53m",
    "\x9d0;PWNED\x9c", "\x1b[20~",
]  # fmt: skip
DIRECTIONS = [chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
UNSEEN = [
    *map(
        chr, (0xAD, 0x200B, 0x200C, 0x200D, 0x2028, 0x2029, 0x2060, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041, 0x3164)
    )
]
OTHERS = ["a\rPWNED", "x\b\b\bPWNED", "[bold red]PWNED[/]", "[/]", "{0}%s", "\udcff"]
CONTROLS = [f"a{chr(code)}b" for code in (1, 5, 7, 14, 24, 26, 27, 28, 31, 127, 128, 133, 144, 159)]
STRINGS = [*CODES, *OTHERS, *DIRECTIONS, *UNSEEN, *CONTROLS]
"""Sixty texts; none has a NUL or a line break, which mean something to a file system or to a line."""

FILE_NAMES = [
    "two words.txt", "line\nbreak.txt", f"{TITLE}.txt", "\u202etxt.cod", "zero\u200bwidth.txt", "-o",
    "--force", "key=value.txt", "n" * 251 + ".txt", "[bold]x[].txt", "caf\u00e9.txt", "a\rb.txt",
    "\x9b53m.txt",
]  # fmt: skip

_DRAWN = re.compile(r"\x1b\[(?:\?25[hl]|1A|2K|(?:[0-9]|[1-4][0-9]|9[0-7]|;)*m)|\r")
"""What rich sends to a terminal for colors and for a live view; none of it is in a hostile string."""


def raw_characters(output: bytes, terminal: bool) -> str:
    """Returns the characters that should have been escaped, each once, in the order of the output."""
    text = output.decode("utf-8", "surrogateescape")
    if terminal:
        text = _DRAWN.sub("", text)
    return "".join(dict.fromkeys(char for char in text if char not in "\n\t" and not is_visible(char)))
