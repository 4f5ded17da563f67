"""Whole words, separated by white space: the tokenizer of the teaching model."""

from dataclasses import dataclass

from pellucid.errors import TokenError, did_you_mean


@dataclass(frozen=True)
class Words:
    """Ids are places in the list.

    >>> Words(("A", "B", "C", "D")).encode("B A")
    [1, 0]
    """

    words: tuple[str, ...]

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        return [self._id(word) for word in text.split()]

    def _id(self, word: str) -> int:
        if word not in self.words:
            some = ", ".join(self.words[:20]) + (", …" if len(self.words) > 20 else "")
            raise TokenError(
                f"the word {word!r} is not in this model's vocabulary; it knows {some}."
                + did_you_mean(word, self.words)
            )
        return self.words.index(word)

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.token(id) for id in ids)

    def token(self, id: int) -> str:
        if not 0 <= id < len(self.words):
            raise TokenError(f"no token has the id {id}; ids go from 0 to {len(self.words) - 1}.")
        return self.words[id]
