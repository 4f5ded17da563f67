"""Multiple choice: which of several continuations a model finds the most likely, on a JSONL file of ours.

{"question": "What do bees make?", "choices": ["honey", "milk", "wool"], "answer": 0}
{"context": "A bird has two", "choices": ["wings", "wheels"], "answer": 0}

A `context` is continued by the delimiter, " " where a line has no other, and a choice; a `question` is the
context "Question: …\\nAnswer:". `answer` counts the choices from 0. The score of a choice is ln p(choice |
context); the rules of `RULES` divide it by a length, since a longer choice is less likely in any case. The
prediction is the choice with the largest quotient, the first of equal ones.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.errors import ConfigError, FileError, TokenError, UsageError
from pellucid.base.files import Damaged, read_text
from pellucid.base.schema import Field, read
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.bootstrap import SAMPLES, estimate_ratios
from pellucid.evaluation.continuations import (
    ContinuationScore,
    EncodedPair,
    encode_pair,
    fit_pair,
    score_continuations,
)
from pellucid.evaluation.result import TaskMetric, TaskResult
from pellucid.evaluation.scoring import Journal
from pellucid.formats.folder import parse_table
from pellucid.formats.pretrained import Pretrained

MOST_BYTES = 1 << 30
MOST_CHOICES = 256
MOST_CHARACTERS = 1 << 20
"""Of a context or a choice: more than any context holds."""
KEYS = (
    Field("question", str, None),
    Field("context", str, None),
    Field("choices", tuple[str, ...]),
    Field("answer", int),
    Field("delimiter", str, None),
    Field("id", str | int, None),
)
"""The keys of a line."""
EXAMPLE = '{"question": "What do bees make?", "choices": ["honey", "milk"], "answer": 0}'


@dataclass(frozen=True)
class Question:
    """One line of a file."""

    context: str
    choices: tuple[str, ...]
    answer: int
    delimiter: str = " "
    id: str | int = ""
    """What the line says, else its number."""
    where: str = ""
    """The file and the line, for messages."""

    @property
    def continuations(self) -> list[str]:
        """The text that follows the context, for each choice."""
        return [self.delimiter + choice for choice in self.choices]


class LengthRule(NamedTuple):
    """What ln p(choice | context) is divided by before choices are compared."""

    length: Callable[[str, int], int]
    """Of a choice, without the delimiter, and of the number of its tokens."""
    metric: str
    """The name of the accuracy: lm-eval's, which has all but the last."""
    about: str


RULES: Mapping[str, LengthRule] = {
    "sum": LengthRule(
        lambda choice, n_tokens: 1, "acc", "the right choice has the largest Σ ln p of its tokens"
    ),
    "per_character": LengthRule(
        lambda choice, n_tokens: len(choice), "acc_norm", "the largest Σ ln p / characters"
    ),
    "per_byte": LengthRule(
        lambda choice, n_tokens: len(choice.encode()), "acc_bytes", "the largest Σ ln p / UTF-8 bytes"
    ),
    "per_token": LengthRule(lambda choice, n_tokens: n_tokens, "acc_tokens", "the largest Σ ln p / tokens"),
}


@dataclass(frozen=True)
class ScoredQuestion:
    """A question with the scores of its choices."""

    question: Question
    scores: tuple[ContinuationScore, ...]

    @property
    def log_likelihoods(self) -> list[float]:
        """ln p(choice | context) of each choice."""
        return [score.total for score in self.scores]

    @property
    def probabilities(self) -> list[float]:
        """p(choice | context), divided by their sum: how sure the model is, if one of them is the answer."""
        found = np.array(self.log_likelihoods)
        shares = np.exp(found - found.max())
        return list((shares / shares.sum()).tolist())

    def predict(self, rule: str = "sum") -> int:
        """Returns the choice that the model prefers by a rule of `RULES`."""
        length = RULES[rule].length
        pairs = zip(self.question.choices, self.scores, strict=True)
        return int(np.argmax([score.total / length(choice, len(score.logprobs)) for choice, score in pairs]))

    def is_right(self, rule: str = "sum") -> bool:
        return self.predict(rule) == self.question.answer

    def to_dict(self) -> dict[str, Any]:
        """Returns the question's row of the table in JSON."""
        return {
            "id": self.question.id,
            "context": self.question.context,
            "delimiter": self.question.delimiter,
            "choices": list(self.question.choices),
            "answer": self.question.answer,
            "log_likelihoods": self.log_likelihoods,
            "n_tokens": [len(score.logprobs) for score in self.scores],
            "is_greedy": [score.is_greedy for score in self.scores],
            "n_dropped": max(score.n_dropped for score in self.scores),
            "probabilities": self.probabilities,
            "predictions": {rule: self.predict(rule) for rule in RULES},
        }


def read_questions(path: Path) -> list[Question]:
    """Returns the questions of a JSONL file; a line with anything else is refused with its number."""
    lines = enumerate(read_text(path, MOST_BYTES).split("\n"), 1)
    found = [_read_line(line, f"{path}, line {at}", at) for at, line in lines if line.strip()]
    if not found:
        raise FileError(f"{path} has no questions: a line is a JSON object such as {EXAMPLE}.")
    return found


