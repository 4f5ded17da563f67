"""What each word of a story is and does: its class, whom a pronoun means, who does what a verb says."""

from collections.abc import Iterator
from dataclasses import dataclass

from pellucid.data.generated.stories.classes import PRONOUNS, class_of
from pellucid.data.generated.stories.generate import Story
from pellucid.data.generated.stories.grammar import Atom, Option, StoryTemplate
from pellucid.data.generated.stories.lexicon import PAIRS
from pellucid.data.generated.stories.spelling import words_of

_VERB_FORMS = {"was", "is", "has"}


@dataclass(frozen=True, slots=True)
class Annotation:
    """One word of a story; the numbers are places in its list of words.

    `antecedents` of a pronoun are the nouns that it stands for: none where it means no one in
    particular (everyone, or the reader), two for a pair. `subjects` belong to a verb in the same way, and may
    be pronouns; infinitives, participles and commands have none. `pair` is the parallel word: queen for king.
    """

    word: str
    kind: str
    antecedents: tuple[int, ...] = ()
    subjects: tuple[int, ...] = ()
    pair: str | None = None


@dataclass(slots=True)
class _Spoken:
    """A word with the mark that it carries: @ means them, ~ and ~> are done by them."""

    word: str
    kind: str
    mark: str = ""
    whom: tuple[str, ...] = ()


def annotate(story: Story) -> list[Annotation]:
    """Returns one annotation for each of `words_of(story.text)`."""
    options = iter(story.options)
    spoken = list(_spoken(next(options).template, options, {}))
    return [_annotation(place, spoken) for place in range(len(spoken))]


def _spoken(template: StoryTemplate, options: Iterator[Option], forms: dict[str, str]) -> Iterator[_Spoken]:
    for atom in template.atoms:
        if atom.choice:
            option = next(options)
            forms.update(option.forms)
            words = list(_spoken(option.template, options, forms))
        else:
            words = [_Spoken(word, class_of(word)) for word in words_of(atom.format % forms)]
        # an atom's mark belongs to its last word; a choice marked inside keeps its own
        mark, whom = _mark(atom)
        if mark and words and not (atom.choice and any(word.mark for word in words)):
            words[-1].mark, words[-1].whom = mark, whom
            words[-1].kind = _kind(words[-1], atom)
        yield from words


def _mark(atom: Atom) -> tuple[str, tuple[str, ...]]:
    """As written, or as the notation implies: a copy means its slot, and {toy.was} is a verb of the toy."""
    if atom.mark or atom.text:
        return atom.mark, atom.whom
    slot, _, form = (atom.choice or atom.copy).partition(".")
    return "~" if form in _VERB_FORMS else "@", (slot.removesuffix("_name"),)


def _kind(it: _Spoken, atom: Atom) -> str:
    """A mark can say more than the dictionary: back@back is a noun, like~hero a verb."""
    if it.mark.startswith("~"):
        return "verb"
    if atom.text:
        return "pronoun" if it.word.lower() in PRONOUNS else "noun"
    return it.kind


def _annotation(place: int, spoken: list[_Spoken]) -> Annotation:
    it = spoken[place]
    antecedents = _nearest(place, spoken, it.whom, ahead=False, nouns=True) if it.kind == "pronoun" else ()
    subjects = _nearest(place, spoken, it.whom, it.mark == "~>", nouns=False) if it.kind == "verb" else ()
    return Annotation(it.word, it.kind, antecedents, subjects, PAIRS.get(it.word))


def _nearest(
    place: int, spoken: list[_Spoken], whom: tuple[str, ...], ahead: bool, nouns: bool
) -> tuple[int, ...]:
    """The nearest word for each of them: before this place, or after it if there is none (or if asked)."""
    before, after = range(place - 1, -1, -1), range(place + 1, len(spoken))
    order = [*after, *before] if ahead else [*before, *after]

    def means(at: int, one: str) -> bool:
        other = spoken[at]
        if other.mark != "@" or one not in other.whom:
            return False
        # the goose, who was late, ran: the goose ran
        return other.kind != "pronoun" if nouns else "clause" not in other.whom or one == "clause"

    nearest = (next((at for at in order if means(at, one)), None) for one in whom)
    return tuple(dict.fromkeys(at for at in nearest if at is not None))  # they are two, but one word
