"""An evaluation as an HTML page that needs nothing from elsewhere, and no script: the table with intervals,
plots, and the most and the least expected passages, each token colored by its surprisal.

A page has at most `FRAME_BYTES` and for each model `MODEL_BYTES`, whatever the size of the data.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import numpy as np

from pellucid.base.columns import shorten
from pellucid.base.files import check_output, make_page_kind, new_file
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.evaluation.report.figure_rows import (
    FigureRow,
    describe_differences,
    has_one_tokenizer,
    make_figure_rows,
    make_source_rows,
)
from pellucid.evaluation.report.task_rows import describe_tasks, make_task_rows
from pellucid.evaluation.result import SURPRISAL_WIDTH, Evaluation, Figures, ModelEvaluation, Passage
from pellucid.report.chart import Array, Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Bars
from pellucid.report.figure import Plot
from pellucid.report.inline import draw_plots
from pellucid.report.page import escape_text, read_style
from pellucid.report.page import make_page as write_html
from pellucid.report.surprisal import draw_legend, draw_token, read_token_style

FRAME_BYTES, MODEL_BYTES = 60_000, 300_000
MARK = b'<meta name="generator" content="pellucid evaluate">'
LONGEST_TOKEN, LONGEST_NAME, LONGEST_NOTE = 40, 120, 500
"""Letters of a token, of the name of a document or model, and of a note."""
MOST_SOURCES = 50
"""Sources in the table."""
MOST_TASK_ROWS = 200
"""Rows of the table of tasks."""
REPORT_PAGE = make_page_kind("the page of an evaluation", MARK)


def check_page_output(path: Path, force: bool = False) -> None:
    """Raises unless a page may be written there; call it before the work."""
    check_output(path, REPORT_PAGE, force)


def write_page(evaluation: Evaluation, path: Path, force: bool = False) -> None:
    """Writes the page of an evaluation; `force` replaces another page of one."""
    with new_file(path, REPORT_PAGE, force) as file:
        file.write(make_page(evaluation).encode("utf-8", "backslashreplace"))


def make_page(evaluation: Evaluation) -> str:
    """Returns the page."""
    names = _join_names(list(map(_shorten_name, evaluation.names)))
    differences = describe_differences(evaluation)
    notes = [*differences, *evaluation.notes(), *describe_tasks(evaluation)]
    verb, what = ("predict", "the data") if evaluation.models else ("do", "the tasks")
    body = [
        *_draw_figures(evaluation, list(make_figure_rows(evaluation))),
        *_draw_sources(evaluation),
        *_draw_tasks(evaluation),
        '<ul class="notes">',
        *(f"<li>{escape_text(shorten(note, LONGEST_NOTE))}</li>" for note in notes),
        "</ul>",
        *(_draw_documents(evaluation) if evaluation.models else ()),
    ]
    return write_html(
        "pellucid evaluate",
        f"How well {names} {_inflect(verb, len(evaluation.names))} {what}",
        _summarize(evaluation),
        "\n".join(body),
        style=read_token_style() + read_style(Path(__file__).parent / "page.css"),
    )


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


def _name(text: str) -> str:
    return escape_text(shorten(text, LONGEST_NAME))


def _name_source(text: str) -> str:
    """Returns the name of a text or a document, of a path the last part alone: pages are sent to others."""
    return _name(PurePath(text).name or text)


def _inflect(verb: str, count: int) -> str:
    return verb if count > 1 else {"do": "does"}.get(verb, f"{verb}s")


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


# ---- tables


def _draw_figures(evaluation: Evaluation, rows: Sequence[FigureRow]) -> Iterator[str]:
    """Yields a table with a column for each model, and what each row means in a last one; nothing where
    there are no models."""
    if not any(row.cells for row in rows):
        return
    heads = "".join(f"<th>{_name(name)}</th>" for name in evaluation.names)
    yield f'<div class="scroll"><table><thead><tr><th></th>{heads}<th></th></tr></thead><tbody>'
    for label, cells, meaning in rows:
        kind = ' class="level"' if label.startswith(" ") else ""
        numbers = "".join(f"<td>{escape_text(shorten(cell, LONGEST_TOKEN))}</td>" for cell in cells)
        row = f'<th scope="row">{_name(label.strip())}</th>{numbers}'
        yield f'<tr{kind}>{row}<td class="meaning">{_name(meaning)}</td></tr>'
    yield "</tbody></table></div>"


def _draw_tasks(evaluation: Evaluation) -> Iterator[str]:
    rows = list(make_task_rows(evaluation))
    if rows:
        yield "<h2>Tasks</h2>"
        yield from _draw_figures(evaluation, rows[:MOST_TASK_ROWS])
    if len(rows) > MOST_TASK_ROWS:
        yield f'<p class="faint">and {len(rows) - MOST_TASK_ROWS:,} more rows, in the JSON file</p>'


def _draw_sources(evaluation: Evaluation) -> Iterator[str]:
    rows = list(make_source_rows(evaluation))
    if not rows:
        return
    yield '<h2>By source</h2><div class="scroll"><table><thead>'
    for i, (first, *cells) in enumerate(rows[: MOST_SOURCES + 1]):
        tag = "th" if i == 0 else "td"
        row = "".join(f"<{tag}>{_name(cell)}</{tag}>" for cell in cells)
        yield f'<tr><th scope="row">{_name_source(first)}</th>{row}</tr>' + "</thead><tbody>" * (i == 0)
    yield "</tbody></table></div>"
    if len(rows) > MOST_SOURCES + 1:
        yield f'<p class="faint">and {len(rows) - MOST_SOURCES - 1:,} more sources, in the JSON file</p>'


# ---- plots and passages


def _draw_documents(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>Where the loss comes from</h2>"
    yield from draw_plots(list(make_plots(evaluation)), 0)
    yield "<h2>Passages</h2>"
    yield (
        '<p class="faint">Point at a token, or tap it, to see its probability and its rank. Gray tokens come '
        "before the passage.</p>"
    )
    yield from draw_legend()
    for one in evaluation.models:
        yield from _draw_model(one)


def _draw_model(one: ModelEvaluation) -> Iterator[str]:
    yield f"<h2>What {_name(one.model.name)} expected least</h2>"
    yield from _draw_passages(one.least_expected)
    yield f"<h2>What {_name(one.model.name)} expected most</h2>"
    yield from _draw_passages(one.most_expected)


def _draw_passages(passages: Sequence[Passage]) -> Iterator[str]:
    for passage in passages:
        last = passage.first + len(passage.tokens)
        where = f"{_name_source(passage.document)}, targets {passage.first + 1:,} to {last:,}"
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
