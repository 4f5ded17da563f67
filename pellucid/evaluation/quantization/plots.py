"""A bill as a figure: what kinds, layers and single matrices cost, the errors of matrices, and the texts."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.formatting import escape_controls, format_bytes, format_number
from pellucid.evaluation.quantization.bill import QuantizationBill
from pellucid.evaluation.quantization.costs import BLOCK, BLOCKS
from pellucid.report.alt import describe
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Bars
from pellucid.report.figure import Figure, Plot, group_plots

MOST_BARS = 10
NAME = 34
"""Letters of a name beside a bar."""
UNIT = "0.001 nats per token"
LAYER_COLOR = 5
"""The color of the layers; kinds of matrices have those before it, and then another dash."""


def make_bill_figure(bill: QuantizationBill) -> Figure:
    """Returns the figure of a bill, without the plots that would be empty."""
    plots = list(_draw(bill))
    title = _clean(f"{bill.model} in {bill.scheme}", 60)
    total = bill.total
    note = (
        f"{format_bytes(bill.bytes)} for {format_bytes(bill.reference_bytes)}, {bill.bits_per_weight:.2f} "
        f"bits a weight; KL(float32 ‖ quantized) {format_number(total.kl.value, 3)} nats per token and "
        f"{total.flips.value:.1%} top-1 changes on {total.n_targets:,} tokens of {bill.sample}."
    )
    alt = " ".join(f"{describe(plot)}." for plot in plots)
    return Figure(title, group_plots(plots, heading=title), note, f"{title}. {alt} {note}")


def _draw(bill: QuantizationBill) -> Iterator[Plot]:
    for level in ("kind", "matrix"):
        if groups := bill.costs.of(level)[:MOST_BARS]:
            title = f"KL with one {level} quantized"
            yield _draw_bars(title, [one.pattern for one in groups], [one.kl.value for one in groups])
    if bill.texts:
        texts = bill.texts[:MOST_BARS]
        yield _draw_bars("KL by text", [one.name for one in texts], [one.kl.value for one in texts])
    if layers := bill.costs.of("layer"):
        numbers = {int(one.pattern.split(".")[1]): 1e3 * one.kl.value for one in layers}
        yield _draw_curves(
            "KL with one layer quantized", UNIT, [_make_curve(LegendKey("a layer", LAYER_COLOR), numbers)]
        )
    if curves := list(_list_errors(bill)):
        yield _draw_curves("error of the matrices, ‖Ŵ − W‖ / ‖W‖", "%", curves)


def _draw_bars(title: str, names: Sequence[str], values: Sequence[float]) -> Bars:
    """Returns bars of divergences, in thousandths of a nat."""
    numbers = 1e3 * np.array(values)
    largest = float(numbers.max()) or 1.0
    decimals = int(np.clip(2 - np.floor(np.log10(largest)), 0, 8))
    return Bars(
        title,
        [_clean(name.removesuffix(".weight"), NAME) for name in names],
        {"": numbers},
        UNIT,
        decimals=decimals,
    )


def _draw_curves(title: str, label: str, curves: Sequence[Series]) -> Chart:
    high = max(float(curve.y.max()) for curve in curves)
    last = max(float(curve.x.max()) for curve in curves)
    return Chart(
        title, Axis("layer", 0, last or 1.0, is_whole=True), Axis(label, 0, 1.1 * high or 1.0), curves
    )


def _list_errors(bill: QuantizationBill) -> Iterator[Series]:
    """Yields the relative error of each kind of matrix over the layers, in percent."""
    kinds = dict[str, dict[int, float]]()
    for one in bill.matrices:
        if block := BLOCK.match(one.name):
            kind = BLOCK.sub(BLOCKS, one.name).removeprefix(BLOCKS).removesuffix(".weight")
            kinds.setdefault(kind, {})[int(block[1])] = 100 * one.relative_error
    for i, (kind, errors) in enumerate(kinds.items()):
        yield _make_curve(LegendKey(kind, i % LAYER_COLOR, i // LAYER_COLOR), errors)


def _make_curve(key: LegendKey, values: Mapping[int, float]) -> Series:
    """Returns values over their layers."""
    x = sorted(values)
    return Series(key, np.array(x, np.float64), np.array([values[layer] for layer in x]), "points")


def _clean(text: str, width: int) -> str:
    return shorten(escape_controls(text, keep=""), width)
