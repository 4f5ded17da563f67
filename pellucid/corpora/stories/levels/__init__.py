"""The levels of difficulty: one file each, the file name is the level."""

from functools import cache
from importlib import import_module

from pellucid.corpora.stories.grammar import Grammar, GrammarError
from pellucid.errors import did_you_mean

LEVELS = ("tiny", "easy", "full")


@cache
def grammar(level: str) -> Grammar:
    """The compiled grammar of a level."""
    if level not in LEVELS:
        raise GrammarError(
            f"stories have no level {level!r}; they have {', '.join(LEVELS)}.{did_you_mean(level, LEVELS)}"
        )
    return Grammar(import_module(f"{__name__}.{level}").CHOICES)
