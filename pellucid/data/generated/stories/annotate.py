"""Words of a story, annotated: its class, whom a pronoun means, who does what a verb says."""

from collections.abc import Iterator
from dataclasses import dataclass

from pellucid.data.generated.stories.generate import Story
from pellucid.data.generated.stories.grammar import Atom, Option, StoryTemplate
from pellucid.data.generated.stories.lexicon import PAIRS, words_of

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


_WORDS = {
    "punctuation": """ . , ! ? " """,
    "name": """
        Agnes Albert Anna Basil Bella Ben Casper Clara Conrad Cora Dora Dorian Edmund Ella Felix Flora
        Freya Gilbert Greta Hazel Hugo Ivy Jasper Leo Lily Linus Martha Matilda Max Milo Ned Nora Olive
        Oscar Otto Pearl Rose Rowan Rufus Ruth Simon Sophie Stella Theo Tilda Tom Wanda Wilfred
    """,
    "pronoun": """
        anything everyone everything everywhere he her him his i it its me my nobody nothing others she
        somebody something their them they this those we what which who you your
    """,
    "determiner": "a an the all both each every no some these 's",
    "number": "one two seven twenty fifty seventy-seven",
    "preposition": """
        about above after along among around at before behind below beside between beyond by down for from in
        inside into like near of off on out over past since to under until up upon with without
    """,
    "conjunction": "and but or if when while as than that because",
    "interjection": "oh dear please click",
    "adverb": """
        again ago ahead alone always away back better brightly closer enough even ever far first happily
        high how just last long more much nearly never not often once only right slowly so soon still then
        there together too twice upside very why
    """,
    "adjective": """
        afraid ashamed asleep bare best big blue brave bright broken burning called carved cheerful clear
        clever cold cool cracked crooked curious dark deep dreamy dry dusty empty fine folding fond
        forgotten free frightened frozen full gentle glad golden good grand green grey happy heavy honest
        hungry hunting icy kind late leather little locked lonely lost lucky merry mouldy named new next
        old own painted patient pretty proud quiet red restless ripped roasted round rusty sad same sandy
        shining shiny short shortest shy silent sleepy slimy small soft sorry steady steep stiff strange
        strong strongest tall terrible thick thin thoughtful tight tiny torn true velvet warm weak wet
        white whole wooden woollen worth wrong young
    """,
    "verb": """
        admired are bake be been borrow build burn carry caught collect come count covered cry dance do
        drink drunk eat eaten feel find forget found get give given go gone has have hear held help hide
        hurt is keep laugh listen listened look made mend mended move needed open paint plant play read
        running said see shivering shone sing sit stay take talk tell wait walk was watch weep were
    """,
    "noun": """
        acorns afternoon age almond amber apple aunt badger ball barn bars bat bead beads beaver beetle
        bell birds blanket blink blueberry boat bone boot boots bottom bowl box boy branch brass bridge
        brooch brook brother bull buns burrow bush butterfly buttons cabin cage cake cakes calf camel carp
        candlelight candles care cart castle cave cellar chapel cheese cherry chess chestnuts china clay
        cloak clouds coins copper cord corn corner cottage cow cream cricket crossroads crow crumb cub day
        days den ditch doe dog doll donkey door doorstep drop duchess duckling duke dumplings dust echo
        edge emperor empress evening evenings ewe eye eyes fair farm father feast feather feathers feet
        ferret fiddle field finch fish flame flask flowers flute fog forest fox friends frog gander gate
        gift gingerbread girl glass glue goat gold goose grandfather grandmother ground gust harbour harp
        hat hay head heart hedge hedgehog hen  hill hills hillside hole holidays hollow home honey
        horn hours house hut ice iron jam joy jug kettle key king kite kitten knot ladder ladybird lake
        lamb lamp land lane lantern library leaves light lion lioness lizard loaf lock magpie man
        marbles market
        matches matter meadow medal middle mill mine mole monkey moon moonrise moor morning mother
        mountain mountains mouse mouth mud music nails name needle neighbours nest newt night nightfall
        nights oak oat orchard otter owl palace pancakes paper parrot part patch path pearl peas
        people pie piece piglet pine pirates pit plum pond pony porridge pot prince princess pumpkin
        puppets puppy quarry queen rabbit rain ram reeds ribbon ring river road robin rock roof rooster
        root rope rosebush roses ruins rye sacks saturday sea shawl shed shells shepherd shepherdess shrew
        sides silk silver sister sky sled snail snake snow soldier song songs sound soup sparrow spider
        spring squirrel stable stag star stars step stilts stone stones stories story stream string sun
        sunday sundays sunset supper tale tart tears thicket things thorn thorns thread tiger tigress time
        tin toad toast toes top tower tree truth tunnel turn turtle uncle valley village vixen wall warning
        water waterfall way weasel weeds week welcome well wheels whistle wind windmill winter wishes
        witch wizard woman wood woods word work wren year years
    """,
}
_CLASS_OF = {word: kind for kind, words in _WORDS.items() for word in words.split()}

# "that" is a pronoun only where a template says so
PRONOUNS = {*_WORDS["pronoun"].split(), "that"}


def class_of(word: str) -> str:
    """Returns the class of a word that has no mark; empty for an unknown word.

    >>> class_of("Rose"), class_of("The"), class_of("queen")
    ('name', 'determiner', 'noun')
    """
    return _CLASS_OF.get(word) or _CLASS_OF.get(word.lower(), "")
