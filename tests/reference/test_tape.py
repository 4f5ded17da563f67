"""The tape without any model, as the first lessons use it."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import AddressError, TapeError
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Gradients, Ref, each, operation
from pellucid.reference.ops import find_op
from pellucid.reference.ops.arithmetic import add, power, subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import mean_squared_error
from pellucid.reference.ops.online_softmax import shifted_exp
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.reference.training import join, train
from pellucid.verification.mismatch import find_mismatch
from tests.reference.models import CONFIGS, weights

V, W = (0.8, 0.2, 0.1), (0.7, 0.3, 0.2)


def derivative(loss: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """Central differences, cell by cell."""
    found = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[index] = step
        found[index] = (loss(x + move) - loss(x - move)) / (2 * step)
    return found


# ---- descending


def test_descending_a_parabola_shrinks_x_by_a_fifth_each_time() -> None:
    x, path = 3.0, []
    for k in range(1, 13):
        tape = Tape()
        y = tape("y", power, tape.parameter("x", x), exponent=2)
        tape.backward(y)
        path.append((float(tape["x"]), float(tape["y"])))
        (new,) = update(tape, "sgd", k, lr=0.1)
        x = float(tape[new])
    np.testing.assert_allclose([x for x, _ in path], [3 * 0.8**k for k in range(12)], rtol=1e-14)
    assert [round(number, 4) for number in path[10]] == [0.3221, 0.1038]
    assert [round(number, 4) for number in path[11]] == [0.2577, 0.0664]


def test_the_gradient_of_a_sum_of_squares_points_away_from_the_origin() -> None:
    tape = Tape()
    x, y = tape.parameter("x", 3.0), tape.parameter("y", -4.0)
    squares = [tape(f"{ref.name}2", power, ref, exponent=2) for ref in (x, y)]
    f = tape("f", add, *squares)
    tape.backward(f)
    assert (tape[f], tape["d.x"], tape["d.y"]) == (25, 6, -8)


def test_the_chain_rule_multiplies_derivatives() -> None:
    tape = Tape()
    x = tape.parameter("x", 2.0)
    u = tape("u", power, x, exponent=3)
    y = tape("y", power, u, exponent=2)
    tape.backward(y)
    assert tape["d.u"] == 2 * 8
    assert tape["d.x"] == 2 * 8 * 3 * 4 == 6 * 2.0**5


# ---- several users


def test_a_value_read_twice_by_one_step_gets_a_part_for_each() -> None:
    tape = Tape()
    x = tape.parameter("x", 3.0)
    y = tape("y", einsum, x, x, spec=",->")
    tape.backward(y)
    assert (tape["d.x.via.y.0"], tape["d.x.via.y.1"], tape["d.x"]) == (3, 3, 6)


def test_a_value_read_by_several_steps_gets_a_part_through_each() -> None:
    tape = Tape()
    x = tape.parameter("x", 3.0)
    square, cube = (tape(name, power, x, exponent=n) for name, n in (("square", 2), ("cube", 3)))
    tape.backward(tape("y", add, square, cube))
    assert (tape["d.x.via.square"], tape["d.x.via.cube"], tape["d.x"]) == (6, 27, 33)
    assert tape.steps["d.x"].op is add
    assert set(tape.steps["d.x"].inputs) == {"d.x.via.square", "d.x.via.cube"}


def test_a_value_read_twice_by_one_step_and_once_by_another_gets_three_parts() -> None:
    tape = Tape()
    x = tape.parameter("x", 3.0)
    product = tape("product", einsum, x, x, spec=",->")
    tape.backward(tape("y", subtract, product, x))
    parts = ("d.x.via.product.0", "d.x.via.product.1", "d.x.via.y")
    assert [float(tape[name]) for name in parts] == [3, 3, -1]
    assert tape["d.x"] == 5


def test_a_value_added_to_itself_gets_twice_the_gradient() -> None:
    tape = Tape()
    x = tape.parameter("x", [1.0, 2.0])
    tape.backward(tape("loss", einsum, tape("y", add, x, x), spec="a->"))
    np.testing.assert_array_equal(tape["d.x"], [2, 2])
    assert tape["d.x.via.y.0"] is tape["d.x.via.y.1"] is tape["d.y"]


# ---- layers


def samples() -> tuple[Array, Array, Array, Array]:
    """X [N in], wanted [N out], weight [out in], bias [out]."""
    random = np.random.default_rng(0)
    return tuple(random.standard_normal(shape) for shape in ((4, 3), (4, 2), (2, 3), (2,)))


def affine(x: Array, wanted: Array, weight: Array, bias: Array) -> Tape:
    tape = Tape()
    w, b = tape.parameter("w", weight), tape.parameter("b", bias)
    predicted = tape("predicted", einsum, tape.constant("x", x), w, b, spec="ni,oi+o->no")
    tape("loss", mean_squared_error, predicted, tape.constant("wanted", wanted), samples=len(x))
    return tape


def test_the_gradient_of_a_mean_squared_error_carries_the_factor_two() -> None:
    x, wanted, weight, bias = samples()
    tape = affine(x, wanted, weight, bias)
    tape.backward(tape.ref("loss"))
    error = x @ weight.T + bias - wanted
    assert tape["loss"] == pytest.approx((error**2).sum() / 4, rel=1e-14)
    np.testing.assert_allclose(tape["d.w"].T, 2 / 4 * x.T @ error, rtol=1e-13)
    np.testing.assert_allclose(tape["d.b"], 2 / 4 * error.sum(0), rtol=1e-13)


def test_the_gradient_of_an_affine_layer_is_its_derivative() -> None:
    x, wanted, weight, bias = samples()
    tape = affine(x, wanted, weight, bias)
    tape.backward(tape.ref("loss"))
    of_weight = derivative(lambda w: float(affine(x, wanted, w, bias)["loss"]), weight)
    of_bias = derivative(lambda b: float(affine(x, wanted, weight, b)["loss"]), bias)
    assert find_mismatch("d.w", tape["d.w"], of_weight, 1e-7) is None
    assert find_mismatch("d.b", tape["d.b"], of_bias, 1e-7) is None


def test_one_sample_by_hand() -> None:
    tape = affine(np.array([[2.0]]), np.array([[1.0]]), np.array([[3.0]]), np.array([-1.0]))
    tape.backward(tape.ref("loss"))
    assert (tape["predicted"], tape["loss"], tape["d.w"], tape["d.b"]) == (5, 16, 16, 8)


def perceptron(activation: str, x: Array, wanted: Array, parameters: dict[str, Array]) -> Tape:
    tape = Tape()
    refs = {name: tape.parameter(name, value) for name, value in parameters.items()}
    hidden = tape("u", einsum, tape.constant("x", x), refs["w1"], refs["b1"], spec="ni,hi+h->nh")
    hidden = tape("a", find_op(activation), hidden)
    predicted = tape("predicted", einsum, hidden, refs["w2"], refs["b2"], spec="nh,oh+o->no")
    tape("loss", mean_squared_error, predicted, tape.constant("wanted", wanted), samples=len(x))
    return tape


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_the_gradient_of_a_two_layer_perceptron_is_its_derivative(activation: str) -> None:
    x, wanted, _, _ = samples()
    random = np.random.default_rng(1)
    shapes = {"w1": (5, 3), "b1": (5,), "w2": (2, 5), "b2": (2,)}
    parameters = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    tape = perceptron(activation, x, wanted, parameters)
    assert np.abs(tape["u"]).min() > 0.001
    tape.backward(tape.ref("loss"))
    for name, value in parameters.items():

        def loss(moved: Array, name: str = name) -> float:
            return float(perceptron(activation, x, wanted, parameters | {name: moved})["loss"])

        assert find_mismatch(f"d.{name}", tape[f"d.{name}"], derivative(loss, value), 1e-7) is None


def test_a_perceptron_by_hand() -> None:
    parameters = {"w1": [[1.0], [-1.0]], "b1": [0.0, 0.0], "w2": [[2.0, 3.0]], "b2": [1.0]}
    tape = perceptron("relu", np.array([[2.0]]), np.array([[4.0]]), parameters)
    tape.backward(tape.ref("loss"))
    np.testing.assert_array_equal(tape["a"], [[2, 0]])
    assert (tape["predicted"], tape["loss"]) == (5, 1)
    np.testing.assert_array_equal(tape["d.w2"], [[4, 0]])
    np.testing.assert_array_equal(tape["d.w1"], [[8], [0]])


# ---- vectors


def dot(tape: Tape, name: str, a: Ref, b: Ref) -> Ref:
    return tape(name, einsum, a, b, spec="i,i->")


def norm(tape: Tape, name: str, a: Ref) -> Ref:
    return tape(name, power, dot(tape, f"{name}.squared", a, a), exponent=0.5)


def vectors() -> tuple[Tape, Ref, Ref]:
    tape = Tape()
    return tape, tape.parameter("v", V), tape.parameter("w", W)


def test_dot_product_and_norms() -> None:
    tape, v, w = vectors()
    assert tape[dot(tape, "dot", v, w)] == pytest.approx(0.64, rel=1e-15)
    assert tape[norm(tape, "norm", v)] == pytest.approx(math.sqrt(0.69), rel=1e-15)
    assert tape[norm(tape, "other_norm", w)] == pytest.approx(math.sqrt(0.62), rel=1e-15)


def test_euclidean_distance() -> None:
    tape, v, w = vectors()
    distance = norm(tape, "distance", tape("difference", subtract, v, w))
    assert round(float(tape[distance]), 5) == 0.17321
    tape.backward(distance)
    away = (np.array(V) - W) / math.sqrt(0.03)
    np.testing.assert_allclose(tape["d.v"], away, rtol=1e-13)
    np.testing.assert_allclose(tape["d.w"], -away, rtol=1e-13)


def test_cosine() -> None:
    tape, v, w = vectors()
    factors = [tape(f"1/{x.name}", power, norm(tape, f"|{x.name}|", x), exponent=-1) for x in (v, w)]
    cosine = tape("cosine", einsum, dot(tape, "dot", v, w), *factors, spec=",,->")
    assert round(float(tape[cosine]), 5) == 0.97850
    tape.backward(cosine)
    along = float(tape[cosine])
    wanted = np.array(W) / math.sqrt(0.69 * 0.62) - along * np.array(V) / 0.69
    np.testing.assert_allclose(tape["d.v"], wanted, rtol=1e-13)


def test_a_vector_divided_by_its_norm_has_length_one_and_no_derivative_outwards() -> None:
    tape, v, w = vectors()
    factor = tape("factor", power, norm(tape, "norm", v), exponent=-1)
    unit = tape("unit", einsum, v, factor, spec="i,->i")
    assert (tape[unit] ** 2).sum() == pytest.approx(1, rel=1e-15)
    tape.backward(dot(tape, "along", unit, w))
    assert tape["d.v"].shape == (3,)
    assert tape["d.v"] @ np.array(V) == pytest.approx(0, abs=1e-15)


# ---- softmax


def tempered(logits: list[float], temperature: float) -> Array:
    tape = Tape()
    warm = tape("warm", einsum, tape.constant("logits", logits), spec="v->v", scale=1 / temperature)
    return tape[tape("probs", softmax, warm)]


def test_temperature_divides_the_logits() -> None:
    powers = np.exp(np.array([1.0, 2.0, 3.0]) / 0.5)
    np.testing.assert_allclose(tempered([1.0, 2.0, 3.0], 0.5), powers / powers.sum(), rtol=1e-14)


def test_a_cold_softmax_is_sharp_and_a_hot_one_flat() -> None:
    np.testing.assert_allclose(tempered([1.0, 2.0, 3.0], 0.01), [0, 0, 1], atol=1e-40)
    np.testing.assert_allclose(tempered([1.0, 2.0, 3.0], 1e9), [1 / 3] * 3, rtol=1e-8)


def test_softmax_does_not_feel_a_shift() -> None:
    np.testing.assert_allclose(
        tempered([101.0, 102.0, 99.0], 1.0), tempered([1.0, 2.0, -1.0], 1.0), rtol=1e-13
    )


def test_softmax_of_logarithms_gives_shares() -> None:
    np.testing.assert_allclose(tempered([0.0, 0.0, math.log(2)], 1.0), [0.25, 0.25, 0.5], rtol=1e-15)


def test_log_sum_exp_turns_logits_into_log_probabilities_and_softmax_is_its_derivative() -> None:
    tape = Tape()
    logits = tape.parameter("logits", [1.0, 2.0, 3.0])
    probs = tape("probs", softmax, logits)
    lse = tape("lse", logsumexp, logits)
    assert tape[lse] == pytest.approx(math.log(math.e + math.e**2 + math.e**3), rel=1e-15)
    np.testing.assert_allclose(tape["logits"] - tape[lse], np.log(tape[probs]), rtol=1e-14)
    tape.backward(lse)
    np.testing.assert_allclose(tape["d.logits"], tape[probs], rtol=1e-14)


# ---- names


def test_a_value_brings_its_own_axes_symbol_and_meaning() -> None:
    tape = Tape()
    price = tape.describe(tape.parameter("price", [1.0, 2.0]), axes="fruit", symbol="π", meaning="per kilo")
    tape.backward(tape("cost", einsum, price, spec="i->"))
    about = Trace(tape).about("price")
    assert (about.axes, about.symbol, about.meaning) == (("fruit",), "π", "per kilo")
    assert Trace(tape).address("price", (1,)) == "price[fruit=1]"
    derivative = Trace(tape).about("d.price")
    assert (derivative.axes, derivative.symbol, derivative.meaning) == (
        ("fruit",),
        "dπ",
        "gradient of per kilo",
    )


def test_an_undescribed_value_has_plain_axes_and_its_name_for_a_symbol() -> None:
    tape = Tape()
    x = tape.parameter("x", [[1.0, 2.0]])
    assert (Trace(tape).about("x").axes, Trace(tape).about("x").symbol) == (("i", "j"), "x")
    tape.describe(x, meaning="two numbers")
    assert (Trace(tape).about("x").axes, Trace(tape).about("x").symbol) == (("i", "j"), "x")
    assert Trace(tape).about("x").meaning == "two numbers"


def test_an_alias_is_another_name_and_never_a_step() -> None:
    tape = Tape()
    x = tape.parameter("x", 3.0)
    stream = tape.alias("stream", x)
    same = tape.alias("same", stream)
    y = tape("y", power, same, exponent=2)
    tape.backward(y)
    assert stream == same == x
    assert "stream" not in tape.steps
    assert "stream" not in tape.values
    assert tape.steps["y"].inputs == ("x",)
    assert tape["same"] is tape["x"]
    assert tape.ref("d.same") == tape.ref("d.stream") == tape.ref("d.x")
    assert tape["d.same"] == 6


def test_a_gradient_of_derivative_one_is_an_alias() -> None:
    tape = Tape()
    x, y = tape.parameter("x", 3.0), tape.parameter("y", 4.0)
    tape.backward(tape("sum", add, x, y))
    assert [name for name in tape.steps if name.startswith("d.")] == []
    assert tape["d.x"] == tape["d.y"] == tape["d.sum"] == 1


def test_a_value_that_does_not_reach_the_loss_has_no_gradient() -> None:
    tape = Tape()
    x = tape.parameter("x", 3.0)
    tape.parameter("lonely", 1.0)
    aside = tape("aside", power, x, exponent=3)
    tape("further", power, aside, exponent=2)
    tape.backward(tape("y", power, x, exponent=2))
    assert tape["d.x"] == 6
    for name in ("d.aside", "d.further", "d.lonely", "d.x.via.y"):
        assert name not in tape


def test_a_constant_gets_no_gradient_nor_does_what_is_made_of_constants() -> None:
    tape = Tape()
    c = tape.constant("c", 2.0)
    squared = tape("squared", power, c, exponent=2)
    tape.backward(tape("y", einsum, squared, tape.parameter("x", 3.0), spec=",->"))
    assert tape["d.x"] == 4
    assert "d.c" not in tape
    assert "d.squared" not in tape


def test_a_step_after_the_loss_does_not_change_its_gradient() -> None:
    tape = Tape()
    y = tape("y", power, tape.parameter("x", 3.0), exponent=2)
    tape("later", power, y, exponent=2)
    tape.backward(y)
    assert tape["d.x"] == 6
    assert "d.later" not in tape


def test_an_input_whose_gradient_flows_elsewhere_is_not_followed_back() -> None:
    """z = top + ln(e^{x − top}): whatever top is, dz/dx = 1, and z's step says so for x alone."""

    @operation(each, "{y} = {0} + ln {1}")
    def together(top: Any, total: Any, x: Any) -> Any:
        return top + np.log(total)

    @together.gradient
    def _(y: Ref, dy: Ref, top: Ref, total: Ref, x: Ref) -> Gradients:
        yield top, None
        yield total, None
        yield x, dy

    tape = Tape()
    x = tape.parameter("x", 3.0)
    top = tape("top", add, x)
    tape.backward(tape("z", together, top, tape("total", shifted_exp, x, top), x))
    assert tape["z"] == tape["x"] == 3
    assert tape["d.x"] == 1
    assert "d.top" not in tape and "d.total" not in tape and "d.x.via.top" not in tape


