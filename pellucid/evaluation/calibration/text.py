"""A calibration as text: a table with a row for each model and setting, the fit, and the reliability."""

from collections.abc import Iterator, Sequence

from pellucid.base.columns import format_columns, shorten, wrap
from pellucid.base.formatting import format_number, pluralize
from pellucid.evaluation.calibration.measure import Calibration, ScaledScores
from pellucid.evaluation.calibration.plots import draw_reliability
from pellucid.evaluation.result import Estimate
from pellucid.report.text import write_text

WIDTH = 80
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


def format_calibrations(calibrations: Sequence[Calibration], width: int = WIDTH) -> Iterator[str]:
    """Yields the lines: the table of all of them, then how each was fitted."""
    rows, names = [list(COLUMNS)], dict[str, str]()
    for i, calibration in enumerate(calibrations):
        if len(calibrations) > 1:  # a name has its own line, and so may be longer than the column
            names[f"#{i}"] = shorten(calibration.model, width)
            rows.append([f"#{i}", *[""] * (len(COLUMNS) - 1)])
        indent = "  " * (len(calibrations) > 1)
        rows += (_format_row(f"{indent}{setting.name}", setting) for setting in calibration.settings)
    yield from (names.get(line, line) for line in format_columns(rows, width))
    yield ""
    yield from wrap(EXPLANATION, width)
    yield ""
    yield from _format_fit(calibrations[0], width)
    for calibration in calibrations[1:]:
        yield from wrap(f"{calibration.model}: {_format_result(calibration)}", width)
    if len(calibrations) == 1:
        yield ""
        yield from write_text(draw_reliability("reliability before", calibrations[0].before.bins), width)
        yield from _format_further(calibrations[0], width)
        yield from _format_mistakes(calibrations[0], width)


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


def _format_fit(calibration: Calibration, width: int) -> Iterator[str]:
    split = calibration.split
    yield from wrap(f"{calibration.model}: {split.describe()} (seed {calibration.seed}).", width)
    if split.is_by_block:
        yield from wrap(
            "There is one document, so the parts are blocks of its consecutive targets: they resemble each "
            "other more than two documents do.",
            width,
        )
    fit = calibration.temperature_fit
    if fit is None:
        yield "Nothing is fitted: that needs two targets or more, and a share of them to fit on."
        return
    rows = [["Newton step", "T", "NLL", "dNLL/dβ", "d²NLL/dβ²", "dNLL/dT"]]
    for k, step in enumerate(fit.steps):
        numbers = (step.gradient, step.curvature, step.temperature_gradient)
        cells = [format_number(number, 4) for number in numbers]
        rows.append([str(k), format_number(step.temperature, 6), f"{step.nll:.6f}", *cells])
    yield from format_columns(rows, width)
    if fit.is_bounded:
        yield from wrap(BOUNDED[fit.temperature < 1].format(T=fit.temperature), width)
    yield from wrap(_format_result(calibration), width)
    if (vector := calibration.vector_fit) is not None:
        first, last = vector.steps[0].nll, vector.steps[-1].nll
        yield from wrap(
            f"Vector scaling, 2 × {len(vector.scaling.bias):,} parameters with a prior of one logit: NLL of "
            f"the fitting part from {first:.6f} to {last:.6f} in {pluralize(len(vector.steps) - 1, 'step')}.",
            width,
        )


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


def _format_further(calibration: Calibration, width: int) -> Iterator[str]:
    """Yields the largest gap of a bin, and the calibration of the k most probable tokens."""
    tops = [k for k in calibration.before.top_bins if k > 1]
    rows = [["", "MCE", *(f"top {k} ECE" for k in tops)]]
    for each in calibration.settings:
        errors = (each.scores.bins.mce, *(each.scores.top_bins[k].ece for k in tops))
        rows.append([each.name, *(f"{error:.4f}" for error in errors)])
    yield from ("", *format_columns(rows, width))
    about = "; top k: whether the target is one of the k most probable tokens" if tops else ""
    yield from wrap(f"MCE: the largest gap of a bin{about}.", width)


def _format_mistakes(calibration: Calibration, width: int) -> Iterator[str]:
    if calibration.mistakes:
        yield ""
        yield "the most confident mistakes:"
        rows = [["target", "predicted", "confidence"]]
        rows += [[each.place, each.predicted, f"{each.confidence:.4f}"] for each in calibration.mistakes]
        yield from format_columns(rows, width, first=40, most=24)
