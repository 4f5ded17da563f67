"""The table of tasks: a row for each metric, a cell for each model."""

import dataclasses

from pellucid.evaluation.report.task_rows import describe_tasks, make_task_rows
from pellucid.evaluation.report.text import format_evaluation
from pellucid.evaluation.task_result import TaskMetric, TaskResult
from tests.evaluation.report.small_evaluations import make_evaluation, make_model

METRICS = (TaskMetric("acc", 0.75, 0.65, 0.85, about="the sum"), TaskMetric("perplexity", 12.5))
RESULT = TaskResult("a", "f", "sky", "sky.jsonl", "pellucid", 8, METRICS, 0.25)


def test_each_model_has_a_cell() -> None:
    other = dataclasses.replace(RESULT, model="b", metrics=METRICS[:1])
    theirs = dataclasses.replace(RESULT, model="b", harness="lm-eval 0.4.13", chance=None)
    evaluation = dataclasses.replace(make_evaluation(make_model("a")), tasks=(RESULT, other, theirs))
    assert [(row.label, row.cells) for row in make_task_rows(evaluation)] == [
        ("sky", ["8 questions", "8 questions"]),
        ("  acc", ["75.0% ±10.0", "75.0% ±10.0"]),
        ("  perplexity", ["12.5000", ""]),
        ("  chance", ["25.0%", "25.0%"]),
        ("sky (lm-eval 0.4.13)", ["", "8 questions"]),
        ("  acc", ["", "75.0% ±10.0"]),
        ("  perplexity", ["", "12.5000"]),
    ]


def test_truncated_contexts_and_confident_errors_are_described() -> None:
    task = dataclasses.replace(RESULT, n_truncated=3, confidently_wrong=("x: this, not that",))
    evaluation = dataclasses.replace(make_evaluation(make_model("a")), tasks=(task,))
    _, truncated, wrong = describe_tasks(evaluation)
    assert "3 questions" in truncated and "x: this, not that" in wrong


def test_without_data_the_tasks_are_alone() -> None:
    evaluation = dataclasses.replace(make_evaluation(make_model("a")), data=(), models=(), tasks=(RESULT,))
    lines = list(format_evaluation(evaluation))
    assert lines[0].split() == ["a"] and lines[1].startswith("sky") and "data:" not in " ".join(lines)
