"""Kinds of heads: the share of its pattern that goes where a known kind of head looks.

A kind of head says, for some queries t, at which keys K_t it looks. Its score is the mean over these queries
of Σ_{s ∈ K_t} P[t, s], where P = blocks.L.attn.pattern, and its chance level the same mean of uniform
attention, |K_t| / n_t with n_t visible keys. A subject often stands right before its verb, so that a head is
compared with one that attends to the token before alone as well. Intervals are by bootstrap over texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.base.arguments import check_int
from pellucid.base.dtypes import Array
from pellucid.base.errors import PellucidError, UsageError, unknown
from pellucid.base.formatting import pluralize
from pellucid.data.generated.stories import LEVELS
from pellucid.evaluation.bootstrap import LEVEL, SAMPLES, sample_ratios
from pellucid.interpretability.attention import find_visible, has_pattern, map_heads, record_patterns
from pellucid.interpretability.keyed_text import (
    KeyedText,
    make_repeated_sequences,
    mark_positions,
    read_stories,
)
from pellucid.interpretability.runner import PromptedModel, Runner
from pellucid.interpretability.sites import Progress, Replacement, Site, run_variants
from pellucid.reference.ops.losses import cross_entropy
from pellucid.reference.ops.softmax import logsumexp
from pellucid.report.items import Entry, View, ViewTable


@dataclass(frozen=True)
class HeadAblation:
    """The loss of the model in nats per token over `n_tokens` targets, and how much it grows, [L H] each,
    with a head's output set to 0 or to its mean."""

    loss: float
    zero: Array
    mean: Array
    n_tokens: int
    n_texts: int


def compute_nll(logits: Array, ids: Sequence[int]) -> Array:
    """Returns the sum over the targets ids[1:] of −ln p, for each row of logits [B T V], [B] in nats."""
    logits = logits[:, :-1]
    targets = np.broadcast_to(np.asarray(ids)[1:], logits.shape[:2])
    nll: Array = cross_entropy.forward(logits, logsumexp.forward(logits), targets).sum(-1)
    return nll


def ablate_heads(
    runner: Runner, texts: Sequence[Sequence[int]], progress: Progress = lambda done, total: None
) -> HeadAblation:
    """Ablates each head alone, on all texts; a text of one token has no target."""
    texts = [ids for ids in texts if len(ids) > 1]
    if not texts:
        raise UsageError(
            "the loss of an ablated model needs a text of at least two tokens: give a prompt, or texts."
        )
    config, n_tokens = runner.config, sum(len(ids) - 1 for ids in texts)
    sites = [
        Site(f"blocks.{layer}.attn.z", (("h", head),))
        for layer in range(config.n_layer)
        for head in range(config.n_head)
    ]
    means = _compute_means(runner, texts)
    variants = [
        [],
        *([Replacement(site, 0.0)] for site in sites),
        *([Replacement(site, means[site.name][site.at[0][1]])] for site in sites),
    ]
    total = np.zeros(len(variants))
    for i, ids in enumerate(texts):
        total += run_variants(
            runner,
            ids,
            variants,
            "logits",
            lambda logits, ids=ids: compute_nll(logits, ids),  # type: ignore[misc]
            progress=lambda done, of, i=i: progress(i * of + done, len(texts) * of),  # type: ignore[misc]
        )
    loss, *losses = (total / n_tokens).tolist()
    zero, mean = np.reshape(losses, (2, config.n_layer, config.n_head)) - loss
    return HeadAblation(loss, zero, mean, n_tokens, len(texts))


