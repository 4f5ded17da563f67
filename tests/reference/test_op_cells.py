"""Every cell of every step is its array's, computed alone, explained, and as its printed text reads."""

import inspect
import math
import re
import tomllib
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from pellucid.config import preset, preset_text
from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.expression import Apply, Cell, Expression, Number, Sum, compute
from pellucid.explanation.pieces import format_expression
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.ops import table
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.softmax import logsumexp, softmax
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Step, Tape
from pellucid.reference.training import forward, join, train
from pellucid.verification.mismatch import find_mismatch
from tests.reference.models import CONFIGS, IDS, TARGETS, alone, explained, updated, weights, wrong_cell
from tests.reference.test_ops import CASES, Case, backpropagated

run = cache(updated)


class Prefix:
    """A function written before its argument, binding as tightly as a power: √2, e^3."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self.function = function

    def __pow__(self, argument: float) -> float:
        return self.function(argument)


CALCULATOR = {
    "root": Prefix(math.sqrt),
    "power_of_e": Prefix(math.exp),
    "inf": math.inf,
    "ln": math.log,
    "max": lambda *numbers: max(numbers),
    "min": lambda *numbers: min(numbers),
    **{name: getattr(math, name) for name in ("tanh", "cos", "sin", "erf")},
}


def calculated(text: str) -> float:
    """The number that a person with a calculator gets from the printed arithmetic."""
    text = re.sub(r" \[[\d,]+ smaller terms?\]", "", text)
    for printed, typed in (("√", "root**"), ("e^", "power_of_e**"), ("^", "**"), ("·", "*"), ("∞", "inf")):
        text = text.replace(printed, typed)
    return float(eval(text, {"__builtins__": {}}, CALCULATOR))


def read_aloud(tape: Tape, step: Step, index: Index, top: int) -> float:
    return calculated(format_expression(record_arithmetic(Trace(tape), step, index, top), 17))


@pytest.mark.rotating
@pytest.mark.parametrize("name", CONFIGS)
def test_a_cell_needs_only_the_slices_that_it_reads(name: str) -> None:
    assert wrong_cell(run(CONFIGS[name]), alone) is None


@pytest.mark.rotating
@pytest.mark.parametrize("top", [10**6, 2], ids=["whole", "folded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_arithmetic_of_a_cell_gives_the_cell_and_folding_its_sums_loses_nothing(
    name: str, top: int
) -> None:
    assert wrong_cell(run(CONFIGS[name]), explained(top=top)) is None


@pytest.mark.parametrize("name", CONFIGS)
def test_the_runs_clip_and_ignore_a_target(name: str) -> None:
    tape = run(CONFIGS[name])
    assert 0 < tape["clip"] < 1
    assert tape["nll"][0, 1] == 0
    assert {step.phase for step in tape.steps.values()} == {"fwd", "bwd", "upd"}


def test_masked_scores_are_infinite_in_the_array_and_in_the_cell() -> None:
    tape = run(CONFIGS["gpt2"])
    step = tape.steps["blocks.0.attn.masked"]
    assert tape[step.name][0, 0, 0, 1] == alone(tape, step, (0, 0, 0, 1)) == -math.inf
    assert read_aloud(tape, step, (0, 0, 0, 1), top=6) == -math.inf


def teaching_model() -> Tape:
    given = tomllib.loads(preset_text("abcd"))["weights"]
    tape = forward(preset("abcd"), given, [[0, 1, 2]], [[1, -100, 3]])
    tape.backward(tape.ref("loss"))
    update(tape, "adamw", lr=0.01, clip=0.1)
    return tape


@pytest.mark.parametrize("top", [1, 2, 6])
def test_the_printed_arithmetic_of_the_teaching_model_gives_its_numbers(top: int) -> None:
    assert wrong_cell(teaching_model(), partial(read_aloud, top=top)) is None


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["gpt2", "llama_pairs", "guide", "relu"])
def test_the_printed_arithmetic_of_larger_models_gives_their_numbers(name: str) -> None:
    assert wrong_cell(run(CONFIGS[name]), partial(read_aloud, top=6)) is None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_printed_arithmetic_of_every_operation_gives_its_numbers(case: Case) -> None:
    assert wrong_cell(backpropagated(case), partial(read_aloud, top=6)) is None


def test_the_printed_arithmetic_reads_as_on_paper() -> None:
    tape = teaching_model()

    def text(name: str, *index: int) -> str:
        return format_expression(record_arithmetic(Trace(tape), tape.steps[name], index, top=6))

    assert text("blocks.0.attn.q", 0, 0, 2, 1) == "1 · 0 + 1 · 2"
    assert text("blocks.0.attn.scores", 0, 0, 2, 0) == "(2 · 1 + 2 · 0) / √2"
    assert text("blocks.0.attn.pattern", 0, 0, 1, 0) == "e^0 / (e^0 + e^1.4142 + e^(-∞))"
    assert text("nll", 0, 1) == "0"
    assert text("loss") == f"({tape['nll'][0, 0]:.5g} + 0 + {tape['nll'][0, 2]:.5g}) / 2"


def test_the_calculator_reads_what_is_printed() -> None:
    assert calculated("(2 · 1 + 2 · 0) / √2") == 2 / math.sqrt(2)
    assert calculated("e^(-∞) + e^0 - 3^2") == -8
    assert calculated("1 / √(4) · 3") == 1.5
    assert calculated("ln(e^1e-05) + 5 [3,000 smaller terms]") == 1e-05 + 5
    with pytest.raises(NameError):
        calculated("sofmax(1)")


TWO, MINUS = Cell("x", (0,), 2.0), Cell("x", (1,), -3.0)
SUM = Sum((TWO, MINUS), 0.0, 0, -1.0)
PRODUCT = Apply("multiply", (MINUS, TWO), -6.0)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Apply("negative", (SUM,), 1.0), "-(2 - 3)"),
        (Apply("negative", (MINUS,), 3.0), "-(-3)"),
        (Apply("subtract", (TWO, SUM), 3.0), "2 - (2 - 3)"),
        (Apply("subtract", (TWO, MINUS), 5.0), "2 - (-3)"),
        (Apply("add", (TWO, PRODUCT), -4.0), "2 - 3 · 2"),
        (Apply("divide", (TWO, PRODUCT), -1 / 3), "2 / (-3 · 2)"),
        (Apply("multiply", (TWO, MINUS), -6.0), "2 · (-3)"),
        (Apply("multiply", (SUM, SUM), 1.0), "(2 - 3) · (2 - 3)"),
        (Apply("power", (MINUS, Number(2.0)), 9.0), "(-3)^2"),
        (Apply("power", (TWO, Number(-1.0)), 0.5), "2^(-1)"),
        (Apply("exp", (PRODUCT,), math.exp(-6)), "e^(-3 · 2)"),
        (Apply("sqrt", (Apply("power", (MINUS, Number(2.0)), 9.0),), 3.0), "√((-3)^2)"),
        (Sum((TWO, MINUS), -0.5, 40_000, -1.5), "2 - 3 - 0.5 [40,000 smaller terms]"),
    ],
)
def test_parentheses_stand_where_a_calculator_needs_them(expression: Expression, text: str) -> None:
    assert format_expression(expression) == text
    assert calculated(text) == pytest.approx(expression.value, rel=1e-15)
    assert compute(expression) == pytest.approx(expression.value, rel=1e-15)


def test_a_scale_is_printed_with_as_many_digits_as_asked() -> None:
    tape = Tape()
    logits = tape.constant("logits", [1.0, 2.0])
    warm = tape("warm", einsum, logits, spec="v->v", scale=1 / 0.7)
    assert wrong_cell(tape, partial(read_aloud, top=6)) is None
    assert format_expression(record_arithmetic(Trace(tape), tape.steps[warm.name], (0,), 6), 3) == "1 · 1.43"


@pytest.mark.parametrize("op", [softmax, logsumexp], ids=lambda op: op.name)
@pytest.mark.parametrize("scores", [[1000.0, 1001.0, 0.0], [1000.0], [-1000.0, -1001.0]])
def test_scores_too_large_for_the_friendly_form_are_explained_by_the_stable_one(op, scores) -> None:
    tape = Tape()
    tape("y", op, tape.constant("scores", [scores]))
    assert wrong_cell(tape, explained(top=10)) is None
    assert wrong_cell(tape, explained(top=1)) is None
    assert wrong_cell(tape, partial(read_aloud, top=10)) is None


def test_a_fully_masked_row_can_be_explained() -> None:
    tape = Tape()
    y = tape("y", softmax, tape.constant("scores", [[-np.inf, -np.inf]]))
    assert wrong_cell(tape, explained(top=10)) is None
    assert not tape[y].any()


@pytest.mark.parametrize("name", [name for name, op in table().items() if op.shown])
def test_the_form_for_people_equals_the_forward(name: str) -> None:
    op, random = table()[name], np.random.default_rng(0)
    inputs = [2 * random.standard_normal((3, 4)) for _ in inspect.signature(op.forward).parameters]
    assert op.shown is not None
    assert find_mismatch(name, op.shown(*inputs), op.forward(*inputs), 1e-12) is None


def test_the_cells_of_two_joined_training_steps_are_their_arrays() -> None:
    config = CONFIGS["bare"]
    tape = join(train(config, weights(config), IDS, TARGETS, "adamw", 2, lr=0.01))
    assert wrong_cell(tape, alone) is None
    assert wrong_cell(tape, explained(top=2)) is None


def test_an_explanation_reads_only_cells_of_its_inputs() -> None:
    tape = run(CONFIGS["llama"])
    step = tape.steps["blocks.1.attn.scores"]
    expression = record_arithmetic(Trace(tape), step, (1, 3, 2, 0), top=10)
    q, k = (tape[name] for name in step.inputs)
    assert compute(expression) == pytest.approx(q[1, 3, 2] @ k[1, 1, 0] / 2, rel=1e-14)
