"""Recall: the value that stood beside a key some pairs ago, `a4c7b1?c` → `7`.

`distance` pairs stand between the asked pair and the question, always: a model that looks less far back can
only guess. The asked key occurs once; the others may repeat, so any distance can be had.
"""

from dataclasses import dataclass

from pellucid.corpora.tasks import LETTERS, Example, HashGenerator, Task

DIGITS = "0123456789"


@dataclass(frozen=True)
class Recall(Task):
    pairs: int = 8
    distance: int = 4
    keys: int = 26
    """How many letters are keys."""
    values: int = 10
    """How many digits are values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bounds("pairs", 1, 1_000_000)
        self._bounds("distance", 0, self.pairs - 1)
        self._bounds("keys", 2, len(LETTERS))
        self._bounds("values", 2, len(DIGITS))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*LETTERS[: self.keys], *DIGITS[: self.values], "?")

    @property
    def longest(self) -> int:
        return 2 * self.pairs + 2 + 1

    def prompt(self, generator: HashGenerator) -> str:
        keys, values = LETTERS[: self.keys], DIGITS[: self.values]
        asked = generator.one_of(keys)
        others = keys.replace(asked, "")
        text = ""
        for before_question in reversed(range(self.pairs)):
            text += asked if before_question == self.distance else generator.one_of(others)
            text += generator.one_of(values)
        return f"{text}?{asked}"

    def solve(self, prompt: str) -> Example:
        pairs, _, asked = prompt.partition("?")
        return Example(prompt, dict(zip(pairs[::2], pairs[1::2], strict=True))[asked])
