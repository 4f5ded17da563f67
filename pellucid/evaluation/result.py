"""The result of an evaluation: one record for each model, and their differences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pellucid.base.formatting import escape_controls, pluralize
from pellucid.base.lazy import attach
from pellucid.report.report import Reported


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


SURPRISAL_WIDTH, N_SURPRISALS = 0.25, 80
"""Nats of a bin of surprisals, and the number of bins."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % confidence interval by bootstrap over documents; None with one document."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Figures:
    """How well a model predicts some documents. Means are over all counted targets together, so that a long
    document weighs more than a short one."""

    source: str
    """The data; empty for all sources together."""
    n_documents: int
    n_targets: int
    n_bytes: int | None
    """UTF-8 bytes of the text of the targets."""
    loss: Estimate
    """Nats per token: Σ −ln p / number of targets."""
    perplexity: float | None
    """e^loss; None where it overflows."""
    bits_per_byte: Estimate | None
    """Σ −ln p / (ln 2 · number of bytes)."""
    accuracy: Estimate
    """The fraction of targets that were the most likely token."""
    top5_accuracy: Estimate
    """The fraction of targets that were among the five most likely tokens."""
    exact_match: Estimate
    """The fraction of documents in which every counted target was the most likely token."""
    uniform: float
    """ln V: the loss of a model that finds all tokens equally likely."""
    unigram: float
    """The loss of the token frequencies of the same targets."""
    bigram: float | None
    """The loss of the frequencies of their pairs (token before, target); None where there are too few targets
    to say anything of a bigram model."""
    entropy_floor: float | None = None
    """−Σ ln P / number of targets, where P is known: the expected loss of a perfect model."""
    gap: Estimate | None = None
    """Loss above the entropy floor."""
    fraction_learned: float | None = None
    """(bigram − loss) / (bigram − floor)."""


@dataclass(frozen=True)
class DocumentSummary:
    """The sums of one document."""

    name: str
    source: str
    n_targets: int
    n_bytes: int | None
    nll: float
    """Σ −ln p, in nats."""
    n_top1: int
    """Targets that were the most likely token."""
    n_top5: int
    """Targets among the five most likely tokens."""
    log_probability: float | None
    """ln P of the document, where its source knows it."""

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.n_targets


@dataclass(frozen=True)
class PositionLoss:
    """The targets with `first` to `last` tokens before them in their window."""

    first: int
    last: int
    n_targets: int
    nll: float

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.n_targets


@dataclass(frozen=True)
class Passage:
    """Some consecutive targets of a document, token by token."""

    document: str
    first: int
    """The place of its first target among the counted targets of the document."""
    before: tuple[str, ...]
    """The last tokens before it, as they are displayed."""
    tokens: tuple[str, ...]
    """Its targets, as they are displayed."""
    nll: tuple[float, ...]
    rank: tuple[int, ...]

    @property
    def loss(self) -> float:
        """Nats per token."""
        return sum(self.nll) / len(self.nll)


@dataclass(frozen=True)
class EvaluatedModel:
    """Which model it was, and how it computed."""

    name: str
    path: str | None
    """The absolute path of its file or folder; None for a model in memory alone."""
    fingerprint: str
    parameters: int
    vocab_size: int
    context_length: int
    dtype: str
    device: str
    tokenizer: str
    """Kind and number of tokens."""
    bos: str | None
    """The token in front of each text, where the model wants one."""


@dataclass(frozen=True)
class ModelEvaluation:
    """What one model did on the documents."""

    model: EvaluatedModel
    window: int
    stride: int
    total: Figures
    sources: tuple[Figures, ...]
    """The figures of each source, where there are several."""
    documents: tuple[DocumentSummary, ...]
    positions: tuple[PositionLoss, ...]
    """By the number of tokens before a target, in powers of two."""
    surprisals: tuple[int, ...]
    """The number of targets with −ln p in [k, k + 1) · SURPRISAL_WIDTH, k = 0, 1, …, N_SURPRISALS − 1; the
    last one counts all above."""
    most_expected: tuple[Passage, ...]
    least_expected: tuple[Passage, ...]
    n_omitted: int
    """Documents without a target."""
    n_unknown: int
    """Targets that are the unknown token: their text is lost."""
    n_ends: int
    """Targets that are the token that ends a text, which has no bytes."""


