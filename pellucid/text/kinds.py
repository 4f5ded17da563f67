"""The kinds of tokenizer that can be trained: each is a function of this module, named by its decorator."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from pellucid.base import registry
from pellucid.base.arguments import LARGEST_VOCABULARY
from pellucid.base.errors import ConfigError, UsageError
from pellucid.text.chunking import chunks
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import BYTE_LETTER, StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer

DEFAULT = Special(bos="<end>", eos="<end>", pad="<pad>")
CHUNK = 1 << 14
"""Characters given to the library at a time: it counts the words of many pieces at once."""
STEP = 1e-4
"""By how much the scores of unlearned letters differ in `tokenizers`."""


def kinds() -> list[str]:
    return registry.kinds(__name__)


def train(
    kind: str,
    texts: Iterable[str],
    vocab_size: int = 8192,
    special: Special = DEFAULT,
    progress: bool = False,
) -> Tokenizer:
    """Trains a tokenizer of a kind on texts; the same texts give the same tokenizer."""
    train_kind = registry.function_of(__name__, kind, "kind of tokenizer")
    if not isinstance(vocab_size, int) or isinstance(vocab_size, bool):
        raise UsageError(f"vocab_size must be an integer; got {vocab_size!r}.")
    if not 1 <= vocab_size <= LARGEST_VOCABULARY:
        raise ConfigError(
            f"vocab_size={vocab_size:,} is out of range: use 1 to {LARGEST_VOCABULARY:,}; 8192, for example."
        )
    trained: Tokenizer = train_kind(texts, vocab_size, special, progress)
    return trained


@registry.kind("bytes")
def train_bytes(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    """Returns single bytes: 256 tokens that encode any text; nothing is learned from the texts."""
    names = special.names()
    tokens = [*names, *(BYTE_LETTER[byte] for byte in range(256))]
    vocab = {token: id for id, token in enumerate(tokens)}
    return StandardTokenizer(json.dumps(byte_level_bpe(vocab, [], names)), special, "bytes")


@registry.kind("characters")
def train_characters(
    texts: Iterable[str], vocab_size: int, special: Special, progress: bool
) -> CharacterTokenizer:
    """Returns all characters of the texts as tokens; others cannot be encoded."""
    found: set[str] = set()
    for text in texts:
        found.update(text)
    if not found:
        raise ConfigError("there is no character in the text to train on.")
    return CharacterTokenizer((*special.names(), *sorted(found)), special)


@registry.kind("words")
def train_words(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> WordTokenizer:
    """Returns the most frequent words as tokens, and the token <unk> for all others."""
    unknown = "<unk>"
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WordTokenizer.pattern.findall(text))
    if not counts:
        raise ConfigError("there is no word in the text to train on.")
    first = [*special.names(), unknown]
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    kept = [word for word in ordered if word not in first][: max(0, vocab_size - len(first))]
    return WordTokenizer((*first, *kept), special, unknown)


@registry.kind("bpe")
def train_bpe(texts: Iterable[str], vocab_size: int, special: Special, progress: bool) -> StandardTokenizer:
    """Trains a BPE over bytes: merges the most frequent neighbors until the vocabulary is full.

    Sennrich et al. 2016, arXiv:1508.07909; over bytes, Radford et al. 2019.
    """
    file = _train_byte_level(models.BPE(), trainers.BpeTrainer, texts, vocab_size, special, progress)
    return StandardTokenizer(file, special, "bpe")


@registry.kind("unigram")
def train_unigram(
    texts: Iterable[str], vocab_size: int, special: Special, progress: bool
) -> StandardTokenizer:
    """Trains a unigram model: every token has a probability, and a text is divided in its most probable way.

    Kudo 2018, arXiv:1804.10959; over bytes, so that nothing is unknown.
    """
    file = json.loads(
        _train_byte_level(models.Unigram(), trainers.UnigramTrainer, texts, vocab_size, special, progress)
    )
    file["model"]["vocab"] = _sort_vocab(file["model"]["vocab"], len(special.names()))
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "unigram")


def _sort_vocab(vocab: list[tuple[str, float]], special: int) -> list[tuple[str, float]]:
    """Returns the same vocabulary in every run, which the library does not promise.

    It adds in an order that varies, so scores differ in their last digits: six decimals are kept. And it
    gives the letters of which it learned nothing the lowest score, the next a little more, and so on, in an
    order that varies: here they get these scores in alphabetical order.
    """
    lowest = min(score for _, score in vocab[special:])
    steps = {piece: (score - lowest) / STEP for piece, score in vocab[special:] if len(piece) == 1}
    unlearned = sorted(piece for piece, step in steps.items() if abs(step - round(step)) < 1e-6)
    scores = {piece: round(score, 6) for piece, score in vocab[special:]}
    scores |= zip(unlearned, sorted(scores[piece] for piece in unlearned), strict=True)
    return [*vocab[:special], *sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))]


@registry.kind("wordpiece")
def train_wordpiece(
    texts: Iterable[str], vocab_size: int, special: Special, progress: bool
) -> StandardTokenizer:
    """Trains WordPiece: a word is divided greedily into the longest known pieces, those inside it marked ##.

    Schuster and Nakajima 2012; as in BERT (arXiv:1810.04805). White space is not kept, and a word with an
    unknown letter is one unknown token.
    """
    unknown, texts = "[UNK]", list(texts)
    names = [*special.names(), unknown]
    library = tokenizers.Tokenizer(models.WordPiece(unk_token=unknown))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)
    # The library numbers the letters inside words as it happens to meet them, and equal counts are decided by
    # those numbers. Given first, as if they were special, they are always numbered alike.
    inside = [f"##{letter}" for letter in sorted(set().union(*texts)) if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=[*names, *inside], show_progress=progress
    )
    library.train_from_iterator(texts, trainer)
    file = json.loads(library.to_str())
    file["added_tokens"] = [entry for entry in file["added_tokens"] if entry["content"] in names]
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), special, "wordpiece")


def _train_byte_level(
    model: Any, trainer: Any, texts: Iterable[str], vocab_size: int, special: Special, progress: bool
) -> str:
    """Returns the `tokenizer.json` that a trainer of the library makes, with words split as by GPT-2."""
    least = 256 + len(special.names())
    if vocab_size < least:
        raise ConfigError(
            f"a vocabulary of {vocab_size} is too small: 256 bytes and the special tokens take {least}. "
            "Use at least that many."
        )
    library = tokenizers.Tokenizer(model)
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