def test_a_parameter_can_be_the_loss() -> None:
    tape = Tape()
    tape.backward(tape.parameter("x", 3.0))
    assert tape["d.x"] == 1


def test_a_scope_writes_names_short() -> None:
    tape = Tape()
    tape.parameter("layer.weight", 2.0)
    t = tape.scope("layer")
    inner = t.scope("inner")
    y = inner("y", power, t.ref("weight"), exponent=2)
    t.alias("out", y)
    inner.constant("c", 1.0)
    assert y.name == "layer.inner.y"
    assert tape["layer.out"] == tape["layer.inner.y"] == 4
    assert "weight" in t
    assert "weight" not in inner
    assert "c" in inner
    assert tape.steps["layer.inner.y"].inputs == ("layer.weight",)


def test_roles_and_phases_tell_what_each_value_is() -> None:
    tape = Tape()
    y = tape("y", power, tape.parameter("x", 3.0), exponent=2)
    tape.constant("c", 1.0)
    tape.backward(y)
    update(tape, "sgd", lr=0.1)
    roles = {"x": "param", "c": "leaf", "y": "act", "d.x": "grad", "x@1": "update"}
    assert {name: tape.roles[name] for name in roles} == roles
    assert [tape.steps[name].phase for name in ("y", "d.x", "x@1")] == ["fwd", "bwd", "upd"]


