"""The plot of the right tool: what the hero carries is what a stranger will need."""

from pellucid.data.generated.stories.grammar import Sources
from pellucid.data.generated.stories.lexicon import TOOLS

PLOT = (
    "[send] [travel] [meeting] [plea] [reason:tool.use] [promise] [attempt:tool.use] [again] [fix:tool.use] "
    "[thanks] [arrival]"
)

CHOICES: Sources = {
    "tool": [word for words in TOOLS.values() for word in words],
    "send": [
        '3| [day], {hero_name} set~hero out for [place]. "Take [tool] with you@hero," said~>relative '
        "{hero.his} [relative]. "
        '"{tool.He} may~tool be of use@use."',
        '2| [day], {hero.his} [relative] gave~relative {hero.him} [tool]. "Carry {tool.him} to [place]," '
        "{relative.he} "
        'said~relative, "and do not be late."',
        "1| [day], {hero.he} found~hero [tool] that once belonged~tool to {hero.his} [relative]. "
        "{hero.He} took~hero {tool.him} along and set~hero out for [place].",
    ],
    "travel": [
        "3| At the crossroads {hero.he} took~hero the wrong turn and came~hero to [wild].",
        "2| The hills@hills on both sides of the road were~hills [coloured], and {hero.he} walked~hero "
        "slowly.",
        "1| {hero.He} ran~hero after a butterfly, lost~hero the path and came~hero to [wild].",
        "1| A gust@gust of wind took~gust {hero.his} hat@hat, and {hero.he} chased~hero it@hat to [wild].",
        "1| On the way {hero.he} sang~hero a song about {treat}.",
        "1| The birds@birds in the old tree by the road were~birds [still].",
    ],
    "coloured": ["2| green", "1| blue", "1| steep"],
    "still": ["2| quiet", "1| asleep"],
    "wild": ["2| a silent valley", "1| an empty moor", "1| a strange wood", "1| a lonely hillside"],
    "meeting": [
        "3| There, [spot:tool.use], {hero.he} saw~hero [size] [helper:tool.use].",
        "2| {hero.He} heard~hero somebody weep. It@helper was~helper [size] [helper:tool.use], "
        "[spot:tool.use].",
        "1| Not far off, [spot:tool.use], was~>helper [size] [helper:tool.use].",
    ],
    "spot": {
        "pull": ["2| at the bottom of a hole", "1| deep down in a dry well", "1| in a sandy pit"],
        "light": ["2| in the mouth of a dark cave", "1| inside a long tunnel", "1| in a forgotten mine"],
        "food": ["2| under a bare tree", "1| beside an empty bowl", "1| on a cold doorstep"],
        "warm": ["2| in the snow", "1| beside a frozen brook", "1| behind an icy rock"],
        "open": ["2| behind the bars of a cage", "1| inside a locked shed", "1| behind an iron gate"],
        "drink": ["2| at the edge of a dusty field", "1| in a dry ditch", "1| under the burning sun"],
        "call": ["2| in the middle of a thick fog", "1| alone among the reeds", "1| lost in the tall corn"],
        "climb": ["2| at the top of a pine", "1| high up on a stone wall", "1| on the roof of a windmill"],
    },
    "plea": [
        '3| "Please help me@helper!" cried~>helper the {helper}.',
        '2| "Oh dear, oh dear," sighed~>helper the {helper}.',
        "1| The {helper} looked~helper at {hero.him} with sad eyes.",
    ],
    "reason": {
        "pull": [
            '2| "I@helper cannot~helper get out again."',
            '1| "The sides@sides are~sides too steep for me@helper."',
        ],
        "light": [
            '2| "I@helper cannot~helper see my@helper own feet."',
            '1| "The dark@dark is~dark so very dark."',
        ],
        "food": [
            '2| "I@helper have~helper not eaten for two days."',
            '1| "I@helper am~helper too hungry to walk."',
        ],
        "warm": [
            '2| "I@helper cannot~helper feel my@helper own toes."',
            '1| "The nights@nights in this wind are~nights terrible."',
        ],
        "open": [
            '2| "Somebody@somebody locked~somebody me@helper in and went~somebody away."',
            '1| "The lock@lock is~lock too strong for me@helper."',
        ],
        "drink": [
            '2| "I@helper have~helper not drunk since Sunday."',
            '1| "Every spring@spring in these hills is~spring dry."',
        ],
        "call": [
            '2| "My@helper mother@mother cannot~mother hear me@helper."',
            '1| "The others@others have~others gone without me@helper."',
        ],
        "climb": [
            '2| "I@helper am~helper afraid to come down."',
            '1| "The ground@ground is~ground so far away."',
        ],
    },
    "promise": [
        '3| "Do not be afraid," said~>hero {hero_name}. "I@hero have~hero {tool}."',
        '2| {hero_name} thought~hero of the {tool.bare}. "Wait," {hero.he} said~hero.',
        '1| "How lucky that I@hero brought~hero {tool}!" said~>hero {hero_name}.',
    ],
    "attempt": {
        "pull": [
            "2| At first the knot@knot slipped~knot, and the {helper} fell~helper back.",
            "1| At first the {tool.bare} {tool.was} caught on a root.",
        ],
        "light": [
            "2| At first the wind@wind blew~wind the flame out.",
            "1| At first {hero.his} matches@matches were~matches too wet to burn.",
        ],
        "food": [
            "2| At first the {helper} was~helper too weak to sit up.",
            "1| At first the {tool.bare} dropped~tool in the mud.",
        ],
        "warm": [
            "2| At first the {tool.bare} slid~tool off again.",
            "1| At first the {tool.bare} {tool.was} not enough.",
        ],
        "open": [
            "2| At first the lock@lock was~lock too stiff.",
            "1| At first the {tool.bare} {tool.was} upside down.",
        ],
        "drink": [
            "2| At first the {tool.bare} tipped~tool over and nearly rolled~tool away.",
            "1| At first the {helper} was~helper too shy to drink.",
        ],
        "call": [
            "2| At first nobody@nobody in the hills answered~nobody.",
            "1| At first only an echo@echo came~echo back.",
        ],
        "climb": [
            "2| At first the {tool.bare} stood~tool crooked and fell~tool over.",
            "1| At first the {helper} was~helper too frightened to move.",
        ],
    },
    "again": [
        "3| But {hero_name} did~hero not give up.",
        '2| "Once more," said~>hero {hero_name}.',
        "1| {hero_name} tried~hero again.",
    ],
    "fix": {
        "pull": [
            "2| {hero.He} pulled~hero at the {tool.bare} until the {helper} was~helper out.",
            "1| Slowly, with the {tool.bare} held tight, the {helper} climbed~helper into the sun.",
        ],
        "light": [
            "2| Soon the {tool.bare} burned~tool brightly, and the {helper} saw~helper the way out.",
            "1| {hero.He} went~hero ahead with the {tool.bare}, and the {helper} followed~helper the light "
            "home.",
        ],
        "food": [
            "2| {hero.He} began~hero with a small piece, and the {helper} ate~helper every crumb.",
            "1| The best part@part of the {tool.bare} was~part for the {helper}, who@helper+clause "
            "chewed~clause "
            "happily.",
        ],
        "warm": [
            "2| {hero.He} wrapped~hero {tool.him} around the {helper}, who@helper+clause soon stopped~clause "
            "shivering.",
            "1| Under the {tool.bare} the {helper} grew~helper as warm as toast.",
        ],
        "open": [
            "2| {hero.He} turned~hero the {tool.bare} with care. Click! The {helper} was~helper free.",
            "1| The {tool.bare}, old as {tool.he} {tool.was}, turned~tool at last, and out hopped~>helper "
            "the {helper}.",
        ],
        "drink": [
            "2| {hero.He} held~hero up the {tool.bare}, and the {helper} drank~helper to the last drop.",
            "1| The water@water from the {tool.bare} was~water cool, and the {helper} was~helper strong "
            "again.",
        ],
        "call": [
            "2| The sound@sound of the {tool.bare} was~sound so clear that the {helper}'s mother@mother "
            "came~mother running.",
            "1| Then somebody@somebody heard~somebody the {tool.bare}, and the {helper} was~helper alone no "
            "more.",
        ],
        "climb": [
            "2| {hero.He} held~hero the {tool.bare} steady, and the {helper} came~helper down step by step.",
            "1| Up went~>hero {hero_name}, and down {hero.he} came~hero with the {helper} on {hero.his} "
            "back@back.",
        ],
    },
    "thanks": [
        '3| "I@helper will~helper never forget this," said~>helper the {helper}.',
        '2| "Come and eat {treat} with me@hero," said~>hero {hero_name}.',
        "1| The {helper} danced~helper around {hero_name} for joy.",
    ],
    "arrival": [
        "2| The {helper} knew~helper a short way to {place}, so {hero_name} was~hero not late.",
        '2| At home {hero.his} {relative} smiled~relative. "So the {tool.bare} {tool.was} needed after all," '
        "{relative.he} "
        "said~relative.",
        "1| Together they@hero+helper went~hero+helper on to {place}, and the road@road seemed~road short.",
    ],
}
