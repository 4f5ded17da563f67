"""Tiny: a grammar so small that every one of its stories can be listed."""

from pellucid.data.generated.stories.grammar import Sources
from pellucid.data.generated.stories.lexicon import HOLES, TOYS, beings, heroes, names

CHOICES: Sources = {
    "story": ["[opening] [loss] [rescue][more]"],
    "opening": [
        "2| Once there was~>hero [mood] [hero] named [hero_name:hero.gender].",
        "1| Once there lived~>hero [mood] [hero]. {hero.His} name@title was~title [hero_name:hero.gender].",
    ],
    "mood": ["2| a kind", "1| a brave"],
    "hero": heroes({"court": 2, "farm": 1}, families=1),
    "hero_name": names(2),
    "loss": ["{hero.He} had~hero [toy], but the {toy.bare} fell~toy into [hole]."],
    "toy": [TOYS[0], TOYS[-6]],
    "hole": [HOLES["water"][0], HOLES["earth"][0]],
    "rescue": [
        "2| A [helper:hole.kind] found~helper {toy.him} there.",
        "1| {toy.He} {toy.was} found by a [helper:hole.kind].",
    ],
    "helper": {"water": beings("frog turtle"), "earth": beings("mole mouse")},
    "more": ["3| ", "1|  {hero.He} was~hero happy again."],
}
