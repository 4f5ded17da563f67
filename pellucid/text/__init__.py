"""Text to token ids and back."""

from typing import Protocol


class Tokenizer(Protocol):
    """What every tokenizer can do."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """The text of some ids."""

    def token(self, id: int) -> str:
        """One token as people should see it."""
