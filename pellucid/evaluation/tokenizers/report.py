"""A comparison of tokenizers as a report: a column, or a bar, for each tokenizer."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.formatting import format_bytes, format_count
from pellucid.evaluation.tokenizers.counts import SCRIPTS, TokenizationCounts
from pellucid.report.alt import describe
from pellucid.report.diagram import Bars
from pellucid.report.figure import NARROW, Figure, Section
from pellucid.report.file import ReportFile
from pellucid.report.items import Table
from pellucid.report.report import Report

if TYPE_CHECKING:
    from pellucid.evaluation.tokenizers.compare import TokenizerComparison, TokenizerUse

LABEL = 29
"""Letters of a label in the figure."""
NONE = "–"
NOTE = (
    "A token with characters of several scripts is shared between them by characters. Lost bytes are in an "
    "unknown token or in no token."
)
REFUSES = (
    "{names}: has no unknown token, so it refuses a document with a character or word that it lacks; here "
    "each of them counts as a token, and its bytes as lost."
)


COMPARISON = ReportFile("tokenizer compare", "a comparison of tokenizers", "pellucid-tokenizer-comparison")


def report(comparison: "TokenizerComparison") -> Report:
    """Returns a comparison as it is shown."""
    refusing = [one.name for one in comparison.tokenizers if one.total.refused_documents]
    refuses = [REFUSES.format(names=", ".join(refusing))] if refusing else []
    return Report(
        "Tokenizers compared",
        _summarize(comparison),
        [[Table(list(_make_rows(comparison.tokenizers)), fixed=2)], [NOTE, *refuses]],
        COMPARISON,
        comparison.to_data,
        lambda: draw_comparison(comparison),
    )


def _summarize(comparison: "TokenizerComparison") -> str:
    """Returns which tokenizer needs the fewest tokens, in one sentence."""
    uses = comparison.tokenizers
    best = min(uses, key=lambda one: one.total.tokens)
    text = f"{format_bytes(best.total.bytes)} of text"
    return f"{best.name} encodes {text} in {best.total.tokens:,} tokens" + (
        ", the fewest of all." if len(uses) > 1 else "."
    )


def _make_rows(uses: "Sequence[TokenizerUse]") -> Iterator[list[str]]:
    """Yields the cells of each row: its name, the size of the text, and those of the tokenizers."""

    def row(label: str, cell: "Callable[[TokenizerUse], str]", size: str = "") -> list[str]:
        return [label, size, *map(cell, uses)]

    text = uses[0].total
    yield row("", lambda one: one.name, "text")
    yield row("kind", lambda one: one.kind)
    yield row("vocabulary", lambda one: f"{one.vocab_size:,}")
    yield row("tokens", lambda one: f"{one.total.tokens:,}")
    yield row("bytes per token", lambda one: _format(one.total.bytes_per_token), format_bytes(text.bytes))
    for domain, counts in uses[0].domains.items() if len(uses[0].domains) > 1 else ():
        cells = [_format(one.domains[domain].bytes_per_token) for one in uses]
        yield [f"  {domain}", format_bytes(counts.bytes), *cells]
    for i in _find_scripts(text):
        cells = [_format(float(one.total.script_bytes_per_token[i])) for one in uses]
        yield [f"  {SCRIPTS[i]}", format_bytes(float(text.script_bytes[i])), *cells]
    yield row("unknown tokens", lambda one: f"{one.total.unknown:,}")
    yield row("lost bytes", lambda one: f"{one.total.lost_bytes:,}")
    documents = f"{text.documents:,}"
    if any(one.refuses for one in uses):
        yield row("documents refused", lambda one: f"{one.total.refused_documents:,}", documents)
    yield row("documents decoded exactly", lambda one: f"{one.total.exact_documents:,}", documents)
    yield row("tokens of one byte", lambda one: _share(one.total.single_bytes, one))
    yield row("tokens of part of a character", lambda one: _share(one.total.partial_characters, one))
    if any(one.unembedding for one in uses):
        yield row("output layer, parameters", lambda one: _cost(one, "parameters"))
        yield row("output layer, FLOP per token", lambda one: _cost(one, "flops"))
        yield row("output layer, FLOP per byte", lambda one: _count(one.unembedding_flops_per_byte))


def _find_scripts(counts: TokenizationCounts) -> list[int]:
    """Returns the scripts of the text, the most frequent first."""
    order = np.argsort(-counts.script_bytes, kind="stable").tolist()
    return [i for i in order if counts.script_bytes[i]]


def _format(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else NONE


def _share(count: int, one: "TokenizerUse") -> str:
    return f"{count / one.total.tokens:.1%}" if one.total.tokens else NONE


def _cost(one: "TokenizerUse", which: str) -> str:
    return _count(None if one.unembedding is None else getattr(one.unembedding, which))


def _count(value: float | None) -> str:
    return NONE if value is None else format_count(round(value))


def draw_comparison(comparison: "TokenizerComparison") -> Figure:
    """Returns bars of the bytes per token by domain and by script, and of the cost of the output layer."""
    uses = comparison.tokenizers
    domains, found = list(uses[0].domains), _find_scripts(uses[0].total)
    scripts = [i for i in found if all(one.total.script_tokens[i] for one in uses)]
    omitted = [SCRIPTS[i] for i in found if i not in scripts]
    note = f"omitted: {', '.join(omitted)}, which not all tokenizers have in a token" if omitted else ""

    def bars(
        title: str, labels: Sequence[str], values: "Callable[[TokenizerUse], Sequence[float]]", axis: str
    ) -> Bars:
        groups = {one.name: np.array(values(one), np.float64) for one in uses}
        return Bars(title, [shorten(label, LABEL) for label in labels], groups, axis, decimals=2)

    plots = [
        bars(
            "bytes per token by domain",
            domains,
            lambda one: [one.domains[domain].bytes_per_token for domain in domains],
            "bytes per token",
        ),
        bars(
            "bytes per token by script",
            [SCRIPTS[i] for i in scripts],
            lambda one: [one.total.script_bytes_per_token[i] for i in scripts],
            "bytes per token",
        ),
    ]
    if all(one.unembedding for one in uses):
        plots.append(
            bars(
                "cost of the output layer",
                ["per token", "per byte of text"],
                lambda one: [
                    (one.unembedding.flops if one.unembedding else 0) / 1e6,
                    (one.unembedding_flops_per_byte or 0) / 1e6,
                ],
                "MFLOP",
            )
        )
    alt = " ".join(["Tokenizers compared.", *(f"{describe(plot)}." for plot in plots)])
    return Figure("tokenizers compared", [Section("", [plot]) for plot in plots], note, alt, NARROW)