def _read_line(line: str, where: str, number: int) -> Question:
    try:
        table = parse_table(line.encode())
    except Damaged as error:
        raise FileError(f"{where}: {error}. A line is {EXAMPLE}.") from None
    found: dict[str, Any] = read(KEYS, table, where, path=f"{where}: ", error=FileError)
    if ("question" in table) == ("context" in table):
        raise FileError(f'{where} needs either "question" or "context", and not both.')
    _check_texts(found, where)
    choices, answer = found["choices"], found["answer"]
    if not 2 <= len(choices) <= MOST_CHOICES:
        raise FileError(f"{where}: choices must be 2 to {MOST_CHOICES} texts; there are {len(choices)}.")
    if not all(choice.strip() for choice in choices) or len(set(choices)) < len(choices):
        raise FileError(f"{where}: choices must be texts that differ, none of them empty.")
    if not 0 <= answer < len(choices):
        raise FileError(
            f"{where}: answer must be the number of a choice, 0 to {len(choices) - 1}; got {answer}."
        )
    asked = found.get("question")
    context = found["context"] if asked is None else f"Question: {asked}\nAnswer:"
    delimiter = found.get("delimiter")
    if delimiter is None and context[-1:].isspace():
        raise FileError(
            f"{where}: the context ends with a blank, and a blank is put before each choice. Remove it, or "
            'set "delimiter": "".'
        )
    return Question(
        context, choices, answer, " " if delimiter is None else delimiter, found.get("id", number), where
    )


def _check_texts(found: Mapping[str, Any], where: str) -> None:
    """Raises for a text that is too long or that UTF-8 cannot encode."""
    for key, value in found.items():
        for text in [value] if isinstance(value, str) else value if isinstance(value, tuple) else []:
            if len(text) > MOST_CHARACTERS:
                raise FileError(
                    f"{where}: {key} has {len(text):,} characters; the limit is {MOST_CHARACTERS:,}."
                )
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise FileError(f"{where}: {key} has half of a surrogate pair, which UTF-8 cannot encode.")


def score_questions(
    module: Transformer,
    pretrained: Pretrained,
    questions: Sequence[Question],
    *,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[ScoredQuestion]:
    """Yields each question with the scores of its choices; all are encoded before the first is scored.

    `journal` is as for `score_continuations`. `progress` is called with the tokens of the questions so far,
    and of all.
    """
    encoded = [_encode(module, pretrained, question) for question in questions]
    sizes = [len(pairs[0][0]) + sum(len(ids) for _, ids in pairs) for pairs in encoded]
    scores = score_continuations(module, [pair for pairs in encoded for pair in pairs], journal=journal)
    for question, pairs, done in zip(questions, encoded, itertools.accumulate(sizes), strict=True):
        found = ScoredQuestion(question, tuple(itertools.islice(scores, len(pairs))))
        if not all(map(math.isfinite, found.log_likelihoods)):
            raise ConfigError(
                f"{question.where}: the log-likelihood of a choice is not finite: the model's logits have a "
                "NaN or an infinity. Try another number type, such as float32."
            )
        progress(done, sum(sizes))
        yield found


def _encode(module: Transformer, pretrained: Pretrained, question: Question) -> list[EncodedPair]:
    """Returns the ids of the context and of each choice; raises where the model cannot score one."""
    try:
        pairs = [encode_pair(pretrained, question.context, text) for text in question.continuations]
        for pair in pairs:
            fit_pair(module.config, *pair)
    except (TokenError, UsageError) as error:
        raise type(error)(f"{question.where}: {error}") from None
    return pairs


def compute_chance(questions: Sequence[Question]) -> float:
    """Returns the accuracy of guessing: the mean of 1 / number of choices.

    >>> compute_chance([Question("", ("a", "b"), 0), Question("", ("a", "b", "c", "d"), 3)])
    0.375
    """
    return math.fsum(1 / len(question.choices) for question in questions) / len(questions)


def find_confidently_wrong(scored: Sequence[ScoredQuestion], most: int = 5) -> list[ScoredQuestion]:
    """Returns the wrong predictions (of the sum) with the largest probabilities, the largest first."""
    wrong = [one for one in scored if not one.is_right()]
    return sorted(wrong, key=lambda one: -max(one.probabilities))[:most]


def summarize_choices(
    scored: Sequence[ScoredQuestion],
    *,
    model: str,
    task: str,
    path: str,
    fingerprint: str = "",
    samples: int = SAMPLES,
    seed: int = 0,
) -> TaskResult:
    """Returns the accuracies of multiple choice by every rule, with intervals by bootstrap over questions."""
    count = len(scored)
    right = {name: [float(one.is_right(name)) for one in scored] for name in RULES}
    estimates = estimate_ratios([(values, [1.0] * count) for values in right.values()], samples, seed)
    metrics = [
        TaskMetric(
            name=rule.metric,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            standard_error=_compute_standard_error(right[name]),
            about=rule.about,
        )
        for (name, rule), estimate in zip(RULES.items(), estimates, strict=True)
    ]
    return TaskResult(
        model=model,
        fingerprint=fingerprint,
        task=task,
        path=path,
        harness="pellucid",
        n_questions=count,
        metrics=tuple(metrics),
        chance=compute_chance([one.question for one in scored]),
        n_truncated=sum(any(score.n_dropped for score in one.scores) for one in scored),
        confidently_wrong=tuple(map(_describe_wrong, find_confidently_wrong(scored))),
        questions=tuple(one.to_dict() for one in scored),
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
