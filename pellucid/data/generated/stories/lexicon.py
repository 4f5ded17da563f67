"""Typed word lists: only fillers that make sense can be drawn, and each knows the forms it needs later; and
how a text is divided into words."""

import re
from collections.abc import Iterable, Mapping, Sequence

from pellucid.data.generated.stories.grammar import Word

_PRONOUNS = ("he", "him", "his", "He", "His", "gender")
_HE = dict(zip(_PRONOUNS, ("he", "him", "his", "He", "His", "m"), strict=True))
_SHE = dict(zip(_PRONOUNS, ("she", "her", "her", "She", "Her", "f"), strict=True))
_IT = dict(zip(_PRONOUNS, ("it", "it", "its", "It", "Its", "n"), strict=True))
_THEY = dict(zip(_PRONOUNS, ("they", "them", "their", "They", "Their", "p"), strict=True))
_ONE = {"was": "was", "is": "is", "has": "has"}
_MANY = {"was": "were", "is": "are", "has": "have"}

MALE = _HE | _ONE
FEMALE = _SHE | _ONE
THING = _IT | _ONE
THINGS = _THEY | _MANY

# male and female of one kind, for each way of life
FAMILIES: Mapping[str, Sequence[tuple[str, str]]] = {
    "court": [("king", "queen"), ("prince", "princess"), ("duke", "duchess"), ("emperor", "empress")],
    "village": [("man", "woman"), ("boy", "girl"), ("shepherd", "shepherdess"), ("wizard", "witch")],
    "wild": [("fox", "vixen"), ("lion", "lioness"), ("stag", "doe"), ("tiger", "tigress")],
    "farm": [("rooster", "hen"), ("gander", "goose"), ("ram", "ewe"), ("bull", "cow")],
}
RELATIVES: Sequence[tuple[str, str]] = [
    ("father", "mother"),
    ("grandfather", "grandmother"),
    ("uncle", "aunt"),
    ("brother", "sister"),
]
_BOTH = [*RELATIVES, *(pair for pairs in FAMILIES.values() for pair in pairs)]
PAIRS = {one: other for man, woman in _BOTH for one, other in ((man, woman), (woman, man))}


def heroes(lives: Mapping[str, int], families: int) -> list[Word]:
    """The first families of each way of life; the weight is that of every hero of this life."""
    return [
        Word(noun, forms | {"life": life}, weight)
        for life, weight in lives.items()
        for pair in FAMILIES[life][:families]
        for noun, forms in zip(pair, (MALE, FEMALE), strict=True)
    ]


def relatives(families: int) -> list[Word]:
    return [
        Word(noun, forms, weight)
        for pair, weight in zip(RELATIVES[:families], (3, 4, 2, 2), strict=False)
        for noun, forms in zip(pair, (MALE, FEMALE), strict=True)
    ]


