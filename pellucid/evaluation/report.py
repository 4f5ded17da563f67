"""An evaluation as a report: its figures, paired differences and notes; on a page also plots, and the most
and the least expected passages, each token colored by its surprisal.

In the file a record is a table of its fields, except that the documents, of which there may be many, are a
table of columns. The scores of single tokens are kept for the most and the least expected passages alone.
A page has at most `FRAME_BYTES` and for each model `MODEL_BYTES`, whatever the size of the data.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from pellucid.base.columns import shorten, wrap
from pellucid.base.formatting import pluralize
from pellucid.evaluation.plots import make_plots
from pellucid.evaluation.result import DocumentSummary, Evaluation, ModelEvaluation, Passage
from pellucid.evaluation.rows import (
    describe_differences,
    describe_tasks,
    make_figure_rows,
    make_source_rows,
    make_task_rows,
)
from pellucid.report.file import ReportFile
from pellucid.report.html import draw_plots
from pellucid.report.items import Item, Lines, OnPage, ReportTable
from pellucid.report.page import escape_text
from pellucid.report.report import Report
from pellucid.report.surprisal import TOKEN_STYLE, draw_legend, draw_token

EVALUATION = ReportFile("evaluate", "an evaluation", "pellucid-evaluation", (".json", ".html"))
FRAME_BYTES, MODEL_BYTES = 60_000, 300_000
LONGEST_TOKEN, LONGEST_NAME = 40, 120
"""Letters of a token, and of the name of a document or model."""
PASSAGES_STYLE = """\
.text { margin: 0; max-width: none; font-size: 15px; line-height: 2.1; white-space: pre-wrap; }
.before { color: var(--faint); }
.before .t, .legend .t { cursor: default; }
.t[data-tip]:hover, .t[data-tip]:focus { outline: 2px solid var(--link); outline-offset: 1px; }
.t[data-tip]:hover::after, .t[data-tip]:focus::after { content: attr(data-tip); position: fixed; \
inset: auto 0 0 0;
  z-index: 2; padding: .7rem 1rem; background: var(--panel); color: var(--ink); \
border-top: 1px solid var(--rule);
  line-height: 1.5; font-size: 14px; white-space: pre-wrap; pointer-events: none; }
