"""The kinds of tokenizer that can be trained, one file each; the folder is the registry.

A kind is a function `train(texts, vocab_size, special, progress)` and, in its first line, what it is.
"""

import importlib
import pkgutil
from collections.abc import Iterable

from pellucid.errors import ConfigError, did_you_mean
from pellucid.text.tokenizer import Special, Tokenizer

DEFAULT = Special(bos="<end>", eos="<end>", pad="<pad>")


def kinds() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def train(
    kind: str,
    texts: Iterable[str],
    vocab_size: int = 8192,
    special: Special = DEFAULT,
    progress: bool = False,
) -> Tokenizer:
    """Train a tokenizer of a kind on texts; the same texts give the same tokenizer."""
    if kind not in kinds():
        raise ConfigError(
            f"no kind of tokenizer called {kind!r}; have {', '.join(kinds())}." + did_you_mean(kind, kinds())
        )
    if vocab_size < 1:
        raise ConfigError(f"a vocabulary of {vocab_size} tokens holds nothing; use 8192, for example.")
    trained: Tokenizer = importlib.import_module(f"{__name__}.{kind}").train(
        texts, vocab_size, special, progress
    )
    return trained
