"""The bill as text: its numbers are those of the record, and no line is wider than the terminal."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.columns import display_width
from pellucid.base.errors import FileError
from pellucid.evaluation.quantization.bill import measure_bill
from pellucid.evaluation.quantization.report import VERSION, draw_bill, read_figures
from pellucid.evaluation.quantization.sample import read_sample
from pellucid.report.chart import Chart
from pellucid.report.diagram import Bars
from pellucid.report.text import write_text
from tests.evaluation.quantization.small_bills import COSTLY, make_bill, make_exact, make_subject, small_bill
from tests.evaluation.small_models import make_model


def test_the_table_has_the_numbers_of_the_record() -> None:
    bill, text = small_bill(), str(small_bill())
    total = bill.total
    for number in (
        f"{bill.bits_per_weight:.2f}",
        f"{total.kl.value:.3g}",
        f"{total.flips.value:.1%}",
        f"{total.n_flips} of {total.n_targets}",
        f"{total.difference.value:+.4f}".replace("-", "−"),
        *(f"{one.kl.value:.3g}" for one in bill.texts),
        *(f"{1e3 * one.kl.value:.3g}" for one in bill.costs.of("kind")),
    ):
        assert number in text, number


def test_the_costliest_comes_first_with_what_keeping_it_gives() -> None:
    lines = str(small_bill()).splitlines()
    heads = [i for i, line in enumerate(lines) if re.match(r"(kind|layer|matrix) .*KL$", line)]
    assert [lines[i + 1].split()[0] for i in heads] == ["blocks.*.mlp.up_proj.weight", "blocks.1.*", COSTLY]
    begin = next(i for i, line in enumerate(lines) if line.startswith("--keep"))
    assert lines[begin + 1].startswith("(nothing)") and lines[begin + 2].startswith("blocks.")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(display_width, small_bill().report().to_text(width).splitlines())) <= max(width, 72)


def test_an_exact_model_says_so() -> None:
    bill = make_bill(make_exact(make_model()))
    text = str(bill)
    count = len(bill.matrices)
    assert f"{count} of {count} matrices are quantized exactly" in text
    assert "equal" in text and "departs at" in text and "what matrices cost" not in text


def test_a_short_text_says_that_it_has_no_intervals() -> None:
    model = make_model()
    sample = read_sample(model.pretrained, "A cat sat on the mat.", 100)
    text = str(measure_bill(make_subject(model), sample, samples=10)).replace("\n", " ")
    assert "too short for intervals" in text and "±" not in text


def test_a_name_cannot_send_codes_to_the_terminal() -> None:
    bill = dataclasses.replace(small_bill(), model="a\x1b[2Jb", notes=("note\x07",))
    assert "\x1b" not in str(bill) and "\x07" not in str(bill)


def test_bars_and_curves_are_the_numbers_of_the_bill() -> None:
    bill = small_bill()
    plots = [plot for section in draw_bill(bill).sections for plot in section.plots]
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


def test_the_figure_is_text_too_and_its_alternative_text_has_the_totals() -> None:
    figure = draw_bill(small_bill())
    assert "KL by text" in "\n".join(write_text(figure))
    assert f"{small_bill().total.flips.value:.1%} top-1 changes" in figure.alt


def test_an_exact_model_has_a_figure_without_costs() -> None:
    bill = make_bill(make_exact(make_model()))
    titles = [plot.title for section in draw_bill(bill).sections for plot in section.plots]
    assert titles == ["KL by text", "error of the matrices, ‖Ŵ − W‖ / ‖W‖"]


def test_the_file_has_every_number_of_the_table() -> None:
    bill = small_bill()
    data = json.loads(bill.report().to_json())
    assert (data["format"], data["version"]) == ("pellucid-quantization-bill", VERSION)
    assert data["bytes"] == bill.bytes and data["total"]["kl"]["value"] == bill.total.kl.value
    assert len(data["matrices"]) == len(bill.matrices)
    assert {"name", "shape", "type", "bytes", "relative_error", "largest_error"} == set(data["matrices"][0])
    assert [one["pattern"] for one in data["costs"]["groups"]] == [one.pattern for one in bill.costs.groups]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "x"},
        {"reference": 7},
        {"total": None},
        {"total": {"kl": {"value": "much"}}},
    ],
)
def test_a_damaged_file_is_refused_by_its_name(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bill.json"
    small_bill().save(path)
    assert list(read_figures(path).values())[1] == small_bill().total.kl.value
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError, match=r"bill\.json"):
        read_figures(path)