def test_x_at_zero_is_x() -> None:
    tape = Tape()
    tape.parameter("x", 3.0)
    assert tape["x@0"] is tape["x"]


def test_whole_numbers_stay_whole_and_the_rest_takes_the_tapes_type() -> None:
    tape = Tape(dtype=np.float32)
    assert tape[tape.constant("ids", [1, 2])].dtype.kind == "i"
    assert tape[tape.constant("table", [1.5])].dtype == np.float32
    assert tape[tape.parameter("x", 3)].dtype == np.float32
    assert tape[tape("y", power, tape.ref("x"), exponent=2)].dtype == np.float32


def test_an_unknown_name_gets_a_hint() -> None:
    tape = Tape()
    tape.parameter("weight", 1.0)
    with pytest.raises(AddressError, match=r"'wieght'.*'weight'"):
        tape["wieght"]


def test_backward_is_taken_once() -> None:
    tape = Tape()
    y = tape("y", power, tape.parameter("x", 3.0), exponent=2)
    tape.backward(y)
    with pytest.raises(TapeError, match=r"'d\.y' is already on this tape"):
        tape.backward(y)
    assert tape["d.x"] == 6


def test_a_rerun_follows_another_parameter_and_leaves_the_tape_alone() -> None:
    tape = Tape()
    y = tape("y", power, tape.parameter("x", 3.0), exponent=2)
    tape.backward(y)
    other = tape.rerun({"x": np.array(5.0)})
    assert (other["y"], other["d.x"]) == (25, 10)
    assert tape["y"] == 9


