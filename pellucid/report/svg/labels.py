"""Where the labels of points stand, so that they cover neither each other nor, where it can be, a line."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pellucid.report.svg.marks import text_width

LABEL = 11
"""The font size of a label."""
HIGH = 14
"""Pixels of a label's height."""
FAR = 12
"""Pixels from which on a label is joined with its point by a line."""
ROUNDS = 6
"""How many lines above or below its point a label may go."""

Point = tuple[float, float]


class Area(NamedTuple):
    """A rectangle on the page."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Area") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def nearest(self, point: Point) -> Point:
        """Returns the point of the area that is nearest to another one."""
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def distance(self, point: Point) -> float:
        return math.dist(point, self.nearest(point))

    def holds(self, point: Point) -> bool:
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


def place_labels(
    labels: Sequence[str], points: Sequence[Point], lines: Sequence[Point], room: Area
) -> list[Area]:
    """Returns the place of each label beside its point, within the room, the nearest that is free.

    >>> room = Area(0, 0, 100, 100)
    >>> a, b = place_labels(["one", "two"], [(50, 50), (52, 50)], [], room)
    >>> a.overlaps(b)
    False
    """
    placed: list[Area] = []
    for label, point in zip(labels, points, strict=True):
        dots = [Area(x - 5, y - 5, x + 5, y + 5) for x, y in points]

        def cost(box: Area) -> float:
            others = sum(box.overlaps(other) for other in placed)
            outside = box.left < room.left or box.right > room.right
            outside |= box.top < room.top or box.bottom > room.bottom
            over = sum(map(box.holds, lines)) + 10 * sum(box.overlaps(dot) for dot in dots)  # noqa: B023
            return 10_000 * others + 5_000 * outside + over

        places = list(_find_places(text_width(label, LABEL), point)) if label else [Area(*point, *point)]
        placed.append(min(places, key=cost))  # the first of the cheapest is the nearest
    return placed


def _find_places(width: float, point: Point) -> Iterator[Area]:
    """Yields the places around a point: above, below, right, left, then farther off."""
    x, y = point
    for away in range(ROUNDS):
        for shift in (0.0, 0.5 * width, -0.5 * width):
            left = x - width / 2 + shift
            above = y - 6 - away * HIGH
            yield Area(left, above - HIGH, left + width, above)
            yield Area(left, y + 6 + away * HIGH, left + width, y + 6 + (away + 1) * HIGH)
        if not away:
            yield Area(x + 7, y - HIGH / 2, x + 7 + width, y + HIGH / 2)
            yield Area(x - 7 - width, y - HIGH / 2, x - 7, y + HIGH / 2)
