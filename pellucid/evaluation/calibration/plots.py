"""A calibration as a figure: reliability, how confidences are distributed, and the NLL over temperature."""

from collections.abc import Sequence

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.evaluation.calibration.bins import Bins
from pellucid.evaluation.calibration.measure import FITTED, Calibration, ScaledScores
from pellucid.report.alt import describe
from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.diagram import Histogram
from pellucid.report.figure import Figure, Plot, Section

WIDE = (300, 220)
"""Pixels of the axes of a plot."""
NAME = 40
"""Letters of a model's name in a heading."""
NOTE = "Of the predictions in each bin: how many are right (bars), and their mean confidence (lines)."


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


def make_figure_of(calibrations: Sequence[Calibration]) -> Figure:
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
    found = _summarize(calibrations[0]) if calibrations else ""
    return Figure(title, sections, NOTE, " ".join(f"{each}." for each in words), found=found)


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
