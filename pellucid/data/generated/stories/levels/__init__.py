"""The levels of difficulty: one file each, the file name is the level."""

from functools import cache
from importlib import import_module

from pellucid.base.errors import unknown
from pellucid.data.generated.stories.grammar import Grammar, GrammarError

LEVELS = ("tiny", "easy", "full")


@cache
def grammar(level: str) -> Grammar:
    """Returns the compiled grammar of a level."""
    if level not in LEVELS:
        raise GrammarError(unknown("the level of stories", level, LEVELS))
    return Grammar(import_module(f"{__name__}.{level}").CHOICES)
