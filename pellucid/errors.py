"""Errors for people: what was asked, why it cannot be, what would work.

PellucidError
├── ConfigError     sizes or choices that make no model
├── AddressError    a name or an index that is not there
├── TokenError      text that the tokenizer cannot read
├── FileError       a file that is missing, foreign, damaged or newer than this program
├── TapeError       a step that cannot be taken
├── RankError       processes that train together and lost each other
└── AskedWrongly    options that do not go together

The command line prints the message alone and exits with 2: it was asked wrongly.
"""

import difflib
from collections.abc import Iterable


class PellucidError(Exception):
    """Something a person can mend; never shown with a traceback."""


class ConfigError(PellucidError):
    pass


class AddressError(PellucidError):
    pass


class TokenError(PellucidError):
    pass


class FileError(PellucidError):
    pass


class TapeError(PellucidError):
    pass


class RankError(PellucidError):
    pass


class AskedWrongly(PellucidError):
    pass


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """A hint to append to a message, or nothing when no known word is close.

    >>> did_you_mean("ropee", ["learned", "rope"])
    ' Did you mean rope?'
    """
    close = difflib.get_close_matches(word, list(known), n=most, cutoff=0.5)
    return f" Did you mean {' or '.join(close)}?" if close else ""
