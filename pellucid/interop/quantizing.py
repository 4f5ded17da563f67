"""A model with its matrices quantized: small integers in place of floats, each when it is looked up."""

import dataclasses
from collections.abc import Sequence
from typing import cast

from pellucid.dtypes import Array
from pellucid.errors import UsageError
from pellucid.patterns import select
from pellucid.pretrained import LazyWeights, Pretrained
from pellucid.quantized import QuantizedWeight, Scheme, quantize

NEVER_QUANTIZED = ("positions.weight", "position_bias.weight")
"""Matrices that are added and never multiplied: small tables of positions."""


def quantize_pretrained(pretrained: Pretrained, scheme: Scheme, keep: Sequence[str] = ()) -> Pretrained:
    """Returns the model with every matrix as a `QuantizedWeight`; it is quantized when it is looked up.

    Vectors and tables of positions stay as they are, and so do the parameters that match a pattern of
    `keep`. A weight that already is quantized in this way keeps its integers.
    """
    shapes = pretrained.config.parameters()
    kept = {*NEVER_QUANTIZED, *select(list(shapes), keep, "keep", UsageError)}

    def read(name: str) -> Array:
        weight = pretrained.weights[name]
        if len(shapes[name]) != 2 or name in kept or _has_scheme(weight, scheme):
            return weight
        try:
            return cast(Array, quantize(weight, scheme))  # it stands where an array of floats would
        except UsageError as error:
            raise UsageError(f"the weight {name}: {error}") from None

    return dataclasses.replace(pretrained, weights=LazyWeights.from_function(shapes, read))


def _has_scheme(weight: object, scheme: Scheme) -> bool:
    """Whether a weight is quantized as the scheme would quantize it."""
    if not isinstance(weight, QuantizedWeight) or weight.bits != scheme.bits:
        return False
    group = weight.shape[1] if scheme.group is None else min(scheme.group, weight.shape[1])
    return weight.group == group and (weight.minimums is None) == (scheme.bits == 8)
