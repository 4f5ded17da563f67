"""The share of a grid that one run of the tests takes: a tenth, at least one case, another each day.

`PELLUCID_ROTATION=3` takes share 3, and `PELLUCID_ROTATION=all` everything, as `make torture` does. In ten
days every case has run.
"""

import datetime
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

SHARES = 10
ROTATION = "PELLUCID_ROTATION"
T = TypeVar("T")


def choose_share() -> None:
    """Writes the share into the environment once, so that every worker takes the same at midnight too."""
    chosen = os.environ.setdefault(ROTATION, str(datetime.date.today().toordinal() % SHARES))
    if chosen != "all" and chosen not in map(str, range(SHARES)):
        raise ValueError(f"{ROTATION} must be 0 to {SHARES - 1}, or all; got {chosen!r}.")


def take_share(cases: Iterable[T]) -> list[T]:
    """Returns the cases of this run's share; of fewer than ten cases, the one whose turn it is.

    They are dealt in the order of a hash, so that a share does not hold one value of a parameter alone.
    """
    dealt = sorted(cases, key=lambda case: zlib.crc32(str(case).encode()))
    chosen = os.environ[ROTATION]
    return dealt if chosen == "all" or not dealt else dealt[int(chosen) % len(dealt) :: SHARES]


def take_turn(cases: Sequence[T]) -> list[T]:
    """Returns the one of a few cases whose turn it is, another each day."""
    chosen = os.environ[ROTATION]
    return [*cases] if chosen == "all" else [cases[int(chosen) % len(cases)]]


def how_to_repeat(nodeid: str) -> str:
    """Returns the commands that run a case, and all of its share, again."""
    share = f"{ROTATION}={os.environ[ROTATION]} python -m pytest"
    return f"{share} '{nodeid}'\n{share} {nodeid.partition('[')[0]}"
