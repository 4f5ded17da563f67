"""The generator: number n of a seed is drawn by itself, from the area to the size of the change."""

import random
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.faults.drawn import c_operators, python_operators
from tests.faults.drawn.areas import AREAS, ROOT, list_files
from tests.faults.drawn.mutation import Mutation, Place, make_mutation, read_source

SEED = 1
"""Of the list that is kept."""
COUNT = 200
NEW_COUNT = 20
"""Of the new ones of a day."""


@cache
def list_places(area: str) -> dict[str, list[Place]]:
    """Returns the places of an area by operator, in order."""
    found = defaultdict[str, list[Place]](list)
    for file in list_files(area):
        operators = python_operators if file.endswith(".py") else c_operators
        for place in operators.find_places(file, read_source(file)):
            found[place.operator].append(place)
    return dict(sorted(found.items()))


def draw(seed: int, number: int) -> Mutation:
    """Returns mutation `number` of a seed: an area by its share, then an operator, a place and a size, each
    as likely as the others."""
    rng = random.Random(f"{seed}:{number}")
    while True:
        area = rng.choices([*AREAS], [share for share, _ in AREAS.values()])[0]
        places = list_places(area)
        place = rng.choice(places[rng.choice([*places])])
        mutation = make_mutation(number, seed, area, place, rng.choice(place.options))
        if _is_program(mutation):
            return mutation


def draw_distinct(seed: int, taken: set[tuple[str, int, int, str]] | None = None) -> Iterator[Mutation]:
    """Yields the mutations of a seed in order, each change once."""
    taken, number = set() if taken is None else taken, 0
    while True:
        number += 1
        mutation = draw(seed, number)
        key = mutation.file, mutation.line, mutation.column, mutation.after
        if key not in taken:
            taken.add(key)
            yield mutation


def _is_program(mutation: Mutation) -> bool:
    """Whether the changed source is one of Python's; of C, the compiler decides."""
    source = mutation.apply(read_source(mutation.file))
    if not mutation.file.endswith(".py"):
        return True
    try:
        compile(source, str(ROOT / mutation.file), "exec")
    except SyntaxError:
        return False
    return True
