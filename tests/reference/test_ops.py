"""Every operation: its gradient against central differences, its cells, its extremes and its errors."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from pellucid.base import quantized
from pellucid.base.errors import TapeError
from pellucid.base.names import IGNORE_INDEX
from pellucid.reference.op import Array, Op, Ref, Shape
from pellucid.reference.ops import (
    activations,
    binning,
    find_op,
    online_softmax,
    quantization,
    sampling,
    table,
    updates,
)
from pellucid.reference.ops.activations import soft_cap
from pellucid.reference.ops.arithmetic import LETTERS, add, lerp, power, scaled_sum, subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.features import random_features
from pellucid.reference.ops.indexing import concat, narrow, put, take
from pellucid.reference.ops.losses import cross_entropy, mean_squared_error, neg_log_probs
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.normalization import l1_normalize, rstd, safe_divide
from pellucid.reference.ops.quantization import dequantize, round_activations
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.reference.tape import Tape
from pellucid.verification.mismatch import find_mismatch, largest
from tests.reference.models import alone, explained, wrong_cell

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def positive(*shape: int) -> Array:
    return 0.5 + np.abs(normal(*shape))


def off_zero(*shape: int) -> Array:
    x = normal(*shape)
    return x + np.copysign(0.1, x)


class Case(NamedTuple):
    """One operation on parameters, whose gradients are checked, and constants, after them or first."""

    op: Op
    parameters: tuple[Array, ...]
    constants: tuple[Any, ...] = ()
    attrs: Mapping[str, Any] = MappingProxyType({})
    then: Op | None = None
    constants_first: bool = False


EINSUMS: list[tuple[str, dict[str, Any], list[list[Shape]]]] = [
    ("btc,fc->btf", {}, [[(1, 1, 1), (1, 1)], [(1, 3, 2), (4, 2)], [(2, 2, 3), (1, 3)]]),
    (
        "btc,(hd)c+(hd)->bhtd",
        {"h": 2},
        [[(1, 1, 1), (2, 1), (2,)], [(1, 3, 4), (4, 4), (4,)], [(2, 2, 3), (6, 3), (6,)]],
    ),
    (
        "b(kg)td,bksd->b(kg)ts",
        {"scale": 0.5},
        [
            [(1, 1, 1, 1), (1, 1, 1, 1)],
            [(1, 4, 3, 2), (1, 2, 3, 2)],
            [(2, 2, 1, 3), (2, 1, 4, 3)],
        ],
    ),
    (
        "b(kg)ts,bksd->b(kg)td",
        {},
        [
            [(1, 1, 1, 1), (1, 1, 1, 1)],
            [(1, 4, 3, 3), (1, 2, 3, 2)],
            [(2, 2, 1, 4), (2, 1, 4, 3)],
        ],
    ),
    ("bhtd->bt(hd)", {}, [[(1, 1, 1, 1)], [(1, 2, 3, 2)], [(2, 3, 1, 2)]]),
    (
        "bhtd,c(hd)+c->btc",
        {"scale": 3.0},
        [
            [(1, 1, 1, 1), (1, 1), (1,)],
            [(1, 2, 3, 2), (4, 4), (4,)],
            [(2, 3, 1, 2), (2, 6), (2,)],
        ],
    ),
    ("ab->", {"scale": -0.25}, [[(1, 1)], [(2, 3)], [(4, 1)]]),
    ("abc->ab1", {"scale": 1 / 3}, [[(1, 1, 1)], [(2, 2, 3)], [(1, 4, 1)]]),
    ("a->ab", {"b": 3}, [[(1,)], [(2,)], [(4,)]]),
    ("a1->ba", {"b": 2}, [[(1, 1)], [(2, 1)], [(4, 1)]]),
    ("btc,bt1->btc", {}, [[(1, 1, 1), (1, 1, 1)], [(2, 1, 3), (2, 1, 1)], [(1, 3, 4), (1, 3, 1)]]),
    ("btc,c+c->btc", {}, [[(1, 1, 1), (1,), (1,)], [(2, 1, 3), (3,), (3,)], [(1, 3, 2), (2,), (2,)]]),
    (
        "ab,bc,c->a",
        {"scale": 2.0},
        [[(1, 1), (1, 1), (1,)], [(2, 3), (3, 4), (4,)], [(3, 1), (1, 2), (2,)]],
    ),
    ("ab,->ab", {}, [[(1, 1), ()], [(2, 3), ()], [(3, 1), ()]]),
    ("a,a->", {}, [[(1,), (1,)], [(3,), (3,)], [(5,), (5,)]]),
    ("ab+ba->ab", {}, [[(1, 1), (1, 1)], [(2, 3), (3, 2)], [(3, 1), (1, 3)]]),
]

SHAPES: list[Shape] = [(1,), (3,), (2, 1, 4)]


def cases() -> Iterator[tuple[str, Case]]:
    for spec, attrs, several in EINSUMS:
        for shapes in several:
            arrays = tuple(normal(*shape) for shape in shapes)
            yield f"einsum {spec} {shapes}", Case(einsum, arrays, attrs={"spec": spec, **attrs})

    for terms in ([(1,), (1,)], [(2, 3), (3,), (2, 1)], [(3, 1), (1, 4)], [(), (2,)], [(2, 2)]):
        yield f"add {terms}", Case(add, tuple(normal(*shape) for shape in terms))
    for a, b in ([(1,), (1,)], [(2, 3), (2, 3)], [(2, 3), (2, 1)], [(1,), (3,)], [(2, 1, 3), ()]):
        yield f"subtract {a} {b}", Case(subtract, (normal(*a), normal(*b)))
        yield f"lerp {a} {b}", Case(lerp, (normal(*a), normal(*b)), attrs={"share": 0.1})
        yield f"scaled_sum {a} {b}", Case(scaled_sum, (normal(*a), normal(*b)), attrs={"alpha": 0.3})

    for shape in SHAPES:
        for exponent in (2, 0.5, -1):
            yield f"power {exponent} {shape}", Case(power, (positive(*shape),), attrs={"exponent": exponent})
        for name in ("relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "relu_squared", "elu_plus_one"):
            yield f"{name} {shape}", Case(find_op(name), (off_zero(*shape),))
        for op in (softmax, logsumexp):
            yield f"{op.name} {shape}", Case(op, (normal(*shape),))
        yield f"soft_cap {shape}", Case(soft_cap, (normal(*shape),), attrs={"limit": 1.5})
        yield f"l1_normalize {shape}", Case(l1_normalize, (positive(*shape),))
        one_each = (normal(*shape), positive(*shape[:-1], 1))
        yield f"safe_divide {shape}", Case(safe_divide, one_each)
        directions, settings = normal(3, shape[-1]), {"scale": 0.7, "features": 3}
        yield (
            f"random_features {shape}",
            Case(random_features, (normal(*shape),), (directions,), settings),
        )
        yield f"rstd {shape}", Case(rstd, (normal(*shape),), attrs={"eps": 0.01})
        predicted, wanted, samples = normal(*shape), normal(*shape), {"samples": shape[0]}
        yield f"mean_squared_error {shape}", Case(mean_squared_error, (predicted,), (wanted,), samples)
    both = (normal(2, 3), normal(2, 3))
    yield "mean_squared_error of two parameters", Case(mean_squared_error, both, attrs={"samples": 2})

    for logits, targets in (
        ((1, 1), [0]),
        ((3, 5), [4, IGNORE_INDEX, 0]),
        ((2, 2, 3), [[1, 1], [IGNORE_INDEX, 2]]),
    ):
        lse = normal(*logits[:-1])
        yield f"neg_log_probs {logits}", Case(neg_log_probs, (normal(*logits), lse))
        yield f"cross_entropy {logits}", Case(cross_entropy, (normal(*logits), lse), (targets,))

    causal = np.tril(np.ones((3, 3)))
    for scores, allowed in (
        ((1, 1), [[1.0]]),
        ((2, 2, 3, 3), causal),
        ((1, 3), [[1.0, 0.0, 1.0]]),
        ((2, 2), [[1.0, 1.0], [0.0, 1.0]]),
    ):
        yield f"mask {scores}", Case(mask, (normal(*scores),), (allowed,), then=softmax)

    for x, angles in (((1, 2), (1, 1)), ((2, 3, 4), (3, 2)), ((1, 2, 1, 6), (1, 3))):
        for layout in ("halves", "pairs"):
            yield (
                f"rotate {layout} {x}",
                Case(rotate, (normal(*x),), (normal(*angles),), {"layout": layout}),
            )

    for axis, parts in (
        (0, [(1,), (1,)]),
        (1, [(2, 1, 3), (2, 4, 3)]),
        (1, [(2, 1), (2, 3), (2, 2)]),
        (1, [(2, 1), (2, 3)]),
    ):
        arrays = tuple(normal(*shape) for shape in parts)
        yield f"concat axis {axis} {parts}", Case(concat, arrays, attrs={"axis": axis})

    for shape, where in (
        ((1,), {"axis": 0, "start": 0, "length": 1}),
        ((2, 4, 3), {"axis": 1, "start": 1, "length": 2}),
        ((2, 3), {"axis": 1, "start": 2, "length": 1}),
    ):
        yield f"narrow {shape} {where}", Case(narrow, (normal(*shape),), attrs=where)

    for shape, places in (((), [0]), ((3,), [1]), ((2, 1, 3), [0, 4, 5]), ((2, 2), [])):
        given = {"places": places, "numbers": [0.25 - place for place in places]}
        yield f"put {shape} {places}", Case(put, (normal(*shape),), attrs=given)

    for rows, ids in (((1, 1), [0]), ((4, 3), [[1, 1, 3], [0, 1, 1]]), ((3, 2), [2, 2])):
        yield f"take {rows}", Case(take, (normal(*rows),), (ids,))

    for weight, group in (((1, 1), 1), ((2, 6), 3), ((3, 5), 2), ((2, 4), 4)):
        integers = RANDOM.integers(-127, 128, weight).astype(np.int8)
        factors = [normal(weight[0], -(-weight[1] // group)) for _ in range(2)]
        for parts in (factors[:1], factors):
            what = f"dequantize {weight} in groups of {group}, {len(parts)} parts"
            yield what, Case(dequantize, tuple(parts), (integers,), {"group": group}, constants_first=True)


CASES = dict(cases())
with_every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def weighed(tape: Tape, y: Ref) -> Ref:
    """One number that depends on every cell of y in its own way."""
    letters = LETTERS[: len(y.shape)]
    weight = tape.constant("weight", np.random.default_rng(1).uniform(0.5, 2.0, y.shape))
    return tape("loss", einsum, y, weight, spec=f"{letters},{letters}->")


def run(case: Case, parameters: tuple[Array, ...]) -> Tape:
    tape = Tape()
    inputs = [tape.parameter(f"x{i}", x) for i, x in enumerate(parameters)]
    given = [tape.constant(f"given{i}", x) for i, x in enumerate(case.constants)]
    inputs = [*given, *inputs] if case.constants_first else [*inputs, *given]
    y = tape("y", case.op, *inputs, **case.attrs)
    weighed(tape, tape("then", case.then, y) if case.then else y)
    return tape


def backpropagated(case: Case) -> Tape:
    tape = run(case, case.parameters)
    tape.backward(tape.ref("loss"))
    return tape


def central_difference(case: Case, i: int, step: float = 1e-5) -> Array:
    """The derivative of the loss along each cell of parameter i."""
    x = case.parameters[i]
    derivative = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[index] = step
        ends = [
            run(case, (*case.parameters[:i], moved, *case.parameters[i + 1 :]))["loss"]
            for moved in (x + move, x - move)
        ]
        derivative[index] = (ends[0] - ends[1]) / (2 * step)
    return derivative


@with_every_case
def test_the_gradient_is_the_derivative(case: Case) -> None:
    tape = backpropagated(case)
    differences = [central_difference(case, i) for i in range(len(case.parameters))]
    for i, derivative in enumerate(differences):
        assert find_mismatch(f"d.x{i}", tape[f"d.x{i}"], derivative, 1e-7, largest(differences)) is None


@with_every_case
def test_each_cell_can_be_computed_and_explained_by_itself(case: Case) -> None:
    tape = backpropagated(case)
    assert wrong_cell(tape, alone) is None
    assert wrong_cell(tape, explained(top=100)) is None
    assert wrong_cell(tape, explained(top=2)) is None


def test_every_operation_with_a_gradient_has_three_cases() -> None:
    counted = [case.op.name for case in CASES.values()]
    few = {name for name, op in table().items() if op.back and counted.count(name) < 3}
    # its gradient is that of all its tiles: tests/reference/test_attentions_tiled.py
    assert few == {"tiled_output"}


def test_an_operation_without_a_gradient_is_not_trained_through() -> None:
    backward = {
        step.op.name
        for case in CASES.values()
        for step in backpropagated(case).steps.values()
        if step.phase == "bwd"
    }
    update = {op.name for op in vars(updates).values() if isinstance(op, Op)}
    tiles = {op.name for op in vars(online_softmax).values() if isinstance(op, Op)}
    samplers = {op.name for op in vars(sampling).values() if isinstance(op, Op)}
    measurements = {op.name for op in vars(binning).values() if isinstance(op, Op)}
    of_constants = {"same_segment"}
    staircases = {"quantize", "round_activations"}
    assert {
        name for name, op in table().items() if op.back is None
    } <= backward | update | tiles | samplers | measurements | of_constants | staircases


def test_the_folder_knows_every_operation_by_name() -> None:
    assert find_op("softmax") is softmax
    with pytest.raises(TapeError, match="Did you mean 'softmax'"):
        find_op("sofmax")


# ---- extremes; the test run makes a warning an error


def gradient_of(op: Op, x: Any, *constants: Any, then: Op | None = None, **attrs: Any) -> Array:
    return backpropagated(Case(op, (np.asarray(x),), constants, attrs, then))["d.x0"]


def value_of(op: Op, *inputs: Any, **attrs: Any) -> Array:
    tape = Tape()
    return tape[tape("y", op, *(tape.constant(f"x{i}", x) for i, x in enumerate(inputs)), **attrs)]


def test_softmax_of_huge_scores_is_the_softmax_of_their_differences() -> None:
    small = value_of(softmax, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(value_of(softmax, [1e6, 1e6 + 1, 1e6 + 2]), small)
    np.testing.assert_array_equal(value_of(softmax, [-1e6, -1e6 + 1, -1e6 + 2]), small)
    np.testing.assert_array_equal(value_of(softmax, [1e300, 0.0, -1e300]), [1, 0, 0])


def test_softmax_gives_a_masked_score_exactly_nothing() -> None:
    np.testing.assert_array_equal(value_of(softmax, [[0.0, -np.inf, 0.0]]), [[0.5, 0, 0.5]])


def test_softmax_of_a_fully_masked_row_is_zero() -> None:
    scores = [[-np.inf, -np.inf], [0.0, 0.0]]
    np.testing.assert_array_equal(value_of(softmax, scores), [[0, 0], [0.5, 0.5]])


def test_a_fully_masked_row_gets_a_zero_gradient() -> None:
    gradient = gradient_of(mask, [[3.0, 1.0], [2.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], then=softmax)
    np.testing.assert_array_equal(gradient[0], [0, 0])
    assert np.isfinite(gradient).all()
    assert gradient[1].any()


def test_a_masked_score_gets_no_gradient() -> None:
    gradient = gradient_of(mask, [[3.0, 1.0, 2.0]], [[1.0, 0.0, 1.0]], then=softmax)
    assert gradient[0, 1] == 0
    assert gradient[0, 0] == pytest.approx(-gradient[0, 2])


def test_nothing_flows_back_to_a_forbidden_score_whatever_arrives() -> None:
    tape = backpropagated(Case(mask, (np.array([3.0, 1.0]),), ([1.0, 0.0],)))
    np.testing.assert_array_equal(tape["d.x0"], [tape["weight"][0], 0])


def test_a_given_cell_is_its_number_and_passes_no_gradient_on() -> None:
    given = {"places": [1, 2], "numbers": [0.5, -0.0]}
    np.testing.assert_array_equal(value_of(put, [[1.0, 2.0], [3.0, 4.0]], **given), [[1, 0.5], [0, 4]])
    gradient = gradient_of(put, [[1.0, 2.0], [3.0, 4.0]], **given)
    assert gradient[0, 0] and gradient[1, 1] and not gradient[0, 1] and not gradient[1, 0]


@pytest.mark.parametrize(
    ("places", "numbers"),
    [([4], [1.0]), ([-1], [1.0]), ([1, 1], [1.0, 2.0]), ([2, 1], [1.0, 2.0]), ([0], []), ([0], [np.nan]),
     ([0], [1]), ([True], [1.0]), ((0,), (1.0,)), ("0", "1"), (None, None)],
)  # fmt: skip
def test_places_and_numbers_that_do_not_fit_are_refused(places: Any, numbers: Any) -> None:
    with pytest.raises(TapeError, match="do not fit 4 cells"):
        value_of(put, [[1.0, 2.0], [3.0, 4.0]], places=places, numbers=numbers)


def test_logsumexp_of_thousands_neither_overflows_nor_vanishes() -> None:
    assert value_of(logsumexp, [1000.0, 1000.0]) == 1000 + np.log(2)
    assert value_of(logsumexp, [-1000.0, -1000.0]) == -1000 + np.log(2)
    tape = Tape()
    tape.backward(tape("loss", logsumexp, tape.parameter("x", [1000.0, 1000.0])))
    np.testing.assert_allclose(tape["d.x"], [0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("relu", 0, 800),
        ("sigmoid", 0, 1),
        ("tanh", -1, 1),
        ("silu", 0, 800),
        ("gelu", 0, 800),
        ("gelu_tanh", 0, 800),
    ],
)
def test_an_activation_is_flat_or_straight_far_out(name: str, low: float, high: float) -> None:
    np.testing.assert_array_equal(value_of(find_op(name), [-800.0, 800.0]), [low, high])
    derivative = value_of(find_op(f"{name}_back"), [-800.0, 800.0], [1.0, 1.0])
    np.testing.assert_array_equal(derivative, [0, high == 800])


def test_relu_takes_the_derivative_zero_at_its_kink() -> None:
    assert value_of(activations.relu_back, 0.0, 5.0) == 0


def test_the_square_of_relu_is_flat_at_zero() -> None:
    np.testing.assert_array_equal(
        value_of(find_op("relu_squared_back"), [-1.0, 0.0, 1.0], [5.0] * 3), [0, 0, 10]
    )


def test_a_soft_cap_is_straight_at_zero_and_flat_far_out() -> None:
    np.testing.assert_array_equal(value_of(soft_cap, [-1e6, 0.0, 1e6], limit=30.0), [-30, 0, 30])
    derivative = value_of(find_op("soft_cap_back"), [-1e6, 0.0, 1e6], [5.0] * 3, limit=30.0)
    np.testing.assert_array_equal(derivative, [0, 5, 0])


def test_an_ignored_target_costs_nothing_and_gets_no_gradient() -> None:
    case = Case(cross_entropy, (normal(2, 3), normal(2)), ([IGNORE_INDEX, 1],))
    tape = backpropagated(case)
    assert tape["y"][0] == 0
    assert not tape["d.x0"][0].any()
    assert tape["d.x1"][0] == 0
    assert tape["d.x0"][1, 1] < 0 < tape["d.x1"][1]


def test_a_row_taken_twice_gets_both_gradients_and_an_untaken_row_none() -> None:
    tape = Tape()
    rows = tape("rows", take, tape.parameter("table", np.eye(3)), tape.constant("ids", [1, 1, 2]))
    tape.backward(tape("loss", einsum, rows, spec="ab->"))
    np.testing.assert_array_equal(tape["d.table"], [[0, 0, 0], [2, 2, 2], [1, 1, 1]])


def test_rotation_keeps_lengths_and_rotating_back_undoes_it() -> None:
    x, angles = normal(2, 3, 4), normal(3, 2)
    for layout in ("halves", "pairs"):
        rotated = value_of(rotate, x, angles, layout=layout)
        np.testing.assert_allclose((rotated**2).sum(-1), (x**2).sum(-1), rtol=1e-14)
        back = value_of(rotate, rotated, angles, layout=layout, direction=-1.0)
        np.testing.assert_allclose(back, x, rtol=1e-13)


def test_the_layouts_pair_different_channels() -> None:
    quarter = [[np.pi / 2, 0.0]]
    halves = value_of(rotate, [[1.0, 2, 3, 4]], quarter, layout="halves")
    pairs = value_of(rotate, [[1.0, 2, 3, 4]], quarter, layout="pairs")
    np.testing.assert_allclose(halves, [[-3, 2, 1, 4]], atol=1e-15)
    np.testing.assert_allclose(pairs, [[-2, 1, 3, 4]], atol=1e-15)


BY_HAND: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    # samplers
    "temper": ([[1.0, 3.0, -np.inf]], {"temperature": 0.5}, [-4, 0, -np.inf]),
    "penalize": (
        [[1.0, -3.0, -np.inf, 2.0], [1.0, 1.0, 1.0, 0.0]],
        {"penalty": 1.5},
        [1 / 1.5, -4.5, -np.inf, 2],
    ),
    "keep_at_least": ([[1.0, 3.0, 2.0], [0.1, 0.5, 0.4], [0.4]], {}, [-np.inf, 3, 2]),
    "keep_below": ([[1.0, 3.0, 2.0], [0.1, 0.5, 0.4]], {"bound": 0.5}, [1, -np.inf, 2]),
    "scaled_max": ([[1.0, 3.0, 2.0]], {"share": 0.5}, [1.5]),
    "minimum": ([[1.0, 3.0, 2.0]], {"limit": 2.5}, [1, 2.5, 2]),
    "entropy": ([[0.5, 0.25, 0.25, 0.0]], {}, [1.5 * np.log(2)]),
    "typicality": (
        [[0.5, 0.25, 0.25, 0.0], [1.0]],
        {},
        [np.log(2) - 1, 1 - 2 * np.log(2), 1 - 2 * np.log(2), -np.inf],
    ),
    "kth_largest": ([[1.0, 3.0, 2.0, 3.0]], {"k": 3}, [2]),
    "mass_before": ([[0.5, 0.1, 0.4], [1.0, 1.0, 2.0]], {"limit": 0.7}, [0.4, 0.7, 0]),
    "draw": ([[0.5, 0.1, 0.4], [0.0, 0.9, 0.5]], {"u": 0.6}, 2),
    "argmax": ([[1.0, 3.0, 3.0]], {}, 1),
    "select": ([[1.0, 3.0, 2.0], 1], {}, 3),
    # binning
    "bin_index": ([[0.1, 0.25, 0.5, 0.500001, 1.0, 0.0], [0.0, 0.25, 0.5, 1.0]], {}, [0, 0, 1, 2, 2, 0]),
    "bin_sum": ([[1.0, 2.0, 4.0, 8.0], [2, 0, 2, 2]], {"bins": 4}, [2, 0, 13, 0]),
    "absolute": ([[-1.5, 0.0, 2.0]], {}, [1.5, 0, 2]),
    # quantization
    "dequantize": (
        [np.array([[3, -2, 7]], np.int8), [[0.5, 2.0]], [[1.0, -1.0]]],
        {"group": 2},
        [[2.5, 0, 13]],
    ),
    "group_sum": ([[[1.0, 2.0, 4.0]], np.array([[3, -1, 5]], np.int8)], {"group": 2}, [[1, 20]]),
    "quantize": (
        [[[0.25, 0.75, -9.0, 9.0, 0.0]], [[0.5, 1.0, 0.0]]],
        {"group": 2, "low": -7, "high": 7},
        [[0, 2, -7, 7, 0]],
    ),
    "round_activations": (
        [[[1.0, -2.0, 1e-6, 0.0, 0.0, 2**-30, 3.0]]],
        {"group": 2},
        [[1, -2, 1e-6, 0, 0, 2**-30, 3]],
    ),
}
"""Inputs, attributes and the number by hand of each operation of samplers, binning and quantization."""


def test_every_operation_of_three_files_has_its_number_by_hand() -> None:
    files = (sampling, binning, quantization)
    assert set(BY_HAND) == {op.name for file in files for op in vars(file).values() if isinstance(op, Op)}


@pytest.mark.parametrize("name", BY_HAND)
def test_an_operation_gives_the_number_by_hand_and_explains_it(name: str) -> None:
    inputs, attrs, wanted = BY_HAND[name]
    tape = Tape()
    y = tape("y", find_op(name), *(tape.constant(f"x{i}", x) for i, x in enumerate(inputs)), **attrs)
    rounding = 1e-7 if name == "round_activations" else 1e-15  # to 16 bits
    np.testing.assert_allclose(tape[y], wanted, rtol=rounding)
    assert wrong_cell(tape, alone) is None
    assert wrong_cell(tape, explained(top=100)) is None
    assert wrong_cell(tape, explained(top=2)) is None


def test_quantize_and_dequantize_are_the_twins_of_quantized_weights() -> None:
    weight = normal(5, 70).astype(np.float32)
    for scheme, low, high in (("int8", -127, 127), ("int4", 0, 15)):
        made = quantized.quantize(weight, quantized.Scheme.from_name(scheme))
        parts = [made.scales] if made.minimums is None else [made.scales, made.minimums]
        wide = [part.astype(np.float32) for part in parts]
        limits = {"group": made.group, "low": low, "high": high}
        np.testing.assert_array_equal(quantization.quantize.forward(weight, *wide, **limits), made.integers)
        found = value_of(dequantize, made.integers, *parts, group=made.group)
        np.testing.assert_array_equal(found, made.dequantize(np.float64))


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100])
def test_rounded_activations_are_16_bit_integers_times_the_scale_of_their_group(width: int) -> None:
    x = normal(3, width).astype(np.float32)
    rounded = value_of(round_activations, x.astype(np.float64))
    for first in range(0, width, 32):
        group, found = x[:, first : first + 32], rounded[:, first : first + 32]
        scale = np.abs(group).max(-1, keepdims=True) / np.float32(32512)
        factor = np.float32(32512) / np.abs(group).max(-1, keepdims=True)
        assert scale.dtype == factor.dtype == np.float32
        integers = np.rint(group * factor).astype(np.int16)
        np.testing.assert_array_equal(found, scale.astype(np.float64) * integers)
    assert np.abs(rounded - x).max() <= np.abs(x).max() / 32512 * 0.501


def test_activations_too_small_for_their_scale_are_rounded_to_zeros() -> None:
    np.testing.assert_array_equal(value_of(round_activations, [1e-31, -1e-38], group=2), [0, 0])
    assert value_of(round_activations, [2e-30, 1e-31], group=2)[0] == pytest.approx(2e-30)


@pytest.mark.parametrize(("u", "token"), [(0.0, 2), (0.49, 2), (0.5, 0), (0.9999, 1), (1.0 - 2**-53, 1)])
def test_a_draw_takes_the_token_whose_interval_has_u(u: float, token: int) -> None:
    """The last interval reaches to the end, even where the probabilities add up to less than 1."""
    probs, before = [0.3, 0.2 - 1e-12, 0.5], [0.5, 0.8, 0.0]
    assert value_of(sampling.draw, probs, before, u=u) == token


def test_clipping_without_any_gradient_changes_nothing() -> None:
    assert value_of(updates.clip_factor, 0.0, limit=1.0) == 1
    assert value_of(updates.clip_factor, 0.0, limit=10.0) == 1


def test_a_matrix_of_nothing_stays_one_at_length_one() -> None:
    nothing = np.zeros((2, 3))
    size = value_of(updates.frobenius_norm, nothing)
    assert size == 0
    np.testing.assert_array_equal(value_of(updates.divide_by_norm, nothing, size, eps=1e-7), nothing)
    assert value_of(updates.frobenius_norm, [[3.0, 0.0], [0.0, 4.0]]) == 5


# ---- einsum by hand


@pytest.mark.parametrize(
    ("spec", "attrs", "inputs", "wanted"),
    [
        ("tc,oc+o->to", {}, [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [10.0, 20.0]], [[21, 37]]),
        ("tc,(hd)c->htd", {"h": 2}, [[[1.0]], [[1.0], [2.0], [3.0], [4.0]]], [[[1, 2]], [[3, 4]]]),
        ("htd->t(hd)", {}, [[[[1.0, 2.0]], [[3.0, 4.0]]]], [[1, 2, 3, 4]]),
        ("(kg)d,kd->(kg)", {}, [[[1.0], [2.0], [3.0], [4.0]], [[10.0], [100.0]]], [10, 20, 300, 400]),
        ("ab->a1", {"scale": 0.5}, [[[1.0, 3.0], [5.0, 7.0]]], [[2], [6]]),
        ("a->ba", {"b": 2}, [[1.0, 2.0]], [[1, 2], [1, 2]]),
        ("a+a->a", {"scale": 2.0}, [[1.0, 2.0], [10.0, 20.0]], [12, 24]),
        ("ab+ba->ab", {}, [np.zeros((2, 3)), [[1.0, 2], [3, 4], [5, 6]]], [[1, 3, 5], [2, 4, 6]]),
    ],
)
def test_einsum_follows_its_letters(
    spec: str, attrs: dict[str, Any], inputs: list[Any], wanted: list[Any]
) -> None:
    np.testing.assert_array_equal(value_of(einsum, *inputs, spec=spec, **attrs), wanted)


# ---- errors


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "shapes"),
    [
        (einsum, [np.ones((2, 3)), np.ones(4)], {"spec": "ab,b->a"}, r"x0 \(2, 3\), x1 \(4,\)"),
        (einsum, [np.ones((2, 3))], {"spec": "ab,b->a"}, r"x0 \(2, 3\)"),
        (einsum, [np.ones((2, 3))], {"spec": "a1->a"}, r"x0 \(2, 3\)"),
        (einsum, [np.ones(5)], {"spec": "(hd)->hd", "h": 2}, r"x0 \(5,\)"),
        (einsum, [np.ones(2)], {"spec": "a->ab"}, r"x0 \(2,\)"),
        (add, [np.ones(2), np.ones(3)], {}, r"x0 \(2,\), x1 \(3,\)"),
        (mask, [np.ones((2, 2)), np.ones(3)], {}, r"x0 \(2, 2\), x1 \(3,\)"),
        (concat, [np.ones((1, 2)), np.ones((1, 3))], {"axis": 0}, r"x0 \(1, 2\), x1 \(1, 3\)"),
        (concat, [np.ones((1, 2)), np.ones((1, 3))], {"axis": -1}, r"x0 \(1, 2\), x1 \(1, 3\)"),
        (take, [np.ones((3, 2)), [3]], {}, r"x0 \(3, 2\), x1 \(1,\)"),
        (cross_entropy, [np.ones((1, 3)), np.ones(1), [3]], {}, r"x0 \(1, 3\)"),
        (rotate, [np.ones((1, 4)), np.ones((1, 1))], {"layout": "halves"}, r"x0 \(1, 4\), x1 \(1, 1\)"),
        (mean_squared_error, [np.ones((2, 1)), np.ones(2)], {"samples": 2}, r"x0 \(2, 1\), x1 \(2,\)"),
        (power, [np.ones(2)], {}, r"x0 \(2,\)"),
    ],
)
def test_a_step_that_cannot_be_taken_names_itself_its_operation_and_the_shapes(
    op: Op, inputs: list[Any], attrs: dict[str, Any], shapes: str
) -> None:
    tape = Tape()
    refs = [tape.constant(f"x{i}", x) for i, x in enumerate(inputs)]
    with pytest.raises(TapeError, match=rf"step 'y' \({op.name}\) cannot read {shapes}"):
        tape("y", op, *refs, **attrs)
    assert "y" not in tape


@pytest.mark.parametrize("number", [3, -1])
def test_a_number_outside_the_table_is_refused(number: int) -> None:
    with pytest.raises(TapeError, match="'y'"):
        value_of(take, np.ones((3, 2)), [0, number])
    with pytest.raises(TapeError, match="'y'"):
        value_of(cross_entropy, np.ones((1, 3)), np.ones(1), [number])


def test_a_letter_twice_in_one_operand_is_refused() -> None:
    with pytest.raises(TapeError, match="'y'"):
        value_of(einsum, np.eye(3), spec="aa->")


def test_a_name_is_taken_once() -> None:
    tape = Tape()
    x = tape.parameter("x", 1.0)
    tape.alias("other", x)
    for name in ("x", "other"):
        with pytest.raises(TapeError, match=f"'{name}' is already on this tape"):
            tape(name, add, x)
        with pytest.raises(TapeError, match=f"'{name}' is already on this tape"):
            tape.constant(name, 2.0)
        with pytest.raises(TapeError, match=f"'{name}' is already on this tape"):
            tape.alias(name, x)


def test_a_step_reads_only_its_own_tape() -> None:
    elsewhere = Tape().parameter("x", 1.0)
    with pytest.raises(TapeError, match="step 'y' reads 'x'"):
        Tape()("y", add, elsewhere)


def test_backward_starts_from_one_number() -> None:
    tape = Tape()
    y = tape("y", add, tape.parameter("x", [1.0, 2.0]))
    with pytest.raises(TapeError, match=r"'y'.*\(2,\)"):
        tape.backward(y)


def test_backward_needs_a_parameter_to_arrive_at() -> None:
    tape = Tape()
    tape.parameter("unused", 1.0)
    y = tape("y", add, tape.constant("x", 1.0))
    with pytest.raises(TapeError, match=r"'y'.*no parameter"):
        tape.backward(y)


def test_backward_refuses_an_operation_that_has_no_gradient() -> None:
    tape = Tape()
    y = tape("y", updates.sgd, tape.parameter("x", 1.0), tape.constant("g", 1.0), lr=0.1)
    with pytest.raises(TapeError, match="'sgd' of 'y'"):
        tape.backward(y)


def test_an_input_shared_along_an_axis_without_a_gradient_for_it_is_refused() -> None:
    tape = Tape()
    scores = tape.parameter("scores", [1.0, 2.0])
    masked = tape("masked", mask, scores, tape.constant("allowed", [[1.0, 1.0], [0.0, 1.0]]))
    total = tape(
        "total",
        einsum,
        tape("p", softmax, masked),
        tape.constant("w", [[1.0, 2.0], [3.0, 4.0]]),
        spec="ts,ts->",
    )
    with pytest.raises(TapeError, match=r"'scores' \(2,\).*'masked'"):
        tape.backward(total)


def test_a_gradient_that_an_operation_does_not_have_is_never_dropped_in_silence() -> None:
    tape = Tape()
    angles = tape.parameter("angles", [[0.5]])
    rotated = tape("rotated", rotate, tape.constant("x", [[1.0, 2.0]]), angles, layout="halves")
    total = tape("total", einsum, rotated, spec="td->")
    with pytest.raises(TapeError, match=r"'rotate'.*'rotated'.*'angles'"):
        tape.backward(total)
