"""Unigram: every token has a probability, and a text is cut in its most probable way.

Kudo 2018, arXiv:1804.10959; over bytes, so that nothing is unknown.
"""

import json
from collections.abc import Iterable

from tokenizers import models, trainers

from pellucid.text.byte_level import train_byte_level
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special

STEP = 1e-4
"""How much more each unlearned letter gets than the one before, in `tokenizers`."""


def train(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    file = json.loads(
        train_byte_level(models.Unigram(), trainers.UnigramTrainer, texts, vocab_size, special, progress)
    )
    file["model"]["vocab"] = _sort_vocab(file["model"]["vocab"], len(special.names()))
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "unigram")


def _sort_vocab(vocab: list[tuple[str, float]], special: int) -> list[tuple[str, float]]:
    """The same vocabulary in every run, which the library does not promise.

    It adds in an order that differs, so scores differ in their last digits: six decimals are kept. And it
    gives the letters of which it learned nothing the lowest score, the next a little more, and so on, in an
    order of its own: here they get these scores in the order of the alphabet.
    """
    lowest = min(score for _, score in vocab[special:])
    steps = {piece: (score - lowest) / STEP for piece, score in vocab[special:] if len(piece) == 1}
    unlearned = sorted(piece for piece, step in steps.items() if abs(step - round(step)) < 1e-6)
    scores = {piece: round(score, 6) for piece, score in vocab[special:]}
    scores |= zip(unlearned, sorted(scores[piece] for piece in unlearned), strict=True)
    return [*vocab[:special], *sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))]
