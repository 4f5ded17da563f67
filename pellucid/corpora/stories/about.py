"""A summary of a level: counts, entropies, baselines and a few stories."""

from collections.abc import Iterator

from pellucid.corpora.stories.exact import count_stories, entropy, longest, mean_words, n_words, vocabulary
from pellucid.corpora.stories.generate import stories
from pellucid.corpora.stories.measure import baselines, entropy_floor

SAMPLE = 2000


def describe(level: str, samples: int, seed: int = 0) -> Iterator[str]:
    """Yields the counts and entropies of a level, exact where they can be, and stories with their ln P."""
    drawn = list(stories(level, seed, count=SAMPLE))
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
