"""The figures of an evaluation, and the results of its tasks, as rows of text: a cell for each model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from pellucid.base.formatting import format_bytes, format_count, pluralize

if TYPE_CHECKING:  # an evaluation prints itself as these rows
    from pellucid.evaluation.result import (
        Estimate,
        Evaluation,
        Figures,
        ModelEvaluation,
        PairedDifference,
        TaskMetric,
        TaskResult,
    )

UNITS = {"loss": "nats per token", "bits_per_byte": "bits per byte"}
"""What a paired difference is measured in."""
SIGNIFICANT = 0.05
"""The p-value below which a difference is not due to the choice of documents."""


FRACTIONS = ("acc", "exact_match")
"""How the names of metrics begin that are shown in percent."""
EXACT = "exact match"
"""The row that says nothing of long texts, where it is 0."""


class FigureRow(NamedTuple):
    """A figure of each model, and what it means."""

    label: str
    cells: list[str]
    meaning: str


def make_figure_rows(evaluation: "Evaluation") -> Iterator[FigureRow]:
    """Yields the rows of all models side by side; one that no model has is omitted."""
    models = evaluation.models
    for label, meaning, cell in MODEL_ROWS:
        yield FigureRow(label, [cell(one) for one in models], meaning)
    for label, meaning, figure in ROWS:
        cells = [figure(one.total) for one in models]
        if any(cells) and (label != EXACT or any(one.total.exact_match.value for one in models)):
            yield FigureRow(label, cells, meaning)


def make_source_rows(evaluation: "Evaluation") -> Iterator[list[str]]:
    """Yields a table of the sources, its heads first: several figures of one model, or one of each model.
    Yields nothing where there is one source."""
    models = evaluation.models
    if not models or not models[0].sources:
        return
    if len(models) == 1:
        yield ["", "documents", "targets", "loss", "bits per byte", "top-1"]
        for one in models[0].sources:
            counts = [f"{one.n_documents:,}", f"{one.n_targets:,}"]
            bits = format_estimate(one.bits_per_byte)
            yield [one.source, *counts, format_estimate(one.loss), bits, format_share(one.accuracy)]
        return
    is_loss = has_one_tokenizer(evaluation)
    yield [UNITS["loss" if is_loss else "bits_per_byte"], *(one.model.name for one in models)]
    for name in dict.fromkeys(source.source for one in models for source in one.sources):
        found = [next((f for f in one.sources if f.source == name), None) for one in models]
        cells = [None if f is None else f.loss if is_loss else f.bits_per_byte for f in found]
        yield [name, *map(format_estimate, cells)]


def has_one_tokenizer(evaluation: "Evaluation") -> bool:
    """Returns whether the losses of all models compare: they predict the same tokens."""
    alike = {(one.model.tokenizer, one.model.vocab_size, one.total.n_targets) for one in evaluation.models}
    return len(alike) == 1 and all(one.measure == "loss" for one in evaluation.differences)


def describe_differences(evaluation: "Evaluation") -> Iterator[str]:
    """Yields what the paired bootstrap says of each model and the first, in one sentence each."""
    unknown = {one.model.name for one in evaluation.models if one.n_unknown}
    for one in evaluation.differences:
        found = format_estimate(one.difference, sign="+")
        verdict = _judge(one, sorted({one.model, one.baseline} & unknown))
        yield f"{one.model} − {one.baseline}: {found} {UNITS[one.measure]}{verdict}."


def _judge(one: "PairedDifference", unknown: Sequence[str]) -> str:
    if unknown and one.measure == "bits_per_byte":
        return f", which does not compare them: {' and '.join(unknown)} does not predict all of the text"
    if one.p_value is None:
        return "; one document, so that there is no test of the difference"
    better = f"better on {one.n_better:,} of {one.n_documents:,} documents"
    if one.p_value >= SIGNIFICANT:
        return f", p = {one.p_value:.2g}: other documents might say the opposite; {better}"
    return f", p = {one.p_value:.2g}: {'better' if one.difference.value < 0 else 'worse'}; {better}"


# ---- tasks


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


# ---- cells


def format_estimate(estimate: "Estimate | TaskMetric | None", decimals: int = 4, sign: str = "") -> str:
    """Returns the value and ± half of its interval; empty for None.

    >>> from pellucid.evaluation.result import Estimate
    >>> format_estimate(Estimate(1.25, 1.0, 1.4), 2), format_estimate(Estimate(1.25))
    ('1.25 ±0.20', '1.2500')
    """
    if estimate is None:
        return ""
    value = f"{estimate.value:{sign},.{decimals}f}".replace("-", "−")
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ±{(estimate.high - estimate.low) / 2:,.{decimals}f}"


def format_share(estimate: "Estimate | TaskMetric") -> str:
    """Returns a fraction in percent.

    >>> from pellucid.evaluation.result import Estimate
    >>> format_share(Estimate(0.4123, 0.41, 0.42))
    '41.2% ±0.5'
    """
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} ±{50 * (estimate.high - estimate.low):.1f}"


def _format_metric(result: "TaskResult", name: str) -> str:
    found = next((metric for metric in result.metrics if metric.name == name), None)
    return "" if found is None else format_metric(found)


def format_metric(metric: "TaskMetric") -> str:
    """Returns an accuracy in percent, another metric as it is, and ± half of its interval.

    >>> from pellucid.evaluation.result import TaskMetric
    >>> format_metric(TaskMetric("acc_norm", 0.5, 0.4, 0.6)), format_metric(TaskMetric("perplexity", 7.25))
    ('50.0% ±10.0', '7.2500')
    """
    return format_share(metric) if metric.name.startswith(FRACTIONS) else format_estimate(metric)


def _format_loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


def _format_perplexity(perplexity: float | None) -> str:
    if perplexity is None:
        return "above e^700"
    return f"{perplexity:,.2f}" if perplexity < 1e6 else f"{perplexity:.3g}"


MODEL_ROWS: Sequence[tuple[str, str, Callable[["ModelEvaluation"], str]]] = (
    ("parameters", "of the model", lambda one: format_count(one.model.parameters)),
    ("tokenizer", "its kind and its number of tokens", lambda one: one.model.tokenizer),
)
ROWS: Sequence[tuple[str, str, Callable[["Figures"], str]]] = (
    ("documents", "texts that were scored", lambda f: f"{f.n_documents:,}"),
    ("targets", "tokens that were predicted", lambda f: f"{f.n_targets:,}"),
    ("text", "UTF-8 bytes of the targets", lambda f: "" if f.n_bytes is None else format_bytes(f.n_bytes)),
    ("loss, nats per token", "mean −ln p of the targets", lambda f: format_estimate(f.loss)),
    ("  entropy floor", "the loss of a perfect model", lambda f: _format_loss(f.entropy_floor)),
    ("  above the floor", "loss − entropy floor", lambda f: format_estimate(f.gap)),
    (
        "  bigram baseline",
        "frequencies of this text's pairs of tokens",
        lambda f: _format_loss(f.bigram),
    ),
    ("  unigram baseline", "frequencies of this text's tokens", lambda f: _format_loss(f.unigram)),
    ("  uniform, ln V", "all tokens equally likely", lambda f: _format_loss(f.uniform)),
    (
        "fraction learned",
        "(bigram baseline − loss) / (bigram baseline − floor)",
        lambda f: "" if f.fraction_learned is None else f"{f.fraction_learned:.1%}".replace("-", "−"),
    ),
    ("perplexity", "e^loss, per token", lambda f: _format_perplexity(f.perplexity)),
    ("bits per byte", "loss / ln 2 · tokens / bytes", lambda f: format_estimate(f.bits_per_byte)),
    ("top-1 accuracy", "targets that were the most likely token", lambda f: format_share(f.accuracy)),
    ("top-5 accuracy", "targets among the five most likely", lambda f: format_share(f.top5_accuracy)),
    (EXACT, "documents with every target the most likely", lambda f: format_share(f.exact_match)),
)
"""The label, the meaning and the cell of each row; an empty cell is a figure that is not known."""
