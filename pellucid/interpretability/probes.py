"""Linear probes: what can be read off the residual stream after each block by a linear map.

For each word of a story, x is the residual stream at the word's last token, standardized with the training
words' mean and standard deviation, and a constant 1; a probe is a multinomial logistic regression from x to a
label of the annotation, fitted on some stories and measured on others.

    accuracy      = right words / words, of the stories that the probe was not fitted on
    control       = the accuracy of a probe with the same x on random labels of word types
    selectivity   = accuracy − control (Hewitt and Liang 2019, arXiv:1909.03368)
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pellucid.base.arguments import check_float, check_int
from pellucid.base.dtypes import Array
from pellucid.base.errors import TokenError, UsageError, unknown
from pellucid.base.formatting import pluralize
from pellucid.data.generated.stories import Annotation, annotate, stories
from pellucid.data.sources.generated import HELD_OUT, STORIES
from pellucid.evaluation.bootstrap import estimate_ratios
from pellucid.evaluation.result import Estimate
from pellucid.interpretability.keyed_text import find_word_tokens
from pellucid.interpretability.lens import label_state, list_states
from pellucid.interpretability.logistic_regression import fit_logistic_regression
from pellucid.interpretability.runner import PromptedModel, Runner
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.items import View, ViewTable
from pellucid.text.tokenizer import Tokenizer

Words = Sequence[Annotation]
Labels = list[str | None]
"""One for each word; None where a word has no such label."""
PRONOUNS = {
    form: forms[0]
    for forms in (("he", "him", "his"), ("she", "her"), ("it", "its"), ("they", "them", "their"))
    for form in forms
}


def label_kinds(words: Words) -> Labels:
    return [word.kind or None for word in words]


def label_next_kinds(words: Words) -> Labels:
    return [*label_kinds(words)[1:], None]


def label_subjects(words: Words) -> Labels:
    """Returns for each verb the pronoun of its subject; a pair is they.

    A noun or a name has the pronoun that stands for it elsewhere in the story; where none does, or two
    different ones, the verb has no label; nor where the subject comes after it and cannot be known yet.
    """
    known: dict[str, set[str]] = {}
    for word in words:
        if (pronoun := PRONOUNS.get(word.word.lower())) and len(word.antecedents) == 1:
            known.setdefault(words[word.antecedents[0]].word, set()).add(pronoun)

    def find_pronoun(place: int) -> str | None:
        word = words[place].word
        found = {PRONOUNS[word.lower()]} if word.lower() in PRONOUNS else known.get(word, set())
        return next(iter(found)) if len(found) == 1 else None

    labels: Labels = []
    for place, word in enumerate(words):
        is_known = word.kind == "verb" and word.subjects and max(word.subjects) < place
        if not is_known:
            labels.append(None)
        else:
            labels.append("they" if len(word.subjects) > 1 else find_pronoun(word.subjects[0]))
    return labels


LABELS: Mapping[str, Callable[[Words], Labels]] = {
    "kind": label_kinds,
    "next kind": label_next_kinds,
    "subject": label_subjects,
}


def assign_control_labels(words: Sequence[str], labels: Sequence[str], seed: int) -> list[str]:
    """Returns the labels of the control task (Hewitt and Liang 2019, arXiv:1909.03368).

    Each different word gets one label at random, drawn in the shares that the true labels have, and has it
    wherever it occurs. A probe can learn them only by remembering words, so that its accuracy there says how
    much of its accuracy is the probe's own.
    """
    random = np.random.default_rng(seed)
    shares = Counter(labels)
    types = sorted(set(words))
    drawn = random.choice(list(shares), len(types), p=np.array(list(shares.values())) / len(labels))
    of = dict(zip(types, drawn.tolist(), strict=True))
    return [of[word] for word in words]


FORMULA = """accuracy of argmax_k (x W)_k on held-out stories
W = argmin mean −ln softmax(x W)[label] + ½ λ ‖W‖²
x = resid_post at a word's last token, standardized;  selectivity = accuracy − control accuracy"""
RIDGE, LEAST_RIDGE = 0.01, 1e-9
SAMPLES = 1000
"""Bootstrap samples of the test stories."""


@dataclass(frozen=True, eq=False)
class ProbedWords:
    """The words of some stories: what they are, and the residual stream [N C] at the last token of each."""

    words: list[str]
    story: Array
    """[N], the number of each word's story."""
    labels: dict[str, list[str | None]]
    streams: dict[str, Array]


