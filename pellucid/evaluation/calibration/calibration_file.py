"""Calibrations as plain data, as their JSON file has it."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pellucid.evaluation.calibration.bins import Bins
from pellucid.evaluation.calibration.measure import Calibration, ScaledScores
from pellucid.evaluation.result import Estimate
from pellucid.report.file import VERSION, ReportFile

CALIBRATION = ReportFile("calibrate", "a calibration", "pellucid-calibration")


def to_data(
    calibrations: Sequence[Calibration], settings: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns calibrations as plain data, with the settings under which they were measured."""
    head = {"format": CALIBRATION.format, "version": VERSION, **settings}
    return head | {"calibrations": list(map(_describe, calibrations))}


def _describe(calibration: Calibration) -> dict[str, Any]:
    split, fit, vector = calibration.split, calibration.temperature_fit, calibration.vector_fit
    curve = calibration.curve
    return {
        "model": calibration.model,
        "seed": calibration.seed,
        "bins": calibration.bin_count,
        "split": {
            "by": "block" if split.is_by_block else "document",
            "fit_targets": int(split.is_fit.sum()),
            "fit_units": split.count_units(split.is_fit),
            "test_targets": int(split.is_test.sum()),
            "test_units": split.count_units(split.is_test),
        },
        "settings": list(map(_describe_setting, calibration.settings)),
        "fitted_temperature": calibration.fitted_temperature,
        "standard_error": None if fit is None or math.isnan(fit.standard_error) else fit.standard_error,
        "newton_steps": [
            {
                "temperature": step.temperature,
                "inverse_temperature": step.inverse_temperature,
                "nll": step.nll,
                "d_inverse_temperature": step.gradient,
                "d2_inverse_temperature": step.curvature,
                "d_temperature": step.temperature_gradient,
                "step_size": step.size,
            }
            for step in (fit.steps if fit else ())
        ],
        "is_bounded": fit.is_bounded if fit else None,
        "vector": None
        if vector is None
        else {
            "weight": vector.scaling.weight.tolist(),
            "bias": vector.scaling.bias.tolist(),
            "penalty": vector.penalty,
            "steps": [
                {"nll": step.nll, "objective": step.objective, "step_size": step.size}
                for step in vector.steps
            ],
        },
        "curve": None
        if curve is None
        else {
            "temperatures": curve.temperatures.tolist(),
            "fit_nll": curve.fit_nll.tolist(),
            "test_nll": curve.test_nll.tolist(),
        },
        "mistakes": [
            {"place": each.place, "predicted": each.predicted, "confidence": each.confidence}
            for each in calibration.mistakes
        ],
    }


def _describe_setting(setting: ScaledScores) -> dict[str, Any]:
    scores = setting.scores
    return {
        "name": setting.name,
        "temperature": setting.temperature,
        "targets": scores.count,
        "nll": _describe_estimate(scores.nll),
        "brier": _describe_estimate(scores.brier),
        "ece": _describe_estimate(scores.ece),
        "accuracy": scores.accuracy,
        "confidence": scores.confidence,
        "equal_width": _describe_bins(scores.bins),
        "equal_mass": _describe_bins(scores.mass_bins),
        "top": {str(k): _describe_bins(bins) for k, bins in scores.top_bins.items()},
    }


def _describe_estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _describe_bins(bins: Bins) -> dict[str, Any]:
    return {
        "ece": bins.ece,
        "mce": bins.mce,
        "edges": bins.edges.tolist(),
        "counts": [int(count) for count in bins.counts],
        "confidence": bins.confidence.tolist(),
        "accuracy": bins.accuracy.tolist(),
        "gap": bins.gap.tolist(),
    }
