"""The accuracies of multiple choice, with intervals over questions."""

import json
import math

import pytest

from pellucid.evaluation.continuations import ContinuationScore
from pellucid.evaluation.multiple_choice import Question, ScoredQuestion
from pellucid.evaluation.task_result import TaskResult, summarize_choices


def answer(*probabilities: float, right: int, n_dropped: int = 0) -> ScoredQuestion:
    """A question whose choices `a`, `bb`, … have these probabilities."""
    choices = tuple(letter * (at + 1) for at, letter in enumerate("abcd"[: len(probabilities)]))
    scores = tuple(ContinuationScore((math.log(p),), False, n_dropped) for p in probabilities)
    return ScoredQuestion(Question("", choices, right, id="sky"), scores)


def summarize(*scored: ScoredQuestion) -> TaskResult:
    return summarize_choices("abcd", "made-up", "made-up.jsonl", scored, samples=200)


def test_accuracy_and_chance_by_hand() -> None:
    """Three of four are right by the sum; per character the second is right too, −1.6 < −2.3 / 2."""
    found = summarize(
        answer(0.9, 0.1, right=0),
        answer(0.2, 0.1, right=1),
        answer(0.5, 0.2, 0.05, 0.01, right=0),
        answer(0.1, 0.2, right=1),
    )
    values = {metric.name: metric.estimate.value for metric in found.metrics}
    assert values == {"acc": 0.75, "acc_norm": 1.0, "acc_bytes": 1.0, "acc_tokens": 0.75}
    assert found.chance == pytest.approx((3 / 2 + 1 / 4) / 4)
    accuracy = found.metrics[0]
    assert accuracy.standard_error == pytest.approx(math.sqrt(0.1875 * 4 / 3 / 4))
    assert accuracy.estimate.low is not None and accuracy.estimate.low < 0.75


def test_one_question_has_no_interval() -> None:
    metric = summarize(answer(0.9, 0.1, right=0)).metrics[0]
    assert (metric.estimate.low, metric.standard_error) == (None, None)


def test_truncated_and_confidently_wrong_questions_are_named() -> None:
    found = summarize(answer(0.3, 0.1, right=1, n_dropped=2), answer(0.9, 0.1, right=0))
    assert found.n_truncated == 1
    assert found.confidently_wrong == ('sky: "a" with 75%, not "bb" with 25%',)


def test_a_result_is_json() -> None:
    found = summarize(answer(0.3, 0.1, right=1)).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["metrics"]["acc"]["value"] == 0 and found["questions"][0]["predictions"]["sum"] == 0
