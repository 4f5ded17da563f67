"""`pellucid.load`: a model by what people call it, ready to compute."""

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.arguments import check_path
from pellucid.interop.resolve import open_model
from pellucid.workbench.checks import check_engine
from pellucid.workbench.model import Model

if TYPE_CHECKING:
    from torch import dtype as Dtype


def load(name: str | Path, *, device: str = "cpu", dtype: "str | Dtype" = "float32") -> Model:
    """A model with its weights.

    `name` is a folder (ours or Hugging Face's), a `.gguf` file, a `.toml` file of one's own, the name of a
    fetched model ("smollm2") or of the teaching model ("abcd"). `device` and `dtype` are those of the
    fast engine; the specification always computes in float64.
    """
    if not isinstance(name, str) or name:  # `open_model` says what an empty name could be
        check_path("name", name)
    check_engine(device, dtype)
    return Model(open_model(name), device, dtype)
