"""Every kind of every choice, found by listing the folders: it builds, learns, caches, is costed and replays.

A new file in `parts/` is covered here without being named; only its own number from outside is asked for.
"""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.config.cost import cost, total
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.parts import Part, families, kinds
from pellucid.reference.training import forward
from pellucid.reference.transformer import cache
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_mismatch
from pellucid.verification.replay import replay
from tests.reference.models import alone, weights, wrong_cell
from tests.small_choices import small

BASE = {"vocab_size": 5, "context_length": 6, "n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 6}
IDS, TARGETS = [[1, 3, 1, 4], [0, 2, 4, 4]], [[3, -100, 2, 1], [2, 4, 0, 0]]
FAMILY = {
    entry.name: entry.type.family
    for entry in dataclasses.fields(ModelConfig)
    if isinstance(entry.type, type) and issubclass(entry.type, Part)
}
RECIPE = {"optimizers", "schedules", "samplers"}
"""Families that a recipe for training or a request for text chooses from, and no config."""
CHOICES = [(field, kind) for field, family in FAMILY.items() for kind in kinds(family)]


@pytest.fixture(params=CHOICES, ids="/".join)
def config(request: pytest.FixtureRequest) -> ModelConfig:
    field, kind = request.param
    return ModelConfig.from_dict(BASE | {field: small(FAMILY[field], kind)})


def test_every_family_is_a_field_of_the_config() -> None:
    assert set(FAMILY.values()) == set(families()) - RECIPE
    assert set(families()) >= RECIPE


def test_a_choice_survives_json(config: ModelConfig) -> None:
    assert ModelConfig.from_json(config.to_json()) == config


def test_a_choice_runs_with_finite_numbers_and_is_costed(config: ModelConfig) -> None:
    tape = forward(config, weights(config), IDS)
    assert np.isfinite(tape["logits"]).all()
    held = sum(tape.values[name].size for name, role in tape.roles.items() if role == "act")
    assert total(cost(config, batch=2, length=4, width=1)).activation_bytes == held


def test_a_choice_s_gradient_is_the_derivative_of_its_loss(config: ModelConfig) -> None:
    """Along one random direction through all parameters at once, with Richardson extrapolation."""
    start = weights(config, seed=10)
    tape = forward(config, start, IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    draw = np.random.default_rng(1)
    way = {name: draw.normal(size=value.shape) for name, value in start.items()}

    def derivative(h: float) -> float:
        ends = ({n: v + sign * h * way[n] for n, v in start.items()} for sign in (1, -1))
        up, down = (float(forward(config, end, IDS, TARGETS)["loss"]) for end in ends)
        return (up - down) / (2 * h)

    analytic = sum(float((tape[f"d.{name}"] * way[name]).sum()) for name in start if f"d.{name}" in tape)
    assert (4 * derivative(5e-5) - derivative(1e-4)) / 3 == pytest.approx(analytic, rel=1e-6, abs=1e-8)


def test_a_choice_cached_equals_it_in_full(config: ModelConfig) -> None:
    """Token by token, after a first call with those that see each other."""
    if config.mask.bidirectional_prefix > 4:
        return  # where all see all, what is to come cannot be left out
    whole = forward(config, weights(config), IDS)["logits"]
    past, steps = None, []
    cuts = [0, *range(max(1, int(config.mask.bidirectional_prefix)), 5)]
    for start, end in pairwise(cuts):
        tape = forward(config, weights(config), np.array(IDS)[:, start:end], past=past)
        past, _ = cache(tape, config), steps.append(tape["logits"])
    assert find_mismatch("logits", np.concatenate(steps, axis=1), whole, CACHED_AGAINST_FULL) is None


def test_a_choice_s_future_never_changes_its_past(config: ModelConfig) -> None:
    changed = [[*row[:-1], (row[-1] + 1) % 5] for row in IDS]
    before, after = (forward(config, weights(config), ids)["logits"] for ids in (IDS, changed))
    assert np.array_equal(before[:, :-1], after[:, :-1]) is (config.mask.bidirectional_prefix < 4)


@pytest.mark.rotating
def test_a_choice_replays_and_every_cell_can_be_explained(config: ModelConfig) -> None:
    tape = forward(config, weights(config), [[1, 3]], [[3, 0]])
    tape.backward(tape.ref("loss"))
    assert replay(Trace(tape)).exact == len(tape.steps)
    assert wrong_cell(tape, alone) is None
    for name in tape.steps:
        last = ",".join(str(size - 1) for size in tape[name].shape)
        assert str(derive(Trace(tape), f"{name}[{last}]" if last else name, depth=0))
