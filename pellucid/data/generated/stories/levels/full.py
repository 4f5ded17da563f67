"""Full: three plots, many sentence shapes, and things introduced early that are needed later."""

from pellucid.data.generated.stories.grammar import Sources, Word
from pellucid.data.generated.stories.lexicon import (
    ADVISERS,
    DAYS,
    FINDERS,
    HOBBIES,
    HOMES,
    IN_NEED,
    LEISURE,
    MOODS,
    PLACES,
    SIZES,
    TREATS,
    heroes,
    names,
    relatives,
)
from pellucid.data.generated.stories.plots import borrowed, lost, rescue

CHOICES: Sources = {
    "story": ["[opening] [habit] [plot] [ending][more]"],
    "opening": [
        "4| Once upon a time there was~>hero [mood] [hero] named [hero_name:hero.gender]. "
        "{hero.He} lived~hero [home:hero.life].",
        "2| Long ago, when [olden], [mood] [hero] lived~hero [home:hero.life]. "
        "{hero.His} name@title was~title [hero_name:hero.gender].",
        "2| There was~>hero once [mood] [hero] who@hero+clause lived~clause [home:hero.life]. "
        "Everyone@everyone called~everyone {hero.him} [hero_name:hero.gender].",
        "1| This@this is~this the story of [mood] [hero]. "
        "{hero.He} was~hero called [hero_name:hero.gender], and {hero.he} lived~hero [home:hero.life].",
        "1| Not so long ago, [mood] [hero] named [hero_name:hero.gender] lived~hero [home:hero.life].",
        "1| Beyond the seven hills lived~>hero [mood] [hero] named [hero_name:hero.gender]. "
        "{hero.He} had~hero made {hero.his} home [home:hero.life].",
    ],
    "olden": [
        "2| wishes@wishes still came~wishes true",
        "1| the mountains@mountains were~mountains young",
        "1| the moon@moon was~moon closer",
        "1| every brook@brook could~brook talk",
    ],
    "mood": MOODS,
    "hero": heroes({"court": 3, "village": 3, "wild": 2, "farm": 2}, families=4),
    "hero_name": names(24),
    "home": HOMES,
    "habit": [
        "3| {hero.He} liked~hero to [hobby], and {hero.he} loved~hero [treat] more than anything.",
        "2| [leisure] {hero.he} liked~hero to [hobby] and to eat [treat].",
        "1| Nobody@nobody in the land was~nobody so fond of [treat] or so happy to [hobby].",
        "1| The days@days at the {home.noun} were~days happy, with [treat] to eat and time to [hobby].",
    ],
    "hobby": HOBBIES,
    "treat": TREATS,
    "leisure": LEISURE,
    "plot": [
        Word(rescue.PLOT, {"moral": "help"}, 3),
        Word(lost.PLOT, {"moral": "care"}, 3),
        Word(borrowed.PLOT, {"moral": "truth"}, 2),
    ],
    **rescue.CHOICES,
    **lost.CHOICES,
    **borrowed.CHOICES,
    "day": DAYS,
    "place": PLACES,
    "relative": relatives(4),
    "size": SIZES,
    "helper": {**IN_NEED, **FINDERS, "talk": ADVISERS},
    "ending": [
        "3| From that day on, {hero_name} and the {helper} were~hero+helper the best of friends.",
        "2| If you@you ever come~you to {place}, you@you may~you hear {hero_name} and the {helper} laugh.",
        "2| That night, at the {home.noun}, {hero_name} slept~hero better than ever before.",
        "1| The {helper} came~helper to the {home.noun} [often], and there was~>feast always [feast].",
    ],
    "often": ["2| every week", "1| on feast days", "1| each spring"],
    "feast": ["2| a warm welcome@feast", "1| a good supper@feast"],
    "more": ["3| ", "2|  [coda]", "2|  [moral:plot.moral]"],
    "coda": [
        "2| {hero.His} {relative}, who@relative+clause loved~clause a good tale@tale, told~relative it@tale "
        "to "
        "everyone.",
        "1| And the {helper}, small as {helper.he} was~helper, felt~helper very grand.",
        "1| And for years the people@people of the valley still told~people the story.",
    ],
    "moral": {
        "help": [
            "2| A little help@help is~help never lost.",
            "1| Those@those who@those+clause help~clause others are~those never alone.",
        ],
        "care": [
            "2| A warning@warning from those who@those+clause love~clause you@you is~warning worth much.",
            "1| What we@we love~we, we@we must~we look after.",
        ],
        "truth": [
            "2| The truth@truth, even when it@truth is~truth late, is~truth always welcome.",
            "1| Mended things@things are~things often the strongest.",
        ],
    },
}