# ---- edits


def squared(edits: dict[str, dict[int, float]], updates: int = 0) -> Tape:
    tape = Tape(edits=edits)
    tape.updates = updates
    x = tape.parameter("x", [1.0, 2.0, 3.0])
    y = tape("y", power, x, exponent=2)
    tape("loss", einsum, y, tape.constant("weight", [1.0, 10.0, 100.0]), spec="i,i->")
    tape.backward(tape.ref("loss"))
    return tape


def test_an_edited_step_is_what_it_computed_and_then_the_given_cells() -> None:
    tape = squared({"y": {1: 7.0}})
    np.testing.assert_array_equal(tape["y.computed"], [1, 4, 9])
    np.testing.assert_array_equal(tape["y"], [1, 7, 9])
    assert tape["loss"] == 1 + 70 + 900
    assert tape.steps["y"].inputs == ("y.computed",) and tape.steps["y.computed"].op is power


def test_no_gradient_passes_a_given_cell() -> None:
    tape = squared({"y": {1: 7.0}})
    np.testing.assert_array_equal(tape["d.y"], [1, 10, 100])
    np.testing.assert_array_equal(tape["d.y.computed"], [1, 0, 100])
    np.testing.assert_array_equal(tape["d.x"], [2, 0, 600])


def test_a_gradient_can_be_edited_beside_its_value() -> None:
    tape = squared({"y": {1: 7.0}, "d.y": {0: 5.0}})
    np.testing.assert_array_equal(tape["d.y.backpropagated"], [1, 10, 100])
    np.testing.assert_array_equal(tape["d.y"], [5, 10, 100])
    np.testing.assert_array_equal(tape["d.y.computed"], [5, 0, 100])
    np.testing.assert_array_equal(tape["d.x"], [10, 0, 600])


