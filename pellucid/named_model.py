"""`pellucid.load`: a model by its name, ready to compute; and functions that take a model by its name."""

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pellucid.evaluation import evaluate as evaluating
from pellucid.evaluation.calibration import calibrate as calibrating
from pellucid.evaluation.quantization import quantize as quantizing
from pellucid.explanation import tracing
from pellucid.model import Model

if TYPE_CHECKING:
    from torch import dtype as Dtype

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def load(
    name: str | os.PathLike[str],
    *,
    device: str = "cpu",
    dtype: "str | Dtype" = "float32",
    weights: str | None = None,
) -> Model:
    """Returns a model with its weights.

    `name` is a folder (Pellucid's or Hugging Face's), a run or its folder, a `.gguf` or `.toml` file, the
    name of a fetched model ("smollm2") or of the teaching model ("abcd"). `device` and `dtype` are those of
    the fast engine; the specification always computes in float64. `weights` quantizes the matrices, "int8"
    or "int4", or holds them as the file has them, "file": a GGUF's own blocks. Without it they are floats, or
    what a folder of quantized weights holds.

    >>> import pellucid
    >>> pellucid.load("abcd", dtype="float64")
    <Model abcd: 28 parameters, float64 on cpu>
    """
    return Model.from_pretrained(name, device=device, dtype=dtype, weights=weights)


def takes_name(
    function: Callable[Concatenate[Model, Arguments], Result],
) -> Callable[Concatenate[Model | str | os.PathLike[str], Arguments], Result]:
    """Decorator: lets a function of a loaded model also take whatever `load` takes."""

    @functools.wraps(function)
    def call(
        model: Model | str | os.PathLike[str], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        return function(model if isinstance(model, Model) else load(model), *args, **kwargs)

    return call


trace = takes_name(tracing.trace)
evaluate = takes_name(evaluating.evaluate)
calibrate = takes_name(calibrating.calibrate)
quantize = takes_name(quantizing.quantize)