def names(count: int) -> dict[str, list[Word]]:
    """Common names first: the k-th has half of the first one's weight from the middle of the list on."""
    return {
        gender: [
            Word(name, weight=2 if k < count // 2 else 1) for k, name in enumerate(given.split()[:count])
        ]
        for gender, given in {
            "m": "Tom Ben Oscar Felix Hugo Jasper Otto Rufus Simon Wilfred Albert Casper "
            "Edmund Leo Milo Rowan Basil Conrad Dorian Gilbert Linus Max Ned Theo",
            "f": "Anna Rose Lily Clara Ella Martha Nora Tilda Ivy Hazel Greta Flora "
            "Matilda Ruth Sophie Wanda Agnes Bella Cora Dora Freya Olive Pearl Stella",
        }.items()
    }


def beings(text: str) -> list[Word]:
    """Small animals: it, its."""
    return [Word(noun, THING) for noun in text.split()]


def things(*texts: str, **forms: str) -> list[Word]:
    """'a red ball' is one thing, 'some glass marbles' are several; `bare` is the last word alone."""
    return [
        Word(text, (THINGS if text.startswith("some ") else THING) | {"bare": text.split()[-1]} | forms)
        for text in texts
    ]


def places(*texts: str) -> list[Word]:
    """'in a house by the river =house': what is written first, and the noun for later."""
    return [Word(where, {"noun": noun}) for where, noun in (text.split(" =") for text in texts)]


MOODS = [
    "4| a kind", "4| a brave", "3| a clever", "3| a cheerful", "2| a gentle", "2| a curious", "2| a merry",
    "2| a shy", "1| a proud", "1| a thoughtful", "1| an honest", "1| a restless", "1| a patient",
    "1| a dreamy",
]  # fmt: skip
SIZES = ["4| a little", "3| a small", "2| a tiny", "2| a young", "1| a shy"]

HOMES: Mapping[str, list[Word]] = {
    "court": places(
        "in a castle on a hill =castle",
        "in a palace by the sea =palace",
        "in a tower with a silver roof =tower",
        "in a castle full of roses =castle",
    ),
    "village": places(
        "in a cottage near the forest =cottage",
        "in a house by the river =house",
        "in a cabin behind the mill =cabin",
        "in a hut below the mountain =hut",
    ),
    "wild": places(
        "in a den under an oak tree =den",
        "in a cave above the valley =cave",
        "in a hollow deep in the woods =hollow",
        "in a den beside a waterfall =den",
    ),
    "farm": places(
        "in a barn with a red door =barn",
        "on a farm in the valley =farm",
        "in a stable behind the orchard =stable",
        "on a farm down the lane =farm",
    ),
}

# what a tool is for decides, later, who needs it and why
TOOLS: Mapping[str, list[Word]] = {
    "pull": things("a long rope", "a strong rope", "a silk cord", use="pull"),
    "light": things("a brass lantern", "a small lamp", "some white candles", use="light"),
    "food": things("a rye loaf", "a round cheese", "some oat cakes", "some honey buns", use="food"),
    "warm": things("a woollen blanket", "a thick shawl", "a warm cloak", use="warm"),
    "open": things("a rusty key", "a golden key", use="open"),
    "drink": things("a clay jug", "a leather flask", use="drink"),
    "call": things("a silver whistle", "a hunting horn", "a copper bell", use="call"),
    "climb": things("a wooden ladder", "a folding ladder", use="climb"),
}
IN_NEED: Mapping[str, list[Word]] = {
    "pull": beings("rabbit lamb puppy hedgehog goat badger"),
    "light": beings("mouse kitten squirrel lizard"),
    "food": beings("sparrow mouse puppy kitten squirrel"),
    "warm": beings("kitten robin lamb monkey"),
    "open": beings("parrot squirrel monkey rabbit"),
    "drink": beings("donkey pony camel goat"),
    "call": beings("duckling lamb piglet calf"),
    "climb": beings("kitten monkey cub"),
}

TOYS = things(
    "a red ball", "a silver ring", "a wooden whistle", "a painted top", "a tin soldier", "a glass bead",
    "a shiny medal", "a carved flute", "a pearl brooch", "a music box", "a china doll", "some glass marbles",
    "some golden coins", "some amber beads", "some silver buttons", "some pretty shells", "some blue stones",
)  # fmt: skip
# where a thing is lost decides, later, who can bring it back
HOLES: Mapping[str, list[Word]] = {
    "water": [Word(text, {"kind": "water"}) for text in ("the pond", "the well", "the stream", "the lake")],
    "earth": [Word(text, {"kind": "earth"}) for text in ("the burrow", "the cellar", "the ditch")],
    "thorns": [Word(text, {"kind": "thorns"}) for text in ("the hedge", "the thicket", "the rosebush")],
}
FINDERS: Mapping[str, list[Word]] = {
    "water": beings("frog otter turtle beaver fish newt carp"),
    "earth": beings("mole beetle mouse weasel ferret shrew"),
    "thorns": beings("wren robin lizard hedgehog finch snake"),
}

LOANS = [
    *things(
        "a paper kite",
        "a velvet cloak",
        "some leather boots",
        "some string puppets",
        stuff="cloth",
        advice="talk",
    ),
    *things(
        "a wooden sled", "a fine fiddle", "a little boat", "some tall stilts", stuff="wood", advice="talk"
    ),
]
ADVISERS = beings("cricket toad snail owl magpie hedgehog spider bat ladybird")
PLACES = [
    "3| the market", "3| the mill", "2| the library", "2| the bridge", "2| the meadow", "2| the village",
    "1| the harbour", "1| the orchard", "1| the chapel", "1| the quarry", "1| the fair", "1| the ruins",
]  # fmt: skip
TREATS = [
    *(
        Word(text, THING, weight)
        for weight, texts in {
            3: ("honey cake", "apple pie"),
            2: ("plum jam", "gingerbread", "warm porridge"),
            1: ("cherry tart", "pumpkin soup", "almond cream"),
        }.items()
        for text in texts
    ),
    *(Word(text, THINGS) for text in ("blueberry pancakes", "roasted chestnuts", "cheese dumplings")),
]
HOBBIES = [
    "3| sing old songs", "2| count the stars", "2| paint the clouds", "2| tell long stories",
    "2| plant flowers", "1| watch the birds", "1| dance in the rain", "1| collect feathers",
    "1| bake for the neighbours", "1| play the harp", "1| read about pirates", "1| play chess",
]  # fmt: skip
DAYS = ["3| One morning", "2| One day", "1| One evening", "1| One afternoon"]
LEISURE = ["2| On Sundays", "1| On holidays", "1| On quiet evenings", "1| After work"]


_WORD = r"'s\b|[A-Za-z]+(?:-[A-Za-z]+)*|[^\sA-Za-z]"
_TOKEN = re.compile(_WORD)
_SPACED = re.compile(rf" ?(?:{_WORD})|\s")


def words_of(text: str) -> list[str]:
    """
    >>> words_of('"Look, Anna\\'s red-hot tea!"')
    ['"', 'Look', ',', 'Anna', "'s", 'red-hot', 'tea', '!', '"']
    """
    return _TOKEN.findall(text)


def spaced_words_of(text: str) -> list[str]:
    """Returns the words and marks, each with the space before it; joined they are the text.

    >>> spaced_words_of("Anna had a ")
    ['Anna', ' had', ' a', ' ']
    """
    return _SPACED.findall(text)


def join(words: Iterable[str]) -> str:
    """Returns the text: marks and 's follow the word before without a space, as a word does an opening quote.

    >>> join(['"', 'Run', ',', '"', 'said', 'Tom', '.'])
    '"Run," said Tom.'
    """
    text, opened, glued = "", False, True
    for word in words:
        closes = word == '"' and opened
        if not (glued or closes or word in {".", ",", "!", "?", ";", ":", "'s"}):
            text += " "
        text += word
        glued = word == '"' and not opened
        opened ^= word == '"'
    return text