def test_an_edited_parameter_or_constant_is_a_changed_leaf_and_whole_numbers_are_refused() -> None:
    np.testing.assert_array_equal(squared({"x": {0: 3.0}})["y"], [9, 4, 9])
    tape = squared({"weight": {0: 3.0}})
    np.testing.assert_array_equal(tape["weight"], [3, 10, 100])
    assert "weight" not in tape.steps
    with pytest.raises(TapeError, match="whole numbers"):
        Tape(edits={"ids": {0: 1.0}}).constant("ids", [1, 2])
    with pytest.raises(TapeError, match="1 cells"):
        Tape(edits={"c": {1: 1.0}}).constant("c", [1.0])


def test_after_updates_a_value_is_edited_by_its_name_in_the_joined_tape() -> None:
    np.testing.assert_array_equal(squared({"y@2": {1: 7.0}}, updates=2)["y"], [1, 7, 9])
    np.testing.assert_array_equal(squared({"y": {1: 7.0}}, updates=2)["y"], [1, 4, 9])
    np.testing.assert_array_equal(squared({"weight": {0: 3.0}}, updates=2)["weight"], [3, 10, 100])


@pytest.mark.parametrize("freeze", [(), "embed.weight"])
def test_an_edited_parameter_is_a_run_with_that_weight(freeze: Any) -> None:
    config, ids, targets = CONFIGS["gpt2"], [[1, 2, 0]], [[2, 1, -100]]
    edited = weights(config)
    edited["embed.weight"][1, 0] = 0.75
    wanted = join(train(config, edited, ids, targets, "sgd", 2, lr=0.1, freeze=freeze))
    make_tape = partial(Tape, edits={"embed.weight": {4: 0.75}})
    run = {"lr": 0.1, "freeze": freeze, "make_tape": make_tape}
    got = join(train(config, weights(config), ids, targets, "sgd", 2, **run))
    assert list(got.values) == list(wanted.values)
    assert all(np.array_equal(got[name], value) for name, value in wanted.values.items())


def test_an_edited_update_is_what_the_next_pass_reads() -> None:
    config, edits = CONFIGS["gpt2"], {"embed.weight@1": {4: 0.75}, "probs@1": {0: 0.5}}
    inputs = (config, weights(config), [[1, 2, 0]], [[2, 1, -100]])
    tape = join(train(*inputs, "sgd", 1, lr=0.1, make_tape=partial(Tape, edits=edits)))
    assert tape["embed.weight@1"][1, 0] == 0.75 != tape["embed.weight@1.computed"][1, 0]
    assert (
        tape["embedded@1"][0, 0, 0] == tape["positioned@1"][0, 0, 0] - tape["position_rows@1"][0, 0] == 0.75
    )
    assert tape["probs@1"][0, 0, 0] == 0.5 != tape["probs.computed@1"][0, 0, 0]
    for name in ("embed.weight@1.computed", "probs.computed@1"):
        assert "before the edit" in Trace(tape).about(name).meaning


def test_an_edit_outside_a_value_is_refused() -> None:
    with pytest.raises(TapeError, match=r"'y'.*do not fit 3 cells"):
        squared({"y": {3: 7.0}})
