"""Whole sheets: the key marks right, and so does a learner who rounds every answer and goes on with it."""

import itertools
import json
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import PellucidError
from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig
from pellucid.explanation.rule import compute
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.ladder import Lesson, lessons, make_sheets
from pellucid.learning.sheets.file import fill_key
from pellucid.learning.sheets.forms import apply_level
from pellucid.learning.sheets.hints import STAGES, make_hint
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.mark import Grade, mark_sheet
from pellucid.learning.sheets.sheet import Sheet, format_answer
from pellucid.reference.training import train

SIZES = {"vocab_size": 5, "context_length": 8, "n_layer": 1, "n_head": 2, "d_model": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"positions": "none", "norm": "none", "mlp": "none", "residual": "none", "output": "none"},
    "relu": {"positions": "learned", "mlp": "relu", "d_ff": 3, "norm": "none"},
    "layer norm": {"norm": "layer_norm", "mlp": "gelu", "d_ff": 3},
    "rms norm": {"norm": "rms_norm", "mlp": "swiglu", "d_ff": 3, "positions": "rope"},
    "post norm": {"norm": "layer_norm", "placement": "post", "mlp": "relu", "d_ff": 3},
    "grouped": {"n_head": 4, "n_kv_head": 2, "positions": "rope", "d_model": 8},
    "alibi": {"positions": "alibi", "mlp": "gelu_tanh", "d_ff": 3},
    "sinusoidal": {"positions": "sinusoidal", "mlp": "geglu", "d_ff": 3},
    "no mask": {"mask": "none", "mlp": "relu_squared", "d_ff": 3},
    "window": {"mask": {"kind": "window", "size": 2}, "norm": "layer_norm", "mlp": "silu", "d_ff": 3},
    "untied, biased": {
        "unembedding": "linear",
        "biases": ["qkv", "output", "norm", "unembed"],
        "norm": "layer_norm",
    },
    "two layers": {"n_layer": 2, "mlp": "relu", "d_ff": 3},
}
RULES = {"sgd": {"lr": 0.5}, "momentum": {"lr": 0.1}, "adamw": {"lr": 0.1, "weight_decay": 0.1}}


@cache
def run(name: str, rule: str) -> Trace:
    """Returns a model of random weights, run on two prompts' worth of tokens, backward and updated."""
    config = ModelConfig.from_dict({**SIZES, **CONFIGS[name]})
    rng = np.random.default_rng(len(name))
    weights = {key: rng.normal(size=shape).round(1) for key, shape in config.parameters().items()}
    tape, _ = train(config, weights, [[1, 3, 2]], [[3, IGNORE_INDEX, 0]], rule, 1, **RULES[rule])
    return Trace(tape)


def draw_sheet(name: str, rule: str, draw: random.Random) -> Sheet:
    """Returns a sheet on a random row, cell or value of the run."""
    trace = run(name, rule)
    computed = [name for name in trace.tape.steps if trace.tape[name].dtype.kind == "f"]
    while True:
        name = draw.choice(computed)
        places = trace.places(name, tuple(map(draw.randrange, trace.tape[name].shape)))
        kept = ",".join(f"{axis}={i}" for axis, i in places if draw.random() < 0.7)
        focus = f"{name}[{kept}]" if kept else name
        try:
            return make_sheet(trace, [focus], boxes=draw.choice([5, 20, 60]), digits=draw.choice([3, 4, 5]))
        except PellucidError:  # the value is a copy of a printed one
            continue


def round_on(sheet: Sheet) -> Sheet:
    """Returns the answers of a learner who rounds each to the asked digits and goes on with the rounded."""
    values = {key: given.value for key, given in sheet.given.items()}
    answers = {}
    for box in sheet.boxes:
        answers[box.key] = box.shown or format_answer(compute(box.rule, values), box.decimals)
        values[box.key] = float(answers[box.key])
    return replace(sheet, answers=answers)


