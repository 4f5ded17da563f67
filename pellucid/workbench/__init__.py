"""`pellucid.load` and the model it returns."""

from pellucid.interop.resolve import is_config_only, open_model, read_config
from pellucid.workbench.model import Model
from pellucid.workbench.opening import load

__all__ = ["Model", "is_config_only", "load", "open_model", "read_config"]
