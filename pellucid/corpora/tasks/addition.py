"""Addition: the sum of two numbers in decimal digits, `67+8=` → `75`.

How many digits a number has is drawn first, each count as likely as the other, then the number: otherwise
nine in ten would have as many digits as they may. No number begins with 0, except 0.
"""

from dataclasses import dataclass

from pellucid.corpora.tasks import Example, HashGenerator, Task


@dataclass(frozen=True)
class Addition(Task):
    digits: int = 3
    """Of each number, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bounds("digits", 1, 50)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*"0123456789", "+", "=")

    @property
    def longest(self) -> int:
        return self.digits + 1 + self.digits + 1 + (self.digits + 1)  # 99+99=198

    def prompt(self, generator: HashGenerator) -> str:
        return f"{self._number(generator)}+{self._number(generator)}="

    def _number(self, generator: HashGenerator) -> int:
        digits = generator.between(1, self.digits)
        return generator.between(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)

    def solve(self, prompt: str) -> Example:
        return Example(prompt, str(sum(_numbers(prompt))))

    def problem(self, prompt: str) -> str:
        """3+5 gives 5+3 away: they are one problem."""
        smaller, larger = sorted(_numbers(prompt))
        return f"{smaller}+{larger}="


def _numbers(prompt: str) -> list[int]:
    return [int(number) for number in prompt.removesuffix("=").split("+")]
