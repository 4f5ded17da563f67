"""Vector scaling: s = w ⊙ z + b with a factor and a shift for each token of the vocabulary.

It has 2 V parameters and the data a few thousand targets, most tokens of V not among them, so the fit is
regularized towards the fitted temperature (w = β, b = 0):

    J = NLL + λ / (2 N) · Σ_v ((σ (w_v − β))² + b_v²)        σ² the mean of z²: both terms are in logits

λ = 1 is a prior of one logit: a token that is not among the targets hardly moves. J is convex; an iteration
takes the Newton step of every token's pair (w_v, b_v) by itself, and halves all of them until J falls.
Since J is the NLL of the temperature at the beginning, the NLL of the fitted part never rises.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.evaluation.calibration.states import HeldStates

Array = NDArray[np.float64]
MOST_STEPS, MOST_HALVINGS = 20, 12
TOLERANCE = 1e-6
"""The fit ends with a step that lowers J by less."""


@dataclass(frozen=True)
class VectorScaling:
    """s = w ⊙ z + b."""

    weight: Array
    bias: Array

    def apply(self, logits: Tensor) -> Tensor:
        return logits * torch.from_numpy(self.weight).to(logits) + torch.from_numpy(self.bias).to(logits)


@dataclass(frozen=True)
class VectorStep:
    """One iteration: the NLL, the penalized objective J, and the factor of its Newton steps."""

    nll: float
    objective: float
    size: float


@dataclass(frozen=True)
class VectorFit:
    scaling: VectorScaling
    steps: tuple[VectorStep, ...]
    penalty: float


@dataclass(frozen=True)
class _Point:
    """A point of the fit in units of logits, u = σ (w − β) and b, with J and its derivatives there."""

    u: Array
    b: Array
    nll: float
    objective: float
    gradient: tuple[Array, Array]
    curvature: tuple[Array, Array, Array]
    """∂²J/∂u², ∂²J/∂u∂b and ∂²J/∂b² of each token."""


def fit_vector(states: HeldStates, temperature: float, penalty: float = 1.0) -> VectorFit:
    """Returns the fitted factors and shifts, from those of a fitted temperature."""
    beta, sigma, size = 1 / temperature, _root_mean_square(states), states.vocab_size
    here = _measure(states, np.zeros(size), np.zeros(size), beta, sigma, penalty)
    steps = [VectorStep(here.nll, here.objective, 0.0)]
    for _ in range(MOST_STEPS):
        found = _search(states, here, beta, sigma, penalty)
        if found is None:
            break
        length, there = found
        steps.append(VectorStep(there.nll, there.objective, length))
        gain, here = here.objective - there.objective, there
        if gain < TOLERANCE:
            break
    return VectorFit(VectorScaling(beta + here.u / sigma, here.b), tuple(steps), penalty)


def _search(
    states: HeldStates, here: _Point, beta: float, sigma: float, penalty: float
) -> tuple[float, _Point] | None:
    (gu, gb), (uu, ub, bb) = here.gradient, here.curvature
    determinant = uu * bb - ub * ub
    du, db = (bb * gu - ub * gb) / determinant, (uu * gb - ub * gu) / determinant
    length = 1.0
    for _ in range(MOST_HALVINGS):
        there = _measure(states, here.u - length * du, here.b - length * db, beta, sigma, penalty)
        if there.objective < here.objective:
            return length, there
        length /= 2
    return None


@torch.no_grad()
def _measure(states: HeldStates, u: Array, b: Array, beta: float, sigma: float, penalty: float) -> _Point:
    scaling, count = VectorScaling(beta + u / sigma, b), len(states)
    nll, sums = 0.0, torch.zeros(5, states.vocab_size, dtype=torch.float64)
    for _, logits, targets in states.chunks():
        log_probs = torch.log_softmax(scaling.apply(logits), -1)
        nll -= float(log_probs.gather(-1, targets[:, None]).sum())
        probs = log_probs.exp()
        spread = probs - probs.square()
        errors = probs.scatter_add(-1, targets[:, None], -torch.ones_like(probs[:, :1]))
        z = logits / sigma
        columns = (errors * z, errors, spread * z.square(), spread * z, spread)
        sums += torch.stack([column.sum(0) for column in columns]).cpu()
    nll /= count
    strength = penalty / count
    gu, gb, uu, ub, bb = sums.numpy() / count
    objective = nll + strength / 2 * float((u**2).sum() + (b**2).sum())
    gradient = (gu + strength * u, gb + strength * b)
    return _Point(u, b, nll, objective, gradient, (uu + strength, ub, bb + strength))


def _root_mean_square(states: HeldStates) -> float:
    total = sum(float(logits.square().sum()) for _, logits, _ in states.chunks())
    return float(np.sqrt(total / (len(states) * states.vocab_size))) or 1.0
