"""The entropy floor of a sample of stories, which no model can beat, and the unigram and bigram baselines."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pellucid.data.generated.stories import generate
from pellucid.data.generated.stories.exact import (
    count_stories,
    entropy,
    longest,
    mean_words,
    n_words,
    vocabulary,
)
from pellucid.data.generated.stories.generate import Story
from pellucid.data.generated.stories.grammar import GrammarError
from pellucid.data.generated.stories.lexicon import words_of

_END = "<end>"
SAMPLE = 2000
"""Stories from which the summary of a level is measured."""


@dataclass(frozen=True)
class EntropyFloor:
    """−Σ ln P over what was counted; each `error` is the standard error of the figure before it."""

    nats_per_token: float
    nats_error: float
    bits_per_byte: float
    bits_error: float


@dataclass(frozen=True)
class Gap:
    """A model's distance from the entropy floor: its KL divergence per token, with the standard error."""

    model: float
    floor: float
    nats: float
    error: float

    def __str__(self) -> str:
        """
        >>> str(Gap(0.25, 0.21, 0.04, 0.003))
        '0.2500 nats per token, 0.0400 ± 0.0030 above the entropy floor of 0.2100'
        >>> str(Gap(0.2098, 0.21, -0.0002, 0.003))
        '0.2098 nats per token, at the entropy floor of 0.2100 (-0.0002 ± 0.0030: below it by chance)'
        """
        figure = f"{self.nats:.4f} ± {self.error:.4f}"
        if self.nats < 0:
            where = f"at the entropy floor of {self.floor:.4f} ({figure}: below it by chance)"
        else:
            where = f"{figure} above the entropy floor of {self.floor:.4f}"
        return f"{self.model:.4f} nats per token, {where}"


@dataclass(frozen=True)
class Baselines:
    """Cross-entropy in nats per word of the unigram and the bigram model of the same stories."""

    unigram: float
    bigram: float


def entropy_floor(stories: Sequence[Story], lengths: Sequence[int]) -> EntropyFloor:
    """Returns the entropy of a sample per token, when story i has lengths[i] tokens.

    A row is <end> story <end>; its first token is given, so a story counts one token more than it has.
    """
    if len(stories) != len(lengths) or len(stories) < 2:
        raise GrammarError(
            f"the entropy floor needs one length per story and at least two stories; got {len(stories)} "
            f"stories and {len(lengths)} lengths."
        )
    nats = -np.array([story.log_probability for story in stories])
    tokens = np.array(lengths) + 1
    n_bytes = np.array([len(story.text.encode()) for story in stories])
    per_token, per_byte = _ratio(nats, tokens), _ratio(nats / math.log(2), n_bytes)
    return EntropyFloor(*per_token, *per_byte)


def gap(stories: Sequence[Story], lengths: Sequence[int], log_likelihoods: Sequence[float]) -> Gap:
    """Returns a model's distance from the entropy floor, from its ln Q of each story with its <end>."""
    limit = entropy_floor(stories, lengths)
    if len(log_likelihoods) != len(stories):
        raise GrammarError(
            f"{len(log_likelihoods)} likelihoods for {len(stories)} stories: give one for each story."
        )
    tokens = np.array(lengths) + 1
    model = -np.array(log_likelihoods)
    beyond = model + np.array([story.log_probability for story in stories])
    return Gap(float(model.sum() / tokens.sum()), limit.nats_per_token, *_ratio(beyond, tokens))


def _ratio(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """Returns Σ above / Σ below and its standard error, with the covariance of the two."""
    ratio = above.sum() / below.sum()
    spread = (above - ratio * below).std(ddof=1)
    return float(ratio), float(spread / math.sqrt(len(above)) / below.mean())


def baselines(stories: Iterable[Story]) -> Baselines:
    """Returns the baselines from the counts of a sample: words, punctuation marks and the <end> of each."""
    pairs: Counter[tuple[str, str]] = Counter()
    for story in stories:
        words = [_END, *words_of(story.text), _END]
        pairs.update(pairwise(words))
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for (before, word), count in pairs.items():
        first[before] += count
        second[word] += count
    total = pairs.total()
    unigram = -sum(count / total * math.log(count / total) for count in second.values())
    bigram = -sum(count / total * math.log(count / first[before]) for (before, _), count in pairs.items())
    return Baselines(unigram, bigram)


def overlap(training: Iterable[Story], validation: Iterable[Story]) -> int:
    """Returns how many validation stories were also drawn for training."""
    known = {story.text for story in training}
    return sum(story.text in known for story in validation)


def describe_level(level: str, samples: int, seed: int = 0) -> Iterator[str]:
    """Yields the counts and entropies of a level, exact where they can be, and stories with their ln P."""
    drawn = list(generate.stories(level, seed, count=SAMPLE))
    limit, baseline = entropy_floor(drawn, [n_words(story.text) for story in drawn]), baselines(drawn)
    length, _ = longest(level, n_words)
    words = len(vocabulary(level))
    yield f"stories, {level}: {count_stories(level):.3g} different ones, of {words:,} words and marks"
    yield f"words per story       {mean_words(level):.1f} on average, {length} at most"
    yield f"entropy               {entropy(level):.4f} nats per story: no model can reach a lower loss"
    yield f"entropy floor         {entropy(level) / (mean_words(level) + 1):.4f} nats per word and <end>"
    yield (
        f"of {SAMPLE:,} stories      {limit.nats_per_token:.4f} ± {limit.nats_error:.4f} nats per word, "
        f"{limit.bits_per_byte:.4f} bits per byte"
    )
    yield f"baselines             {baseline.bigram:.3f} bigram, {baseline.unigram:.3f} unigram, nats per word"
    for story in drawn[:samples]:
        yield f"\nln P = {story.log_probability:.3f}\n{story.text}"
