"""Tokens of a choice as pieces of text: whole characters, nothing of a stop text, each token with its text.

    choice = ChoicePieces(7, 0, lists_tokens=True)
    choice.add([Token(0, 12, " th", offset=0)])

The engine decodes whole characters and holds back what may begin a stop text. A token is listed when the
character at its offset is released, so that the tokens of half a character wait for the others. Where a stop
text ends the choice, the tokens wholly in it are not listed; at every other end all are.
"""

from collections.abc import Sequence

from pellucid.generation.answers.lines import Piece, ScoredToken
from pellucid.generation.request import Token
from pellucid.generation.samplers.own_probabilities import TopLogprobs
from pellucid.text.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0


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
    logprob = None if token.logprob is None else bound_logprob(token.logprob)
    top = tuple([(id, bound_logprob(value)) for id, value in token.top])
    if token.uncertainty is None:
        return ScoredToken(token.id, token.offset, logprob, top)
    entropy, rank, surprisal = token.uncertainty
    return ScoredToken(token.id, token.offset, logprob, top, entropy, rank, min(surprisal, -LEAST_LOGPROB))


def bound_logprob(logprob: float) -> float:
    """Returns a log-probability that JSON has: −∞ is `LEAST_LOGPROB`, as in OpenAI's answers."""
    return max(logprob, LEAST_LOGPROB)


def score_prompt(
    tokenizer: Tokenizer | None,
    prompt: Sequence[int],
    logprobs: Sequence[float],
    tops: Sequence[TopLogprobs],
) -> tuple[ScoredToken, ...]:
    """Returns the tokens of a prompt with their numbers, which all have but the first, and their offsets."""
    decoder = None if tokenizer is None else tokenizer.decode_stream()
    known = 0 if tokenizer is None else tokenizer.vocab_size
    found, length = list[ScoredToken](), 0
    for place, id in enumerate(prompt):
        logprob = bound_logprob(logprobs[place - 1]) if place else None
        top = tops[place - 1] if place and tops else ()
        bounded = tuple([(other, bound_logprob(value)) for other, value in top])
        found.append(ScoredToken(id, length, logprob, bounded))
        if decoder is not None and id < known:
            length += len(decoder.feed(id))
    return tuple(found)
