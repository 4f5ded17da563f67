"""A sheet on any cells of any run can be done: its key is right, and so is who rounds every answer."""

import functools
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.file import fill_key, from_json, to_json
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.mark import Grade, mark_sheet
from pellucid.learning.sheets.planted import answer_sheet
from pellucid.learning.sheets.sheet import Sheet
from pellucid.reference.optimizers import update
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, IDS, TARGETS, weights
from tests.small_choices import small

_PLAIN = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 4, "d_ff": 3}
MORE: dict[str, dict[str, Any]] = {
    "bare": {"positions": "none", "norm": "none", "mlp": "none", "residual": "none", "output": "none"},
    "window": {"mask": small("masks", "window"), "positions": "alibi"},
    "linear": {"attention": small("attentions", "linear_elu"), "positions": "learned"},
    "tiled": {"attention": small("attentions", "tiled")},
    "silu": {"mlp": "silu", "norm": "layer_norm", "placement": "post"},
    "capped": {"score_cap": {"kind": "tanh", "limit": 5.0}, "norm": "rms_norm"},
    "squared": {"mlp": "relu_squared", "unembedding": "linear", "mask": "none"},
    "grouped": {"n_head": 4, "n_kv_head": 2, "d_model": 8, "mlp": "gelu_tanh"},
    "sinusoidal": {"positions": "sinusoidal", "mlp": "geglu", "norm": "layer_norm"},
    "biased": {"unembedding": "linear", "biases": ["qkv", "output", "norm", "unembed"], "mlp": "gelu"},
    "two layers": {"n_layer": 2, "mlp": "relu", "norm": "none", "positions": "learned"},
}
MODELS = CONFIGS | {name: ModelConfig.from_dict(_PLAIN | choices) for name, choices in MORE.items()}
RULES: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.5},
    "adamw": {"lr": 0.01, "clip": 0.1, "weight_decay": 0.1},
    "momentum": {"lr": 0.1},
}


@functools.cache
def run(name: str, rule: str) -> Trace:
    config = MODELS[name]
    tape = forward(config, weights(config, scale=0.7), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    update(tape, rule, **RULES[rule])
    return Trace(tape)


Request = tuple[str, str, str, dict[str, int]]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draws a model, an update rule, a focus (one number, a row, or all of a value), and the sizes."""
    name, rule = draw(st.sampled_from(sorted(MODELS))), draw(st.sampled_from(sorted(RULES)))
    trace = run(name, rule)
    value = draw(st.sampled_from([of for of in trace.tape.steps if trace.value(of).dtype.kind == "f"]))
    sizes = zip(trace.about(value).axes, trace.value(value).shape, strict=True)
    places = [(axis, draw(st.none() | st.integers(0, size - 1))) for axis, size in sizes if axis != "1"]
    fixed = ",".join(f"{axis}={i}" for axis, i in places if i is not None)
    size = {"boxes": st.sampled_from([1, 10, 20, 60]), "top": st.integers(1, 5), "digits": st.integers(3, 5)}
    focus = f"{value}[{fixed}]" if fixed else value
    return name, rule, focus, {key: draw(of) for key, of in size.items()}


def check_sheet(request: Request) -> None:
    """The key gives the run's numbers."""
    name, rule, focus, sizes = request
    trace = run(name, rule)
    try:
        sheet = make_sheet(trace, [focus], **sizes)
    except UsageError:  # a constant, or a copy of a parameter: nothing to ask
        reject()
    assert from_json(to_json(sheet)) == sheet
    for box in sheet.boxes:
        if "~" not in box.key:
            part = parse(trace, box.key)
            assert abs(sheet.key[box.key] - trace.value(part.name)[part.cell]) <= 10.0**-box.decimals
    check_marking(sheet)


def check_marking(sheet: Sheet) -> None:
    """The key is marked right, and so is a learner who rounds each answer and goes on with it."""
    key = mark_sheet(fill_key(sheet))
    assert {box.grade for box in key.boxes} <= {Grade.RIGHT} and not key.failed, sheet.title
    rounded = mark_sheet(answer_sheet(sheet))
    assert not [box.box.key for box in rounded.boxes if not box.grade.is_right], sheet.title


@settings(max_examples=20, deadline=None)
@given(made=requests())
def test_the_key_of_any_sheet_is_right_and_so_is_a_learner_who_rounds(made: Request) -> None:
    check_sheet(made)


@pytest.mark.torture
@settings(max_examples=200, deadline=None)
@given(made=requests())
def test_the_keys_of_many_sheets_are_right(made: Request) -> None:
    check_sheet(made)
