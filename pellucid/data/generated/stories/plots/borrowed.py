"""The plot of the borrowed thing: it breaks, and the truth must be told."""

from pellucid.data.generated.stories.grammar import Sources
from pellucid.data.generated.stories.lexicon import LOANS

PLOT = "[wish] [leave] [outing] [accident] [hiding] [advice] [confession] [pardon] [mend:loan.stuff] [result]"

CHOICES: Sources = {
    "loan": LOANS,
    "wish": [
        "2| {hero.His} [relative] had~relative [loan], and {hero_name} longed~hero to borrow {loan.him}.",
        "1| {hero_name} had~hero always admired [loan] that belonged~loan to {hero.his} [relative].",
    ],
    "leave": [
        '2| "You@hero may~hero take {loan.him}," said~>relative {hero.his} {relative}, "but be home before '
        '[dusk]."',
        '1| "Take {loan.him} if you@hero like~hero," said~>relative {hero.his} {relative}, "and be back '
        'before [dusk]."',
    ],
    "dusk": ["2| nightfall", "2| supper", "1| sunset", "1| moonrise"],
    "outing": [
        "2| [free_day] {hero.he} took~hero the {loan.bare} to [place] and showed~hero {loan.him} to "
        "everyone.",
        "1| [free_day] {hero.he} carried~hero the {loan.bare} to [place], and the hours@hours there "
        "were~hours "
        "short.",
    ],
    "free_day": ["3| The next morning", "2| The next day", "1| On Saturday"],
    "accident": [
        "3| But on the way back {hero.he} jumped~hero over a ditch and fell~hero. "
        "The {loan.bare} {loan.was} [damage:loan.stuff].",
        "2| Then a cart@cart rolled~cart past, and the {loan.bare} under its@cart wheels {loan.was} "
        "[damage:loan.stuff].",
        "1| Then a dog@dog wanted~dog to play. When it@dog ran~dog off, the {loan.bare} {loan.was} "
        "[damage:loan.stuff].",
    ],
    "damage": {"cloth": ["2| torn", "1| ripped in two"], "wood": ["2| broken", "1| cracked in two"]},
    "hiding": [
        '2| "I@hero could~hero hide {loan.him} under [cover]," {hero.he} thought~hero.',
        "1| {hero.He} was~hero so ashamed that {hero.he} hid~hero under [cover].",
    ],
    "cover": ["2| the hay", "1| a bush", "1| the leaves", "1| some sacks"],
    "advice": [
        '2| "Will~>that that@that mend {loan.him}?" asked~>helper [size] [helper:loan.advice].',
        '2| "The truth@truth is~truth only heavy once," said~>helper [size] [helper:loan.advice].',
        '1| "I@helper saw~helper it all," said~>helper [size] [helper:loan.advice]. "Go and tell your@hero '
        '{relative}."',
    ],
    "confession": [
        '2| So {hero_name} went~hero home to the {home.noun}. "The {loan.bare} {loan.is} {damage}, and '
        "I@hero am~hero "
        'sorry," {hero.he} said~hero.',
        "1| So {hero_name} ran~hero to {hero.his} {relative} before {dusk} and told~hero {relative.him} "
        "everything.",
    ],
    "pardon": [
        '2| "I@relative am~relative glad that you@hero told~hero me@relative," said~>relative {hero.his} '
        "{relative}.",
        '1| "Things@things can~things be mended," said~>relative {hero.his} {relative} after a while.',
        '1| "At your@hero age I@relative did~relative the same," laughed~>relative {hero.his} {relative}.',
    ],
    "mend": {
        "cloth": [
            "2| They@hero+relative took~hero+relative needle and thread and sewed~hero+relative by "
            "candlelight.",
            "1| They@hero+relative found~hero+relative a patch@patch as blue as the sky and "
            "sewed~hero+relative it@patch on.",
        ],
        "wood": [
            "2| They@hero+relative took~hero+relative glue and nails and worked~hero+relative by "
            "candlelight.",
            "1| They@hero+relative mended~hero+relative {loan.him} and ate~hero+relative {treat} while the "
            "glue@glue dried~glue.",
        ],
    },
    "result": [
        "2| In the morning the {loan.bare} {loan.was} as good as new.",
        "1| The {loan.bare} that had~loan been {damage} {loan.was} whole again.",
    ],
}
