"""Translation: English to French word by word, in French order, with the alignment known.

    the black cat often sees it >
    le chat noir le voit souvent      0-0 1-2 2-1 3-5 4-4 5-3

Every word has one counterpart, and three rules of French move them: a colour follows its noun, an adverb
follows its verb, a pronoun goes before it. All nouns are masculine, and no word that could follow `a` or
`le` begins with a vowel, so that both languages are right.
"""

from dataclasses import dataclass

from pellucid.corpora.tasks import Example, HashGenerator, Task

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
    words: int = CHOICES
    """How many of each class are in use."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bounds("words", 1, CHOICES)

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
        """Each word that may be left out is there by a fair coin; so is the pronoun for the object."""
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

    def solve(self, prompt: str) -> Example:
        english = self.tokens(prompt)[:-1]
        order = list(range(len(english)))  # order[place in French] = place in English
        for first, second in (("colour", "noun"), ("adverb", "verb")):
            _swap(order, english, first, second)
        # The pronoun is the last word, and goes before the verb, which its adverb already follows.
        if english[-1] == PRONOUN[0]:
            verb = next(place for place, word in enumerate(order) if CLASS[english[word]] == "verb")
            order.insert(verb, order.pop())
        answer = " ".join(FRENCH[english[word]] for word in order)
        return Example(prompt, answer, tuple(sorted((word, place) for place, word in enumerate(order))))


def _swap(order: list[int], words: list[str], first: str, second: str) -> None:
    """Two neighbours of these classes change places."""
    for place in range(len(order) - 1):
        here, there = order[place], order[place + 1]
        if (CLASS[words[here]], CLASS[words[there]]) == (first, second):
            order[place], order[place + 1] = there, here
