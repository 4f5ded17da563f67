"""`pellucid.load` and the model it returns."""

from pellucid.interop.named import config_of, opened, weightless
from pellucid.workbench.model import Model
from pellucid.workbench.opening import load

__all__ = ["Model", "config_of", "load", "opened", "weightless"]
