"""Text that comes piece by piece, broken into lines between words."""

import re

from rich.cells import cell_len

_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


class WordWrap:
    """Breaks a text that comes in pieces into lines of at most `width` columns.

    A word is held back until it ends, one token as a rule, so that it can be put on the next line; a word
    that is longer than a line is broken. Spaces at the beginning of a line stay, as code needs them.
    """

    def __init__(self, width: int) -> None:
        self.width = max(width, 1)
        self._column = 0
        self._space = self._word = ""

    def feed(self, piece: str) -> str:
        """Returns what can be written now."""
        return "".join(self._take(part) for part in _PARTS.findall(piece.replace("\t", "    ")))

    def end(self) -> str:
        """Returns what was held back, without spaces at the end."""
        text = self._put_word()
        self._space = ""
        return text

    def _take(self, part: str) -> str:
        if not part.isspace():
            self._word += part
            return self._put_long_word()
        text = self._put_word()
        if part == "\n":
            self._column, self._space = 0, ""
            return f"{text}\n"
        self._space += part
        return text

    def _put_word(self) -> str:
        """Returns the space and the word that were held back, or a line break and the word."""
        word, self._word = self._word, ""
        if not word:
            return ""
        space, self._space = self._space, ""
        if self._column + cell_len(space + word) > self.width:
            space, self._column = "\n" * bool(self._column), 0
        self._column += cell_len(word) + cell_len(space.strip("\n"))
        return f"{space}{word}"

    def _put_long_word(self) -> str:
        """Returns the whole lines of a word that no line holds."""
        text = ""
        while cell_len(self._word) > self.width:
            cut = 1
            while cell_len(self._word[: cut + 1]) <= self.width:
                cut += 1
            rest, self._word = self._word[cut:], self._word[:cut]
            text += f"{self._put_word()}\n"
            self._column, self._word = 0, rest
        return text
