"""A language-model workbench in which every number can be seen, checked and reproduced.

import pellucid
model = pellucid.load("abcd")
print(model.explain("A B", at="probs[t=1,v=2]", depth=4))
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Model", "ModelConfig", "Tape", "edit", "load", "record"]

_WHERE = {
    "load": "pellucid.workbench",
    "Model": "pellucid.workbench",
    "ModelConfig": "pellucid.config",
    "Tape": "pellucid.reference.tape",
    "record": "pellucid.model.taps",
    "edit": "pellucid.model.taps",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that a command pays only for what it needs."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
