"""The operations, one idea per file. The folder is the registry: `find_op("softmax")`."""

import functools
import importlib
import pkgutil

from pellucid.base.errors import TapeError, unknown
from pellucid.reference.op import Op


@functools.cache
def table() -> dict[str, Op]:
    """Returns every operation by name, found by listing the folder."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return {
        thing.name: thing for module in modules for thing in vars(module).values() if isinstance(thing, Op)
    }


def find_op(name: str) -> Op:
    """Returns the operation of that name."""
    if name not in table():
        raise TapeError(unknown("operation", name, table()))
    return table()[name]
