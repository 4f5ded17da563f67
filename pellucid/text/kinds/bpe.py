"""Byte-pair encoding over bytes: merge the most frequent neighbours until the vocabulary is full.

Sennrich et al. 2016, arXiv:1508.07909; over bytes, Radford et al. 2019.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pellucid.text.kinds import need
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    names = special.names()
    need(vocab_size, 256 + len(names), "256 bytes and the special tokens")
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=progress,
    )
    library.train_from_iterator(texts, trainer)
    return StandardTokenizer(library.to_str(), special, "bpe")
