"""Calibrates a model on documents: measured as it is, fitted on one part of them, measured on the other.

states = hold_states(module, documents, window=1024, stride=1024, most=10_000)
calibration = measure_calibration("smollm2", states, label)
calibration.fitted_temperature
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.evaluation.calibration.predictions import (
    Predictions,
    Scaling,
    TemperatureScaling,
    compute_predictions,
)
from pellucid.evaluation.calibration.scores import DEFAULT_BINS, CalibrationScores, compute_scores
from pellucid.evaluation.calibration.states import HeldStates
from pellucid.evaluation.calibration.tape import PartRecord, make_trace
from pellucid.evaluation.calibration.temperature import TemperatureFit, fit_temperature
from pellucid.evaluation.calibration.vector import VectorFit, fit_vector
from pellucid.explanation.trace import Trace

BLOCKS = 20
"""Blocks of consecutive targets, at most, into which a single document is split."""


@dataclass(frozen=True)
class Split:
    """Which predictions the scaling is fitted on, [N]; the others are the test part.

    `units` numbers the document of each prediction, or the block of a single document.
    """

    is_fit: NDArray[np.bool_]
    units: NDArray[np.int64]
    is_by_block: bool

    @property
    def is_test(self) -> NDArray[np.bool_]:
        return ~self.is_fit

    def describe(self) -> str:
        """Returns how many targets and documents each part has."""
        noun = "block" if self.is_by_block else "document"
        parts = (("fitted on", self.is_fit), ("measured on", self.is_test))
        return ", ".join(
            f"{name} {pluralize(int(rows.sum()), 'target')} of {pluralize(self.count_units(rows), noun)}"
            for name, rows in parts
            if rows.any()
        )

    def count_units(self, rows: NDArray[np.bool_]) -> int:
        """Returns how many documents, or blocks, some targets are from."""
        return len(np.unique(self.units[rows]))


def split_predictions(documents: NDArray[np.int64], share: float, seed: int) -> Split:
    """Returns the parts: about `share` of the documents are fitted on, and each part has at least one.

    Which documents these are depends on their number and on the seed alone, so that models with different
    tokenizers are fitted on the same ones. A single prediction cannot be split, and is the test part.
    """
    is_by_block = len(np.unique(documents)) < 2
    units = documents
    if is_by_block:
        units = np.arange(len(documents)) * min(BLOCKS, len(documents)) // max(len(documents), 1)
    present = np.unique(units)
    order = np.random.default_rng(seed).permutation(present)
    most = len(present) - 1
    chosen = order[: min(max(round(share * len(present)), 1), most)] if share > 0 and most > 0 else order[:0]
    return Split(np.isin(units, chosen), units, is_by_block)


Array = NDArray[np.float64]
BEFORE, FITTED, VECTOR = "before", "fitted T", "vector"
"""The names of the settings that are compared: the model itself, and the two scalings."""
MOST_LOGITS = 1 << 18
"""Logits of a part that are kept for its trace; of more, a trace begins with each prediction's numbers."""
MOST_WORDS = 4096
"""Tokens of a vocabulary whose texts label the logits of a trace."""
CURVE = 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0
"""Temperatures of the curve of the NLL."""
MISTAKES = 8

Progress = Callable[[str, int, int], None]
"""Called with what is computed, the targets that are done and their total."""


@dataclass(frozen=True)
class ScaledScores:
    """The scores of the test part under one scaling; `temperature` is None where that is not one number."""

    name: str
    temperature: float | None
    scores: CalibrationScores


@dataclass(frozen=True)
class ConfidentMistake:
    """A wrong prediction: how sure the model was of which token, and which one followed."""

    place: str
    """The token that followed, with its document and position."""
    predicted: str
    confidence: float


@dataclass(frozen=True)
class TemperatureCurve:
    """The NLL of both parts at some temperatures, [K] each."""

    temperatures: Array
    fit_nll: Array
    test_nll: Array


@dataclass(frozen=True, repr=False)
class Calibration:
    """How well a model's probabilities are calibrated, before scaling and after it."""

    model: str
    split: Split
    bin_count: int
    seed: int
    settings: tuple[ScaledScores, ...]
    """The model as it is, then each temperature that was asked for, then the fitted scalings."""
    temperature_fit: TemperatureFit | None
    """None where there are too few targets to be split."""
    vector_fit: VectorFit | None
    curve: TemperatureCurve | None
    """None where it was not asked for, or none was fitted."""
    mistakes: tuple[ConfidentMistake, ...]
    evidence: "Evidence"

    def __repr__(self) -> str:
        words = f"ECE {self.before.ece.value:.4f} on {pluralize(self.before.count, 'target')}"
        if self.after is not None:
            words += f", {self.after.ece.value:.4f} at T = {self.fitted_temperature:.4g}"
        return escape_controls(f"<Calibration of {self.model}: {words}>", keep="")

    @property
    def before(self) -> CalibrationScores:
        """The scores of the model as it is."""
        return self.settings[0].scores

    @property
    def after(self) -> CalibrationScores | None:
        """The scores with the fitted temperature."""
        return next((each.scores for each in self.settings if each.name == FITTED), None)

    @property
    def fitted_temperature(self) -> float | None:
        return None if self.temperature_fit is None else self.temperature_fit.temperature

    @cached_property
    def trace(self) -> Trace:
        """Every number as steps of the specification, for `pellucid.explain`."""
        seen, after = self.evidence, self.after
        fitted = None
        if seen.fit is not None and self.temperature_fit is not None:
            fitted = seen.fit, self.temperature_fit
        return make_trace(
            self.model,
            seen.test,
            (seen.before, self.before),
            None if seen.after is None or after is None else (seen.after, after),
            fitted,
            seen.vocabulary,
        )


