"""The loss and the gradients that a batch must have, and how far rounding may take a run from them.

The measure of rounding is the specification itself, computed once more in the run's type: its error on this
very batch. A gradient is judged by two figures: its error as a vector, and its scale, the slope of the run's
gradient on the right one, which noise hardly moves; so that one that is 1 % too large is seen in bfloat16.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.base.names import IGNORE_INDEX
from pellucid.reference.op import Array
from pellucid.verification.checks.training.batch_gradients import (
    LossAndGradients,
    Problem,
    compute_by_fast_engine,
    compute_by_specification,
)
from pellucid.verification.mismatch import Mismatch, find_first_mismatch
from pellucid.verification.rounding import SINGLE

SPECIFICATION_COST = 2e9
"""Tokens × parameters up to which the specification computes the gradients of all rows: about 5 s."""
EXACT = 1e-9
"""The relative tolerance in float64."""
LOSS_TOLERANCES = {"float64": EXACT, "float32": 3e-6, "bfloat16": 1e-3}
LOSS_NOISE = 8
"""How many times the error of the specification in the run's type the error of a loss may be."""
ERROR, SLOPE, COMMON_SLOPE = 8.0, 5.0, 2.0
"""How many times the noise may be: the error of a gradient; its scale less 1; and the scale of all gradients
less 1. Measured in 1,800 gradients of healthy runs on a CPU: at most 3.2, 2.6 and 0.9."""
KERNELS = {"float64": 1.0, "float32": 20.0, "bfloat16": 1.0}
"""By how much the noise is larger than that of the specification: kernels for attention in float32 on a GPU
lose up to 32 times as much, far less than any bug changes."""
SAMPLES = 6
"""How many samples of rounding must agree that a run is wrong."""
FLOOR = 4e-3
"""The noise of a gradient is at least this part of the unit round-off of the norm of all gradients: what
kernels lose where a gradient is a small difference of large terms."""


@dataclass(frozen=True)
class GradientError:
    """How far a gradient is from the right one."""

    name: str
    error: float
    """‖g − r‖ in units of its budget: more than 1 is a bug."""
    relative: float
    """‖g − r‖ / ‖r‖."""
    slope: float
    """The scale g · r / r · r."""
    slope_allowed: float
    """How far the scale may be from 1; ∞ where r is below the noise."""

    @property
    def used(self) -> float:
        """The part of the budget that is used, by error or scale."""
        return max(self.error, abs(self.slope - 1) / self.slope_allowed)

    def __str__(self) -> str:
        if not math.isfinite(self.relative):
            return f"d.{self.name} is not finite, and must be"
        return (
            f"d.{self.name}: its error is {self.relative:.2g} of its norm, {self.error:.2g} of what is "
            f"allowed; its scale is {self.slope:.6g}, and may be off by {self.slope_allowed:.2g}"
        )


class RoundingError(NamedTuple):
    """What rounding in the run's type does to some rows: the norm of the error of each gradient, and the
    error of the loss."""

    grads: dict[str, float]
    loss: float