.t[data-tip]:hover::after { z-index: 3; }
body { padding-bottom: 6rem; }
@media print { .t[data-tip]::after { display: none; } }
"""


def report(evaluation: Evaluation) -> Report:
    """Returns an evaluation as it is shown."""
    names = _join_names(list(map(_shorten_name, evaluation.names)))
    verb, what = ("predict", "the data") if evaluation.models else ("do", "the tasks")
    return Report(
        f"How well {names} {_inflect(verb, len(evaluation.names))} {what}",
        _summarize(evaluation),
        list(_list_blocks(evaluation)),
        EVALUATION,
        lambda: dict(to_data(evaluation)),
        style=TOKEN_STYLE + PASSAGES_STYLE,
    )


def _list_blocks(evaluation: Evaluation) -> Iterator[list[Item]]:
    heads = ["", *evaluation.names]
    if evaluation.models:
        data = f"data: {', '.join(evaluation.data)}"
        yield [Lines(lambda width: wrap(data, width))]
        rows = list(make_figure_rows(evaluation))
        cells, meanings = [[row.label, *row.cells] for row in rows], [row.meaning for row in rows]
        yield [ReportTable([heads, *cells], most=24, meanings=meanings)]
        if sources := list(make_source_rows(evaluation)):
            labels = [_name_source(first) for first, *_ in sources[1:]]
            yield [ReportTable(sources, most=24, heading="By source", labels=labels)]
    if rows := list(make_task_rows(evaluation)):
        cells, meanings = [[row.label, *row.cells] for row in rows], [row.meaning for row in rows]
        yield [ReportTable([heads, *cells], first=40, most=24, heading="Tasks", meanings=meanings)]
    yield list(describe_differences(evaluation))
    yield list(evaluation.notes())
    yield list(describe_tasks(evaluation))
    if evaluation.models:
        yield [OnPage(lambda: _draw_documents(evaluation))]


def _summarize(evaluation: Evaluation) -> str:
    """Returns what was found, in one sentence."""
    texts = ", ".join(shorten(PurePath(one).name or one, LONGEST_NAME) for one in evaluation.data[:3])
    if not evaluation.models:
        return f"{len(evaluation.tasks):,} tasks were done."
    total = evaluation.models[0].total
    on = f" on {texts}" if texts else ""
    found = f"{_shorten_name(evaluation.names[0])} has a loss of {total.loss.value:.3f} nats per token{on}"
    return f"{found}; its most likely token is the next one {total.accuracy.value:.1%} of the time."


def _shorten_name(name: str) -> str:
    return shorten(name, LONGEST_NAME)


def _name_source(text: str) -> str:
    """Returns the name of a text or a document, of a path the last part alone: pages are sent to others."""
    return PurePath(text).name or text


def _inflect(verb: str, count: int) -> str:
    return verb if count > 1 else {"do": "does"}.get(verb, f"{verb}s")


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def to_data(value: Any) -> Any:
    """Returns a record as plain data."""
    if dataclasses.is_dataclass(value):
        return {entry.name: to_data(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, tuple):
        if value and isinstance(value[0], DocumentSummary):
            names = [entry.name for entry in dataclasses.fields(value[0])]
            return {name: [getattr(one, name) for one in value] for name in names}
        return [to_data(inner) for inner in value]
    return value


# ---- on a page


def _draw_documents(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>Where the loss comes from</h2>"
    yield from draw_plots(list(make_plots(evaluation)), "plot")
    yield "<h2>Passages</h2>"
    yield (
        '<p class="faint">Point at a token, or tap it, to see its probability and its rank. Gray tokens come '
        "before the passage.</p>"
    )
    yield from draw_legend()
    for one in evaluation.models:
        yield from _draw_model(one)


def _draw_model(one: ModelEvaluation) -> Iterator[str]:
    yield f"<h2>What {escape_text(_shorten_name(one.model.name))} expected least</h2>"
    yield from _draw_passages(one.least_expected)
    yield f"<h2>What {escape_text(_shorten_name(one.model.name))} expected most</h2>"
    yield from _draw_passages(one.most_expected)


def _draw_passages(passages: Sequence[Passage]) -> Iterator[str]:
    for passage in passages:
        last = passage.first + len(passage.tokens)
        name = escape_text(_shorten_name(_name_source(passage.document)))
        where = f"{name}, targets {passage.first + 1:,} to {last:,}"
        yield f'<section class="passage"><h3>{passage.loss:.3f} nats per token <small>{where}</small></h3>'
        before = "".join(draw_token(shorten(text, LONGEST_TOKEN), None) for text in passage.before)
        yield f'<p class="text"><span class="before">{before}</span>{"".join(_draw_tokens(passage))}</p>'
        yield "</section>"


def _draw_tokens(passage: Passage) -> Iterator[str]:
    for text, nll, rank in zip(passage.tokens, passage.nll, passage.rank, strict=True):
        shown = shorten(text, LONGEST_TOKEN)
        tip = escape_text(describe_token(shown, nll, rank))
        yield draw_token(shown, nll, f' tabindex="-1" data-tip="{tip}"')


def describe_token(text: str, nll: float, rank: int) -> str:
    """Returns what is shown of a token that is pointed at or tapped.

    >>> describe_token("·cat", 2.0, 3)
    '·cat   −ln p = 2.000 nats, p = 0.1353, rank 3: 3 tokens were more likely'
    """
    more = f"rank {rank:,}: {pluralize(rank, 'token')} {'was' if rank == 1 else 'were'} more likely"
    if rank == 0:
        more = "rank 0: the most likely token"
    return f"{text}   −ln p = {nll:.3f} nats, p = {_format_probability(math.exp(-nll))}, {more}"


def _format_probability(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-3 else f"{p:.1e}"
