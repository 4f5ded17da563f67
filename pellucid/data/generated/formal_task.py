"""A formal task: problems with one right answer each.

Example `number` of a seed depends on nothing but the two and the task, so examples can be made in any
order and by any number of workers. A hash of the problem alone, whatever the seed, says whether it is held
out. The answer is a function of the prompt, so its entropy given the prompt is 0: any loss on it is the
model's.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

from pellucid.base.errors import ConfigError, unknown

PARTS = ("train", "validation")
TRIES = 10_000
Thing = TypeVar("Thing")


class TaskExample(NamedTuple):
    prompt: str
    answer: str
    alignment: tuple[tuple[int, int], ...] | None = None
    """Pairs (token of the prompt, token of the answer) that stand for each other, where the task has them."""


class HashGenerator:
    """Uniform draws from a hash of their key: the same on every machine and in every version of Python."""

    def __init__(self, *key: object) -> None:
        self._key = repr(key).encode()
        self._drawn = 0

    def below(self, size: int) -> int:
        """Returns an integer from 0 to size - 1, each equally likely to one part in 2²⁵⁶ / size."""
        self._drawn += 1
        counter = self._drawn.to_bytes(16, "little")
        digest = hashlib.blake2b(self._key, digest_size=32, salt=counter).digest()
        return int.from_bytes(digest, "little") % size

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def one_of(self, things: Sequence[Thing]) -> Thing:
        return things[self.below(len(things))]


@dataclass(frozen=True)
class Task(ABC):
    """A task; its settings are its fields. `kind` is its name in `task:NAME`."""

    kind: ClassVar[str]

    answer_entropy: ClassVar[float] = 0.0
    """Of the answer given the prompt, in nats: every task here has one right answer."""

    held_out: float = field(default=0.1, kw_only=True)
    """The fraction of all problems that only validation has."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out must be a fraction between 0 and 1; got {self.held_out}.")

    @property
    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """Every token that a prompt or an answer can hold, in a fixed order."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of the longest example, prompt and answer together."""

    @abstractmethod
    def prompt(self, generator: HashGenerator) -> str:
        """Returns a random problem."""

    @abstractmethod
    def solve(self, prompt: str) -> TaskExample:
        """Returns the problem with its answer."""

    def tokens(self, text: str) -> list[str]:
        """Returns a text as tokens of the vocabulary: its characters, unless the task is about words."""
        return list(text)

    def problem(self, prompt: str) -> str:
        """Returns what identifies a problem: prompts with the same one are held out together."""
        return prompt

    def part(self, prompt: str) -> str:
        """Returns the part that a problem belongs to, for every seed."""
        share = HashGenerator("held out", self.kind, self.problem(prompt)).below(2**64) / 2**64
        return PARTS[share < self.held_out]

    def example(self, seed: int, number: int, part: str = "train") -> TaskExample:
        """Returns example `number` of a seed: problems are drawn until one belongs to the part."""
        if part not in PARTS:
            raise ConfigError(unknown("part", part, PARTS))
        generator = HashGenerator(self.kind, part, int(seed), int(number))
        for _ in range(TRIES):
            prompt = self.prompt(generator)
            if self.part(prompt) == part:
                return self.solve(prompt)
        raise ConfigError(
            f"{self} has too few problems: in {TRIES} draws none was for {part}. "
            "Make the problems longer, or held_out nearer to 0.5."
        )

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= most:
            raise ConfigError(f"{self.kind}: {name}={value!r} is out of range: use {least} to {most}.")
