"""The kept list: a table of tab-separated values, one mutation to a line."""

import dataclasses
from itertools import islice
from pathlib import Path

from tests.faults.drawn.draw import COUNT, SEED, draw, draw_distinct
from tests.faults.drawn.mutation import Gone, Mutation

FILE = Path(__file__).with_name("drawn.tsv")
FIELDS = dataclasses.fields(Mutation)


def write(mutations: list[Mutation], path: Path = FILE) -> None:
    rows = [[str(getattr(one, field.name)) for field in FIELDS] for one in mutations]
    assert not any(set("\t\n") & set(cell) for row in rows for cell in row)
    path.write_text(
        "\n".join("\t".join(row) for row in ([field.name for field in FIELDS], *rows)) + "\n", "utf-8"
    )


def read(path: Path = FILE) -> list[Mutation]:
    names, *rows = (line.split("\t") for line in path.read_text("utf-8").removesuffix("\n").split("\n"))
    assert names == [field.name for field in FIELDS], names
    return [_parse(row) for row in rows]


def _parse(row: list[str]) -> Mutation:
    cells = zip(FIELDS, row, strict=True)
    return Mutation(**{f.name: int(cell) if f.type in (int, "int") else cell for f, cell in cells})


def locate_all(mutations: list[Mutation]) -> tuple[list[Mutation], list[Mutation]]:
    """Returns the mutations with the lines that they change now, in place of each that is gone the next
    number of its seed; and those that are gone."""
    found, gone = list[Mutation](), list[Mutation]()
    for one in mutations:
        try:
            found.append(one.locate())
        except Gone:
            gone.append(one)
    last = max((one.number for one in mutations), default=0)
    found += (draw(gone[0].seed, last + place) for place in range(1, len(gone) + 1))
    return found, gone


if __name__ == "__main__":
    write(list(islice(draw_distinct(SEED), COUNT)))
