"""Errors with a message for the user: the fact, the reason, and what would work.

PellucidError
├── ConfigError     sizes or choices that cannot be combined, or do not exist
├── AddressError    a name or an index of a value that does not exist
├── TokenError      a text or ids that the tokenizer or the model cannot read
├── FileError       a file that is missing, of another format, damaged or of a newer version
│   └── ResourceError   the disk, the memory or the network failed; the same request may work later
├── TapeError       a step that cannot be computed
├── RankError       processes of one training run that lost each other
└── UsageError      options or arguments of a wrong type, or that cannot be combined

The command line prints the message alone and exits with `exit_code`: 2 for a usage error, 3 where a resource
failed.
"""

import contextlib
import difflib
import errno
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar


class PellucidError(Exception):
    """The base of every error that the user can correct; the command line prints it without a traceback.

    >>> import pellucid
    >>> try:
    ...     pellucid.load("abcd").generate("A B", max_new_tokens="4")
    ... except pellucid.PellucidError as error:
    ...     print(f"{type(error).__name__}: {error}")
    UsageError: max_new_tokens must be a whole number from 0 to 1,000,000,000, not '4'.
    """

    exit_code: ClassVar[int] = 2
    path: str = ""
    """The key or the parameter whose value is wrong, "" where it is none or not known."""


class ConfigError(PellucidError):
    """Sizes or choices of a model or a recipe that cannot be combined, or do not exist."""


class AddressError(PellucidError):
    """A name or an index of a value that does not exist."""


class TokenError(PellucidError):
    """A text or ids that the tokenizer or the model cannot read."""


class FileError(PellucidError):
    """A file that is missing, of another format, damaged or of a newer version."""


class ResourceError(FileError):
    """The disk, the memory or the network failed; the same request may work later."""

    exit_code = 3


class TapeError(PellucidError):
    """A step that the specification cannot compute."""


class RankError(PellucidError):
    """Processes of one training run that lost each other."""


class UsageError(PellucidError):
    """Options or arguments of a wrong type, or that cannot be combined."""


CLOSE = 0.65
"""The least similarity of a misspelled word to the one that was meant: an edit or two of a short one."""


def did_you_mean(word: object, known: Iterable[str], most: int = 1) -> str:
    """Returns a hint to append to a message, "" where no known word is close, or begins as this one does.

    For a word that a person typed: see `not_one_of` for others. A word with another digit is another thing.

    >>> did_you_mean("ropee", ["learned", "rope"]), did_you_mean("char", ["bytes", "characters"])
    (" Did you mean 'rope'?", " Did you mean 'characters'?")
    >>> did_you_mean("adamW", ["adam", "adamw"])
    " Did you mean 'adamw'?"
    >>> did_you_mean("gpt_neox", ["gpt2"]), did_you_mean("smollm3", ["smollm2-135m"])
    ('', '')
    """
    if not isinstance(word, str):
        return ""
    typed = word.lower()
    names = {name.lower(): name for name in known if not _has_other_digits(typed, name)}
    close = difflib.get_close_matches(typed, names, n=most, cutoff=CLOSE)
    if not close and len(typed) >= 3:
        close = [name for name in names if name.startswith(typed)][:most]
    return f" Did you mean {' or '.join(repr(names[name]) for name in close)}?" if close else ""


def _has_other_digits(word: str, name: str) -> bool:
    """Returns whether two words have numbers of as many digits at the same place, and not the same
    numbers."""
    pairs = zip(re.findall(r"\d+", word), re.findall(r"\d+", name), strict=False)
    return any(len(ours) == len(theirs) and ours != theirs for ours, theirs in pairs)


def not_one_of(kind: str, name: object, known: Iterable[str], most: int = 40) -> str:
    """Returns the message for a name that a program wrote into a file, and that is not one of the known ones.

    Nothing is proposed: such a name is not misspelled, it is that of another thing, such as another family.

    >>> not_one_of("model_type", "mixtral", ["llama", "mistral"])
    "model_type must be one of llama, mistral; got 'mixtral'."
    """
    names = list(known)
    listed = ", ".join(names[:most]) + (f", … ({len(names):,} in all)" if len(names) > most else "")
    return f"{kind} must be one of {listed}; got {show(name)}."


def unknown(kind: str, name: object, known: Iterable[str], most: int = 40) -> str:
    """Returns the message for a name that a person typed, and that is not one of the known ones.

    >>> unknown("model.mask", "causl", ["causal", "window"])
    "model.mask must be one of causal, window; got 'causl'. Did you mean 'causal'?"
    """
    names = list(known)
    return not_one_of(kind, name, names, most) + did_you_mean(name, names)


def show(value: object, most: int = 80) -> str:
    """Returns a value's repr on one line, cut to a message's length; its type where the repr fails.

    >>> show([1] * 100, most=12)
    '[1, 1, 1, 1…'
    """
    try:
        text = " ".join(repr(_cut(value, most)).split())
    except Exception:  # an integer of 5,000 digits, or a foreign __repr__
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= most else text[: most - 1] + "…"


def _cut(value: Any, most: int) -> Any:
    """Returns a value whose repr is the same up to a length: millions of entries are not written first."""
    match value:
        case str() | bytes() if len(value) > 4 * most:
            return value[: 4 * most]
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_cut(entry, most) for entry in value[:most])
        case dict() if type(value) is dict:
            return {_cut(key, most): _cut(entry, most) for key, entry in islice(value.items(), most)}
    return _Moment(value) if hasattr(value, "isoformat") else value


class _Moment:
    """A date or a time, whose repr is what TOML writes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        kind = {"date": "a date", "time": "a time"}.get(type(self.value).__name__, "a date and time")
        return f"{self.value.isoformat()} ({kind})"


def quote(said: object, most: int = 200) -> str:
    """Returns what a library said, short enough for a message: its first line, without the final stop.

    >>> quote(ValueError("no such key.\\nHere are 400 lines more."))
    'no such key'
    """
    lines = [line.strip() for line in str(said).splitlines()]
    first = next(filter(None, lines), type(said).__name__).rstrip(".!")
    return first if len(first) <= most else f"{first[: most - 1]}…"


RESOURCE_ERRNOS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
        errno.EAGAIN, errno.ENOLCK, errno.ESTALE, errno.ETIMEDOUT, errno.ENETUNREACH, errno.EHOSTUNREACH,
        errno.ECONNREFUSED, errno.ECONNRESET,
    }
)  # fmt: skip
"""Failures of the machine, not of the request."""


def file_error(verb: str, path: str | Path, error: OSError) -> FileError:
    """Returns the error "cannot VERB PATH: reason." for a failed system call.

    It is a `ResourceError` where the machine failed (full disk, bad disk, no memory, no network).

    >>> str(file_error("write", "a.json", OSError(errno.ENOSPC, "No space left on device")))
    'cannot write a.json: No space left on device.'
    """
    kind = ResourceError if error.errno in RESOURCE_ERRNOS else FileError
    name = str(path)
    short = name if len(name) <= 500 else f"{name[:80]}…"  # a user may give a name of any length
    return kind(f"cannot {verb} {short}: {error.strerror or error}.")


@contextlib.contextmanager
def file_errors(verb: str, path: str | Path) -> Iterator[None]:
    """Turns a failed system call inside the block into the error "cannot VERB PATH: reason."."""
    try:
        yield
    except OSError as error:
        raise file_error(verb, path, error) from None
