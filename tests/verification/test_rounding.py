"""The error budget: rounding stays inside it, for every operation, without one of them being named."""

import math
import time
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.op import Array
from pellucid.reference.ops.activations import gelu, relu, silu
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.verification.rounding import Bounded, bound_table, round_to
from tests.reference.models import CONFIGS, updated

SINGLE = BY_NAME["float32"]


def test_a_sum_of_products_has_the_sum_of_their_sizes() -> None:
    a, b = np.array([[1.0, -2.0, 3.0]]), np.array([[4.0, 5.0, -6.0]])
    made = einsum.forward(Bounded(a), Bounded(b), spec="td,sd->ts", scale=0.5)
    assert made.value == -12.0
    assert made.terms == (4 + 10 + 18) / 2
    assert made.allowed == 8 + math.sqrt(3)


def test_the_argument_of_an_exponential_counts_as_a_term() -> None:
    made = np.exp(Bounded(np.array([3.0, -np.inf])))
    assert made.terms.tolist() == [math.exp(3) * 4, 0.0]


def test_what_a_forbidden_score_becomes_must_be_exactly_nothing() -> None:
    scores = np.array([[[[1.0, 2.0], [3.0, 4.0]]]])
    masked = mask.forward(Bounded(scores), Bounded(np.tri(2)))
    assert masked.terms[0, 0, 0].tolist() == [1.0, 0.0]
    pattern = softmax.forward(masked)
    assert np.isfinite(pattern.terms).all()
    leak = pattern.value + np.array([[0.0, 1e-30], [0.0, 0.0]])
    assert pattern.units(pattern.value, SINGLE).max() == 0
    assert pattern.units(leak, SINGLE).max() == np.inf
    assert masked.units(np.where(np.isinf(masked.value), -1e30, masked.value), SINGLE).max() == np.inf


def test_a_row_of_nothing_but_infinities_has_no_doubt() -> None:
    made = softmax.forward(Bounded(np.full((1, 3), -np.inf)))
    assert made.value.tolist() == made.terms.tolist() == [[0.0, 0.0, 0.0]]


def test_numbers_too_small_for_their_type_are_noise() -> None:
    pattern = softmax.forward(Bounded(np.array([0.0, -17.0])))
    in_half = pattern.value.astype(np.float16).astype(np.float64)
    assert in_half[1] != pattern.value[1]
    assert pattern.units(in_half, BY_NAME["float16"]).max() < 1


def test_an_angle_is_held_to_float32_whatever_the_type_of_the_run() -> None:
    x, angles = np.array([[1.0, 1.0]]), np.array([[5000.0]])
    coarse, fine = (
        rotate.forward(Bounded(x), bound_table(angles, BY_NAME[name]), layout="halves").terms.max()
        for name in ("bfloat16", "float32")
    )
    assert coarse < 2
    assert fine > 1000


def test_equal_terms_round_alike_so_they_count_squared() -> None:
    same, different = np.full((1, 300), 1 / 300), np.linspace(0.5, 1, 300)[None] / 225
    ones = np.ones((1, 300))
    assert einsum.forward(Bounded(same), Bounded(ones), spec="ts,ds->td").allowed == 308
    assert einsum.forward(Bounded(different), Bounded(ones), spec="ts,ds->td").allowed == 8 + math.sqrt(300)


@pytest.mark.parametrize("type", ["bfloat16", "float16", "float32"])
def test_numbers_are_rounded_as_the_type_rounds_them(type: str) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(20_000) * np.exp(random.uniform(-20, 8, 20_000))
    x = np.concatenate((x.astype(np.float32), [0.0, -0.0, np.inf, -np.inf]))
    wanted = torch.tensor(x).to(getattr(torch, type)).double().numpy()
    assert np.array_equal(round_to(x, BY_NAME[type]), wanted)


def test_no_bound_at_all_gives_no_verdict() -> None:
    assert Bounded(np.ones(2), np.array([np.nan, np.inf])).units(np.zeros(2), SINGLE).tolist() == [0.0, 0.0]


def test_a_row_that_rounding_happened_to_spare_counts_as_the_others() -> None:
    value = np.ones((3, 64))
    narrow = value + np.array([[0.0], [1e-6], [1e-5]])
    assert Bounded(value).multiples(value + 2e-6, narrow, SINGLE).max() < 2
    assert Bounded(value).multiples(value, narrow, SINGLE).max() == 0


