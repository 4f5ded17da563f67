"""The plots of an evaluation: their numbers are those of the record, whatever there is of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pellucid.evaluation.plots import (
    MOST_POINTS,
    make_plots,
    plot_documents,
    plot_levels,
    plot_positions,
    plot_surprisals,
)
from pellucid.evaluation.rows import make_figure_rows
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg
from tests.evaluation.small_evaluations import make_evaluation, make_model


def test_the_loss_by_position_is_that_of_the_record_with_the_baselines_as_levels() -> None:
    chart = plot_positions(make_evaluation(make_model("a")))
    levels = {series.label: series.y[0] for series in chart.series if series.style == "level"}
    assert levels == {"unigram baseline": 4.5, "bigram baseline": 1.5, "entropy floor": 0.5}
    curve = chart.series[-1]
    assert curve.y.tolist() == pytest.approx([2 + 1 / (k + 1) for k in range(6)])
    assert curve.x[1] == pytest.approx(math.sqrt(2 * 3))


def test_a_baseline_that_is_not_known_is_not_drawn() -> None:
    model = make_model("a")
    short = make_evaluation(replace(model, total=replace(model.total, bigram=None, fraction_learned=None)))
    assert "bigram baseline" not in [series.label for series in plot_positions(short).series]
    assert "bigram baseline" not in plot_levels(short).labels
    assert not any("bigram" in row.label for row in make_figure_rows(short))


def test_fractions_of_surprisal_add_up_to_one() -> None:
    chart = plot_surprisals(make_evaluation(make_model("a")))
    assert np.nansum(chart.series[0].y) == pytest.approx(1)
    assert chart.y.is_log and chart.y.low > 0


def test_documents_are_sorted_and_of_many_a_few_are_drawn() -> None:
    chart = plot_documents(make_evaluation(make_model("a", documents=1000)))
    curve = chart.series[-1]
    assert len(curve.x) == MOST_POINTS and (np.diff(curve.y) >= 0).all()
    assert (curve.y[0], curve.y[-1]) == (2.0, pytest.approx(2 + 99.9))
    assert sorted(series.y[0] for series in chart.series[:-1]) == [2 - 0.0125, 2 + 0.0125]


def test_levels_of_different_tokenizers_are_in_bits_per_byte() -> None:
    alike = plot_levels(make_evaluation(make_model("a"), make_model("b", 3)))
    assert alike.groups["b"].tolist() == [0.5, 3, 1.5, 4.5, math.log(300)]
    apart = plot_levels(make_evaluation(make_model("a"), make_model("b", 3, floor=None, tokenizer="words")))
    assert list(apart.labels) == ["loss", "bigram baseline", "unigram baseline", "uniform, ln V"]
    assert apart.groups["b"][0] == pytest.approx(3 * 1234 / math.log(2) / 5000)


@pytest.mark.parametrize("documents", [1, 2])
@pytest.mark.parametrize("count", [1, 7])
def test_every_evaluation_can_be_drawn(documents: int, count: int) -> None:
    models = [make_model("the same name", float(i), documents) for i in range(count)]
    plots = list(make_plots(make_evaluation(*models)))
    assert len(plots) == 3 + (documents > 1)
    drawing = write_svg(make_figure("all", *plots))
    assert b"nan" not in drawing and b"the same name" in drawing
