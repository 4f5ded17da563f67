"""Calibrations as a report: a table with a row for each model and setting, the fit, and the reliability; as
pictures, how confidences are distributed, and the NLL over temperature.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.formatting import escape_controls, format_number, pluralize
from pellucid.evaluation.calibration.measure import FITTED, Calibration, ScaledScores
from pellucid.evaluation.calibration.scores import Bins
from pellucid.evaluation.result import Estimate
from pellucid.report.alt import describe
from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.diagram import Histogram
from pellucid.report.figure import Figure, Plot, Section
from pellucid.report.file import VERSION, ReportFile
from pellucid.report.items import Item, Line, Lines, Table
from pellucid.report.report import Report
from pellucid.report.text import write_text

COLUMNS = ("", "T", "NLL", "ECE", "95 %", "mass", "Brier", "acc", "conf")
EXPLANATION = (
    "Of the test part. ECE: the mean gap between accuracy (acc) and confidence (conf), in bins of equal "
    "width, with its interval over documents; mass: the ECE in bins of equal mass."
)
BOUNDED = {
    False: "The NLL still falls at T = {T:.4g}, the largest: equal probabilities fit this part better.",
    True: "The NLL still falls at T = {T:.4g}, the smallest: nearly every prediction of this part is right.",
}
"""What a fit that ends at a limit means, by whether that is the smaller one."""
WIDE = (300, 220)
"""Pixels of the axes of a plot."""
NAME = 40
"""Letters of a model's name in a heading."""
NOTE = "Of the predictions in each bin: how many are right (bars), and their mean confidence (lines)."


def report_calibrations(
    calibrations: Sequence[Calibration],
    notes: Sequence[str] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Report:
    """Returns calibrations as they are shown, with notes on them and the settings of their measurement."""
    return Report(
        f"Calibration of {', '.join(each.model for each in calibrations)}",
        _summarize(calibrations[0]),
        list(_list_blocks(calibrations, notes)),
        CALIBRATION,
        lambda: to_data(calibrations, settings),
        lambda: draw_calibrations(calibrations),
    )


def _list_blocks(calibrations: Sequence[Calibration], notes: Sequence[str]) -> Iterator[list[Item]]:
    """Yields the table of all of them, then how each was fitted."""
    first, *others = calibrations
    rows = [list(COLUMNS)]
    for calibration in calibrations:
        rows += [[calibration.model]] if others else []
        indent = "  " * bool(others)
        rows += (_format_row(f"{indent}{setting.name}", setting) for setting in calibration.settings)
    yield [Table(rows)]
    yield [EXPLANATION]
    blocks = [[*_describe_fit(first), *(f"{each.model}: {_format_result(each)}" for each in others)]]
    if not others:
        blocks += _describe_one(first)
    blocks[-1] += map(Line, notes)
    yield from blocks


def _describe_fit(calibration: Calibration) -> Iterator[Item]:
    split, fit = calibration.split, calibration.temperature_fit
    yield f"{calibration.model}: {split.describe()} (seed {calibration.seed})."
    if split.is_by_block:
        yield (
            "There is one document, so the parts are blocks of its consecutive targets: they resemble each "
            "other more than two documents do."
        )
    if fit is None:
        yield Line("Nothing is fitted: that needs two targets or more, and a share of them to fit on.")
        return
    rows = [["Newton step", "T", "NLL", "dNLL/dβ", "d²NLL/dβ²", "dNLL/dT"]]
    for k, step in enumerate(fit.steps):
        numbers = (step.gradient, step.curvature, step.temperature_gradient)
        cells = [format_number(number, 4) for number in numbers]
        rows.append([str(k), format_number(step.temperature, 6), f"{step.nll:.6f}", *cells])
    yield Table(rows)
    if fit.is_bounded:
        yield BOUNDED[fit.temperature < 1].format(T=fit.temperature)
    yield _format_result(calibration)
    if (vector := calibration.vector_fit) is not None:
        start, end = vector.steps[0].nll, vector.steps[-1].nll
        yield (
            f"Vector scaling, 2 × {len(vector.scaling.bias):,} parameters with a prior of one logit: NLL of "
            f"the fitting part from {start:.6f} to {end:.6f} in {pluralize(len(vector.steps) - 1, 'step')}."
        )


def _describe_one(calibration: Calibration) -> Iterator[list[Item]]:
    """Yields the reliability, the largest gap of a bin, the calibration of the k most probable tokens, and
    the most confident mistakes."""

    def draw(width: int) -> Iterable[str]:
        return write_text(draw_reliability("reliability before", calibration.before.bins), width)

    yield [Lines(draw)]
    tops = [k for k in calibration.before.top_bins if k > 1]
    rows = [["", "MCE", *(f"top {k} ECE" for k in tops)]]
    for each in calibration.settings:
        errors = (each.scores.bins.mce, *(each.scores.top_bins[k].ece for k in tops))
        rows.append([each.name, *(f"{error:.4f}" for error in errors)])
    about = "; top k: whether the target is one of the k most probable tokens" if tops else ""
    yield [Table(rows), f"MCE: the largest gap of a bin{about}."]
    if calibration.mistakes:
        rows = [["target", "predicted", "confidence"]]
        rows += [[each.place, each.predicted, f"{each.confidence:.4f}"] for each in calibration.mistakes]
        yield ["the most confident mistakes:", Table(rows, first=40, most=24)]


def _format_row(name: str, setting: ScaledScores) -> list[str]:
    scores = setting.scores
    temperature = "" if setting.temperature is None else format_number(setting.temperature, 4)
    numbers = (scores.mass_bins.ece, scores.brier.value, scores.accuracy, scores.confidence)
    return [
        name,
        temperature,
        f"{scores.nll.value:.4f}",
        f"{scores.ece.value:.4f}",
        format_interval(scores.ece),
        *(f"{number:.4f}" for number in numbers),
    ]


def format_interval(estimate: Estimate) -> str:
    """Returns the ends of an interval; empty where there is none.

    >>> format_interval(Estimate(0.5, 0.25, 0.75)), format_interval(Estimate(0.5))
    ('0.250–0.750', '')
    """
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.low:.3f}–{estimate.high:.3f}"


