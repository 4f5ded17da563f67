"""Multiple choice: four rules, by hand; and a reader that takes nothing but questions."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pellucid import ConfigError, FileError, TokenError
from pellucid.config import ModelConfig
from pellucid.evaluation.continuations import ContinuationScore
from pellucid.evaluation.multiple_choice import (
    RULES,
    Question,
    ScoredQuestion,
    find_confidently_wrong,
    read_questions,
    score_questions,
    summarize_choices,
)
from pellucid.evaluation.result import TaskResult
from pellucid.model import Model
from pellucid.text.kinds import train

GOOD: dict[str, Any] = {"question": "Which?", "choices": ["this", "that"], "answer": 1}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def score(choices: dict[str, list[float]], answer: int = 0) -> ScoredQuestion:
    """Choices with ln p of each token."""
    scores = tuple(ContinuationScore(tuple(logprobs), False) for logprobs in choices.values())
    return ScoredQuestion(Question("", tuple(choices), answer), scores)


def test_each_rule_divides_by_its_own_length() -> None:
    """By hand: sums −3, −4, −5; characters 2, 4, 3; bytes 2, 4, 6; tokens 1, 1, 4.

    per character −1.5, −1, −1.67; per byte −1.5, −1, −0.83; per token −3, −4, −1.25.
    """
    found = score({"ab": [-3.0], "abcd": [-4.0], "äöü": [-1.0, -1.0, -1.0, -2.0]})
    assert found.log_likelihoods == [-3, -4, -5]
    assert {rule: found.predict(rule) for rule in RULES} == {
        "sum": 0,
        "per_character": 1,
        "per_byte": 2,
        "per_token": 2,
    }
    assert found.is_right() and not found.is_right("per_byte")


def test_lengths_are_those_of_the_choices_without_the_delimiter() -> None:
    """−1 / 1 < −2.9 / 3, and with a delimiter of one character −1 / 2 > −2.9 / 4."""
    found = score({"a": [-1.0], "abc": [-2.9]})
    assert (found.predict("per_character"), found.predict("per_byte"), found.predict("sum")) == (1, 1, 0)


def test_the_first_of_equal_choices_is_predicted() -> None:
    assert score({"a": [-2.0], "b": [-1.0], "c": [-1.0]}).predict() == 1


def test_probabilities_are_those_of_the_choices_alone() -> None:
    found = score({"a": [math.log(0.02)], "b": [math.log(0.06)]})
    assert found.probabilities == pytest.approx([0.25, 0.75])
    assert score({"a": [-2000.0], "b": [-2000.0]}).probabilities == [0.5, 0.5]


def test_the_most_confidently_wrong_come_first() -> None:
    some = [
        score({"a": [math.log(1 - p)], "b": [math.log(p)]}, answer=answer)
        for p, answer in ((0.6, 0), (0.9, 1), (0.8, 0), (0.3, 0))
    ]
    assert [max(one.probabilities) for one in find_confidently_wrong(some)] == pytest.approx([0.8, 0.6])
    assert len(find_confidently_wrong(some, most=1)) == 1


def test_a_question_is_asked_and_a_context_is_continued(tmp_path: Path) -> None:
    context = {"context": "Two and", "choices": ["two", "too"], "answer": 0, "delimiter": "-", "id": "x"}
    asked, continued = read_questions(write(tmp_path / "a.jsonl", GOOD, "", context))
    assert asked.context == "Question: Which?\nAnswer:"
    assert (asked.continuations, asked.answer, asked.id) == ([" this", " that"], 1, 1)
    assert (continued.context, continued.continuations, continued.id) == ("Two and", ["-two", "-too"], "x")


WRONG = {
    "not JSON": "{",
    "not a table": "[1]",
    "a key twice": '{"question": "a", "choices": ["a", "b"], "answer": 0, "answer": 1}',
    "an unknown key": GOOD | {"awnser": 1},
    "no answer": {"question": "a", "choices": ["a", "b"]},
    "no question": {"choices": ["a", "b"], "answer": 0},
    "question and context": GOOD | {"context": "a"},
    "a number for a question": GOOD | {"question": 1},
    "one choice": GOOD | {"choices": ["a"], "answer": 0},
    "no choices": GOOD | {"choices": []},
    "a choice that is a number": GOOD | {"choices": ["a", 1]},
    "an empty choice": GOOD | {"choices": ["a", ""]},
    "equal choices": GOOD | {"choices": ["a", "b", "a"]},
    "an answer beyond the choices": GOOD | {"answer": 2},
    "a negative answer": GOOD | {"answer": -1},
    "an answer in words": GOOD | {"answer": "that"},
    "true": GOOD | {"answer": True},
    "a float": GOOD | {"answer": 1.0},
    "half of a surrogate pair": '{"question": "\\ud800", "choices": ["a", "b"], "answer": 0}',
    "two blanks": {"context": "Two and ", "choices": ["a", "b"], "answer": 0},
    "nested too deeply": "[" * 100_000,
    "too many choices": GOOD | {"choices": [str(number) for number in range(300)]},
}


@pytest.mark.parametrize("case", WRONG)
def test_anything_else_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", GOOD, WRONG[case])
    with pytest.raises(FileError, match=f"{path}, line 2"):
        read_questions(path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_questions_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(FileError, match="no questions"):
        read_questions(tmp_path / "a.jsonl")


def make_model() -> Model:
    tokenizer = train("bytes", [])
    sizes = {"context_length": 16, "n_layer": 1, "n_head": 2, "d_model": 8}
    return Model.from_config(ModelConfig(vocab_size=tokenizer.vocab_size, **sizes), tokenizer=tokenizer)


def test_a_question_that_cannot_be_scored_is_refused_with_its_line(tmp_path: Path) -> None:
    model, long = make_model(), GOOD | {"choices": ["a", "b" * 20]}
    questions = read_questions(write(tmp_path / "a.jsonl", GOOD, long))
    with pytest.raises(TokenError, match="line 2"):  # before the first is scored
        next(score_questions(model.module, model.pretrained, questions))
    (found,) = score_questions(model.module, model.pretrained, questions[:1])
    assert found.scores[0].n_dropped > 0


def test_a_model_that_computes_nan_prefers_nothing(tmp_path: Path) -> None:
    model = make_model()
    model.module.embed.weight.data.fill_(math.nan)
    questions = read_questions(write(tmp_path / "a.jsonl", GOOD))
    with pytest.raises(ConfigError, match="line 1"):
        list(score_questions(model.module, model.pretrained, questions))


# ---- the accuracies of a file


def answer(*probabilities: float, right: int, n_dropped: int = 0) -> ScoredQuestion:
    """A question whose choices `a`, `bb`, … have these probabilities."""
    choices = tuple(letter * (at + 1) for at, letter in enumerate("abcd"[: len(probabilities)]))
    scores = tuple(ContinuationScore((math.log(p),), False, n_dropped) for p in probabilities)
    return ScoredQuestion(Question("", choices, right, id="sky"), scores)


def summarize(*scored: ScoredQuestion) -> TaskResult:
    return summarize_choices(scored, model="abcd", task="made-up", path="made-up.jsonl", samples=200)


def test_accuracy_and_chance_by_hand() -> None:
    """Three of four are right by the sum; per character the second is right too, −1.6 < −2.3 / 2."""
    found = summarize(
        answer(0.9, 0.1, right=0),
        answer(0.2, 0.1, right=1),
        answer(0.5, 0.2, 0.05, 0.01, right=0),
        answer(0.1, 0.2, right=1),
    )
    values = {metric.name: metric.value for metric in found.metrics}
    assert values == {"acc": 0.75, "acc_norm": 1.0, "acc_bytes": 1.0, "acc_tokens": 0.75}
    assert found.chance == pytest.approx((3 / 2 + 1 / 4) / 4)
    accuracy = found.metrics[0]
    assert accuracy.standard_error == pytest.approx(math.sqrt(0.1875 * 4 / 3 / 4))
    assert accuracy.low is not None and accuracy.low < 0.75


def test_one_question_has_no_interval() -> None:
    metric = summarize(answer(0.9, 0.1, right=0)).metrics[0]
    assert (metric.low, metric.standard_error) == (None, None)


def test_truncated_and_confidently_wrong_questions_are_named() -> None:
    found = summarize(answer(0.3, 0.1, right=1, n_dropped=2), answer(0.9, 0.1, right=0))
    assert found.n_truncated == 1
    assert found.confidently_wrong == ('sky: "a" with 75%, not "bb" with 25%',)