@dataclass(frozen=True)
class PairedDifference:
    """The figure of a model minus that of the first, over the same documents; a negative one is better."""

    model: str
    baseline: str
    measure: str
    """`loss`, or `bits_per_byte` where the tokenizers differ."""
    difference: Estimate
    p_value: float | None
    """Two-sided, by paired bootstrap; None with one document."""
    n_better: int
    """Documents that the model predicts better than the first."""
    n_documents: int


@dataclass(frozen=True, repr=False)
class Evaluation(Reported):
    """Models on the same documents, the first compared with each of the others."""

    data: tuple[str, ...]
    split: str
    limit: str
    """At most this much of each source; empty for all."""
    seed: int
    """Of the bootstrap."""
    samples: int
    """Of the bootstrap."""
    models: tuple[ModelEvaluation, ...]
    differences: tuple[PairedDifference, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    """The results of each model on each task. With tasks and no data there are no models."""

    def __repr__(self) -> str:
        found = [f"{one.model.name} {one.total.loss.value:.4f} nats per token" for one in self.models]
        found += [f"{one.model} on {one.task}" for one in self.tasks]
        return escape_controls(f"<Evaluation: {', '.join(found)}>", keep="")

    @property
    def names(self) -> list[str]:
        """The names of the models, in order."""
        return list(
            dict.fromkeys([one.model.name for one in self.models] + [one.model for one in self.tasks])
        )

    def notes(self) -> list[str]:
        """Returns what a reader must know to judge the numbers, one sentence each."""
        if not self.models:
            return []
        return [*_describe_measures(self), *_describe_texts(self), *_describe_doubts(self)]


attach(Evaluation, {"pellucid.evaluation.report": ("report",)})


def compute_perplexity(loss: float) -> float | None:
    """Returns e^loss, or None where that is beyond a float."""
    return math.exp(loss) if loss < 700 else None


def _describe_measures(evaluation: Evaluation) -> list[str]:
    first = evaluation.models[0]
    lines = [
        "perplexity and loss are per token, and tokenizers cut the same text into different numbers of "
        "tokens: compare models with different tokenizers by bits per byte."
    ]
    if all(one.total.n_documents == 1 for one in evaluation.models):
        lines.append(
            "there is one document, so that there is no confidence interval: --split paragraph divides it."
        )
    else:
        documents = pluralize(first.total.n_documents, "document")
        lines.append(
            f"± is half of the 95 % interval by bootstrap over {documents} ({evaluation.samples:,} samples, "
            f"seed {evaluation.seed})."
        )
    return lines


def _describe_texts(evaluation: Evaluation) -> list[str]:
    lines = []
    for one in evaluation.models:
        start = f"{one.model.name}: " if len(evaluation.models) > 1 else ""
        begin = "the first token of a text is only context"
        if one.model.bos:
            begin = f"each text begins with {one.model.bos}"
        if one.n_ends:
            begin = f"{pluralize(one.n_ends, 'target')} end a text or an answer, and have no bytes"
        how = f"windows of {one.window:,} tokens, one every {one.stride:,}"
        if one.stride < one.window:
            how += ": targets after the first window have more than "
            how += f"{one.window - one.stride:,} tokens before them"
        lines.append(f"{start}{begin}; long texts are read in {how}.")
    return lines


def _describe_doubts(evaluation: Evaluation) -> list[str]:
    lines = []
    for one in evaluation.models:
        name = one.model.name
        if one.n_unknown:
            lines.append(
                f"{name}: {one.n_unknown:,} of {pluralize(one.total.n_targets, 'target')} are the unknown "
                "token, whose text is lost: loss and bits per byte are lower than those of the text."
            )
        if one.n_omitted:
            lines.append(f"{name}: {pluralize(one.n_omitted, 'document')} without a target omitted.")
    return lines
