"""What a model did on one task: its metrics, and every question with the scores of its choices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pellucid.evaluation.bootstrap import SAMPLES, estimate_ratios
from pellucid.evaluation.multiple_choice import (
    RULES,
    ScoredQuestion,
    compute_chance,
    find_confidently_wrong,
)
from pellucid.evaluation.record import Estimate


@dataclass(frozen=True)
class TaskMetric:
    """One figure of a task, under lm-eval's name where it has one."""

    name: str
    estimate: Estimate
    standard_error: float | None
    """Sample standard deviation over questions / √n."""
    about: str = ""


@dataclass(frozen=True)
class TaskResult:
    """The metrics of one model on one task."""

    model: str
    task: str
    path: str
    harness: str
    """`pellucid`, or lm-eval with its version."""
    n_questions: int
    metrics: tuple[TaskMetric, ...]
    chance: float | None = None
    """The accuracy of guessing, where each question has a number of choices."""
    n_truncated: int = 0
    """Questions whose context lost its beginning, because it did not fit the model's context."""
    confidently_wrong: tuple[str, ...] = ()
    """The wrong answers with the largest probabilities, one line each."""
    questions: tuple[Mapping[str, Any], ...] = ()
    """A row for each question."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as JSON writes it."""
        return {
            "model": self.model,
            "task": self.task,
            "path": self.path,
            "harness": self.harness,
            "n_questions": self.n_questions,
            "n_truncated": self.n_truncated,
            "chance": self.chance,
            "metrics": {
                metric.name: {
                    "value": metric.estimate.value,
                    "low": metric.estimate.low,
                    "high": metric.estimate.high,
                    "standard_error": metric.standard_error,
                }
                for metric in self.metrics
            },
            "confidently_wrong": list(self.confidently_wrong),
            "questions": [dict(row) for row in self.questions],
        }


def summarize_choices(
    model: str,
    task: str,
    path: str,
    scored: Sequence[ScoredQuestion],
    samples: int = SAMPLES,
    seed: int = 0,
) -> TaskResult:
    """Returns the accuracies of multiple choice by every rule, with intervals by bootstrap over questions."""
    count = len(scored)
    right = {name: [float(one.is_right(name)) for one in scored] for name in RULES}
    estimates = estimate_ratios([(values, [1.0] * count) for values in right.values()], samples, seed)
    metrics = [
        TaskMetric(RULES[name].metric, estimate, _compute_standard_error(right[name]), RULES[name].about)
        for name, estimate in zip(RULES, estimates, strict=True)
    ]
    return TaskResult(
        model,
        task,
        path,
        "pellucid",
        count,
        tuple(metrics),
        compute_chance([one.question for one in scored]),
        sum(any(score.n_dropped for score in one.scores) for one in scored),
        tuple(map(_describe_wrong, find_confidently_wrong(scored))),
        tuple(one.to_dict() for one in scored),
    )


def _compute_standard_error(values: Sequence[float]) -> float | None:
    """Returns √(Σ (x − mean)² / (n − 1) / n); None for one value."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def _describe_wrong(one: ScoredQuestion) -> str:
    """Returns a line such as `yellow: "red" with 87 %, not "green" with 11 %`."""
    question, wrong = one.question, one.predict()
    shares = one.probabilities
    return (
        f'{question.id}: "{question.choices[wrong]}" with {shares[wrong]:.0%}, not '
        f'"{question.choices[question.answer]}" with {shares[question.answer]:.0%}'
    )
