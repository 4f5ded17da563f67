"""Single bytes: 256 tokens that can read anything, and learn nothing from the text."""

import json
from collections.abc import Iterable

from pellucid.text import alphabet
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    names = special.names()
    tokens = [*names, *(alphabet.LETTER[byte] for byte in range(256))]
    vocab = {token: id for id, token in enumerate(tokens)}
    return StandardTokenizer(json.dumps(byte_level_bpe(vocab, [], names)), special, "bytes")
