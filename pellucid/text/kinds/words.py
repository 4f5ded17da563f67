"""Whole words: the most frequent ones of the text, and a token for all others."""

from collections import Counter
from collections.abc import Iterable

from pellucid.errors import ConfigError
from pellucid.text.tokenizer import Special
from pellucid.text.words import WordTokenizer

UNKNOWN = "<unk>"


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> WordTokenizer:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WordTokenizer.pattern.findall(text))
    if not counts:
        raise ConfigError("there is no word in the text to train on.")
    first = [*special.names(), UNKNOWN]
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    kept = [word for word in ordered if word not in first][: max(0, vocab_size - len(first))]
    return WordTokenizer((*first, *kept), special, UNKNOWN)
