"""A bill on a terminal: bytes, predictions, greedy texts, what matrices cost, and their errors."""

import math
from collections.abc import Iterator, Sequence

from pellucid.base.columns import format_columns, wrap
from pellucid.base.formatting import escape_controls, format_bytes, format_number, pluralize
from pellucid.evaluation.quantization.bill import QuantizationBill, TextFigures
from pellucid.evaluation.quantization.costs import LEVELS, KeptCost
from pellucid.evaluation.quantization.sample import SPAN
from pellucid.evaluation.report.figure_rows import SIGNIFICANT, format_estimate, format_share
from pellucid.evaluation.result import Estimate

WIDTH = 80
MOST_ROWS = {"kind": 12, "layer": 5, "matrix": 10}
"""Rows of each level that are shown; the file has all of them."""
MOST_ERRORS = 6
UNIT = 1e-3
"""Nats in which costs of matrices are shown."""
NAME, CELL = 40, 24
"""Columns of a name and of a cell, at most."""


def format_bill(bill: QuantizationBill, width: int = WIDTH) -> list[str]:
    """Returns the lines, without control characters that a name may have."""
    return [escape_controls(line, keep="") for line in _format(bill, width)]


def _format(bill: QuantizationBill, width: int) -> Iterator[str]:
    kept = f", keeping {' '.join(bill.keep)}" if bill.keep else ""
    yield from wrap(f"{bill.model} in {bill.scheme}{kept}, against {bill.reference}", width)
    yield ""
    yield from _columns(_make_rows(bill), width)
    yield ""
    yield from _describe_total(bill, width)
    if bill.texts:
        yield ""
        yield from _columns(_make_text_rows(bill), width)
    yield from _format_greedy(bill, width)
    yield from _format_costs(bill, width)
    yield from _format_errors(bill, width)
    for i, note in enumerate(_list_notes(bill)):
        yield from [""] * (i == 0)
        yield from wrap(note, width)


def _columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    return format_columns(rows, width, first=NAME, most=CELL)


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


def _describe_total(bill: QuantizationBill, width: int) -> Iterator[str]:
    total = bill.total
    verdict = ""
    if total.p_value is not None and total.difference.value:
        is_clear = total.p_value < SIGNIFICANT
        word = "worse" if total.difference.value > 0 else "better"
        verdict = f", p = {total.p_value:.2g}: " + (
            word if is_clear else "other texts might say the opposite"
        )
    yield from wrap(
        f"difference: {format_estimate(total.difference, sign='+')} nats per token{verdict}.", width
    )
    yield from wrap(
        f"KL(float32 ‖ quantized): {format_kl(total.kl)} nats per token, at most {total.largest_kl:.3g}.",
        width,
    )
    yield from wrap(
        f"top-1 changes: {format_share(total.flips)}, {total.n_flips:,} of "
        f"{pluralize(total.n_targets, 'token')}.",
        width,
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


# ---- greedy texts


def _format_greedy(bill: QuantizationBill, width: int) -> Iterator[str]:
    if not bill.greedy:
        return
    rows = [["greedy text", "tokens", "departs at", "float32", "quantized"]]
    for text in bill.greedy:
        place = "equal" if text.departs_at is None else f"{text.departs_at}"
        tokens = (text.reference_token or "", text.token or "")
        rows.append([text.document, f"{text.n_tokens}", place, *tokens])
    yield from ["", *_columns(rows, width)]


# ---- costs


def _format_costs(bill: QuantizationBill, width: int) -> Iterator[str]:
    costs = bill.costs
    if costs.n_exact:
        yield ""
        yield from wrap(
            f"{costs.n_exact:,} of {len(bill.matrices):,} matrices are quantized exactly, and cost nothing.",
            width,
        )
    if not costs.groups:
        return
    yield ""
    yield from wrap(
        "what matrices cost: KL with these alone quantized, in 0.001 nats per token, on "
        f"{pluralize(costs.n_tokens, 'token')}; with all of them {format_kl(costs.total, UNIT)}:",
        width,
    )
    for level in LEVELS:
        if not (groups := costs.of(level)):
            continue
        shown = groups[: MOST_ROWS[level]]
        rows = [[one.pattern, format_bytes(one.bytes), format_kl(one.kl, UNIT)] for one in shown]
        yield from ["", *_columns([[level, "bytes", "KL"], *rows], width)]
        if (left := len(groups) - MOST_ROWS[level]) > 0:
            yield f"… {left:,} more that cost less"
    if costs.n_unmeasured:
        yield f"… {costs.n_unmeasured:,} more were not measured"
    if costs.kept:
        rows = [["--keep", "bytes", "bits per weight", "KL"]]
        whole = KeptCost(("(nothing)",), costs.total, bill.bytes, bill.bits_per_weight)
        for kept in (whole, *costs.kept):
            first, *rest = kept.keep
            bits, kl = f"{kept.bits_per_weight:.2f}", format_kl(kept.kl, UNIT)
            rows.append([first, format_bytes(kept.bytes), bits, kl])
            rows += [[f"  {pattern}", "", "", ""] for pattern in rest]
        yield from ["", *_columns(rows, width)]


# ---- errors


def _format_errors(bill: QuantizationBill, width: int) -> Iterator[str]:
    rows = [["matrix", "type", "bytes", "error", "in scales"]]
    inexact = [one for one in bill.matrices if one.relative_error]
    for one in sorted(inexact, key=lambda one: (-one.relative_error, one.name))[:MOST_ERRORS]:
        largest = "" if one.largest_error is None else f"{one.largest_error:.3f}"
        rows.append([one.name, one.type, format_bytes(one.bytes), f"{one.relative_error:.3%}", largest])
    if not inexact:
        return
    yield from ["", *_columns(rows, width)]
    if (left := len(inexact) - MOST_ERRORS) > 0:
        yield f"… {left:,} more with smaller errors"
    yield from wrap(
        "error: ‖Ŵ − W‖ / ‖W‖; in scales: the largest |Ŵ − W| over the scale, 0.5 where a number lies "
        "halfway between two levels.",
        width,
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