@dataclass(frozen=True)
class Reference:
    """Loss and gradients in float64, and what rounding does to them in the run's type."""

    dtype: str
    exact: LossAndGradients
    few: Problem
    """The rows on which rounding is measured."""
    own: LossAndGradients
    """Loss and gradients of these rows in float64."""
    samples: tuple[RoundingError, ...]
    how: str
    """What computed them."""
    mismatch: Mismatch | None = None
    """Where the fast engine in float64 is not the specification, which then cannot vouch for the rest."""

    def resample(self) -> "Reference":
        """Returns the same with more samples of rounding. Where a model is ill-conditioned, after a learning
        rate that was far too large for example, one sample may be small by chance."""
        more = (sample_rounding(self.few, self.own, self.dtype, seed) for seed in range(1, SAMPLES))
        return replace(self, samples=(self.samples[0], *more)) if self.dtype != "float64" else self

    @cached_property
    def norms(self) -> dict[str, float]:
        return {name: float(np.linalg.norm(grad)) for name, grad in self.exact.grads.items()}

    @cached_property
    def typical(self) -> float:
        """The median of the noise relative to the gradient."""
        if self.dtype == "float64":
            return EXACT
        norms = {name: float(np.linalg.norm(grad)) for name, grad in self.own.grads.items()}
        relative = [self._error(name) / norm for name, norm in norms.items() if norm]
        median = float(np.median(relative)) if relative else 0.0
        # Kernels hold scores in float32 at least; a pattern is an exponential of them.
        return max(KERNELS[self.dtype] * median, SINGLE.roundoff * self.own.largest_score)

    @cached_property
    def noise(self) -> dict[str, float]:
        """The noise of each gradient, as a norm."""
        whole = math.hypot(*self.norms.values())
        if self.dtype == "float64":
            return {name: EXACT / ERROR * (norm + 1e-3 * whole) for name, norm in self.norms.items()}
        own = math.hypot(*(float(np.linalg.norm(grad)) for grad in self.own.grads.values()))
        more, scale = KERNELS[self.dtype], whole / (own or 1.0)
        floor = more * FLOOR * BY_NAME[self.dtype].roundoff * whole
        return {
            name: max(more * self._error(name) * scale, self.typical * norm) + floor
            for name, norm in self.norms.items()
        }

    @property
    def why_undecided(self) -> str:
        """Returns why rounding decides the result, so that an error cannot be separated from it; empty where
        it does not."""
        score = self.own.largest_score
        if self.dtype == "float64" or score * BY_NAME[self.dtype].roundoff < 1:
            return ""
        return (
            f"attention scores reach {score:,.0f}, which {self.dtype} holds to ±1 at best: rounding decides "
            "what is attended to"
        )

    def _error(self, name: str) -> float:
        return max(sample.grads[name] for sample in self.samples)

    @property
    def loss_allowed(self) -> float:
        """The distance that a loss may have from the right one."""
        noise = LOSS_NOISE * max((sample.loss for sample in self.samples), default=0.0)
        return max(LOSS_TOLERANCES[self.dtype] * abs(self.exact.loss), noise)

    def compare(self, name: str, grad: Array) -> GradientError:
        """Returns how far a gradient is from the right one."""
        right, norm, noise = self.exact.grads[name], self.norms[name], self.noise[name]
        error = float(np.linalg.norm(grad - right))
        if not math.isfinite(error):
            return GradientError(name, math.inf, math.nan, 1.0, math.inf)
        is_above_noise = norm > ERROR * noise
        slope = float((grad * right).sum()) / norm**2 if is_above_noise else 1.0
        allowed = SLOPE * noise / norm if is_above_noise else math.inf
        return GradientError(name, error / (ERROR * noise or 1.0), error / (norm or 1.0), slope, allowed)

    def common_slope(self, errors: Mapping[str, GradientError]) -> tuple[float, float]:
        """Returns the scale of all gradients together, each weighted by its precision, and how far it may be
        from 1."""
        found = [one for one in errors.values() if math.isfinite(one.slope_allowed)]
        weights = np.array([one.slope_allowed**-2.0 for one in found])
        mean = float((weights * [one.slope for one in found]).sum() / weights.sum()) if found else 1.0
        return mean, COMMON_SLOPE * self.typical


def compute_reference(problem: Problem, dtype: str, device: torch.device) -> Reference:
    """Computes loss and gradients in float64: by the specification, or where the batch is too large for it by
    the fast engine, which is then compared with the specification on the first rows."""
    few, mismatch = problem, None
    how = f"{problem.tokens:,} tokens, by the specification"
    if problem.size * problem.tokens <= SPECIFICATION_COST:
        exact = own = compute_by_specification(problem)
    else:
        few = problem.take_tokens(max(2, int(SPECIFICATION_COST / problem.size)))
        exact, own = compute_by_fast_engine(problem, device), compute_by_specification(few)
        mismatch = find_first_mismatch(compute_by_fast_engine(few, device).grads, own.grads, EXACT)
        how = f"{problem.tokens:,} tokens by the fast engine in float64, {few.tokens:,} by the specification"
    samples = () if dtype == "float64" else (sample_rounding(few, own, dtype),)
    return Reference(dtype, exact, few, own, samples, how, mismatch)


def sample_rounding(given: Problem, exact: LossAndGradients, dtype: str, seed: int = 0) -> RoundingError:
    """Computes a problem in a narrower type. With a seed, its weights are first changed at random by at most
    their rounding error, so that every step rounds another number."""
    if seed:
        rng, most = np.random.default_rng(seed), BY_NAME[dtype].roundoff
        changed = {name: w * (1 + rng.uniform(-most, most, w.shape)) for name, w in given.weights.items()}
        given = replace(given, weights=changed)
    rounded = compute_by_specification(given, dtype, seed)
    errors = {name: float(np.linalg.norm(rounded.grads[name] - grad)) for name, grad in exact.grads.items()}
    counted = max(1, int((given.rows.targets != IGNORE_INDEX).sum()))
    spread = float(np.linalg.norm(rounded.nll - exact.nll)) / counted
    return RoundingError(errors, max(spread, abs(rounded.loss - exact.loss)))
