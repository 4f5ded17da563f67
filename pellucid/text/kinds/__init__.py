"""The kinds of tokenizer that can be trained, one file each; the folder is the registry.

A kind is a function `train(texts, vocab_size, special, progress)` and, in its first line, what it is.
"""

from collections.abc import Iterable

from pellucid import registry
from pellucid.errors import ConfigError
from pellucid.text.tokenizer import Special, Tokenizer

DEFAULT = Special(bos="<end>", eos="<end>", pad="<pad>")


def kinds() -> list[str]:
    return registry.kinds(__name__)


def train(
    kind: str,
    texts: Iterable[str],
    vocab_size: int = 8192,
    special: Special = DEFAULT,
    progress: bool = False,
) -> Tokenizer:
    """Train a tokenizer of a kind on texts; the same texts give the same tokenizer."""
    learner = registry.module_of(__name__, kind, "kind of tokenizer")
    if vocab_size < 1:
        raise ConfigError(f"a vocabulary of {vocab_size} tokens holds nothing; use 8192, for example.")
    trained: Tokenizer = learner.train(texts, vocab_size, special, progress)
    return trained
