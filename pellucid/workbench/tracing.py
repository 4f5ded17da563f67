"""Trace files with their models: a trace refers to the weights of a model that lies in a file."""

from pathlib import Path

import numpy as np

from pellucid.arguments import check_path
from pellucid.dtypes import Array, decode, dtype_code, encode
from pellucid.explain import trace_file
from pellucid.explain.trace import Trace
from pellucid.interop.resolve import open_model
from pellucid.pretrained import LazyWeights
from pellucid.workbench.model import Model


def read_trace(path: str | Path) -> Trace:
    """The trace of a file; the weights that it refers to are read from their model and checked."""
    return trace_file.read(Path(check_path("path", path)), _weights)


def _weights(model: str, dtype: str) -> LazyWeights:
    """A model's weights as a run in that type held them."""
    found = open_model(model)

    def rounded(name: str) -> Array:
        value, type = np.asarray(found.weights[name]), dtype_code(dtype) or "F64"
        return value if type == "F64" else decode(encode(value, type), type)

    return LazyWeights.from_function(found.config.parameters(), rounded)


def write_trace(model: Model, trace: Trace, path: str | Path, force: bool = False) -> list[Path]:
    """Write a trace of this model, with the numbers in it or beside it, and the weights where they are.

    With `force` it may replace a trace; never another file."""
    file = Path(check_path("path", path))
    source = model.pretrained.provenance
    where = str(source.path.resolve()) if source.path.exists() and source.format != "toml" else None
    updated = any("@" in name for name in trace.tape.values)
    if updated or any(model.modified_weight(name) is not None for name in model.config.parameters()):
        where = None  # no file has these weights
    return trace_file.write(trace, file, where, force)
