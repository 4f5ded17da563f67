"""Every kind of every choice: it is costed, learns by its derivative, is quantized, replays and is explained.

A new file in `parts/` is covered here without being named; only its own number from outside is asked for.
"""

import dataclasses

import numpy as np
import pytest
import torch

from pellucid.config.cost import cost, total
from pellucid.engine.transformer import Transformer
from pellucid.explanation import engines
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.parts import families
from pellucid.reference.training import forward
from pellucid.verification.mismatch import BETWEEN_ENGINES, explain_mismatch, find_first_mismatch
from pellucid.verification.replay import replay
from tests.agreement.engines import DIFFERENT, FAMILY, IDS, TARGETS, Runs
from tests.reference.models import alone, quantized_weights, weights, wrong_cell

RECIPE = {"optimizers", "schedules", "samplers"}
"""Families that a recipe for training or a request for text chooses from, and no config."""


@pytest.fixture(scope="module", params=DIFFERENT)
def runs(request: pytest.FixtureRequest) -> Runs:
    return Runs(DIFFERENT[request.param])


def test_every_family_is_a_field_of_the_config() -> None:
    assert set(FAMILY.values()) == set(families()) - RECIPE
    assert set(families()) >= RECIPE


def test_a_choice_runs_with_finite_numbers_and_is_costed(runs: Runs) -> None:
    tape, of_loss = runs.tape, {"lse", "nll", "loss"}
    assert np.isfinite(tape["logits"]).all()
    held = sum(tape[name].size for name, role in tape.roles.items() if role == "act" and name not in of_loss)
    size = {"batch": len(IDS), "length": len(IDS[0]), "width": 1}
    assert total(cost(runs.config, **size)).activation_bytes == held


def test_a_choice_s_gradient_is_the_derivative_of_its_loss(runs: Runs) -> None:
    """Along one random direction through all parameters at once, with Richardson extrapolation."""
    start, draw = weights(runs.config, 10, runs.config.d_model**-0.5), np.random.default_rng(1)
    tape = Runs(runs.config, values=start).tape
    way = {name: draw.normal(size=value.shape) for name, value in start.items()}

    def derivative(h: float) -> float:
        ends = ({n: v + sign * h * way[n] for n, v in start.items()} for sign in (1, -1))
        up, down = (float(forward(runs.config, end, IDS, TARGETS)["loss"]) for end in ends)
        return (up - down) / (2 * h)

    analytic = sum(float((tape[f"d.{name}"] * way[name]).sum()) for name in start if f"d.{name}" in tape)
    assert (4 * derivative(5e-5) - derivative(1e-4)) / 3 == pytest.approx(analytic, rel=1e-6, abs=1e-8)


def test_a_choice_s_future_never_changes_its_past(runs: Runs) -> None:
    changed = [[*row[:-1], (row[-1] + 1) % runs.config.vocab_size] for row in IDS]
    before, after = runs.tape["logits"], forward(runs.config, runs.values, changed)["logits"]
    looks_ahead = runs.config.mask.bidirectional_prefix >= len(IDS[0])
    assert np.array_equal(before[:, :-1], after[:, :-1]) is not looks_ahead


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_both_engines_agree_on_quantized_weights(runs: Runs, scheme: str) -> None:
    """Values, the dequantized weights among them, and the gradients of what is not quantized."""
    held = quantized_weights(runs.config, scheme)
    module = Transformer.from_weights(runs.config, held, dtype=torch.float64).eval()
    both = engines.run(module, IDS, TARGETS, backward=any(True for _ in module.parameters()))
    assert "blocks.0.attn.q_proj.weight" in both.values and "embed.weight" in both.values
    wanted = {name: both.tape[name] for name in both.values}
    found = find_first_mismatch(both.values, wanted, BETWEEN_ENGINES)
    assert not found, explain_mismatch(found, Trace(both.tape))


@pytest.mark.rotating
def test_a_choice_replays_and_every_cell_can_be_explained(runs: Runs) -> None:
    tape = Runs(dataclasses.replace(runs.config, n_layer=1), [[1, 3]], [[3, 0]]).tape
    assert replay(Trace(tape)).exact == len(tape.steps)
    assert wrong_cell(tape, alone) is None
    for name in tape.steps:
        last = ",".join(str(size - 1) for size in tape[name].shape)
        assert str(derive(Trace(tape), f"{name}[{last}]" if last else name, depth=0))
