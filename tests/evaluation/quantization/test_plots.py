"""The figure of a bill: its bars and curves are the numbers of the record, in every format."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pellucid.evaluation.quantization.plots import make_bill_figure
from pellucid.report.chart import Chart
from pellucid.report.diagram import Bars
from pellucid.report.file import write_figure
from pellucid.report.text import write_text
from tests.evaluation.quantization.small_bills import make_bill, make_exact, small_bill
from tests.evaluation.small_models import make_model


def test_bars_and_curves_are_the_numbers_of_the_bill() -> None:
    bill = small_bill()
    plots = [plot for section in make_bill_figure(bill).sections for plot in section.plots]
    bars = {plot.title: plot for plot in plots if isinstance(plot, Bars)}
    kinds = bars["KL with one kind quantized"]
    assert np.allclose(kinds.groups[""], [1e3 * one.kl.value for one in bill.costs.of("kind")])
    texts = bars["KL by text"]
    assert list(texts.labels) == [one.name for one in bill.texts]
    layers, errors = (plot for plot in plots if isinstance(plot, Chart))
    wanted = {one.pattern: one.kl.value for one in bill.costs.of("layer")}
    assert np.allclose(layers.series[0].y, [1e3 * wanted[f"blocks.{i}.*"] for i in range(2)])
    found = {
        (series.key.name, int(x)): y
        for series in errors.series
        for x, y in zip(series.x, series.y, strict=True)
    }
    for one in bill.matrices:
        if one.name.startswith("blocks."):
            _, layer, kind = one.name.removesuffix(".weight").split(".", 2)
            assert found[kind, int(layer)] == pytest.approx(100 * one.relative_error)


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_the_figure_is_written_in_every_format(suffix: str, tmp_path: Path) -> None:
    if suffix == "png" and importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    path = tmp_path / f"bill.{suffix}"
    write_figure(path, make_bill_figure(small_bill()))
    assert path.stat().st_size > 1000


def test_the_figure_is_text_too_and_its_alternative_text_has_the_totals() -> None:
    figure = make_bill_figure(small_bill())
    assert "KL by text" in "\n".join(write_text(figure))
    assert f"{small_bill().total.flips.value:.1%} top-1 changes" in figure.alt


def test_an_exact_model_has_a_figure_without_costs() -> None:
    bill = make_bill(make_exact(make_model()))
    titles = [plot.title for section in make_bill_figure(bill).sections for plot in section.plots]
    assert titles == ["KL by text", "error of the matrices, ‖Ŵ − W‖ / ‖W‖"]
