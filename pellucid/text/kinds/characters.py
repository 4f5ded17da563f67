"""Single characters: every one that the text has; others cannot be read."""

from collections.abc import Iterable

from pellucid.errors import ConfigError
from pellucid.text.characters import CharacterTokenizer
from pellucid.text.tokenizer import Special


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> CharacterTokenizer:
    found: set[str] = set()
    for text in texts:
        found.update(text)
    if not found:
        raise ConfigError("there is no character in the text to train on.")
    return CharacterTokenizer((*special.names(), *sorted(found)), special)
