"""Vector scaling: its objective never rises, its minimum is a minimum, and it cannot follow unseen tokens."""

import numpy as np
import pytest
import torch

from pellucid.evaluation.calibration.predictions import TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.temperature import fit_temperature
from pellucid.evaluation.calibration.vector import fit_vector
from tests.evaluation.calibration.small_predictions import make_states, random_states


@pytest.mark.parametrize("seed", range(10))
def test_the_nll_is_never_above_that_of_the_temperature(seed: int) -> None:
    states = random_states(seed)
    temperature = fit_temperature(states).temperature
    fit = fit_vector(states, temperature)
    objectives = [step.objective for step in fit.steps]
    assert objectives == sorted(objectives, reverse=True)
    before, after = compute_predictions(states, [TemperatureScaling(temperature), fit.scaling])
    assert fit.steps[0].nll == pytest.approx(before.nll.mean(), rel=1e-12)
    assert fit.steps[-1].nll == pytest.approx(after.nll.mean(), rel=1e-12)
    assert after.nll.mean() <= before.nll.mean()


def test_the_minimum_is_that_of_lbfgs() -> None:
    states, temperature = random_states(4, count=60), 1.5
    fit, count = fit_vector(states, temperature), 60
    sigma = float(states.hidden.square().mean().sqrt())
    u, b = (torch.zeros(7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.LBFGS([u, b], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def objective() -> torch.Tensor:
        optimizer.zero_grad()
        logits = states.hidden * (1 / temperature + u / sigma) + b
        nll = torch.nn.functional.cross_entropy(logits, torch.from_numpy(states.targets))
        total = nll + (u.square().sum() + b.square().sum()) / (2 * count)
        total.backward()
        return total

    optimizer.step(objective)
    assert fit.steps[-1].objective == pytest.approx(float(objective().detach()), abs=1e-5)


def test_a_token_that_is_never_a_target_hardly_moves() -> None:
    """Its probability is small everywhere, and the prior holds it."""
    logits = np.random.default_rng(0).normal(size=(50, 6))
    logits[:, 5] = -8.0
    states = make_states(logits, np.arange(50) % 5)
    scaling = fit_vector(states, 1.0).scaling
    assert abs(scaling.bias[5]) < 0.1 and abs(scaling.weight[5] - 1) < 0.1


def test_one_target_and_one_token_are_enough() -> None:
    assert fit_vector(make_states(np.array([[0.5]]), np.zeros(1)), 1.0).steps[-1].nll == 0
    assert fit_vector(make_states(np.zeros((1, 2)), np.zeros(1)), 1.0).steps[-1].nll < np.log(2)
