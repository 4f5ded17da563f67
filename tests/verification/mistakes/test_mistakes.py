"""Planted bugs are seen at their name, and named; tests/agreement shows that PyTorch catches them too."""

import numpy as np
import pytest

from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.verification.diagnosis import diagnose, plant_mistake
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.mistakes import SLIPS
from tests.reference.models import CONFIGS, weights

PLANTS = {
    "blocks.0.attn.scores": "scores without 1/√D",
    "blocks.1.attn.scores": "scores with 1/D",
    "blocks.0.attn.masked": "mask one token ahead",
    "blocks.1.attn.masked": "no mask",
    "blocks.0.attn_out": "output projection transposed",
    "blocks.1.attn.v": "matrix transposed",
    "blocks.0.attn_norm.rstd": "variance divided by N − 1",
    "blocks.1.mlp_norm.rstd": "eps outside the root",
    "blocks.1.attn.pattern": "softmax over the queries",
    "blocks.1.resid_mid": "residual taken after the norm",
    "d.blocks.0.resid_mid": "first term of the sum missing",
    "d.logits": "last term of the sum missing",
}


@pytest.fixture(scope="module")
def tape() -> Tape:
    config = CONFIGS["gpt2"]
    tape = forward(config, weights(config), [[1, 2, 0], [3, 0, 1]], [[2, -100, 1], [0, 1, 2]])
    tape.backward(tape.ref("loss"))
    return tape


@pytest.mark.parametrize(("name", "mistake"), PLANTS.items())
def test_a_planted_bug_is_caught_at_its_name_and_named(tape: Tape, name: str, mistake: str) -> None:
    name = tape.resolve(name)
    wrong = plant_mistake(tape, name, mistake)
    found = find_first_mismatch(wrong, {n: tape.values[n] for n in tape.steps}, BETWEEN_ENGINES)
    assert found is not None
    assert found.name == name
    assert mistake in diagnose(tape, name, wrong[name])


def test_the_right_answer_is_not_a_mistake(tape: Tape) -> None:
    for name in tape.steps:
        assert diagnose(tape, name, tape[name]) == []


def test_an_answer_that_no_mistake_explains_is_not_blamed_on_one(tape: Tape) -> None:
    assert diagnose(tape, "blocks.0.attn.scores", tape["blocks.0.attn.scores"] + 0.1) == []


def test_a_mistake_that_does_not_apply_is_refused(tape: Tape) -> None:
    with pytest.raises(ValueError, match="does not apply to 'embedded'"):
        plant_mistake(tape, "embedded", "no mask")


def test_gradient_ascent_is_named() -> None:
    from pellucid.reference.optimizers import update

    config = CONFIGS["bare"]
    tape = forward(config, weights(config), [[1, 2]], [[2, 1]])
    tape.backward(tape.ref("loss"))
    update(tape, "sgd", lr=0.5)
    up = tape["embed.weight"] + 0.5 * tape["d.embed.weight"]
    assert diagnose(tape, "embed.weight@1", up) == ["gradient ascent instead of descent"]


def test_every_slip_is_planted_somewhere() -> None:
    """The conventions are planted in tests/explanation/test_conventions.py."""
    assert set(SLIPS) - set(PLANTS.values()) == {"gradient ascent instead of descent"}


def test_an_unchanged_program_gives_the_same_values_again(tape: Tape) -> None:
    again = tape.rerun({})
    assert all(np.array_equal(again[name], tape.values[name], equal_nan=True) for name in tape.values)
