"""The plot of the lost gift: a warning is forgotten, and somebody small must help."""

from pellucid.data.generated.stories.grammar import Sources, Word
from pellucid.data.generated.stories.lexicon import HOLES, TOYS

PLOT = (
    "[gift] [forget] [slip] [loss] [search] [finder] [answer] [bargain] [wait] [dive:hole.kind] "
    "[pay:bargain.pay]"
)

CHOICES: Sources = {
    "toy": TOYS,
    "hole": [word for words in HOLES.values() for word in words],
    "gift": [
        '3| {hero.His} [relative] had~relative given {hero.him} [toy]. "Take care of {toy.him}," '
        "{relative.he} "
        'said~relative, "and stay away from [hole]."',
        "2| {hero.He} treasured~hero [toy], a gift from {hero.his} [relative]. "
        '"Never play with {toy.him} near [hole]," {relative.he} had~relative said.',
        '1| One year {hero.his} [relative] gave~relative {hero.him} [toy]. "The {toy.bare} {toy.is} old," '
        '{relative.he} said~relative. "Keep {toy.him} away from [hole]."',
    ],
    "forget": [
        "3| [day], on the way to [place], {hero_name} forgot~hero the warning.",
        "2| [day], {hero.he} was~hero late, and the shortest way@way to [place] was~way past {hole}.",
        "1| [day], {hero.he} stopped~hero to play near {hole} on the road to [place].",
    ],
    "slip": [
        "3| {hero.He} tripped~hero over a root, and the {toy.bare} flew~toy into {hole}.",
        "2| A crow@crow startled~crow {hero.him}, and down fell~>toy the {toy.bare} into {hole}.",
        "1| {hero.He} tossed~hero the {toy.bare} up once too often, and {toy.he} landed~toy in {hole}.",
    ],
    "loss": [
        "3| The {toy.bare} that {hero.his} {relative} had~relative given {hero.him} {toy.was} gone.",
        "2| In the blink of an eye the {toy.bare} {toy.was} gone.",
        "1| The {toy.bare}, which@toy+clause had~clause shone like a star, {toy.was} gone.",
    ],
    "search": [
        "2| {hero.He} reached~hero in, but {toy.he} {toy.was} too far away.",
        '2| "Why did~>hero I@hero not listen?" cried~>hero {hero_name}.',
        "1| The tears@tears in {hero.his} eyes were~tears as big as peas.",
    ],
    "finder": [
        '3| "What@what is~what the matter?" asked~>helper [size] [helper:hole.kind].',
        "2| [size_up] [helper:hole.kind] put~helper out {helper.his} head to look.",
        "1| Just then [size] [helper:hole.kind] came~helper along.",
    ],
    "size_up": ["2| A little", "1| A small", "1| A sleepy"],
    "answer": [
        '3| "My@hero {toy.bare} {toy.is} in {hole}," said~>hero {hero_name}.',
        "1| {hero_name} told~hero {helper.him} about the {toy.bare} and the warning.",
    ],
    "bargain": [
        Word(
            '"What will~>hero you@hero give me@helper for {toy.him}?" asked~>helper the {helper}. '
            '"All my@hero {treat}," said~>hero {hero_name}.',
            {"pay": "treat"},
            3,
        ),
        Word(
            '"Will~>hero you@hero listen next time?" asked~>helper the {helper}. '
            '"I@hero promise~hero," said~>hero {hero_name}.',
            {"pay": "word"},
            2,
        ),
        Word(
            '"Will~>hero you@hero {hobby} with me@helper?" asked~>helper the {helper}. {hero_name} '
            "nodded~hero.",
            {"pay": "hobby"},
            2,
        ),
    ],
    "wait": [
        "3| First the {helper} came~helper back with [rubbish:hole.kind].",
        "1| The {helper} was~helper gone for a long time.",
        "1| {hero.He} waited~hero for {helper.him} and counted~hero to [count].",
    ],
    "rubbish": {
        "water": ["2| an old boot", "1| a rusty kettle", "1| some slimy weeds"],
        "earth": ["2| a dry bone", "1| some mouldy acorns", "1| a cracked pot"],
        "thorns": ["2| a grey feather", "1| an empty nest", "1| a torn ribbon"],
    },
    "count": ["2| twenty", "2| fifty", "1| seventy-seven"],
    "dive": {
        "water": [
            "2| At last {helper.he} swam~helper to the bottom and brought~helper up the {toy.bare}.",
            "1| Then the water@water bubbled~water, and there {toy.was}~>toy the {toy.bare}, wet and "
            "shining.",
        ],
        "earth": [
            "2| At last {helper.he} dug~helper very deep and pulled~helper out the {toy.bare}.",
            "1| Then something@something rustled~something, and there {toy.was}~>toy the {toy.bare}, covered "
            "in dust.",
        ],
        "thorns": [
            "2| At last {helper.he} crept~helper between the thorns and found~helper the {toy.bare}.",
            "1| Then the leaves@leaves on a branch shook~leaves, and there {toy.was}~>toy the {toy.bare}.",
        ],
    },
    "pay": {
        "treat": [
            "2| {hero_name} kept~hero {hero.his} word, and the {helper} ate~helper {treat} all evening.",
            "1| So that evening there {treat.was}~>treat enough {treat} for two.",
        ],
        "word": [
            "2| {hero_name} kept~hero {hero.his} word and never again went~hero near {hole}.",
            "1| Since then {hero.he} has~hero always listened to {hero.his} {relative}.",
        ],
        "hobby": [
            "2| So the two of them@hero+helper went~hero+helper to the {home.noun} to {hobby}.",
            "1| And so {hero_name} had~hero somebody to {hobby} with.",
        ],
    },
}
