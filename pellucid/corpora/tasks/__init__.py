"""Formal tasks: small problems whose one right answer is known. The folder is the registry.

    >>> task = find("addition")()
    >>> task.example(seed=1, number=0)
    Example(prompt='60+235=', answer='295', alignment=None)
    >>> task.example(seed=1, number=0, part="validation").prompt  # a problem that training never meets
    '8+321='

Example `number` of a seed depends on nothing but the two and the task, so examples can be made in any
order and by any number of workers. A hash of the problem alone, whatever the seed, says whether it is held
out. The answer is a function of the prompt: its entropy, given the prompt, is 0, so a model that
has learned the task loses nothing on it, and any loss left is the model's.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

from pellucid import registry
from pellucid.errors import ConfigError, unknown

PARTS = ("train", "validation")
TRIES = 10_000
Thing = TypeVar("Thing")


class Example(NamedTuple):
    prompt: str
    answer: str
    alignment: tuple[tuple[int, int], ...] | None = None
    """Pairs (token of the prompt, token of the answer) that stand for each other, where the task has them."""


class HashGenerator:
    """Fair draws from a hash of their key: the same on every machine and in every version of Python."""

    def __init__(self, *key: object) -> None:
        self._key = repr(key).encode()
        self._drawn = 0

    def below(self, size: int) -> int:
        """A whole number from 0 to size - 1, each equally likely to one part in 2²⁵⁶ / size."""
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
    """What every task can do; a task is a file of this folder, and its settings are its fields."""

    answer_entropy: ClassVar[float] = 0.0
    """Of the answer given the prompt, in nats: every task here has one right answer."""

    held_out: float = field(default=0.1, kw_only=True)
    """The share of all problems that only validation meets."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out must be a fraction between 0 and 1; got {self.held_out}.")

    @property
    def kind(self) -> str:
        return type(self).__module__.rpartition(".")[2]

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
        """A problem, drawn by chance."""

    @abstractmethod
    def solve(self, prompt: str) -> Example:
        """The problem with its answer."""

    def tokens(self, text: str) -> list[str]:
        """A text as tokens of the vocabulary: its characters, unless the task is about words."""
        return list(text)

    def problem(self, prompt: str) -> str:
        """What makes two prompts the same problem: both are held out, or neither."""
        return prompt

    def part(self, prompt: str) -> str:
        """Where a problem belongs, for every seed: a rule, not a list."""
        share = HashGenerator("held out", self.kind, self.problem(prompt)).below(2**64) / 2**64
        return PARTS[share < self.held_out]

    def example(self, seed: int, number: int, part: str = "train") -> Example:
        """Example `number` of a seed: problems are drawn until one belongs to the part."""
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

    def _bounds(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= most:
            raise ConfigError(f"{self.kind}: {name}={value!r} is out of range: use {least} to {most}.")


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class LettersTask(Task):
    """Letters, then `>`, then the same letters in the order that the task asks for.

    The length is drawn first, each as likely as the other, then each letter.
    """

    letters: int = 8
    """How many of the alphabet are in use."""
    min_length: int = 1
    max_length: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bounds("letters", 1, len(LETTERS))
        self._bounds("max_length", 1, 1_000_000)
        self._bounds("min_length", 1, self.max_length)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*LETTERS[: self.letters], ">")

    @property
    def longest(self) -> int:
        return self.max_length + 1 + self.max_length

    def prompt(self, generator: HashGenerator) -> str:
        length = generator.between(self.min_length, self.max_length)
        return "".join(generator.one_of(LETTERS[: self.letters]) for _ in range(length)) + ">"

    def solve(self, prompt: str) -> Example:
        return Example(prompt, self.reorder(prompt.removesuffix(">")))

    @abstractmethod
    def reorder(self, letters: str) -> str:
        """The answer."""


def kinds() -> list[str]:
    return registry.kinds(__name__)


def find(kind: str) -> type[Task]:
    """The settings class of one task: find("copy") is Copy."""
    return registry.class_of(__name__, kind, "task", Task)  # type: ignore[type-abstract]
