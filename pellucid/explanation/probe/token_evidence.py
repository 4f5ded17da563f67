"""The evidence of a text for the tokens that a model is given: the bos before it, and its tokenizer."""

import re
from collections.abc import Sequence

import numpy as np

from pellucid.base.errors import PellucidError
from pellucid.engine.transformer import Transformer
from pellucid.explanation.probe.difference import MeanDifference, measure_difference
from pellucid.explanation.probe.probe_report import OtherReading, ReadingVerdict
from pellucid.explanation.probe.text_reader import ScoredWindow, TextReader, cut_rows
from pellucid.formats.pretrained import Pretrained
from pellucid.text.tokenizer import Tokenizer

BEGINNING, MOST_BEGINNINGS = 8, 40
"""Tokens of each sentence that are read for what precedes a text, and the number of sentences."""
LEAST_GAIN = 1.0
"""Nats by which a language model predicts the second of two equal halves better than the first."""
REPLACEMENTS, REPLACED_TOKENS = 8, 500
"""Texts in which each token is replaced by another, and their length. A few frequent tokens decide how likely
such a text is, so that it is the texts, and not their blocks, that differ by chance."""
SUBWORDS = 1_000
"""Tokens from which on a vocabulary is one of subwords, which differs from model to model."""


def compare_beginnings(module: Transformer, model: Pretrained, text: str) -> OtherReading | None:
    """Returns the evidence on bos: the loss of the first tokens of each sentence after bos, beside that after
    a new line, which any model of texts has seen before a sentence. None where there are no such tokens."""
    tokenizer = model.need_tokenizer()
    bos, line = _find_bos(tokenizer), _encode_line(tokenizer)
    if bos is None or not line or bos in line:
        return None
    begun = [tokenizer.encode(one)[:BEGINNING] for one in re.split(r"(?<=[.?!:;])\s+", text) if one]
    whole = [ids for ids in begun if len(ids) == BEGINNING][:MOST_BEGINNINGS]
    if not whole or BEGINNING + len(line) > model.config.context_length:
        return None

    def read_after(before: Sequence[int]) -> TextReader:
        return TextReader(module, [ScoredWindow((*before, *ids), len(before) - 1) for ids in whole])

    added = read_after([bos]).read_all().nll - read_after(line).read_all().nll
    difference = measure_difference(-added if model.add_bos else added, BEGINNING)
    fit = ReadingVerdict.RIGHT if difference.decides == 1 else ReadingVerdict.UNDECIDED
    if difference.decides == -1 and model.add_bos:
        # not where bos is added: a token that separates texts may help, though no text begins with it
        fit = ReadingVerdict.BETTER
    return OtherReading("bos", "omitted" if model.add_bos else "added", fit, difference, "in beginnings")


def _find_bos(tokenizer: Tokenizer) -> int | None:
    return None if tokenizer.special.bos is None else tokenizer.id_of(tokenizer.special.bos)


def _encode_line(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of a new line, none where the tokenizer does not know it."""
    try:
        ids = tokenizer.encode("\n")
    except PellucidError:
        return []
    return [] if tokenizer.unknown_id in ids else ids


def find_other_tokenizer(base: TextReader, ids: Sequence[int]) -> OtherReading | None:
    """Returns the evidence that a text's ids mean nothing to a model that was trained on language, None where
    there is none.

    Such a model predicts the second of two equal halves of random tokens; and this text not better than
    those in which each token is replaced by another, always the same.
    """
    module, rng = base.module, np.random.default_rng(0)
    vocab_size, context = module.config.vocab_size, module.config.context_length
    half = min(128, context // 2)
    if vocab_size < SUBWORDS or half < 32:
        return None
    twice = [ScoredWindow((*one, *one)) for one in rng.integers(0, vocab_size, (4, half)).tolist()]
    nll = TextReader(module, twice).read_all().nll.reshape(len(twice), -1)
    gain = measure_difference((nll[:, : half - 1] - nll[:, half:]).flatten())
    if gain.decides < 1 or gain.mean < LEAST_GAIN:
        return None
    some, before = list(ids[:REPLACED_TOKENS]), base.rows[0].ids[: base.rows[0].before]

    def read(ids: Sequence[int]) -> float:
        return float(TextReader(module, cut_rows(ids, context, before)).read_all().nll.mean())

    losses = np.array([read(rng.permutation(vocab_size)[some].tolist()) for _ in range(REPLACEMENTS)])
    error = float(losses.std(ddof=1)) * (1 + 1 / REPLACEMENTS) ** 0.5
    difference = MeanDifference(float(losses.mean()) - read(some), error, REPLACEMENTS, len(some))
    return _blame_tokenizer(difference) if difference.decides < 1 else None


def _blame_tokenizer(difference: MeanDifference) -> OtherReading:
    return OtherReading("tokenizer", "of another model", ReadingVerdict.BETTER, difference)
