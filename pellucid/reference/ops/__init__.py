"""The operations, one idea per file. The folder is the registry: `named("softmax")`."""

import functools
import importlib
import pkgutil

from pellucid.errors import TapeError, did_you_mean
from pellucid.reference.op import Op


@functools.cache
def table() -> dict[str, Op]:
    """Every operation by name, found by listing the folder."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return {
        thing.name: thing for module in modules for thing in vars(module).values() if isinstance(thing, Op)
    }


def named(name: str) -> Op:
    if name not in table():
        raise TapeError(f"no operation called {name!r}." + did_you_mean(name, table()))
    return table()[name]