@dataclass(frozen=True)
class Evidence:
    """The predictions behind the scores, from which a trace is made."""

    test: PartRecord
    fit: PartRecord | None
    before: Predictions
    after: Predictions | None
    vocabulary: tuple[str, ...]


def measure_calibration(
    model: str,
    states: HeldStates,
    show: Callable[[int], str] = str,
    *,
    temperatures: Sequence[float] = (),
    has_vector: bool = False,
    has_curve: bool = True,
    bins: int = DEFAULT_BINS,
    fit_share: float = 0.5,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Calibration:
    """Returns the calibration of a model; `show` returns the text of a token.

    Scalings are fitted on about `fit_share` of the documents, drawn by the seed, and all are measured on the
    others.
    """
    if not len(states):
        raise UsageError("there is no counted target to calibrate on: give a text of two tokens or more.")
    split = split_predictions(states.documents, fit_share, seed)
    test = _watch(states.select(split.is_test), "measuring", progress)
    scalings: dict[str, Scaling] = {BEFORE: TemperatureScaling(1.0)}
    scalings |= {f"T = {value:g}": TemperatureScaling(value) for value in temperatures}
    fit = vector = curve = None
    if split.is_fit.any():
        held = _watch(states.select(split.is_fit), "computing logits", progress).keep()
        fit = fit_temperature(_watch(held, "fitting the temperature", progress))
        scalings[FITTED] = TemperatureScaling(fit.temperature)
        if has_vector:
            vector = fit_vector(_watch(held, "fitting the vector", progress), fit.temperature)
            scalings[VECTOR] = vector.scaling
        if has_curve:
            parts = (_watch(each, "measuring temperatures", progress) for each in (held, test))
            curve = _measure_curve(fit.temperature, *parts)
    found = dict(zip(scalings, compute_predictions(test, list(scalings.values())), strict=True))
    units = split.units[split.is_test]
    labels = _label(states, show)
    return Calibration(
        model,
        split,
        bins,
        seed,
        tuple(
            ScaledScores(
                name,
                scaling.value if isinstance(scaling, TemperatureScaling) else None,
                compute_scores(found[name], units, bins, seed),
            )
            for name, scaling in scalings.items()
        ),
        fit,
        vector,
        curve,
        _find_mistakes(found[BEFORE], labels[split.is_test], show),
        Evidence(
            _record(states.select(split.is_test), labels[split.is_test]),
            _record(states.select(split.is_fit), labels[split.is_fit]) if fit is not None else None,
            found[BEFORE],
            found.get(FITTED),
            tuple(map(show, range(states.vocab_size))) if states.vocab_size <= MOST_WORDS else (),
        ),
    )


def _watch(states: HeldStates, what: str, progress: Progress) -> HeldStates:
    """Returns states that report the rows whose logits they compute; each pass begins anew."""
    done = 0

    def report(rows: int) -> None:
        nonlocal done
        done = done + rows if done < len(states) else rows
        progress(what, done, len(states))

    return replace(states, on_rows=report)


def _measure_curve(fitted: float, fit: HeldStates, test: HeldStates) -> TemperatureCurve:
    temperatures = sorted({*CURVE, fitted})
    fit_nll, test_nll = (measure_nll(part, temperatures) for part in (fit, test))
    return TemperatureCurve(np.array(temperatures), fit_nll, test_nll)


@torch.no_grad()
def measure_nll(states: HeldStates, temperatures: Sequence[float]) -> Array:
    """Returns the mean negative log-likelihood at each temperature."""
    total = np.zeros(len(temperatures))
    for _, logits, targets in states.chunks():
        logits -= logits.amax(-1, keepdim=True)
        own = logits.gather(-1, targets[:, None])[:, 0]
        for i, temperature in enumerate(temperatures):
            lse = torch.div(logits, temperature).exp_().sum(-1).log()
            total[i] += float((lse - own / temperature).sum())
    return total / len(states)


def _label(states: HeldStates, show: Callable[[int], str]) -> NDArray[np.object_]:
    """Returns the token of each target with its document and position: ·cat (valid.txt, 17)."""
    rows = zip(states.targets, states.documents, states.positions, strict=True)
    labels = np.empty(len(states), object)
    labels[:] = [f"{show(int(id))} ({states.names[document]}, {at})" for id, document, at in rows]
    return labels


def _record(states: HeldStates, labels: NDArray[np.object_]) -> PartRecord:
    is_small = len(states) * states.vocab_size <= MOST_LOGITS
    return PartRecord(states.targets, labels.tolist(), states.logits() if is_small else None)


def _find_mistakes(
    predictions: Predictions, labels: NDArray[np.object_], show: Callable[[int], str]
) -> tuple[ConfidentMistake, ...]:
    """Returns the wrong predictions of which the model was the most sure."""
    wrong = np.flatnonzero(~predictions.is_correct)
    worst = wrong[np.argsort(-predictions.confidence[wrong], kind="stable")[:MISTAKES]]
    return tuple(
        ConfidentMistake(labels[i], show(int(predictions.predicted[i])), float(predictions.confidence[i]))
        for i in worst
    )
