"""Evaluates a model on documents: scores them and adds up what the record needs; compares two models."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from pellucid.base.errors import UsageError
from pellucid.data.shard import Ids
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.bootstrap import (
    SAMPLES,
    compute_p_value,
    estimate_ratios,
    sample_ratios,
    with_interval,
)
from pellucid.evaluation.documents import Documents, EncodedDocument
from pellucid.evaluation.loss import fraction_learned
from pellucid.evaluation.passages import ExtremePassages
from pellucid.evaluation.result import (
    N_SURPRISALS,
    SURPRISAL_WIDTH,
    DocumentSummary,
    EvaluatedModel,
    Figures,
    ModelEvaluation,
    PairedDifference,
    PositionLoss,
    compute_perplexity,
)
from pellucid.evaluation.scoring import DocumentScores, Journal, score_documents

FEWEST_FOR_BIGRAM = 50_000
"""Targets from which on their own pairs say something of a bigram model."""
MOST_PENDING = 1 << 22
"""Pairs that are kept one by one before they are counted."""


@dataclass
class TokenCounts:
    """The counts of targets, and of pairs (token before, target), over some documents."""

    vocab_size: int
    pairs: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    """Different pairs, as before · vocab_size + target, ascending."""
    counts: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    _pending: list[Ids] = field(default_factory=list)
    _n_pending: int = 0

    def add(self, document: EncodedDocument) -> None:
        """Counts the counted targets of a document."""
        here = document.is_counted
        pairs = document.ids[:-1][here] * self.vocab_size + document.ids[1:][here]
        self._pending.append(pairs)
        self._n_pending += len(pairs)
        if self._n_pending > MOST_PENDING:
            self._merge()

    def _merge(self) -> None:
        found = [np.unique(pairs, return_counts=True) for pairs in self._pending]
        self._pending, self._n_pending = [], 0
        self._join([(self.pairs, self.counts), *found])

    def _join(self, parts: list[tuple[Ids, Ids]]) -> None:
        keys = np.concatenate([pairs for pairs, _ in parts])
        self.pairs, place = np.unique(keys, return_inverse=True)
        self.counts = np.zeros(len(self.pairs), np.int64)
        np.add.at(self.counts, place, np.concatenate([counts for _, counts in parts]))

    def add_counts(self, other: "TokenCounts") -> None:
        """Adds the counts of other documents."""
        self._merge()
        other._merge()
        self._join([(self.pairs, self.counts), (other.pairs, other.counts)])

    @property
    def uniform(self) -> float:
        return float(np.log(self.vocab_size))

    @property
    def unigram(self) -> float:
        self._merge()
        found = np.bincount(self.pairs % self.vocab_size, self.counts)
        found = found[found > 0]
        return float((found * np.log(found.sum() / found)).sum() / found.sum())

    @property
    def bigram(self) -> float:
        self._merge()
        before = self.pairs // self.vocab_size
        totals = np.bincount(before, self.counts)[before]
        return float((self.counts * np.log(totals / self.counts)).sum() / self.counts.sum())


TOP = 5


def evaluate_model(
    module: Transformer,
    documents: Documents,
    about: EvaluatedModel,
    *,
    window: int,
    stride: int,
    samples: int = SAMPLES,
    seed: int = 0,
    journal: Journal | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> ModelEvaluation:
    """Returns what a model does on documents; `samples` and `seed` are those of the bootstrap."""
    tokenizer = documents.tokenizer
    counts = defaultdict[str, TokenCounts](lambda: TokenCounts(about.vocab_size))
    special = {"unknown": tokenizer.unknown_id, "end": documents.eos}
    n_special = dict.fromkeys(special, 0)
    summaries, positions, n_omitted = list[DocumentSummary](), _Positions(), 0
    surprisals = np.zeros(N_SURPRISALS, np.int64)
    passages = ExtremePassages(lambda id: tokenizer.visible(id) if id < tokenizer.vocab_size else f"#{id}")

    def count(documents: Documents) -> Iterator[EncodedDocument]:
        for document in documents:
            counts[document.source].add(document)
            yield document

    for scores in score_documents(
        module,
        count(documents),
        window=window,
        stride=stride,
        journal=journal,
        progress=progress,
    ):
        if not len(scores.nll):
            n_omitted += 1
            continue
        summaries.append(summarize_document(scores))
        positions.add(scores)
        surprisals += count_surprisals(scores)
        passages.add(scores)
        for name, id in special.items():
            n_special[name] += 0 if id is None else int((scores.targets == id).sum())
    if not summaries:
        refuse_without_targets(documents, about.name)
    whole = TokenCounts(about.vocab_size)
    for some in counts.values():
        whole.add_counts(some)
    of_source = defaultdict[str, list[DocumentSummary]](list)
    for summary in summaries:
        of_source[summary.source].append(summary)
    return ModelEvaluation(
        about,
        window,
        stride,
        compute_figures("", summaries, whole, samples, seed),
        tuple(
            compute_figures(source, some, counts[source], samples, seed) for source, some in of_source.items()
        )
        if len(of_source) > 1
        else (),
        tuple(summaries),
        positions.finish(window),
        tuple(surprisals.tolist()),
        passages.most_expected,
        passages.least_expected,
        n_omitted,
        n_special["unknown"],
        n_special["end"],
    )


def refuse_without_targets(documents: Documents, name: str) -> NoReturn:
    """Raises the error that no document has a target."""
    raise UsageError(
        f"{', '.join(documents.data)}: no document has a target for {name}, since a text needs at least two "
        "tokens, or one and a bos token. Give a longer text."
    )


def summarize_document(scores: DocumentScores) -> DocumentSummary:
    """Returns the sums of a document."""
    return DocumentSummary(
        scores.name,
        scores.source,
        len(scores.nll),
        scores.n_bytes,
        float(scores.nll.sum()),
        int((scores.rank < 1).sum()),
        int((scores.rank < TOP).sum()),
        scores.log_probability,
    )


def count_surprisals(scores: DocumentScores) -> Ids:
    """Returns the number of targets in each bin of surprisals, [N_SURPRISALS]."""
    bins = np.clip(scores.nll / SURPRISAL_WIDTH, 0, N_SURPRISALS - 1).astype(int)
    return np.bincount(bins, minlength=N_SURPRISALS)


class _Positions:
    """The losses by the number of tokens before a target: 1, 2 to 3, 4 to 7, …"""

    def __init__(self) -> None:
        self.nll, self.n_targets = np.zeros(64), np.zeros(64, np.int64)

    def add(self, scores: DocumentScores) -> None:
        bucket = np.floor(np.log2(scores.context)).astype(int)
        self.nll += np.bincount(bucket, scores.nll, 64)
        self.n_targets += np.bincount(bucket, minlength=64)

    def finish(self, window: int) -> tuple[PositionLoss, ...]:
        return tuple(
            PositionLoss(2**k, min(2 ** (k + 1) - 1, window), int(self.n_targets[k]), float(self.nll[k]))
            for k in range(64)
            if self.n_targets[k]
        )


def compute_figures(
    source: str, documents: Sequence[DocumentSummary], counts: TokenCounts, samples: int, seed: int
) -> Figures:
    """Returns the figures of some documents, with intervals by bootstrap over them."""
    n = np.array([one.n_targets for one in documents], float)
    nll = np.array([one.nll for one in documents])
    sizes: list[int] = [one.n_bytes for one in documents if one.n_bytes is not None]
    n_bytes = int(np.sum(sizes)) if len(sizes) == len(documents) and any(sizes) else None
    known = [one.log_probability for one in documents if one.log_probability is not None]
    has_floor = len(known) == len(documents)
    ratios: dict[str, tuple[ArrayLike, ArrayLike]] = {
        "loss": (nll, n),
        "accuracy": ([one.n_top1 for one in documents], n),
        "top5_accuracy": ([one.n_top5 for one in documents], n),
        "exact_match": ([one.n_top1 == one.n_targets for one in documents], np.ones_like(n)),
    }
    if n_bytes:
        ratios["bits_per_byte"] = (nll / np.log(2), sizes)
    if has_floor:
        ratios["gap"] = (nll + known, n)
    found = dict(zip(ratios, estimate_ratios(list(ratios.values()), samples, seed), strict=True))
    loss, bigram = found["loss"].value, counts.bigram if n.sum() >= FEWEST_FOR_BIGRAM else None
    floor = (0.0 - sum(known)) / float(n.sum()) if has_floor else None
    return Figures(
        source=source,
        n_documents=len(documents),
        n_targets=int(n.sum()),
        n_bytes=n_bytes,
        loss=found["loss"],
        perplexity=compute_perplexity(loss),
        bits_per_byte=found.get("bits_per_byte"),
        accuracy=found["accuracy"],
        top5_accuracy=found["top5_accuracy"],
        exact_match=found["exact_match"],
        uniform=counts.uniform,
        unigram=counts.unigram,
        bigram=bigram,
        entropy_floor=floor,
        gap=found.get("gap"),
        fraction_learned=None
        if floor is None or bigram is None or floor >= bigram
        else fraction_learned(loss, bigram, floor),
    )


def compare_models(
    model: ModelEvaluation, baseline: ModelEvaluation, *, is_same_tokenizer: bool, samples: int, seed: int
) -> PairedDifference:
    """Returns how a model differs from another on the same documents: in nats per token where both predict
    the same tokens, else in bits per byte."""
    ours, theirs = (_index_documents(one) for one in (model, baseline))
    pairs = [(ours[name], theirs[name]) for name in ours if name in theirs]
    is_loss = is_same_tokenizer and all(a.n_targets == b.n_targets for a, b in pairs)
    above = np.array([[one.nll for one in pair] for pair in pairs]).reshape(-1, 2)
    below = np.array(
        [[one.n_targets if is_loss else one.n_bytes or 0 for one in pair] for pair in pairs], float
    )
    if not len(pairs) or not below.sum(0).all():
        raise UsageError(
            f"{model.model.name} and {baseline.model.name} cannot be compared: they have different "
            "tokenizers, and no document has a known number of bytes for both."
        )
    above /= 1 if is_loss else np.log(2)
    values = above.sum(0) / below.sum(0)
    sampled = None
    if len(pairs) > 1:
        ratios = sample_ratios(above, below, samples, seed)
        sampled = ratios[:, 0] - ratios[:, 1]
    is_better = above[:, 0] * below[:, 1] < above[:, 1] * below[:, 0]
    return PairedDifference(
        model=model.model.name,
        baseline=baseline.model.name,
        measure="loss" if is_loss else "bits_per_byte",
        difference=with_interval(float(values[0] - values[1]), sampled),
        p_value=None if sampled is None else compute_p_value(sampled),
        n_better=int(is_better.sum()),
        n_documents=len(pairs),
    )


def _index_documents(evaluation: ModelEvaluation) -> dict[tuple[str, int], DocumentSummary]:
    """Returns the documents by name and, where several have one name, by their number."""
    seen, found = defaultdict[str, int](int), dict[tuple[str, int], DocumentSummary]()
    for one in evaluation.documents:
        found[one.name, seen[one.name]] = one
        seen[one.name] += 1
    return found
