"""Formal tasks, whose every problem has one right answer; each is a class of this module.

>>> task = find("addition")()
>>> task.example(seed=1, number=0)
TaskExample(prompt='60+235=', answer='295', alignment=None)
>>> task.example(seed=1, number=0, part="validation").prompt  # a problem that training never has
'8+321='
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pellucid.base import registry
from pellucid.data.generated.formal_task import HashGenerator, Task, TaskExample


def kinds() -> list[str]:
    return registry.kinds(__name__)


def find(kind: str) -> type[Task]:
    """Returns the class of a task: find("copy") is Copy."""
    return registry.class_of(__name__, kind, "task", Task)  # type: ignore[type-abstract]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class LettersTask(Task):
    """Letters, then `>`, then the same letters in the order that the task asks for.

    The length is drawn first, uniformly, then each letter.
    """

    letters: int = 8
    """Number of letters of the alphabet that are used."""
    min_length: int = 1
    max_length: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("letters", 1, len(LETTERS))
        self._check_range("max_length", 1, 1_000_000)
        self._check_range("min_length", 1, self.max_length)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*LETTERS[: self.letters], ">")

    @property
    def longest(self) -> int:
        return self.max_length + 1 + self.max_length

    def prompt(self, generator: HashGenerator) -> str:
        length = generator.between(self.min_length, self.max_length)
        return "".join(generator.one_of(LETTERS[: self.letters]) for _ in range(length)) + ">"

    def solve(self, prompt: str) -> TaskExample:
        return TaskExample(prompt, self.reorder(prompt.removesuffix(">")))

    @abstractmethod
    def reorder(self, letters: str) -> str:
        """Returns the answer."""


@dataclass(frozen=True)
class Copy(LettersTask):
    """Copy: the letters again, `bca>` → `bca`."""

    kind: ClassVar[str] = "copy"

    def reorder(self, letters: str) -> str:
        return letters


@dataclass(frozen=True)
class Reverse(LettersTask):
    """Reverse: the letters from the last to the first, `bca>` → `acb`."""

    kind: ClassVar[str] = "reverse"

    def reorder(self, letters: str) -> str:
        return letters[::-1]


@dataclass(frozen=True)
class Sort(LettersTask):
    """Sort: the letters in the order of the alphabet, `bcab>` → `abbc`."""

    kind: ClassVar[str] = "sort"

    def reorder(self, letters: str) -> str:
        return "".join(sorted(letters))


@dataclass(frozen=True)
class Addition(Task):
    """Addition: the sum of two numbers in decimal digits, `67+8=` → `75`.

    The number of digits is drawn first, uniformly, then the number: otherwise nine in ten would have as many
    digits as they may. No number begins with 0, except 0.
    """

    kind: ClassVar[str] = "addition"
    digits: int = 3
    """Of each number, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("digits", 1, 50)

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

    def solve(self, prompt: str) -> TaskExample:
        return TaskExample(prompt, str(sum(_numbers(prompt))))

    def problem(self, prompt: str) -> str:
        """Returns the numbers in order: 3+5 and 5+3 are one problem."""
        smaller, larger = sorted(_numbers(prompt))
        return f"{smaller}+{larger}="


def _numbers(prompt: str) -> list[int]:
    return [int(number) for number in prompt.removesuffix("=").split("+")]


PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))


@dataclass(frozen=True)
class Brackets(Task):
    """Brackets: close all that is open, innermost first, `([]{>` → `})`.

    The prompt is the beginning of a balanced text with at least one bracket open; the answer is the shortest
    end that balances it, and there is only one. A model needs a stack to know it.
    """

    kind: ClassVar[str] = "brackets"
    pairs: int = 3
    """Number of kinds of brackets that are used, of () [] {}."""
    max_length: int = 12
    """Brackets in the prompt, at most."""
    max_depth: int = 6
    """Brackets open at once, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("pairs", 1, len(PAIRS))
        self._check_range("max_length", 2, 1_000_000)
        self._check_range("max_depth", 2, self.max_length)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return (*(bracket for pair in PAIRS[: self.pairs] for bracket in pair), ">")

    @property
    def longest(self) -> int:
        # Each bracket opens or closes one, so the depth at the end is odd exactly where the length is.
        depth = self.max_depth - (self.max_length - self.max_depth) % 2
        return self.max_length + 1 + depth

    def prompt(self, generator: HashGenerator) -> str:
        """Returns a random problem: length first, then open or close with equal probability, where both can
        be."""
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

    def solve(self, prompt: str) -> TaskExample:
        closing = dict(PAIRS[: self.pairs])
        closers: list[str] = []
        for bracket in prompt.removesuffix(">"):
            if bracket in closing:
                closers.append(closing[bracket])
            else:
                closers.pop()
        return TaskExample(prompt, "".join(reversed(closers)))


DIGITS = "0123456789"


@dataclass(frozen=True)
class Recall(Task):
    """Recall: the value that stood beside a key some pairs ago, `a4c7b1?c` → `7`.

    `distance` pairs stand between the asked pair and the question, always: a model that attends less far back
    can only guess. The asked key occurs once; the others may repeat, so any distance can be had.
    """

    kind: ClassVar[str] = "recall"
    pairs: int = 8
    distance: int = 4
    keys: int = 26
    """Number of letters that are keys."""
    values: int = 10
    """Number of digits that are values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("pairs", 1, 1_000_000)
        self._check_range("distance", 0, self.pairs - 1)
        self._check_range("keys", 2, len(LETTERS))
        self._check_range("values", 2, len(DIGITS))

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

    def solve(self, prompt: str) -> TaskExample:
        pairs, _, asked = prompt.partition("?")
        return TaskExample(prompt, dict(zip(pairs[::2], pairs[1::2], strict=True))[asked])


