"""A language-model workbench in which every number can be seen, checked and reproduced.

import pellucid
model = pellucid.load("abcd")
print(model.explain("A B", at="probs[t=1,v=2]", depth=4))
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers; at run time each is imported when it is first used
    from pellucid.config import ModelConfig
    from pellucid.errors import PellucidError
    from pellucid.model.taps import edit, record
    from pellucid.reference.tape import Tape
    from pellucid.workbench.model import Model
    from pellucid.workbench.opening import load
    from pellucid.workbench.training import train

__version__ = "0.1.0"
__all__ = ["Model", "ModelConfig", "PellucidError", "Tape", "edit", "load", "record", "train"]

_WHERE = {
    "load": "pellucid.workbench.opening",
    "train": "pellucid.workbench.training",
    "Model": "pellucid.workbench.model",
    "ModelConfig": "pellucid.config",
    "PellucidError": "pellucid.errors",
    "Tape": "pellucid.reference.tape",
    "record": "pellucid.model.taps",
    "edit": "pellucid.model.taps",
}


def __getattr__(name: str) -> object:
    """Imports on first use, so that a command pays only for what it needs."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """Lists what is public, for `dir(pellucid)` and Tab."""
    return [*__all__, "__version__"]
