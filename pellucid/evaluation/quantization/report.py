"""A bill as a report: bytes, predictions, greedy texts, what kinds, layers and single matrices cost, and
their errors.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.columns import shorten, wrap
from pellucid.base.files import Damaged, check_format, need, read_bytes, validating
from pellucid.base.formatting import escape_controls, format_bytes, format_number, pluralize
from pellucid.base.schema import to_field
from pellucid.evaluation.quantization.bill import QuantizationBill, TextFigures
from pellucid.evaluation.quantization.costs import BLOCK, BLOCKS, LEVELS, KeptCost
from pellucid.evaluation.quantization.sample import SPAN
from pellucid.evaluation.report import to_data
from pellucid.evaluation.result import Estimate
from pellucid.evaluation.rows import SIGNIFICANT, format_estimate, format_share
from pellucid.formats.folder import parse_table
from pellucid.report.alt import describe
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Bars
from pellucid.report.figure import Figure, Plot, group_plots
from pellucid.report.file import VERSION, ReportFile
from pellucid.report.items import Item, Lines, Table
from pellucid.report.report import Report

MOST_ROWS = {"kind": 12, "layer": 5, "matrix": 10}
"""Rows of each level that are shown; the file has all of them."""
MOST_ERRORS, MOST_BARS = 6, 10
UNIT, UNIT_NAME = 1e-3, "0.001 nats per token"
"""Nats in which costs of matrices are shown."""
NAME = 34
"""Letters of a name beside a bar."""
LAYER_COLOR = 5
"""The color of the layers; kinds of matrices have those before it, and then another dash."""


def report(bill: QuantizationBill) -> Report:
    """Returns a bill as it is shown."""
    return Report(
        f"{bill.model} in {bill.scheme}",
        _summarize(bill),
        list(_list_blocks(bill)),
        BILL,
        lambda: dict(to_data(bill)),
        lambda: draw_bill(bill),
    )


def _summarize(bill: QuantizationBill) -> str:
    total = bill.total
    return (
        f"{format_bytes(bill.bytes)} for {format_bytes(bill.reference_bytes)}, {bill.bits_per_weight:.2f} "
        f"bits a weight; KL(float32 ‖ quantized) {format_number(total.kl.value, 3)} nats per token and "
        f"{total.flips.value:.1%} top-1 changes on {total.n_targets:,} tokens of {bill.sample}."
    )


def _list_blocks(bill: QuantizationBill) -> Iterator[list[Item]]:
    kept = f", keeping {' '.join(bill.keep)}" if bill.keep else ""
    subject = f"{bill.model} in {bill.scheme}{kept}, against {bill.reference}"
    yield [Lines(lambda width: wrap(subject, width))]
    yield [_make_table(_make_rows(bill))]
    yield list(_describe_total(bill))
    if bill.texts:
        yield [_make_table(_make_text_rows(bill))]
    if bill.greedy:
        yield [_make_table(_make_greedy_rows(bill))]
    yield from _describe_costs(bill)
    yield list(_describe_errors(bill))
    yield list(_list_notes(bill))


def _make_table(rows: Sequence[Sequence[str]]) -> Table:
    return Table(rows, first=40, most=24)


# ---- the whole


def _make_rows(bill: QuantizationBill) -> list[list[str]]:
    total = bill.total
    losses = (total.reference_loss, total.loss)
    rows = [
        ["", "float32", "quantized"],
        ["bytes", format_bytes(bill.reference_bytes), format_bytes(bill.bytes)],
        ["bits per weight", "32", f"{bill.bits_per_weight:.2f}"],
        ["loss, nats per token", *map(format_estimate, losses)],
        ["perplexity", *(f"{math.exp(min(loss.value, 700)):.4g}" for loss in losses)],
    ]
    return rows if total.loss.low is None else [*rows, ["  95 %", *map(_format_perplexities, losses)]]


def _describe_total(bill: QuantizationBill) -> Iterator[str]:
    total = bill.total
    verdict = ""
    if total.p_value is not None and total.difference.value:
        is_clear = total.p_value < SIGNIFICANT
        word = "worse" if total.difference.value > 0 else "better"
        verdict = f", p = {total.p_value:.2g}: " + (
            word if is_clear else "other texts might say the opposite"
        )
    yield f"difference: {format_estimate(total.difference, sign='+')} nats per token{verdict}."
    yield f"KL(float32 ‖ quantized): {format_kl(total.kl)} nats per token, at most {total.largest_kl:.3g}."
    yield (
        f"top-1 changes: {format_share(total.flips)}, {total.n_flips:,} of "
        f"{pluralize(total.n_targets, 'token')}."
    )


def _make_text_rows(bill: QuantizationBill) -> list[list[str]]:
    heads = ["text", "tokens", "perplexity", "quantized", "KL", "at most", "top-1 changes"]
    return [heads, *map(_make_text_row, bill.texts)]


def _make_text_row(text: TextFigures) -> list[str]:
    losses = (text.reference_loss.value, text.loss.value)
    return [
        text.name,
        f"{text.n_targets:,}",
        *(f"{math.exp(min(loss, 700)):.4g}" for loss in losses),
        f"{text.kl.value:.3g}",
        f"{text.largest_kl:.3g}",
        f"{text.flips.value:.1%}",
    ]


def format_kl(estimate: Estimate, unit: float = 1.0) -> str:
    """Returns a divergence in multiples of a unit, and ± half of its interval.

    >>> format_kl(Estimate(0.0605, 0.0508, 0.07)), format_kl(Estimate(0.0605), 1e-3), format_kl(Estimate(0.0))
    ('0.0605 ±0.0096', '60.5', '0')
    """
    value = format_number(estimate.value / unit, 3)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ±{format_number((estimate.high - estimate.low) / 2 / unit, 2)}"


def _format_perplexities(loss: Estimate) -> str:
    if loss.low is None or loss.high is None:
        return ""
    return f"{math.exp(min(loss.low, 700)):.4g}–{math.exp(min(loss.high, 700)):.4g}"


def _make_greedy_rows(bill: QuantizationBill) -> list[list[str]]:
    rows = [["greedy text", "tokens", "departs at", "float32", "quantized"]]
    for text in bill.greedy:
        place = "equal" if text.departs_at is None else f"{text.departs_at}"
        tokens = (text.reference_token or "", text.token or "")
        rows.append([text.document, f"{text.n_tokens}", place, *tokens])
    return rows


# ---- costs and errors of matrices


def _describe_costs(bill: QuantizationBill) -> Iterator[list[Item]]:
    costs = bill.costs
    if costs.n_exact:
        count = len(bill.matrices)
        yield [f"{costs.n_exact:,} of {count:,} matrices are quantized exactly, and cost nothing."]
    if not costs.groups:
        return
    yield [
        "what matrices cost: KL with these alone quantized, in 0.001 nats per token, on "
        f"{pluralize(costs.n_tokens, 'token')}; with all of them {format_kl(costs.total, UNIT)}:"
    ]
    blocks = list[list[Item]]()
    for level in LEVELS:
        if not (groups := costs.of(level)):
            continue
        shown = groups[: MOST_ROWS[level]]
        rows = [[one.pattern, format_bytes(one.bytes), format_kl(one.kl, UNIT)] for one in shown]
        left = len(groups) - MOST_ROWS[level]
        more = [f"… {left:,} more that cost less"] if left > 0 else []
        blocks.append([_make_table([[level, "bytes", "KL"], *rows]), *more])
    if costs.n_unmeasured:
        blocks[-1].append(f"… {costs.n_unmeasured:,} more were not measured")
    yield from blocks
    if costs.kept:
        rows = [["--keep", "bytes", "bits per weight", "KL"]]
        whole = KeptCost(("(nothing)",), costs.total, bill.bytes, bill.bits_per_weight)
        for kept in (whole, *costs.kept):
            first, *rest = kept.keep
            bits, kl = f"{kept.bits_per_weight:.2f}", format_kl(kept.kl, UNIT)
            rows.append([first, format_bytes(kept.bytes), bits, kl])
            rows += [[f"  {pattern}", "", "", ""] for pattern in rest]
        yield [_make_table(rows)]


def _describe_errors(bill: QuantizationBill) -> Iterator[Item]:
    rows = [["matrix", "type", "bytes", "error", "in scales"]]
    inexact = [one for one in bill.matrices if one.relative_error]
    for one in sorted(inexact, key=lambda one: (-one.relative_error, one.name))[:MOST_ERRORS]:
        largest = "" if one.largest_error is None else f"{one.largest_error:.3f}"
        rows.append([one.name, one.type, format_bytes(one.bytes), f"{one.relative_error:.3%}", largest])
    if not inexact:
        return
    yield _make_table(rows)
    if (left := len(inexact) - MOST_ERRORS) > 0:
        yield f"… {left:,} more with smaller errors"
    yield (
        "error: ‖Ŵ − W‖ / ‖W‖; in scales: the largest |Ŵ − W| over the scale, 0.5 where a number lies "
        "halfway between two levels."
    )


def _list_notes(bill: QuantizationBill) -> Iterator[str]:
    yield from bill.notes
    interval = (
        f"intervals: 95 %, by bootstrap over spans of at most {SPAN} tokens ({bill.samples:,} samples, seed "
        f"{bill.seed})."
    )
    if bill.total.kl.low is None:
        interval = "the text is too short for intervals: give a longer one (--on, --tokens)."
    yield f"measured on {bill.sample}; {interval}"
    if bill.omitted:
        yield f"the tokenizer cannot encode these texts of the sample: {', '.join(bill.omitted)}."


# ---- pictures


def draw_bill(bill: QuantizationBill) -> Figure:
    """Returns the figure of a bill, without the plots that would be empty."""
    plots, note = list(_draw(bill)), _summarize(bill)
    title = _clean(f"{bill.model} in {bill.scheme}", 60)
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
            "KL with one layer quantized",
            "0.001 nats",
            [_make_curve(LegendKey("a layer", LAYER_COLOR), numbers)],
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
        UNIT_NAME,
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


# ---- its file


BILL = ReportFile("quantize", "a quantization bill", "pellucid-quantization-bill")
MOST_BYTES = 1 << 26
FIGURES = {"reference": str, "total.kl.value": float, "total.flips.value": float, "total.n_targets": int}


def read_figures(path: Path) -> dict[str, Any]:
    """Returns of the file of a bill what `FIGURES` names; raises a FileError that names the damage."""
    with validating(path):
        data = parse_table(read_bytes(path, MOST_BYTES))
    data = check_format(path, data, "quantization bill", BILL.format, VERSION)
    with validating(path):
        return {name: _read(data, name, kind) for name, kind in FIGURES.items()}


def _read(value: Any, name: str, kind: type) -> Any:
    for key in name.split("."):
        need(isinstance(value, dict) and key in value, f"it has no {name}")
        value = value[key]
    return to_field(kind).read(value, name, error=Damaged)
