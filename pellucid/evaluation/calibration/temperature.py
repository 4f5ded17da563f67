"""Temperature scaling: the T for which softmax(z / T) has the smallest negative log-likelihood.

The parameter is β = 1/T, because NLL(β) = mean of ln Σ_v e^(β z_v) − β z_y is convex in it:

    dNLL/dβ   = mean of E_p[z] − z_y              the expected logit less the logit of the target
    d²NLL/dβ² = mean of Var_p[z]                  never negative
    dNLL/dT   = −β² dNLL/dβ

Newton's method, β ← β − η dNLL/dβ / d²NLL/dβ², from β = 1; η is halved until the NLL falls, so that on the
predictions that it is fitted on, the NLL of the fitted temperature is never above that of T = 1.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.evaluation.calibration.predictions import check_finite
from pellucid.evaluation.calibration.states import HeldStates
from pellucid.reference.ops.updates import newton

Array = NDArray[np.float64]
LOWEST, HIGHEST = 0.1, 10.0
"""Temperatures between which the fit stays: where every prediction is right, the NLL falls without end."""
FARTHEST = 4.0
"""The factor by which one step may change β."""
MOST_STEPS, MOST_HALVINGS = 30, 30
TOLERANCE = 1e-12
"""A step that would lower the NLL by less is not taken."""
EDGE = 1e-9
"""The share of β below which its distance to a limit is none."""
ZERO = 1e-9
"""An NLL below this is 0 but for rounding: it still falls with T, by less than a step is taken for."""
NOISE = 1e-24
"""A variance below this share of the squared logits is rounding: the logits are equal."""


@dataclass(frozen=True)
class TemperatureStep:
    """One iteration of the fit: β, and what each prediction [N] contributes there."""

    inverse_temperature: float
    lse: Array
    """ln Σ_v e^(β z_v)"""
    expected_logit: Array
    """Σ_v p_v z_v"""
    logit_variance: Array
    """Σ_v p_v (z_v − Σ_u p_u z_u)²"""
    target_logit: Array
    size: float = 0.0
    """η of the Newton step that followed; 0 where none did."""

    @property
    def temperature(self) -> float:
        return 1 / self.inverse_temperature

    @property
    def nll(self) -> float:
        return float((self.lse - self.inverse_temperature * self.target_logit).mean())

    @property
    def gradient(self) -> float:
        """dNLL/dβ."""
        return float((self.expected_logit - self.target_logit).mean())

    @property
    def curvature(self) -> float:
        """d²NLL/dβ²."""
        return float(self.logit_variance.mean())

    @property
    def gain(self) -> float:
        """By about how much a Newton step lowers the NLL, (dNLL/dβ)² / (2 d²NLL/dβ²); 0 for equal logits."""
        largest = float(np.square(self.target_logit).max(initial=0.0))
        return self.gradient**2 / self.curvature / 2 if self.curvature > NOISE * largest else 0.0

    @property
    def temperature_gradient(self) -> float:
        """dNLL/dT."""
        return -(self.inverse_temperature**2) * self.gradient


@dataclass(frozen=True)
class TemperatureFit:
    """The iterations of a fit, the first at T = 1 and the last at the fitted temperature."""

    steps: tuple[TemperatureStep, ...]
    is_bounded: bool = False
    """Whether the NLL still fell at the limit of the temperature."""

    @property
    def temperature(self) -> float:
        return self.steps[-1].temperature

    @property
    def standard_error(self) -> float:
        """The standard error of T for N independent predictions, T² / √(N d²NLL/dβ²); NaN for equal ones."""
        last = self.steps[-1]
        information = len(last.lse) * last.curvature
        return last.temperature**2 / math.sqrt(information) if information > 0 else math.nan


def fit_temperature(states: HeldStates) -> TemperatureFit:
    """Returns the temperature with the smallest NLL of some predictions, with the iterations of the fit."""
    steps = [measure_step(states, 1.0)]
    while len(steps) <= MOST_STEPS and steps[-1].gain > TOLERANCE:
        here = steps[-1]
        if (room := _find_room(here)) < EDGE * here.inverse_temperature:
            return TemperatureFit(tuple(steps), is_bounded=True)
        found = _search(states, here, min(1.0, room / abs(here.gradient / here.curvature)))
        if found is None:
            break
        size, there = found
        steps[-1:] = [replace(here, size=size), there]
    return TemperatureFit(tuple(steps), is_bounded=steps[-1].nll < ZERO)


@torch.no_grad()
def measure_step(states: HeldStates, inverse_temperature: float) -> TemperatureStep:
    """Returns what each prediction contributes to the NLL and to its derivatives at β."""
    parts = []
    for rows, logits, targets in states.chunks():
        check_finite(states, rows, logits)
        largest = logits.amax(-1, keepdim=True)
        terms = torch.sub(logits, largest).mul_(inverse_temperature).exp_()  # e^(β (z_v − max z))
        total = terms.sum(-1)
        lse = total.log() + inverse_temperature * largest[:, 0]
        expected = torch.linalg.vecdot(terms, logits) / total
        deviations = logits - expected[:, None]
        variance = torch.linalg.vecdot(terms.mul_(deviations), deviations) / total
        own = logits.gather(-1, targets[:, None])[:, 0]
        parts.append((lse, expected, variance, own))
    columns = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
    return TemperatureStep(inverse_temperature, columns[0], columns[1], columns[2], columns[3])


def _find_room(step: TemperatureStep) -> float:
    """Returns how far β may move against the gradient within its limits."""
    beta = step.inverse_temperature
    lowest, highest = max(beta / FARTHEST, 1 / HIGHEST), min(beta * FARTHEST, 1 / LOWEST)
    return max(beta - lowest if step.gradient > 0 else highest - beta, 0.0)


def _search(states: HeldStates, here: TemperatureStep, size: float) -> tuple[float, TemperatureStep] | None:
    """Returns the first of η, η/2, η/4 … whose step lowers the NLL; None where none does."""
    for _ in range(MOST_HALVINGS):
        beta = newton.forward(here.inverse_temperature, here.gradient, here.curvature, lr=size)
        if beta == here.inverse_temperature:
            return None
        there = measure_step(states, float(beta))
        if there.nll < here.nll:
            return size, there
        size /= 2
    return None
