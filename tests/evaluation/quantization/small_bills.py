"""Small models with the bills of their quantized weights."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.quantized import Scheme, quantize
from pellucid.evaluation.quantization.bill import BillSubject, QuantizationBill, measure_bill
from pellucid.evaluation.quantization.sample import BillSample, read_sample
from pellucid.formats.pretrained import LazyWeights
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.model import Model
from tests.evaluation.small_models import make_model

INT8 = Scheme(8)
COSTLY = "blocks.1.mlp.up_proj.weight"


def make_exact(model: Model, scheme: Scheme = INT8) -> Model:
    """The model with every matrix rounded to the levels of a scheme, which then hold it exactly."""
    weights = {
        name: np.asarray(quantize(array, scheme)) if array.ndim == 2 else array
        for name, array in model.weights.items()
    }
    return model.replace(weights=weights)


def make_costly(scheme: Scheme = INT8, noise: float = 1e-4, **changes: Any) -> Model:
    """A model of which one matrix is far from the levels of a scheme, the others as near as the noise."""
    model, random = make_model(**changes), np.random.default_rng(0)
    weights = {
        name: (array * (1 + noise * random.normal(size=array.shape))).astype(np.float32)
        if array.ndim == 2
        else array
        for name, array in make_exact(model, scheme).weights.items()
    }
    return model.replace(weights={**weights, COSTLY: model.weights[COSTLY]})


def make_subject(model: Model, scheme: Scheme = INT8, keep: tuple[str, ...] = ()) -> BillSubject:
    found = quantize_pretrained(model.pretrained, scheme, keep)
    assert isinstance(found.weights, LazyWeights)
    return BillSubject(
        found, found.weights, found.weights.types, model.pretrained.weights, "float32", str(scheme), keep
    )


def make_sample(model: Model, tokens: int = 300) -> BillSample:
    return read_sample(model.pretrained, None, tokens)


def make_bill(model: Model, scheme: Scheme = INT8, tokens: int = 300, **settings: Any) -> QuantizationBill:
    return measure_bill(make_subject(model, scheme), make_sample(model, tokens), samples=50, **settings)


@cache
def costly_bill(bits: int = 8, seed: int = 0) -> QuantizationBill:
    """The bill of a model one matrix of which is far from the levels of a scheme."""
    scheme = Scheme(bits)
    return make_bill(make_costly(scheme), scheme, seed=seed)


@cache
def small_bill() -> QuantizationBill:
    """The bill of a model with random weights, one matrix of which costs most."""
    return make_bill(make_costly(Scheme(4, 32)), Scheme(4, 32))


def floats(weights: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(weights[name]) for name in weights}
