"""The floor lies below the baselines, and its error is honest."""

import math

import pytest

from pellucid.data.generated.stories import (
    GrammarError,
    baselines,
    entropy,
    entropy_floor,
    gap,
    mean_words,
    n_words,
    stories,
)
from tests.data.small_corpora import drawn


@pytest.mark.parametrize("level", ["easy", "full"])
def test_unigram_lies_above_bigram_and_bigram_above_the_floor(level: str) -> None:
    sample = drawn(level)[:3000]
    limit, baseline = entropy_floor(sample, [n_words(s.text) for s in sample]), baselines(sample)
    assert baseline.unigram > baseline.bigram + 1 > limit.nats_per_token + 2


@pytest.mark.parametrize("level", ["tiny", "easy", "full"])
def test_the_floor_of_a_sample_is_the_exact_one_within_its_error(level: str) -> None:
    sample = drawn(level)[:3000]
    limit = entropy_floor(sample, [n_words(s.text) for s in sample])
    exact = entropy(level) / (mean_words(level) + 1)
    assert abs(limit.nats_per_token - exact) < 4 * limit.nats_error < 0.02 * exact


def test_the_floor_is_the_sum_of_nats_over_the_sum_of_counted_tokens() -> None:
    sample = list(stories("easy", 12, count=5))
    nats = -sum(s.log_probability for s in sample)
    limit = entropy_floor(sample, [10, 20, 30, 40, 50])
    assert abs(limit.nats_per_token - nats / 155) < 1e-12
    assert abs(limit.bits_per_byte - nats / math.log(2) / sum(len(s.text) for s in sample)) < 1e-12


def test_the_error_of_the_floor_shrinks_with_the_root_of_the_sample() -> None:
    few, many = (
        entropy_floor(sample, [n_words(s.text) for s in sample]).nats_error
        for sample in (drawn("easy")[:500], drawn("easy")[:8000])
    )
    assert 3 < few / many < 5.3


def test_lengths_that_do_not_fit_the_stories_are_refused() -> None:
    with pytest.raises(GrammarError, match="3 stories and 2 lengths"):
        entropy_floor(list(stories("easy", 1, count=3)), [1, 2])


def test_a_model_that_knows_the_law_is_at_the_limit_and_one_that_does_not_is_above_it() -> None:
    sample = list(stories("easy", seed=5, count=400))
    lengths = [n_words(story.text) for story in sample]
    exact = gap(sample, lengths, [story.log_probability for story in sample])
    assert (exact.nats, exact.error) == (0, 0)
    assert exact.model == exact.floor == entropy_floor(sample, lengths).nats_per_token
    off = gap(
        sample,
        lengths,
        [story.log_probability - 0.5 * (n + 1) for story, n in zip(sample, lengths, strict=True)],
    )
    assert off.nats == pytest.approx(0.5)
    assert off.model == pytest.approx(exact.floor + 0.5)


def test_a_gap_needs_a_likelihood_for_each_story() -> None:
    sample = list(stories("tiny", seed=5, count=3))
    with pytest.raises(GrammarError, match="2 likelihoods for 3 stories"):
        gap(sample, [1, 2, 3], [0.0, 0.0])
