"""Easy: short stories with few shapes, which a small model can learn in minutes."""

from pellucid.data.generated.stories.grammar import Sources
from pellucid.data.generated.stories.lexicon import (
    DAYS,
    FINDERS,
    HOLES,
    HOMES,
    IN_NEED,
    MOODS,
    PLACES,
    SIZES,
    TOOLS,
    TOYS,
    heroes,
    names,
)

USES = ("pull", "light", "food", "warm", "open")

CHOICES: Sources = {
    "story": ["[opening] [plot] [ending][more]"],
    "opening": [
        "3| Once upon a time there was~>hero [mood] [hero] named [hero_name:hero.gender]. "
        "{hero.He} lived~hero [home:hero.life].",
        "2| Once there lived~>hero [mood] [hero] [home:hero.life]. "
        "{hero.His} name@title was~title [hero_name:hero.gender].",
        "1| Long ago, [mood] [hero] lived~hero [home:hero.life]. "
        "Everyone@everyone called~everyone {hero.him} [hero_name:hero.gender].",
    ],
    "mood": MOODS[:6],
    "hero": heroes({"court": 3, "village": 2, "wild": 1, "farm": 1}, families=2),
    "hero_name": names(8),
    "home": {life: homes[:2] for life, homes in HOMES.items()},
    "plot": [
        "3| [day], {hero.he} took~hero [tool] and went~hero to [place]. [meeting] [plea] [reason:tool.use] "
        "[promise] [fix:tool.use]",
        "2| {hero.He} had~hero [toy] and took~hero {toy.him} everywhere. [day], {hero.he} went~hero to "
        "[place]. "
        "[slip] [sorrow] [offer] [dive:hole.kind]",
    ],
    "day": DAYS,
    "place": PLACES[:5],
    # the first plot: somebody needs just what the hero has brought
    "tool": [word for use in USES for word in TOOLS[use][:2]],
    "meeting": [
        "3| On the way {hero.he} met~hero [size] [helper:tool.use].",
        "2| There {hero.he} found~hero [size] [helper:tool.use].",
        "1| Near the road {hero.he} saw~hero [size] [helper:tool.use].",
    ],
    "size": SIZES[:4],
    "helper": {
        **{use: IN_NEED[use][:3] for use in USES},
        **{kind: finders[:2] for kind, finders in FINDERS.items()},
    },
    "plea": [
        '2| "Please help me@helper!" cried~>helper the {helper}.',
        '1| "Oh dear," said~>helper the {helper}.',
    ],
    "reason": {
        "pull": [
            '2| "I@helper cannot~helper get out of this hole."',
            '1| "I@helper fell~helper into a pit."',
        ],
        "light": [
            '2| "It@dark is~dark dark, and I@helper am~helper lost."',
            '1| "I@helper cannot~helper see the way."',
        ],
        "food": ['2| "I@helper am~helper so hungry."', '1| "I@helper have~helper nothing to eat."'],
        "warm": ['2| "I@helper am~helper so cold."', '1| "The wind@wind is~wind like ice."'],
        "open": ['2| "I@helper am~helper locked in this cage."', '1| "The door@door will~door not open."'],
    },
    "promise": [
        '3| "Do not be afraid," said~>hero {hero_name}. "I@hero have~hero {tool}."',
        "1| {hero_name} smiled~hero and showed~hero {helper.him} the {tool.bare}.",
    ],
    "fix": {
        "pull": [
            "{hero.He} let~hero the {tool.bare} down and pulled~hero the {helper} out.",
            "The {helper} held~helper the {tool.bare} tight and climbed~helper up.",
        ],
        "light": [
            "{hero.He} held~hero up the {tool.bare}, and the {helper} saw~helper the path home.",
            "The {tool.bare} {tool.was} bright, and the {helper} found~helper the way.",
        ],
        "food": [
            "{hero.He} shared~hero the {tool.bare} with the {helper}.",
            "The {tool.bare} {tool.was} good, and the {helper} ate~helper every crumb.",
        ],
        "warm": [
            "{hero.He} put~hero the {tool.bare} around the {helper}.",
            "The {tool.bare} {tool.was} soft, and soon the {helper} was~helper warm.",
        ],
        "open": [
            "{hero.He} turned~hero the {tool.bare} in the lock, and the {helper} was~helper free.",
            "The {tool.bare} {tool.was} just right, and out came~>helper the {helper}.",
        ],
    },
    # the second plot: the hero loses what matters most
    "toy": [*TOYS[:4], *TOYS[-6:-4]],
    "slip": [
        "2| {hero.He} tripped~hero, and the {toy.bare} fell~toy into [hole].",
        "1| There the {toy.bare} slipped~toy away and rolled~toy into [hole].",
    ],
    "hole": [word for words in HOLES.values() for word in words[:2]],
    "sorrow": [
        "2| The {toy.bare} {toy.was} gone, and {hero_name} began~hero to cry.",
        "1| The {toy.bare} that {hero.he} loved~hero so much {toy.was} gone.",
    ],
    "offer": [
        '2| "Why are~>hero you@hero sad?" asked~>helper [size] [helper:hole.kind]. '
        '"My@hero {toy.bare} {toy.is} in {hole}," said~>hero {hero_name}.',
        '1| Then [size] [helper:hole.kind] came~helper by. "I@helper can~helper find the {toy.bare}," '
        "{helper.he} said~helper.",
    ],
    "dive": {
        "water": [
            "2| The {helper} swam~helper down and came~helper back with {toy.him}.",
            "1| The {helper} jumped~helper into {hole} and brought~helper {toy.him} up.",
        ],
        "earth": [
            "2| The {helper} crept~helper inside and came~helper back with {toy.him}.",
            "1| The {helper} looked~helper in every corner until {helper.he} saw~helper the {toy.bare}.",
        ],
        "thorns": [
            "2| The {helper} slipped~helper between the thorns and came~helper back with {toy.him}.",
            "1| No thorn@thorn could~thorn hurt the {helper}, and soon {helper.he} held~helper the "
            "{toy.bare}.",
        ],
    },
    "ending": [
        "3| From that day on, {hero_name} and the {helper} were~hero+helper friends.",
        "2| They@hero+helper walked~hero+helper to {place} together and laughed~hero+helper on the way.",
        "1| Then {hero_name} went~hero home to the {home.noun} with a happy heart.",
    ],
    "more": [
        "3| ",
        "1|  And the {helper} never forgot~helper {hero.him}.",
        "1|  They@hero+helper still tell~hero+helper the story [when].",
    ],
    "when": ["2| every winter", "1| at the {home.noun}", "1| near {place}"],
}
