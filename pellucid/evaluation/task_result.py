"""The result of one task: its metrics, and every question with the scores of its choices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TaskMetric:
    """One figure of a task, under lm-eval's name where it has one."""

    name: str
    value: float
    low: float | None = None
    """The 95 % confidence interval: by bootstrap over questions, in lm-eval's results ± 1.96 standard
    errors."""
    high: float | None = None
    standard_error: float | None = None
    """Sample standard deviation over questions / √n."""
    about: str = ""


@dataclass(frozen=True)
class TaskResult:
    """The metrics of one model on one task."""

    model: str
    fingerprint: str
    """Of its weights."""
    task: str
    path: str
    harness: str
    """`pellucid`, or lm-eval with its version."""
    n_questions: int
    metrics: tuple[TaskMetric, ...]
    chance: float | None = None
    """The accuracy of guessing, where it is known."""
    n_truncated: int = 0
    """Questions whose context lost its beginning, because it did not fit the model's context."""
    confidently_wrong: tuple[str, ...] = ()
    """The wrong answers with the largest probabilities, one line each."""
    questions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """A row for each question."""
