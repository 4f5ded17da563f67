"""`pellucid.load` and the model it returns."""

from pellucid.workbench.model import Model
from pellucid.workbench.opening import config_of, load, opened, weightless

__all__ = ["Model", "config_of", "load", "opened", "weightless"]