END = ">"
PRONOUN = ("it", "le")
CLASSES: dict[str, dict[str, str]] = {
    "determiner": {"the": "le", "a": "un", "this": "ce", "my": "mon", "your": "ton"},
    "quality": {"big": "grand", "small": "petit", "pretty": "joli", "young": "jeune", "good": "bon"},
    "colour": {"black": "noir", "white": "blanc", "red": "rouge", "green": "vert", "yellow": "jaune"},
    "noun": {"cat": "chat", "dog": "chien", "horse": "cheval", "king": "roi", "wolf": "loup"},
    "adverb": {
        "often": "souvent",
        "always": "toujours",
        "sometimes": "parfois",
        "rarely": "rarement",
        "already": "déjà",
    },
    "verb": {"sees": "voit", "follows": "suit", "knows": "connaît", "finds": "trouve", "wants": "veut"},
}
CLASS = {word: name for name, words in CLASSES.items() for word in words} | {PRONOUN[0]: "pronoun"}
FRENCH = {word: other for words in CLASSES.values() for word, other in words.items()} | dict([PRONOUN])
CHOICES = len(CLASSES["noun"])


@dataclass(frozen=True)
class Translation(Task):
    """Translation: English to French word by word, in French order, with the alignment known.

        the black cat often sees it >
        le chat noir le voit souvent      0-0 1-2 2-1 3-5 4-4 5-3

    Every word has one counterpart, and three rules of French move them: a colour follows its noun, an adverb
    follows its verb, a pronoun goes before it. All nouns are masculine, and no word that could follow `a` or
    `le` begins with a vowel, so that both languages are right.
    """

    kind: ClassVar[str] = "translation"
    words: int = CHOICES
    """Number of words of each class that are used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("words", 1, CHOICES)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        english = [word for words in CLASSES.values() for word in list(words)[: self.words]]
        french = [FRENCH[word] for word in english]
        return tuple(dict.fromkeys([*english, PRONOUN[0], *french, PRONOUN[1], END]))

    @property
    def longest(self) -> int:
        noun_phrase = len(("determiner", "quality", "noun", "colour"))
        sentence = noun_phrase + len(("adverb", "verb")) + noun_phrase
        return sentence + len((END,)) + sentence

    def tokens(self, text: str) -> list[str]:
        return text.split()

    def prompt(self, generator: HashGenerator) -> str:
        """Returns a random sentence: optional words, and the pronoun for the object, with probability 1/2."""
        adverb = self._maybe(generator, "adverb")
        verb = self._word(generator, "verb")
        subject = self._noun_phrase(generator)
        seen = self._noun_phrase(generator) if generator.below(2) else [PRONOUN[0]]
        return " ".join([*subject, *adverb, verb, *seen, END])

    def _word(self, generator: HashGenerator, name: str) -> str:
        return generator.one_of(list(CLASSES[name])[: self.words])

    def _maybe(self, generator: HashGenerator, name: str) -> list[str]:
        return [self._word(generator, name)] if generator.below(2) else []

    def _noun_phrase(self, generator: HashGenerator) -> list[str]:
        determiner, noun = self._word(generator, "determiner"), self._word(generator, "noun")
        return [determiner, *self._maybe(generator, "quality"), *self._maybe(generator, "colour"), noun]

    def solve(self, prompt: str) -> TaskExample:
        english = self.tokens(prompt)[:-1]
        order = list(range(len(english)))  # order[place in French] = place in English
        for first, second in (("colour", "noun"), ("adverb", "verb")):
            _swap(order, english, first, second)
        # The pronoun is the last word, and goes before the verb, which its adverb already follows.
        if english[-1] == PRONOUN[0]:
            verb = next(place for place, word in enumerate(order) if CLASS[english[word]] == "verb")
            order.insert(verb, order.pop())
        answer = " ".join(FRENCH[english[word]] for word in order)
        return TaskExample(prompt, answer, tuple(sorted((word, place) for place, word in enumerate(order))))


def _swap(order: list[int], words: list[str], first: str, second: str) -> None:
    """Swaps neighbors of these classes."""
    for place in range(len(order) - 1):
        here, there = order[place], order[place + 1]
        if (CLASS[words[here]], CLASS[words[there]]) == (first, second):
            order[place], order[place + 1] = there, here