def check_sheet(sheet: Sheet) -> None:
    key = mark_sheet(fill_key(sheet))
    assert {marked.grade for marked in key.boxes} == {Grade.RIGHT}, sheet.title
    assert not key.failed, sheet.title
    rounded = mark_sheet(round_on(sheet))
    wrong = [(m.box.key, m.text, m.wanted, m.yours) for m in rounded.boxes if not m.grade.is_right]
    assert not wrong, sheet.title


@pytest.mark.rotating
@pytest.mark.parametrize(("name", "rule"), list(zip(CONFIGS, itertools.cycle(RULES), strict=False)))
def test_random_sheets_mark_right(name: str, rule: str) -> None:
    check_sheet(draw_sheet(name, rule, random.Random(name)))


@pytest.mark.torture
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_sheets_mark_right(name: str, rule: str) -> None:
    """216 sheets."""
    draw = random.Random(f"{name} {rule}")
    for _ in range(6):
        check_sheet(draw_sheet(name, rule, draw))


@pytest.mark.rotating
@pytest.mark.parametrize("lesson", list(lessons().values()), ids=lambda lesson: lesson.name)
def test_the_sheets_of_a_lesson_mark_right(lesson: Lesson) -> None:
    for sheet in make_sheets(lesson, seed=0):
        check_sheet(sheet)
        check_sheet(apply_level(sheet, 1))


# ---- time


@pytest.mark.timed
def test_a_sheet_of_a_hundred_boxes_is_marked_within_a_tenth_of_a_second() -> None:
    """With a tenth of the answers wrong, and a tenth open."""
    trace = pellucid.trace("example-6", "A B", target="C", backward=True)
    sheet = fill_key(make_sheet(trace, ["probs[t=1]"], boxes=120, stop=["blocks.0.resid_post"]))
    assert len(sheet.boxes) >= 100
    wrong = {box.key: "9.87" for box in sheet.boxes[5::10]}
    opened = dict.fromkeys((box.key for box in sheet.boxes[::10]), "")
    answered = replace(sheet, answers={**sheet.answers, **wrong, **opened})
    times = []
    for _ in range(3):
        begun = time.process_time()
        mark_sheet(answered)
        times.append(time.process_time() - begun)
    assert min(times) < 0.1


# ---- anything

EXTREMES = ["0", "-1", "1e300", "-1e300", "1e-300", "3", "0.5"]
ODD_ANSWERS = [
    "",
    "0",
    "-0",
    "inf",
    "-∞",
    "1e300",
    "1e-300",
    "1/3",
    "x",
    "9" * 70,
    "0." + "3" * 60,
    "12 %",
    "2",
]


def distort(sheet: Sheet, draw: random.Random) -> Sheet:
    """Returns the sheet with given numbers of any size, odd decimals, and answers of any kind."""
    given = {
        key: replace(number, text=draw.choice(EXTREMES)) if draw.random() < 0.3 else number
        for key, number in sheet.given.items()
    }
    boxes = tuple(
        replace(box, decimals=draw.choice([0, 3, 8, 30]), exact=draw.random() < 0.2, shown="")
        for box in sheet.boxes
    )
    odd = {box.key: draw.choice([*ODD_ANSWERS, f"{draw.gauss(0, 1):.4f}"]) for box in boxes}
    return replace(sheet, given=given, boxes=boxes, answers=odd)


def mark_anything(configs: Iterable[str], count: int) -> None:
    draw = random.Random(count)
    sheets = [
        draw_sheet(name, rule, draw) for name, rule in zip(configs, itertools.cycle(RULES), strict=False)
    ]
    for _ in range(count):
        marking = mark_sheet(distort(draw.choice(sheets), draw))
        json.dumps(marking.to_data(), allow_nan=False)
        for marked in draw.sample(marking.boxes, min(5, len(marking.boxes))):
            assert all(make_hint(marking, marked, stage) for stage in STAGES)


def test_any_answers_are_marked() -> None:
    mark_anything(["rms norm", "relu"], count=20)


@pytest.mark.torture
def test_many_answers_are_marked() -> None:
    mark_anything(CONFIGS, count=2000)