def _format_result(calibration: Calibration) -> str:
    """Returns the fitted temperature in words, and what it does to the part that it was not fitted on."""
    fit, after = calibration.temperature_fit, calibration.after
    if fit is None or after is None:
        return "nothing is fitted."
    change = after.nll.value - calibration.before.nll.value
    error = "" if fit.is_bounded else f" ± {format_number(fit.standard_error, 2)}"
    words = (
        f"T = {format_number(fit.temperature, 4)}{error}; on the test part the NLL changes by {change:+.6f}"
    )
    verdict = "" if change <= 0 else ": the fitted temperature does not carry over to it, so keep T = 1"
    return f"{words}{verdict}.".replace("-", "−")


# ---- pictures


def draw_reliability(title: str, bins: Bins) -> Histogram:
    """Returns the reliability diagram of some bins; empty bins have no bar."""
    here = bins.counts > 0
    axes = Axis("confidence", 0, 1), Axis("accuracy", 0, 1)
    heights, expected = (np.where(here, values, np.nan) for values in (bins.accuracy, bins.confidence))
    return Histogram(title, *axes, bins.edges, heights, expected, ("accuracy", "confidence"))


def draw_confidences(title: str, bins: Bins) -> Histogram:
    """Returns the share of the predictions that each bin of confidence has."""
    heights = np.where(bins.counts > 0, bins.weight, np.nan)
    top = float(np.ceil(20 * bins.weight.max()) / 20) or 1.0
    x, y = Axis("confidence", 0, 1), Axis("share of the predictions", 0, top)
    return Histogram(title, x, y, bins.edges, heights, names=("share", ""))


def draw_curve(calibration: Calibration) -> Chart:
    """Returns the NLL of both parts over temperature, with the fitted minimum."""
    curve, fit = calibration.curve, calibration.temperature_fit
    assert curve is not None and fit is not None
    values = np.concatenate((curve.fit_nll, curve.test_nll))
    room = 0.05 * float(np.ptp(values)) or 0.1
    low, high = float(values.min()) - room, float(values.max()) + room
    x = Axis("temperature", float(curve.temperatures[0]), float(curve.temperatures[-1]))
    series = [
        Series(LegendKey("fitting part", 0), curve.temperatures, curve.fit_nll),
        Series(LegendKey("test part", 1, 1), curve.temperatures, curve.test_nll),
    ]
    mark = PointLabel(fit.temperature, fit.steps[-1].nll, f"T = {fit.temperature:.4g}")
    return Chart("NLL over temperature", x, Axis("nats per token", low, high), series, [mark])


def draw_calibrations(calibrations: Sequence[Calibration]) -> Figure:
    """Returns the figure of one calibration or several: of each one, the reliability of the model as it is
    and with the fitted temperature, in bins of equal width and of equal mass."""
    sections = []
    for calibration in calibrations:
        shown = [
            each for each in calibration.settings if each.name == FITTED or each is calibration.settings[0]
        ]
        name = shorten(escape_controls(calibration.model, keep=""), NAME)
        units = calibration.split.count_units(calibration.split.is_test)
        noun = "block" if calibration.split.is_by_block else "document"
        counts = f"{pluralize(calibration.before.count, 'target')} of {pluralize(units, noun)}"
        heading = f"{name}: {counts}"
        plots = [plot for each in shown for plot in _draw(each)]
        plots.append(draw_confidences("confidences before", calibration.before.bins))
        plots += [] if calibration.curve is None else [draw_curve(calibration)]
        sections.append(Section(heading, plots, WIDE))
    title = f"calibration of {escape_controls(', '.join(each.model for each in calibrations), keep='')}"
    words = (describe(plot) for section in sections for plot in section.plots)
    return Figure(title, sections, NOTE, " ".join(f"{each}." for each in words))


def _draw(setting: ScaledScores) -> list[Plot]:
    name = setting.name if setting.name != FITTED else f"T = {setting.temperature:.4g}"
    return [
        draw_reliability(f"{name}: ECE {setting.scores.bins.ece:.4f}", setting.scores.bins),
        draw_reliability(f"{name}: mass ECE {setting.scores.mass_bins.ece:.4f}", setting.scores.mass_bins),
    ]


def _summarize(calibration: Calibration) -> str:
    """Returns how far the first model's confidence is from its accuracy, in one sentence."""
    before, after = calibration.before, calibration.after
    found = f"On average the model's confidence is {before.ece.value:.4f} away from its accuracy"
    if after is not None and calibration.fitted_temperature is not None:
        found += (
            f", and {after.ece.value:.4f} at the fitted temperature of {calibration.fitted_temperature:.3g}"
        )
    return f"{found}."


# ---- data


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
