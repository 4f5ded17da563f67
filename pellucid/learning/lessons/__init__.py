"""Lessons: pages whose numbers come from runs, each with its program and its worksheets."""

import importlib
from types import ModuleType


def import_program(part: str, name: str) -> ModuleType:
    """Returns the program of a lesson, a file of one of the folders here."""
    return importlib.import_module(f"{__name__}.{part}.{name}")
