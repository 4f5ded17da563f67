"""Types of numbers by their names, as people give them: "bfloat16", or `torch.bfloat16`."""

from collections.abc import Sequence
from typing import Any

from pellucid.arguments import show
from pellucid.errors import ConfigError

DTYPES = ("float64", "float32", "bfloat16", "float16")
CACHES = (*DTYPES, "int8")


def name_of(dtype: Any) -> str:
    """
    >>> name_of("torch.bfloat16")
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def known(given: Any, names: Sequence[str]) -> str:
    """Returns the name of a type, if it is one of these."""
    if type(given).__name__ not in ("str", "dtype"):
        raise ConfigError(f"a dtype is one of {', '.join(names)}, not {show(given)}.")
    if (name := name_of(given)) not in names:
        raise ConfigError(f"no dtype called {name!r}; have {', '.join(names)}.")
    return name