def test_an_undescribed_function_is_measured() -> None:
    x = Bounded(np.array([0.3, 2.0]))
    made = np.arctan(x)
    assert made.terms == pytest.approx(np.abs(np.arctan(x.value)) + x.value / (1 + x.value**2))


OPERATIONS: list[tuple[Any, int, dict[str, Any]]] = [
    (softmax, 1, {}),
    (logsumexp, 1, {}),
    (silu, 1, {}),
    (gelu, 1, {}),
    (relu, 1, {}),
    (einsum, 2, {"spec": "ts,ds->td"}),
]


class Rounding(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers that are rounded to bfloat16 after every single function: the worst that honest code does."""

    def __init__(self, value: Any) -> None:
        bits = np.asarray(value, np.float32).view(np.uint32).astype(np.uint64)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        wide = even.astype(np.uint32).view(np.float32).astype(np.float64)
        self.value: Array = np.where(np.isfinite(value), wide, value)

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        made = ufunc(*(x.value if isinstance(x, Rounding) else x for x in inputs))
        made = np.asarray(made)
        return made if made.dtype == bool else Rounding(made.astype(float))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = [x.value if isinstance(x, Rounding) else x for x in args]
        return Rounding(function(*plain, **kwargs))

    def __getitem__(self, key: Any) -> "Rounding":
        return Rounding(self.value[key])

    def astype(self, dtype: Any) -> "Rounding":
        return self

    def sum(self, axis: int, keepdims: bool = False) -> "Rounding":
        return Rounding(self.value.sum(axis=axis, keepdims=keepdims))

    def max(self, axis: int, keepdims: bool = False) -> "Rounding":
        return Rounding(self.value.max(axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("op", "inputs", "attrs"), OPERATIONS, ids=[op.name for op, *_ in OPERATIONS])
def test_rounding_after_every_function_stays_inside_the_budget(
    op: Any, inputs: int, attrs: dict[str, Any], seed: int
) -> None:
    random = np.random.default_rng(seed)
    arrays = [Rounding(3 * random.standard_normal((30, 40))) for _ in range(inputs)]
    made = op.forward(*(Bounded(x.value) for x in arrays), **attrs)
    rounded = op.forward(*arrays, **attrs)
    units = made.units(rounded.value, BY_NAME["bfloat16"])
    assert (op is relu) == (units.max() == 0)
    assert units.max() < made.allowed


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_step_forward_backward_and_update_has_a_budget(config: Any) -> None:
    tape = updated(config)
    for step in tape.steps.values():
        inputs = [tape.values[name] for name in step.inputs]
        bounded = [Bounded(x) if x.dtype.kind == "f" else x for x in inputs]
        with np.errstate(all="ignore"):
            made = step.op.forward(*bounded, **step.attrs)
        assert isinstance(made, Bounded), step.name
        assert np.isfinite(made.terms).all() and (made.terms >= 0).all(), step.name
        finite = np.isfinite(made.value)
        assert (made.terms[finite] >= np.abs(made.value[finite]) * (1 - 1e-9)).all(), step.name
        assert made.units(tape.values[step.name], BY_NAME["float64"]).max() < made.allowed, step.name


@pytest.mark.timed
def test_a_budget_costs_a_small_multiple_of_the_computation() -> None:
    random = np.random.default_rng(0)
    for op, arrays, attrs in (
        (softmax, [random.standard_normal((1, 9, 64, 64))], {}),
        (softmax, [random.standard_normal((1, 64, 4915))], {}),
        (
            einsum,
            [random.standard_normal((1, 64, 576)), random.standard_normal((4915, 576))],
            {"spec": "btc,vc->btv"},
        ),
    ):
        plain = min(_seconds(op, arrays, attrs) for _ in range(3))
        bounded = min(_seconds(op, [Bounded(x) for x in arrays], attrs) for _ in range(3))
        assert bounded < 10 * plain + 0.01


def _seconds(op: Any, arrays: list[Any], attrs: dict[str, Any]) -> float:
    start = time.perf_counter()
    op.forward(*arrays, **attrs)
    return time.perf_counter() - start