def _compute_means(runner: Runner, texts: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Returns the mean of z over all positions of the texts, [H D] for each layer."""
    sums: dict[str, Array] = {}
    for ids in texts:
        for name, z in runner.run(list(ids), ["blocks.*.attn.z"]).items():
            sums[name] = sums.get(name, 0.0) + z[0].sum(1)
    return {name: total / sum(map(len, texts)) for name, total in sums.items()}


KINDS = {
    "previous": "P[t, t−1], t ≥ 1",
    "first": "P[t, 0], t ≥ 1",
    "self": "P[t, t], t ≥ 1",
    "punctuation": "Σ P[t, s] over the punctuation marks s that t sees, t ≥ 1",
    "antecedent": "Σ P[t, s] over the tokens s of a pronoun's antecedents, t its last token",
    "subject": "Σ P[t, s] over the tokens s of a verb's subjects, t its last token",
    "induction": "P[t, s], s the token after the last occurrence of token t, in a repeated random sequence",
}
"""The kinds of heads with their scores."""
LABEL_AT = 0.3
"""A head is called by a kind whose score is at least this, and whose interval lies above its baseline."""
N_STORIES = 16
"""The stories that heads are scored on."""


BEST = ("kind", "queries", "texts", "chance", "before", "heads", "head", "score", "low", "high")
"""The columns of the table of kinds."""


@dataclass(frozen=True, eq=False)
class HeadScore:
    """The scores [L H] of a kind, with the ends of their intervals (None from one text), the scores of
    uniform attention (`chance`) and of attention to the token before alone (`before`), and how many queries
    of how many texts they are means over."""

    kind: str
    value: Array
    low: Array | None
    high: Array | None
    chance: float
    before: float
    n_queries: int
    n_texts: int

    @property
    def is_above(self) -> NDArray[np.bool_]:
        """Returns whether each head is called by this kind, [L H]; a previous-token head is `before`
        itself."""
        low = self.value if self.low is None else self.low
        baseline = self.chance if self.kind == "previous" else max(self.chance, self.before)
        return np.asarray((self.value >= LABEL_AT) & (low > baseline), bool)


@dataclass(frozen=True, eq=False)
class HeadReport:
    """The scores of every head by kind, the loss without it, and the notes on what could not be measured."""

    scores: Mapping[str, HeadScore]
    ablation: HeadAblation
    notes: Sequence[str] = ()

    def find_labels(self, layer: int, head: int) -> list[str]:
        """Returns the kinds that a head is called by, the highest score first."""
        found = [kind for kind, score in self.scores.items() if score.is_above[layer, head]]
        return sorted(found, key=lambda kind: -self.scores[kind].value[layer, head])

    def list_heads(self) -> list[tuple[int, int]]:
        """Returns every head (layer, head), the one whose ablation raises the loss most first."""
        growth = self.ablation.mean
        order = np.argsort(-growth, axis=None, kind="stable").tolist()
        return [divmod(place, growth.shape[1]) for place in order]


def score_heads(
    runner: Runner,
    texts: Sequence[KeyedText],
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> dict[str, HeadScore]:
    """Returns the scores of every kind that has a query in one of the texts."""
    config, kinds = runner.config, [kind for kind in KINDS if any(kind in text.keys for text in texts)]
    sums = np.zeros((len(texts), len(kinds), config.n_layer, config.n_head))
    counts, chances, before = np.zeros((3, len(texts), len(kinds)))
    for i, text in enumerate(texts):
        visible = find_visible(config, len(text.ids))
        nowhere = np.zeros_like(visible)
        keys = np.stack([text.keys.get(kind, nowhere) & visible for kind in kinds])
        counts[i] = keys.any(-1).sum(-1)
        chances[i] = (keys.sum(-1) / np.maximum(visible.sum(-1), 1)).sum(-1)
        before[i] = np.diagonal(keys, -1, -2, -1).sum(-1)
        for layer, pattern in record_patterns(runner, text.ids):
            sums[i, :, layer] = np.einsum("kts,hts->kh", keys, pattern)
        progress(i + 1, len(texts))
    return {
        kind: _make_score(kind, sums[:, k], counts[:, k], chances[:, k], before[:, k], seed)
        for k, kind in enumerate(kinds)
        if counts[:, k].any()
    }


def _make_score(kind: str, sums: Array, counts: Array, chances: Array, before: Array, seed: int) -> HeadScore:
    """Returns Σ sums / Σ counts [L H] of texts that have a query, with intervals by bootstrap over them."""
    here, total = counts > 0, counts.sum()
    shape, n_texts = sums.shape[1:], int(here.sum())
    low = high = None
    if n_texts > 1:
        above = sums[here].reshape(n_texts, -1)
        below = np.broadcast_to(counts[here, None], above.shape)
        ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        low, high = np.nanquantile(sample_ratios(above, below, SAMPLES, seed), ends, 0).reshape(2, *shape)
    baselines = float(chances.sum() / total), float(before.sum() / total)
    return HeadScore(kind, sums.sum(0) / total, low, high, *baselines, int(total), n_texts)


def report_heads(
    prompted: PromptedModel,
    *,
    level: str = "easy",
    n_stories: int = N_STORIES,
    texts: Sequence[Sequence[int]] = (),
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> HeadReport:
    """Scores every head on stories of the level and on repeated random sequences, and ablates it on `texts`,
    by default the prompt.

    Without a tokenizer that reads the stories, positions are scored on the texts, and the report says so.
    """
    check_int("seed", seed, 0, 2**31)
    check_int("n_stories", n_stories, 0, 10_000)
    if level not in LEVELS:
        raise UsageError(unknown("level of stories", level, LEVELS))
    texts, notes = [*texts] or [prompted.ids], list[str]()
    marked = mark_texts(prompted, level, n_stories, texts, seed, notes)
    n_ablated = len(texts) * (2 * prompted.runner.config.n_layer * prompted.runner.config.n_head + 1)
    total = n_ablated + len(marked)
    ablation = ablate_heads(prompted.runner, texts, lambda done, of: progress(n_ablated * done // of, total))
    scores = score_heads(prompted.runner, marked, seed, lambda done, _: progress(n_ablated + done, total))
    return HeadReport(scores, ablation, notes)


def mark_texts(
    prompted: PromptedModel,
    level: str,
    n_stories: int,
    texts: Sequence[Sequence[int]],
    seed: int,
    notes: list[str],
) -> list[KeyedText]:
    """Returns the stories (the texts, where it cannot read stories) and the repeated sequences that a model
    is scored on; what is missing is added to the notes."""
    runner, tokenizer, begin = prompted.runner, prompted.tokenizer, prompted.begin
    read, special = list[KeyedText](), list[int]()
    if not has_pattern(runner.config):
        notes.append(f"Attention {runner.config.attention.kind!r} has no pattern, so that no kind is scored.")
        return []
    if tokenizer is None:
        notes.append("Without a tokenizer no stories can be read: previous, first and self are of the texts.")
    else:
        special = list(tokenizer.special_tokens.values())
        try:
            read = read_stories(tokenizer, level, n_stories, seed, begin, runner.config.context_length)
        except PellucidError as error:
            why = str(error).rstrip(".")
            notes.append(f"The stories cannot be read, {why}: previous, first and self are of the texts.")
    repeated = make_repeated_sequences(runner.config, seed, begin, special)
    if not repeated:
        notes.append("Induction needs a vocabulary and a context for a repeated sequence of two tokens.")
    return [*(read or map(mark_positions, texts)), *repeated]


def view_heads(
    prompted: PromptedModel,
    *,
    level: str = "easy",
    n_stories: int = N_STORIES,
    texts: Sequence[Sequence[int]] = (),
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> View:
    """Returns the report of every head, those whose ablation raises the loss most first."""
    report = report_heads(
        prompted, level=level, n_stories=n_stories, texts=texts, seed=seed, progress=progress
    )
    config, scores, ablation = prompted.runner.config, report.scores, report.ablation
    plots = [map_heads(f"{kind} score", config, score.value) for kind, score in scores.items()]
    plots.append(map_heads("Δ mean: loss", config, ablation.mean, is_share=False))
    return View(
        "heads",
        f"Heads of {prompted.name}",
        "P = blocks.L.attn.pattern; a score is the mean over the queries t of a kind\n"
        + "\n".join(f"{kind} = {KINDS[kind]}" for kind in scores)
        + "\nchance = the same of uniform attention over the visible keys, before = of attention to the "
        "token before alone"
        "\nΔ zero, Δ mean = loss with blocks.L.attn.head_out of the head set to 0, or to its mean over all "
        "positions of the texts, − loss of the model",
        [
            ViewTable(
                "kinds of heads: what they are measured on, and the head of the highest score",
                BEST,
                _list_kinds(scores),
            ),
            _make_head_table(report),
        ],
        plots,
        [
            f"Δ is over {pluralize(ablation.n_tokens, 'token')} of {pluralize(ablation.n_texts, 'text')}.",
            f"A head is called by a kind where its score is at least {LABEL_AT} and the interval (95 %, "
            "bootstrap over texts) lies above chance and, but for previous itself, above before.",
            *report.notes,
        ],
        {**_to_data(report), "level": level, "seed": seed},
    )


def _make_head_table(report: HeadReport) -> ViewTable:
    """Returns a row for each head, the one whose ablation raises the loss most first."""
    scores, ablation = report.scores, report.ablation
    rows: list[list[Entry]] = [
        [
            f"{i}.{j}",
            ", ".join(report.find_labels(i, j)),
            float(ablation.mean[i, j]),
            float(ablation.zero[i, j]),
            *(float(score.value[i, j]) for score in scores.values()),
        ]
        for i, j in report.list_heads()
    ]
    caption = (
        f"heads (layer.head) by how much the loss, {ablation.loss:.4f} nats per token, grows without them"
    )
    return ViewTable(caption, ["head", "kinds", "Δ mean", "Δ zero", *scores], rows)


def _to_data(report: HeadReport) -> dict[str, object]:
    ablation = report.ablation
    return {
        "scores": {
            kind: {
                "value": score.value.tolist(),
                "low": None if score.low is None else score.low.tolist(),
                "high": None if score.high is None else score.high.tolist(),
                "chance": score.chance,
                "before": score.before,
                "n_queries": score.n_queries,
                "n_texts": score.n_texts,
            }
            for kind, score in report.scores.items()
        },
        "labels": {f"{i}.{j}": report.find_labels(i, j) for i, j in report.list_heads()},
        "ablation": {
            "loss": ablation.loss,
            "zero": ablation.zero.tolist(),
            "mean": ablation.mean.tolist(),
            "n_tokens": ablation.n_tokens,
            "n_texts": ablation.n_texts,
        },
    }


def _list_kinds(scores: Mapping[str, HeadScore]) -> list[list[Entry]]:
    """Returns a row for each kind, under the columns `BEST`."""
    rows: list[list[Entry]] = []
    for kind, score in scores.items():
        i, j = divmod(int(score.value.argmax()), score.value.shape[1])
        low, high = (None if end is None else float(end[i, j]) for end in (score.low, score.high))
        about: list[Entry] = [kind, score.n_queries, score.n_texts, score.chance, score.before]
        rows.append([*about, int(score.is_above.sum()), f"{i}.{j}", float(score.value[i, j]), low, high])
    return rows
