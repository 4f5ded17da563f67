"""A model with its matrices quantized: small integers in place of floats, each when it is looked up."""

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from pellucid.errors import UsageError
from pellucid.patterns import select
from pellucid.pretrained import LazyTensor, LazyWeights, Pretrained, Shape, Weight
from pellucid.quantized import QuantizedWeight, Scheme, is_quantizable, quantize


def quantize_pretrained(pretrained: Pretrained, scheme: Scheme, keep: Sequence[str] = ()) -> Pretrained:
    """Returns the model with every matrix as a `QuantizedWeight`; it is quantized when it is looked up.

    Vectors and tables of positions stay as they are, and so do the parameters that match a pattern of
    `keep`. A weight that already is quantized in this way keeps its integers.
    """
    shapes = pretrained.config.parameters()
    kept = set(select(list(shapes), keep, "keep", UsageError))

    def read(name: str) -> Weight:
        weight = pretrained.weights[name]
        if _has_scheme(weight, scheme):
            return weight
        try:
            return quantize(np.asarray(weight), scheme)
        except UsageError as error:
            raise UsageError(f"the weight {name}: {error}") from None

    def make_tensor(name: str, shape: Shape) -> LazyTensor:
        if name in kept or not is_quantizable(name, shape):
            return LazyTensor(shape, partial(pretrained.weights.__getitem__, name))
        return LazyTensor(shape, partial(read, name), f"int{scheme.bits}")

    tensors = {name: make_tensor(name, shape) for name, shape in shapes.items()}
    return dataclasses.replace(pretrained, weights=LazyWeights(tensors))


def _has_scheme(weight: object, scheme: Scheme) -> bool:
    """Whether a weight is quantized as the scheme would quantize it."""
    if not isinstance(weight, QuantizedWeight) or weight.bits != scheme.bits:
        return False
    group = weight.shape[1] if scheme.group is None else min(scheme.group, weight.shape[1])
    return weight.group == group and (weight.minimums is None) == (scheme.bits == 8)
