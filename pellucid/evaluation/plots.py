"""The plots of an evaluation: where its loss comes from."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.formatting import escape_controls
from pellucid.evaluation.result import SURPRISAL_WIDTH, Evaluation, Figures, ModelEvaluation
from pellucid.evaluation.rows import has_one_tokenizer
from pellucid.report.chart import Array, Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Bars
from pellucid.report.figure import Plot

MOST_POINTS = 200
"""Points of a curve; of more documents, evenly spaced ones."""
LEVELS = ("entropy floor", "loss", "bigram baseline", "unigram baseline", "uniform, ln V")
LEVEL_COLOR = 5
NAME = 40
"""Letters of a model's name in a legend."""


def make_plots(evaluation: Evaluation) -> Iterator[Plot]:
    """Yields the plots that the documents suffice for."""
    yield plot_positions(evaluation)
    yield plot_surprisals(evaluation)
    if min(len(one.documents) for one in evaluation.models) > 1:
        yield plot_documents(evaluation)
    yield plot_levels(evaluation)


def plot_positions(evaluation: Evaluation) -> Chart:
    """Returns the loss over the number of tokens before a target, and the baselines as levels."""
    curves = []
    for key, one in _number(evaluation):
        middles = [math.sqrt(group.first * group.last) for group in one.positions]
        curves.append(Series(key, np.array(middles), np.array([g.loss for g in one.positions]), "points"))
    ends = [x for curve in curves for x in (curve.x[0], curve.x[-1])]
    x = Axis("tokens before the target in its window", min(ends), max([*ends, 2 * min(ends)]), is_log=True)
    levels = list(_make_levels(evaluation, x)) if has_one_tokenizer(evaluation) else []
    y = _make_axis("nats per token", [curve.y for curve in [*curves, *levels]])
    return Chart("loss by position", x, y, [*levels, *curves])


def plot_surprisals(evaluation: Evaluation) -> Chart:
    """Returns the fraction of targets by surprisal."""
    curves = []
    for key, one in _number(evaluation):
        counts = np.array(one.surprisals, np.float64)
        shares = np.where(counts > 0, counts, np.nan) / counts.sum()
        middles = SURPRISAL_WIDTH * np.arange(0.5, len(counts))
        curves.append(Series(key, middles, shares))
    shares = np.concatenate([curve.y[np.isfinite(curve.y)] for curve in curves])
    last = max(curve.x[np.isfinite(curve.y)].max() for curve in curves)
    x = Axis("surprisal −ln p, nats", 0.0, float(last) + SURPRISAL_WIDTH)
    y = Axis("fraction of targets", float(shares.min()) / 1.5, float(shares.max()) * 1.5, is_log=True)
    return Chart("distribution of surprisal", x, y, curves)


def plot_documents(evaluation: Evaluation) -> Chart:
    """Returns the figure of each document, sorted, and the mean with its interval."""
    is_loss = has_one_tokenizer(evaluation)
    curves, means = list[Series](), list[Series]()
    for key, one in _number(evaluation):
        values = np.sort(_measure_documents(one, is_loss))
        picked = np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).round().astype(int)
        shares = 100 * picked / max(len(values) - 1, 1)
        curves.append(Series(key, shares, values[picked], "line"))
        total = one.total.loss if is_loss else one.total.bits_per_byte
        for bound in (total.low, total.high) if total else ():
            if bound is not None:
                means.append(Series(key, np.array([0.0, 100.0]), np.array([bound, bound]), "faint"))
    y = _make_axis("nats per token" if is_loss else "bits per byte", [curve.y for curve in curves])
    x = Axis("percent of documents, sorted (faint: the mean's interval)", 0.0, 100.0)
    return Chart("loss by document", x, y, [*means, *curves])


def plot_levels(evaluation: Evaluation) -> Bars:
    """Returns the loss of each model between the entropy floor and the baselines."""
    is_loss = has_one_tokenizer(evaluation)
    values = {
        key.name: (1.0 if is_loss else _bits_per_byte(one.total)) * _list_levels(one.total)
        for key, one in _number(evaluation)
    }
    known = np.all([np.isfinite(levels) for levels in values.values()], axis=0)
    groups = {name: levels[known] for name, levels in values.items()}
    labels = [label for label, is_known in zip(LEVELS, known, strict=True) if is_known]
    unit = "nats per token" if is_loss else "bits per byte"
    return Bars("the loss beside baselines of the same text", labels, groups, unit)


def _list_levels(figures: Figures) -> Array:
    """Returns the losses that `LEVELS` names; NaN for one that is not known."""
    levels = (
        figures.entropy_floor, figures.loss.value, figures.bigram, figures.unigram, figures.uniform,
    )  # fmt: skip
    return np.array([math.nan if level is None else level for level in levels])


def _number(evaluation: Evaluation) -> Iterator[tuple[LegendKey, ModelEvaluation]]:
    """Yields each model with its name, color and dash; two models of one name are told apart by a number."""
    seen = dict[str, int]()
    for i, one in enumerate(evaluation.models):
        name = shorten(escape_controls(one.model.name, keep=""), NAME)
        seen[name] = seen.get(name, 0) + 1
        yield LegendKey(name if seen[name] == 1 else f"{name} ({seen[name]})", i % LEVEL_COLOR, i), one


def _make_levels(evaluation: Evaluation, x: Axis) -> Iterator[Series]:
    total = evaluation.models[0].total
    levels = {
        "unigram baseline": total.unigram,
        "bigram baseline": total.bigram,
        "entropy floor": total.entropy_floor,
    }
    for name, value in levels.items():
        if value is None:
            continue
        ends = np.array([x.low, x.high])
        yield Series(LegendKey("", LEVEL_COLOR), ends, np.array([value, value]), "level", name)


def _make_axis(label: str, values: Sequence[Array]) -> Axis:
    """Returns an axis with some room above and below all values."""
    joined = np.concatenate(values)
    low, high = float(joined.min()), float(joined.max())
    room = 0.08 * (high - low) or 0.08 * abs(high) or 1.0
    return Axis(label, max(low - room, 0.0), high + 2 * room)  # a level has its name above it


def _measure_documents(one: ModelEvaluation, is_loss: bool) -> Array:
    if is_loss:
        return np.array([document.loss for document in one.documents])
    found = [(document.nll, document.n_bytes) for document in one.documents if document.n_bytes]
    return np.array([nll / math.log(2) / size for nll, size in found])


def _bits_per_byte(figures: Figures) -> float:
    """Returns by what a loss in nats per token is multiplied."""
    return figures.n_targets / math.log(2) / figures.n_bytes if figures.n_bytes else math.nan
