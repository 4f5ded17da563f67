"""Single characters: every character of the training text is a token."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.text.word_level import WordLevelTokenizer


@dataclass(frozen=True)
class CharacterTokenizer(WordLevelTokenizer):
    """
    >>> CharacterTokenizer(tuple("abn")).encode("banana")
    [1, 0, 2, 0, 2, 0]
    """

    what: ClassVar[str] = "character"
    pattern: ClassVar[re.Pattern[str]] = re.compile(r".", re.DOTALL)
    pre_tokenizer: ClassVar[dict[str, Any]] = {
        "type": "Split",
        "pattern": {"Regex": r"[\s\S]"},
        "behavior": "Isolated",
        "invert": False,
    }
    decoder: ClassVar[dict[str, Any] | None] = {"type": "Fuse"}

    @property
    def kind(self) -> str:
        return "characters"

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.token(id) for id in ids)
