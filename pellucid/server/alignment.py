"""Tokens of a choice as pieces of text: whole characters, nothing of a stop text, each token with its text.

    choice = ChoicePieces(7, 0, lists_tokens=True)
    choice.add([Token(0, 12, " th", offset=0)])

The engine decodes whole characters and holds back what may begin a stop text. A token is listed when the
character at its offset is released, so that the tokens of half a character wait for the others. Where a stop
text ends the choice, the tokens wholly in it are not listed; at every other end all are.
"""

from collections.abc import Sequence

from pellucid.generation.request import Token
from pellucid.server.engine_lines import Piece, ScoredToken


class ChoicePieces:
    """The pieces of one choice of a request, and the tokens that wait for their text."""

    def __init__(self, request: int, choice: int, lists_tokens: bool = False) -> None:
        self.request, self.choice, self.lists_tokens = request, choice, lists_tokens
        self.has_ended = False
        self._length = 0
        """Characters in the pieces so far."""
        self._new_tokens = 0
        """Tokens since the last piece."""
        self._waiting: list[ScoredToken] = []

    def add(self, tokens: Sequence[Token]) -> Piece | None:
        """Returns the piece that is complete with these tokens, which follow those before; None where there
        is nothing to show yet."""
        last = tokens[-1]
        text = last.text if len(tokens) == 1 else "".join([token.text for token in tokens])
        self._new_tokens += len(tokens)
        if self.lists_tokens:
            self._waiting += map(to_scored, tokens)
        if not text and last.finish is None:
            return None
        return self._make_piece(text, last.finish, last.is_cut)

    def end(self, finish: str) -> Piece:
        """Returns the last piece of a text that no token ended."""
        return self._make_piece("", finish, False)

    def _make_piece(self, text: str, finish: str | None, is_cut: bool) -> Piece:
        self.has_ended, new_tokens, self._new_tokens = finish is not None, self._new_tokens, 0
        if not self.lists_tokens:
            return Piece(self.request, self.choice, text, new_tokens, None, finish)
        self._length += len(text)
        count = len(self._waiting)
        if finish is None or is_cut:
            while count and self._waiting[count - 1].offset >= self._length:
                count -= 1
        shown, self._waiting = tuple(self._waiting[:count]), self._waiting[count:]
        return Piece(self.request, self.choice, text, new_tokens, shown, finish)


def to_scored(token: Token) -> ScoredToken:
    """Returns a token of the engine as the endpoints list it."""
    return ScoredToken(token.id, token.offset, token.logprob)