def record_words(
    runner: Runner,
    tokenizer: Tokenizer,
    level: str,
    n_stories: int,
    prefix: Sequence[int] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> ProbedWords:
    """Returns the words of held-out stories with what a model's residual stream holds there.

    Each story is read alone after the tokens of `prefix`, as far as it fits the context. A word is omitted
    where its last token belongs to another word too.
    """
    words: list[str] = []
    story_of: list[int] = []
    labels: dict[str, list[str | None]] = {name: [] for name in LABELS}
    states = [name for name in list_states(runner.config) if not name.endswith("resid_mid")]
    streams: dict[str, list[Array]] = {name: [] for name in states}
    for number, story in enumerate(stories(level, HELD_OUT, count=n_stories)):
        annotated = annotate(story)
        ids = [*prefix, *tokenizer.encode(story.text)][: runner.config.context_length]
        spans = find_word_tokens(
            tokenizer, story.text, [word.word for word in annotated], n_before=len(prefix)
        )
        last = [span[-1] if span else -1 for span in spans]
        users = Counter(token for span in spans for token in span)
        kept = [i for i, at in enumerate(last) if 0 <= at < len(ids) and users[at] == 1]
        seen = runner.run(ids, states)
        for name in states:
            streams[name].append(seen[name][0, [last[i] for i in kept]])
        for name, label in LABELS.items():
            found = label(annotated)
            labels[name] += [found[i] for i in kept]
        words += [annotated[i].word for i in kept]
        story_of += [number] * len(kept)
        progress(number + 1)
    joined = {name: np.concatenate(parts) for name, parts in streams.items()}
    return ProbedWords(words, np.array(story_of), labels, joined)


@dataclass(frozen=True)
class ProbeResult:
    """How well one label can be read off one stream."""

    label: str
    stream: str
    n_classes: int
    n_train: int
    n_test: int
    accuracy: Estimate
    control: Estimate
    majority: float
    """The accuracy of always saying the most frequent label of the training words."""

    @property
    def selectivity(self) -> float:
        return self.accuracy.value - self.control.value


def measure_probes(
    words: ProbedWords,
    names: Sequence[str] = tuple(LABELS),
    *,
    train_share: float = 2 / 3,
    ridge: float = RIDGE,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> list[ProbeResult]:
    """Returns one result for each label and stream; the first `train_share` of the stories train the probe,
    the others measure it."""
    n_stories = int(words.story.max(initial=-1)) + 1
    n_train = round(train_share * n_stories)
    if not 0 < n_train < n_stories:
        raise UsageError(
            f"probes are fitted on some stories and measured on others; {pluralize(n_stories, 'story')} "
            "cannot be divided so. Use at least two."
        )
    results: list[ProbeResult] = []
    for name in names:
        rows = np.array([i for i, label in enumerate(words.labels[name]) if label is not None], np.int64)
        is_train = words.story[rows] < n_train
        if not is_train.any() or is_train.all():
            raise UsageError(f"no probe of {name!r}: the stories have too few such words. Use more stories.")
        true = [words.labels[name][i] or "" for i in rows]
        control = assign_control_labels([words.words[i] for i in rows], true, seed)
        targets = [_number_labels(labels, is_train) for labels in (true, control)]
        most = np.bincount(targets[0][is_train]).argmax()
        for stream, values in words.streams.items():
            x = _standardize(values[rows], is_train)
            right = []
            for target in targets:
                n_classes = int(target[is_train].max()) + 1
                probe = fit_logistic_regression(x[is_train], target[is_train], n_classes, ridge)
                right.append(probe.predict(x[~is_train]) == target[~is_train])
                progress(len(results) * 2 + len(right))
            accuracy, on_control = _estimate(right, words.story[rows][~is_train], seed)
            results.append(
                ProbeResult(
                    name,
                    stream,
                    int(targets[0][is_train].max()) + 1,
                    int(is_train.sum()),
                    int((~is_train).sum()),
                    accuracy,
                    on_control,
                    float((targets[0][~is_train] == most).mean()),
                )
            )
    return results


def _number_labels(labels: Sequence[str], is_train: Array) -> Array:
    """Returns the number of each label; −1 for one that no training word has, which no probe predicts."""
    known = sorted({label for label, train in zip(labels, is_train, strict=True) if train})
    number = {label: i for i, label in enumerate(known)}
    return np.array([number.get(label, -1) for label in labels])


def _standardize(values: Array, is_train: Array) -> Array:
    """Returns (x − mean) / sd with the mean and the sd of the training rows, and a constant 1, [N C+1]."""
    mean, sd = values[is_train].mean(0), values[is_train].std(0)
    scaled = (values - mean) / np.where(sd > 0, sd, 1.0)
    return np.column_stack([scaled, np.ones(len(scaled))])


def _estimate(right: Sequence[Array], story: Array, seed: int) -> list[Estimate]:
    """Returns the accuracy of each probe with its interval by bootstrap over the test stories."""
    _, number = np.unique(story, return_inverse=True)
    below = np.bincount(number).astype(np.float64)
    return estimate_ratios([(np.bincount(number, one), below) for one in right], SAMPLES, seed)


def view_probes(
    prompted: PromptedModel,
    *,
    names: Sequence[str] = tuple(LABELS),
    level: str = "easy",
    n_stories: int = 30,
    ridge: float = RIDGE,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> View:
    """Returns how well each label can be read off the residual stream after each block.

    The probes read held-out stories of a level, not the prompt; each begins as every text of the model does.
    """
    tokenizer, runner = prompted.tokenizer, prompted.runner
    if tokenizer is None:
        raise TokenError(f"{prompted.name} came without a tokenizer, which encodes the stories.")
    if wrong := [name for name in names if name not in LABELS]:
        raise UsageError(unknown("a label of probes", wrong[0], LABELS))
    n_stories = check_int("n_stories", n_stories, least=2, most=STORIES)
    ridge = check_float("ridge", ridge, least=LEAST_RIDGE)
    total = n_stories + 2 * len(names) * (runner.config.n_layer + 1)
    try:
        words = record_words(
            runner, tokenizer, level, n_stories, prompted.begin, progress=lambda done: progress(done, total)
        )
    except TokenError as error:
        raise TokenError(
            f"probes read stories in English, which {prompted.name} cannot encode: {error}"
        ) from None
    results = measure_probes(
        words, names, ridge=ridge, seed=seed, progress=lambda done: progress(n_stories + done, total)
    )
    streams = list(words.streams)
    tables, charts = [], []
    for name in names:
        found = [result for result in results if result.label == name]
        tables.append(_make_table(name, found))
        charts.append(_draw(name, found))
    notes = [
        f"{n_stories} held-out stories of level {level}, {len(words.words):,} words; two thirds of the "
        "stories train the probes, and the others measure them.",
        "Intervals hold the middle 95 % of bootstrap samples of the test stories.",
        "A selectivity below 0 says that random labels of words are easier to remember than this label is to "
        "read: one word alone does not determine it.",
    ]
    data = {
        "level": level,
        "stories": n_stories,
        "words": len(words.words),
        "ridge": ridge,
        "streams": streams,
        "probes": [asdict(result) | {"selectivity": result.selectivity} for result in results],
    }
    title = f"{prompted.name}: linear probes of {len(streams)} residual streams"
    return View("probes", title, FORMULA, tables, charts, notes, data)


def _make_table(name: str, found: Sequence[ProbeResult]) -> ViewTable:
    first = found[0]
    caption = (
        f"{name}: {first.n_classes} classes, {first.n_train:,} words to fit and {first.n_test:,} to measure; "
        f"the most frequent class alone {first.majority:.4f}"
    )
    return ViewTable(
        caption,
        ("stream", "accuracy", "low", "high", "control", "selectivity"),
        [
            (
                label_state(result.stream),
                result.accuracy.value,
                result.accuracy.low,
                result.accuracy.high,
                result.control.value,
                result.selectivity,
            )
            for result in found
        ],
    )


def _draw(name: str, found: Sequence[ProbeResult]) -> Chart:
    x = np.arange(len(found), dtype=np.float64)
    curves = {
        "accuracy": [result.accuracy.value for result in found],
        "control": [result.control.value for result in found],
    }
    series = [
        Series(LegendKey(key, i, i), x, np.array(values), "points")
        for i, (key, values) in enumerate(curves.items())
    ]
    level = np.array([found[0].majority])
    series.append(
        Series(LegendKey("most frequent class", 2, 2), x[:1], level, "level", "most frequent class")
    )
    high = max(float(x[-1]), 1.0)
    return Chart(
        f"probe of the {name}", Axis("blocks", 0, high, is_whole=True), Axis("accuracy", 0, 1), series
    )
