"""An evaluation on a terminal: a table of its figures, paired differences, and notes on the numbers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.base.columns import format_columns, wrap
from pellucid.evaluation.report.figure_rows import describe_differences, make_figure_rows, make_source_rows
from pellucid.evaluation.report.task_rows import describe_tasks, make_task_rows

if TYPE_CHECKING:
    from pellucid.evaluation.result import Evaluation

WIDTH = 80


def format_evaluation(evaluation: "Evaluation", width: int = WIDTH) -> Iterator[str]:
    """Yields the lines; models that do not fit beside each other come below."""
    heads = ["", *evaluation.names]
    if evaluation.models:
        rows = [[row.label, *row.cells] for row in make_figure_rows(evaluation)]
        yield from wrap(f"data: {', '.join(evaluation.data)}", width)
        yield ""
        yield from format_columns([heads, *rows], width, most=24)
        if sources := list(make_source_rows(evaluation)):
            yield ""
            yield from format_columns(sources, width, most=24)
    if tasks := [[row.label, *row.cells] for row in make_task_rows(evaluation)]:
        yield from [""] * bool(evaluation.models)
        yield from format_columns([heads, *tasks], width, first=40, most=24)
    differences = describe_differences(evaluation)
    for lines in (differences, evaluation.notes(), describe_tasks(evaluation)):
        for i, line in enumerate(lines):
            yield from [""] * (i == 0)
            yield from wrap(line, width)
