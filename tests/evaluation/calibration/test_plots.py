"""A calibration as a picture: its bars are the bins, and it can be read."""

import numpy as np
import pytest

from pellucid.evaluation.calibration.measure import measure_calibration
from pellucid.evaluation.calibration.plots import draw_curve, draw_reliability, make_figure_of
from pellucid.report.file import write_page
from pellucid.report.svg import write_svg
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states
from tests.report.svg_text import find_faults


def test_a_bar_is_the_accuracy_of_a_bin_and_an_empty_bin_has_none() -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, fit_share=0)
    drawn = draw_reliability("", calibration.before.bins)
    assert drawn.heights == pytest.approx([np.nan, np.nan, 0.5, 0.75, 0.5], nan_ok=True)
    assert drawn.gaps() == pytest.approx([np.nan, np.nan, 0, 0.05, -0.4], nan_ok=True)


def test_the_marked_temperature_is_the_lowest_point_of_the_fitting_part() -> None:
    chart = draw_curve(measure_calibration("m", random_states(2)))
    assert chart.marks[0].y == pytest.approx(chart.series[0].y.min())
    assert chart.y.low < chart.marks[0].y < chart.y.high


def test_no_text_of_the_picture_overlaps_another() -> None:
    assert not find_faults(write_svg(make_figure_of([measure_calibration("model", random_states(0))])))


@pytest.mark.parametrize("count", [1, 2])
def test_few_targets_and_equal_ones_can_be_drawn(count: int) -> None:
    calibration = measure_calibration("few", make_states(np.zeros((count, 1)), np.zeros(count)))
    figure = make_figure_of([calibration, calibration])
    assert b"<svg" in write_svg(figure) and b"<svg" in write_page(figure)
