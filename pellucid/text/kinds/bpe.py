"""Byte-pair encoding over bytes: merge the most frequent neighbours until the vocabulary is full.

Sennrich et al. 2016, arXiv:1508.07909; over bytes, Radford et al. 2019.
"""

from collections.abc import Iterable

from tokenizers import models, trainers

from pellucid.text.byte_level import train_byte_level
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    file = train_byte_level(models.BPE(), trainers.BpeTrainer, texts, vocab_size, special, progress)
    return StandardTokenizer(file, special, "bpe")
