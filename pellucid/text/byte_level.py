"""Training a byte-level tokenizer with the `tokenizers` library: shared by BPE and Unigram."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers

from pellucid.errors import ConfigError
from pellucid.text.chunking import chunks
from pellucid.text.tokenizer import Special

CHUNK = 1 << 14
"""Characters given to the library at a time: it counts the words of many pieces at once."""


def train_byte_level(
    model: Any, trainer: Any, texts: Iterable[str], vocab_size: int, special: Special, progress: bool
) -> str:
    """Returns the `tokenizer.json` that a trainer of the library makes, with words split as by GPT-2."""
    least = 256 + len(special.names())
    if vocab_size < least:
        raise ConfigError(
            f"a vocabulary of {vocab_size} is too small: 256 bytes and the special tokens take {least}. "
            "Use at least that many."
        )
    library = Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.train_from_iterator(
        (piece for text in texts for piece in chunks(text, CHUNK)),
        trainer(
            vocab_size=vocab_size,
            special_tokens=special.names(),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=progress,
        ),
    )
    return str(library.to_str())
