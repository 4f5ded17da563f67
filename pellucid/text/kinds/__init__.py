"""The kinds of tokenizer that can be trained, one file each; the folder is the registry.

A kind is a function `train(texts, vocab_size, special, progress)` and, in its first line, what it is.
"""

from collections.abc import Iterable

from pellucid import registry
from pellucid.arguments import LARGEST_VOCABULARY
from pellucid.errors import ConfigError, UsageError
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
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        raise UsageError(f"vocab_size must be a whole number; got {vocab_size!r}.")
    if not 1 <= vocab_size <= LARGEST_VOCABULARY:
        raise ConfigError(
            f"vocab_size={vocab_size:,} is out of range: use 1 to {LARGEST_VOCABULARY:,}; 8192, for example."
        )
    trained: Tokenizer = learner.train(texts, vocab_size, special, progress)
    return trained
