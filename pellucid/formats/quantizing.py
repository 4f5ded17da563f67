"""A model with its matrices quantized: small integers in place of floats, each when it is looked up."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pellucid.base.arguments import check_one_of
from pellucid.base.errors import UsageError
from pellucid.base.patterns import select
from pellucid.base.quantized import SCHEMES, QuantizedWeight, Scheme, is_quantizable, quantize
from pellucid.formats.pretrained import LazyTensor, LazyWeights, Pretrained, Weight, as_lazy

WEIGHTS = (*SCHEMES, "file", "float", "auto")
"""What the weights of a model may be held as: a named scheme, as its file has them, as floats; or as the file
has them where the compiled decoder runs them, and else as floats."""


def check_weights(weights: Any) -> str | None:
    """Returns the name of how weights are held, if it is one; None means floats, or what the folder has."""
    return None if weights is None else check_one_of("weights", weights, WEIGHTS)


def with_weights(pretrained: Pretrained, weights: str | None) -> Pretrained:
    """Returns the model with its weights held as named: quantized now, or as its file has them."""
    if (weights := check_weights(weights)) is None:
        return pretrained
    if weights == "float":
        return pretrained.to_floats()
    if weights == "auto":
        from pellucid.engine.cpu.decoder import is_decodable  # which imports torch

        return pretrained.as_stored() if is_decodable(pretrained.config) else pretrained
    if weights == "file":
        return pretrained.as_stored()
    return quantize_pretrained(_check_floats(pretrained, weights), Scheme.from_name(weights))


def _check_floats(pretrained: Pretrained, weights: str) -> Pretrained:
    """Returns the model; raises where it holds weights that are quantized in another way than this one.

    One weight of each type is read to see its groups.
    """
    types = as_lazy(pretrained.weights).types
    first_of_each = {type: name for name, type in reversed(types.items())}
    for name in first_of_each.values():
        weight = pretrained.weights[name]
        if isinstance(weight, QuantizedWeight) and not _has_scheme(weight, Scheme.from_name(weights)):
            held = f"int{weight.bits} in groups of {weight.group}"
            raise UsageError(
                f"weights={weights!r}: {pretrained.name} is quantized already ({name} to {held}), and "
                "quantizing it again would add to its errors. Omit weights (--weights) to run it as it is, "
                "or open the float model that it was made from."
            )
    return pretrained


def quantize_pretrained(pretrained: Pretrained, scheme: Scheme, keep: Sequence[str] = ()) -> Pretrained:
    """Returns the model with every matrix as a `QuantizedWeight`; it is quantized when it is looked up.

    Vectors and tables of positions stay as they are, and so do the parameters that match a pattern of
    `keep`. A weight that already is quantized in this way keeps its integers, and one that is in another way
    is refused.
    """
    shapes = pretrained.config.parameters()
    kept = set(select(list(shapes), keep, "keep", UsageError))

    def read(name: str) -> Weight:
        weight = pretrained.weights[name]
        if _has_scheme(weight, scheme):
            return weight
        try:
            if isinstance(weight, QuantizedWeight):
                raise UsageError(f"{weight} is quantized already, and not as {scheme}.")
            return quantize(np.asarray(weight), scheme)
        except UsageError as error:
            raise UsageError(f"the weight {name}: {error}") from None

    tensors = {
        name: LazyTensor(tensor.shape, partial(read, name), f"int{scheme.bits}")
        if name not in kept and is_quantizable(name, tensor.shape)
        else tensor
        for name, tensor in as_lazy(pretrained.weights).tensors.items()
    }
    return dataclasses.replace(pretrained, weights=LazyWeights(tensors))


def _has_scheme(weight: object, scheme: Scheme) -> bool:
    """Returns whether a weight is quantized as the scheme would quantize it."""
    if not isinstance(weight, QuantizedWeight) or weight.bits != scheme.bits:
        return False
    group = weight.shape[1] if scheme.group is None else min(scheme.group, weight.shape[1])
    return weight.group == group and (weight.minimums is None) == (scheme.bits == 8)
