"""What is known of a level, in a few lines and a few stories."""

from collections.abc import Iterator

from pellucid.corpora.stories.exact import entropy, how_many, longest, mean_words, n_words, vocabulary
from pellucid.corpora.stories.generate import stories
from pellucid.corpora.stories.measure import fences, floor

SAMPLE = 2000


def described(level: str, samples: int, seed: int = 0) -> Iterator[str]:
    """Counts and entropies, exact where they can be, and so many stories with their ln P."""
    drawn = list(stories(level, seed, count=SAMPLE))
    limit, fence = floor(drawn, [n_words(story.text) for story in drawn]), fences(drawn)
    length, _ = longest(level, n_words)
    words = len(vocabulary(level))
    yield f"stories, {level}: {how_many(level):.3g} different ones, of {words:,} words and marks"
    yield f"words per story       {mean_words(level):.1f} on average, {length} at most"
    yield f"entropy               {entropy(level):.4f} nats per story: no model can know more"
    yield f"the limit             {entropy(level) / (mean_words(level) + 1):.4f} nats per word and <end>"
    yield (
        f"of {SAMPLE:,} stories      {limit.nats_per_token:.4f} ± {limit.nats_error:.4f} nats per word, "
        f"{limit.bits_per_byte:.4f} bits per byte"
    )
    yield f"fences                {fence.bigram:.3f} given the word before, {fence.unigram:.3f} given none"
    for story in drawn[:samples]:
        yield f"\nln P = {story.log_probability:.3f}\n{story.text}"
