"""Families of kinds: a family is a folder or a module, and nothing else lists its kinds.

The kinds of a folder are its files: `parts/positions/rope.py` is the kind "rope". The kinds of a module are
the classes and functions in it that have a `kind` of their own: `kind: ClassVar[str] = "tanh"` in a class,
`@registry.kind("tanh")` over a function.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from pellucid.base.errors import ConfigError, unknown

Thing = TypeVar("Thing")


def kind(name: str) -> Callable[[Thing], Thing]:
    """Returns a decorator that marks a function as the kind of that name in its module."""

    def mark(function: Thing) -> Thing:
        function.kind = name  # type: ignore[attr-defined]
        return function

    return mark


def kinds(family: str) -> list[str]:
    """Returns the kinds of a family, sorted by name."""
    return list(_members(family))


@functools.cache
def _members(family: str) -> dict[str, Any]:
    """Returns the class or function of each kind of a module; None for a folder, whose files are imported
    when they are used."""
    home = importlib.import_module(family)
    if hasattr(home, "__path__"):
        return dict.fromkeys(sorted(module.name for module in pkgutil.iter_modules(home.__path__)))
    found = {vars(thing)["kind"]: thing for thing in vars(home).values() if _has_kind(thing, family)}
    return dict(sorted(found.items()))


def _has_kind(thing: Any, family: str) -> bool:
    return isinstance(thing, type | FunctionType) and thing.__module__ == family and "kind" in vars(thing)


def find(family: str, kind: str, what: str) -> Any:
    """Returns the file of a kind (a module), or its class or function where the family is a module.

    `what` names the family in the error for an unknown kind.
    """
    members = _members(family)
    if kind not in members:
        raise ConfigError(unknown(what, kind, members))
    return members[kind] or importlib.import_module(f"{family}.{kind}")


def module_of(family: str, kind: str, what: str) -> ModuleType:
    """Returns the file of a kind, in a family that is a folder."""
    module: ModuleType = find(family, kind, what)
    return module


def function_of(family: str, kind: str, what: str) -> Callable[..., Any]:
    """Returns the function of a kind, in a family that is a module."""
    function: Callable[..., Any] = find(family, kind, what)
    return function


def class_of(family: str, kind: str, what: str, base: type[Thing]) -> type[Thing]:
    """Returns the class of a kind: in a folder, the one subclass of `base` that the kind's file defines."""
    found = find(family, kind, what)
    if not isinstance(found, ModuleType):
        return found  # type: ignore[no-any-return]
    return next(
        thing
        for thing in vars(found).values()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == found.__name__
    )
