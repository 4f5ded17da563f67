"""Glob patterns over the names of parameters and values: `blocks.*.attn.q_proj.weight`."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from pellucid.base.errors import ConfigError, PellucidError, did_you_mean


def matches(name: str, patterns: Iterable[str]) -> bool:
    """
    >>> matches("blocks.3.attn.z", ["blocks.*.attn.*", "logits"])
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def select(
    names: Sequence[str], patterns: Sequence[str], option: str, error: type[PellucidError] = ConfigError
) -> list[str]:
    """Returns the names that match one of the patterns, in their order.

    A pattern that matches nothing was mistyped, and is refused; `option` says where it was given.

    >>> select(["embed.weight", "unembed.weight", "unembed.bias"], ["unembed.*"], "train.only")
    ['unembed.weight', 'unembed.bias']
    """
    for pattern in patterns:
        if not matches_any(names, pattern):
            listed = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
            hint = did_you_mean(pattern, names)
            raise error(f"{option}={pattern!r} matches no name; there are {listed}.{hint}")
    return [name for name in names if matches(name, patterns)]


def matches_any(names: Iterable[str], pattern: str) -> bool:
    """Returns whether the pattern matches one of the names."""
    return any(fnmatchcase(name, pattern) for name in names)
