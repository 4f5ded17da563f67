"""Brackets: close all that is open, innermost first, `([]{>` → `})`.

The prompt is the beginning of a balanced text with at least one bracket open; the answer is the shortest
end that balances it, and there is only one. A model needs a stack to know it.
"""

from dataclasses import dataclass

from pellucid.corpora.tasks import Example, HashGenerator, Task

PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class Brackets(Task):
    pairs: int = 3
    """How many of () [] {} are in use."""
    max_length: int = 12
    """Brackets in the prompt, at most."""
    max_depth: int = 6
    """Brackets open at once, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bounds("pairs", 1, len(PAIRS))
        self._bounds("max_length", 2, 1_000_000)
        self._bounds("max_depth", 2, self.max_length)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*(bracket for pair in PAIRS[: self.pairs] for bracket in pair), ">")

    @property
    def longest(self) -> int:
        # Each bracket opens or closes one, so the depth at the end is odd exactly where the length is.
        depth = self.max_depth - (self.max_length - self.max_depth) % 2
        return self.max_length + 1 + depth

    def prompt(self, generator: HashGenerator) -> str:
        """Length first, then open or close by a fair coin, where both are allowed."""
        length = generator.between(1, self.max_length)
        text, closers = "", list[str]()
        for place in range(length):
            # The last bracket must leave one open.
            may_close = len(closers) > (place == length - 1)
            may_open = len(closers) < self.max_depth
            if may_open and (not may_close or generator.below(2)):
                opener, closer = generator.one_of(PAIRS[: self.pairs])
                text += opener
                closers.append(closer)
            else:
                text += closers.pop()
        return text + ">"

    def solve(self, prompt: str) -> Example:
        closing = dict(PAIRS[: self.pairs])
        closers: list[str] = []
        for bracket in prompt.removesuffix(">"):
            if bracket in closing:
                closers.append(closing[bracket])
            else:
                closers.pop()
        return Example(prompt, "".join(reversed(closers)))
