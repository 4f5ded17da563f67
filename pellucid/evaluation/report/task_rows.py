"""The results of tasks as rows of text, a cell for each model: one table for terminal and page."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from pellucid.base.formatting import pluralize
from pellucid.evaluation.report.figure_rows import FigureRow, format_estimate, format_share
from pellucid.evaluation.task_result import TaskMetric, TaskResult

if TYPE_CHECKING:
    from pellucid.evaluation.result import Evaluation

FRACTIONS = ("acc", "exact_match")
"""How the names of metrics begin that are shown in percent."""


def make_task_rows(evaluation: "Evaluation") -> Iterator[FigureRow]:
    """Yields the number of questions of each task, and below it a row for each metric and for chance."""
    tasks: dict[tuple[str, str], dict[str, TaskResult]] = {}
    for one in evaluation.tasks:
        tasks.setdefault((one.task, one.harness), {})[one.model] = one
    for (task, harness), found in tasks.items():
        first = next(iter(found.values()))
        label = task if harness == "pellucid" else f"{task} ({harness})"
        results = [found.get(name) for name in evaluation.names]
        counts = ["" if one is None else pluralize(one.n_questions, "question") for one in results]
        yield FigureRow(label, counts, PurePath(first.path).name)
        for metric in first.metrics:
            cells = ["" if one is None else _format_metric(one, metric.name) for one in results]
            yield FigureRow(f"  {metric.name}", cells, metric.about)
        if first.chance is not None:
            chances = ["" if one is None or one.chance is None else f"{one.chance:.1%}" for one in results]
            yield FigureRow("  chance", chances, "the accuracy of guessing")


def describe_tasks(evaluation: "Evaluation") -> Iterator[str]:
    """Yields what a reader must know to judge the results, one sentence each."""
    if any(metric.low is not None for one in evaluation.tasks for metric in one.metrics):
        yield (
            "± of a task is half of the 95 % interval over its questions: by bootstrap, or of lm-eval 1.96 "
            "standard errors."
        )
    for one in evaluation.tasks:
        start = f"{one.task}: " if len(evaluation.names) == 1 else f"{one.model}, {one.task}: "
        if one.n_truncated:
            yield (
                f"{start}the context of {pluralize(one.n_truncated, 'question')} lost its beginning, because "
                "it did not fit the model's context."
            )
        if one.confidently_wrong:
            yield f"{start}most confidently wrong are {'; '.join(one.confidently_wrong)}."


def _format_metric(result: TaskResult, name: str) -> str:
    found = next((metric for metric in result.metrics if metric.name == name), None)
    return "" if found is None else format_metric(found)


def format_metric(metric: TaskMetric) -> str:
    """Returns an accuracy in percent, another metric as it is, and ± half of its interval.

    >>> format_metric(TaskMetric("acc_norm", 0.5, 0.4, 0.6)), format_metric(TaskMetric("perplexity", 7.25))
    ('50.0% ±10.0', '7.2500')
    """
    return format_share(metric) if metric.name.startswith(FRACTIONS) else format_estimate(metric)
