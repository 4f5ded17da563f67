"""Methods whose function is imported on first use: a class has verbs of rooms later in the import order."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any


class LazyMethod:
    """Stands for a function of a module until it is asked for; then the class has the function itself."""

    def __init__(self, kind: type, module: str, name: str) -> None:
        self.kind, self.module, self.name = kind, module, name

    def __get__(self, instance: object, owner: type) -> Any:
        function = getattr(importlib.import_module(self.module), self.name)
        setattr(self.kind, self.name, function)
        return function.__get__(instance, owner)


def attach(kind: type, methods: Mapping[str, Sequence[str]]) -> None:
    """Gives a class the functions that each module lists, as methods of the same names."""
    for module, names in methods.items():
        for name in names:
            setattr(kind, name, LazyMethod(kind, module, name))
