"""The folder is the registry: a kind is the name of its file, and nothing else lists it."""

import functools
import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from pellucid.errors import ConfigError, did_you_mean

Thing = TypeVar("Thing")


def kinds(package: str) -> list[str]:
    """The kinds of a package, by listing its folder."""
    return list(_listed(package))


@functools.cache
def _listed(package: str) -> tuple[str, ...]:
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return tuple(sorted(module.name for module in found))


def module_of(package: str, kind: str, what: str) -> ModuleType:
    """The file of one kind; `what` is what people call such a thing."""
    known = kinds(package)
    if kind not in known:
        raise ConfigError(f"no {what} called {kind!r}; have {', '.join(known)}." + did_you_mean(kind, known))
    return importlib.import_module(f"{package}.{kind}")


def class_of(package: str, kind: str, what: str, base: type[Thing]) -> type[Thing]:
    """The one class of that base which a kind's file defines."""
    module = module_of(package, kind, what)
    return next(
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__
    )
