"""A sheet on any cells of any run can be done: its key is right, and so is who rounds every answer."""

import random
from dataclasses import replace

import pytest

from pellucid.config import ModelConfig
from pellucid.errors import UsageError
from pellucid.explain.address import parse
from pellucid.explain.rule import compute
from pellucid.explain.trace import Trace
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.sheets.file import from_json, to_json
from pellucid.sheets.make import make_sheet
from pellucid.sheets.mark import Mark, mark_sheet
from pellucid.sheets.sheet import Sheet
from tests.reference.models import CONFIGS, IDS, TARGETS, weights
from tests.small_choices import small

_PLAIN = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 4, "d_ff": 3}
MORE = {
    "window": {"mask": small("masks", "window"), "positions": "alibi"},
    "linear": {"attention": small("attentions", "linear_elu"), "positions": "learned"},
    "tiled": {"attention": small("attentions", "tiled")},
    "silu": {"mlp": "silu", "norm": "layer_norm", "placement": "post"},
    "capped": {"score_cap": {"kind": "tanh", "limit": 5.0}, "norm": "rms_norm"},
    "squared": {"mlp": "relu_squared", "unembedding": "linear"},
}
MODELS = CONFIGS | {name: ModelConfig.from_dict(_PLAIN | choices) for name, choices in MORE.items()}
RULES = {"sgd": {"lr": 0.5}, "adamw": {"lr": 0.01, "clip": 0.1}, "momentum": {"lr": 0.1}}


def run(name: str, seed: int) -> Tape:
    config = MODELS[name]
    tape = forward(config, weights(config, seed, scale=0.7), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    rule = random.Random(seed).choice([*RULES])
    update(tape, rule, **RULES[rule])
    return tape


def make_random_sheet(seed: int) -> tuple[Trace, Sheet]:
    """Returns a sheet on a random value of a random run: one number, a row, or all of it."""
    rng = random.Random(seed)
    trace = Trace(run(sorted(MODELS)[seed % len(MODELS)], seed // len(MODELS)))
    names = [name for name in trace.tape.steps if trace.value(name).dtype.kind == "f"]
    while True:
        name = rng.choice(names)
        places = [
            (a, rng.randrange(n))
            for a, n in zip(trace.about(name).axes, trace.value(name).shape, strict=True)
        ]
        fixed = ",".join(f"{axis}={i}" for axis, i in places if axis != "1" and rng.random() < 0.7)
        try:
            return trace, make_sheet(
                trace,
                [f"{name}[{fixed}]" if fixed else name],
                boxes=rng.choice([1, 10, 20, 60]),
                top=rng.choice([2, 4]),
                digits=rng.choice([3, 4, 5]),
            )
        except UsageError:  # a constant, or a copy of a parameter: nothing to ask
            continue


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(200))
def test_the_key_of_a_random_sheet_is_right_and_so_is_a_learner_who_rounds(seed: int) -> None:
    trace, sheet = make_random_sheet(seed)
    for box in sheet.boxes:
        if "~" not in box.key:
            part = parse(trace, box.key)
            assert abs(sheet.key[box.key] - trace.value(part.name)[part.cell]) <= 10.0**-box.decimals
    assert from_json(to_json(sheet)) == sheet
    key = {box.key: box.format(sheet.key[box.key]) for box in sheet.boxes}
    marked = mark_sheet(replace(sheet, answers=key))
    assert {box.mark for box in marked.boxes} == {Mark.RIGHT}, sheet.title
    values = {key: given.value for key, given in sheet.given.items()}
    answers = {}
    for box in sheet.boxes:
        answers[box.key] = box.format(compute(box.rule, values))
        values[box.key] = float(answers[box.key])
    rounded = mark_sheet(replace(sheet, answers=answers))
    assert not [box.box.key for box in rounded.boxes if not box.mark.is_right], sheet.title
