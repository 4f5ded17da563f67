"""Keys at which the kinds of heads look in a text: for some queries t, the keys K_t.

By position (the token before, the first one, the token itself), at punctuation marks, from pronouns to their
antecedents and from verbs to their subjects in annotated stories, and in a repeated random sequence at the
token after the last occurrence.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.base.errors import UsageError, show
from pellucid.config import ModelConfig
from pellucid.data.generated.stories import Annotation, annotate, stories
from pellucid.text.tokenizer import Tokenizer

N_SEQUENCES, N_REPEATED = 8, 25
"""The repeated sequences, and the tokens of one that are repeated."""
FEW_UNKNOWN = 0.5
"""The largest share of unknown tokens of a story that a tokenizer can be said to read."""
Keys = NDArray[np.bool_]
"""[T S]: the keys K_t of each query; a row without any is not a query of this kind."""


@dataclass(frozen=True, eq=False)
class KeyedText:
    """The ids of a text, and where the kinds of heads look in it."""

    ids: tuple[int, ...]
    keys: Mapping[str, Keys]


def mark_positions(ids: Sequence[int]) -> KeyedText:
    """Returns where heads look by position alone: the token before, the first one, and the token itself."""
    length = len(ids)
    later = np.arange(length)[:, None] > 0
    first = np.zeros((length, length), bool)
    first[:, :1] = True
    before, itself = np.eye(length, k=-1, dtype=bool), np.eye(length, dtype=bool)
    return KeyedText(tuple(ids), {"previous": before, "first": first & later, "self": itself & later})


def mark_story(
    tokenizer: Tokenizer, text: str, words: Sequence[Annotation], begin: Sequence[int] = (), most: int = 2**31
) -> KeyedText:
    """Returns the first `most` tokens of an annotated text behind the tokens `begin`, with the keys of
    pronouns, verbs and punctuation marks as well."""
    ids = [*begin, *tokenizer.encode(text)][:most]
    tokens = find_word_tokens(tokenizer, text, [word.word for word in words], len(begin))
    keys = dict(mark_positions(ids).keys)
    is_mark = np.array([is_punctuation(tokenizer, id) for id in ids])
    keys["punctuation"] = is_mark[None, :] & (np.arange(len(ids))[:, None] > 0)
    for kind, field in (("antecedent", "antecedents"), ("subject", "subjects")):
        keys[kind] = np.zeros((len(ids), len(ids)), bool)
        for word, own in zip(words, tokens, strict=True):
            if own and own[-1] < len(ids):
                found = [at for place in getattr(word, field) for at in tokens[place] if at not in own]
                keys[kind][own[-1], [at for at in found if at < len(ids)]] = True
    return KeyedText(tuple(ids), keys)


def is_punctuation(tokenizer: Tokenizer, id: int) -> bool:
    """Returns whether a token is punctuation marks alone, perhaps behind a space."""
    text = tokenizer.bytes_of(id).decode("utf-8", "replace").strip()
    return bool(text) and all(unicodedata.category(letter).startswith("P") for letter in text)


def read_stories(
    tokenizer: Tokenizer, level: str, count: int, seed: int, begin: Sequence[int] = (), most: int = 2**31
) -> list[KeyedText]:
    """Returns stories of a level as the model reads them; a tokenizer that knows too few of their words is
    refused."""
    texts = [
        mark_story(tokenizer, story.text, annotate(story), begin, most)
        for story in stories(level, seed, count=count)
    ]
    ids = [id for text in texts for id in text.ids]
    if ids and ids.count(tokenizer.unknown_id) > FEW_UNKNOWN * len(ids):  # type: ignore[arg-type]
        raise UsageError("most words of the stories are unknown to this tokenizer.")
    return texts


def make_repeated(
    vocab_size: int, length: int, seed: int, begin: Sequence[int] = (), avoid: Sequence[int] = ()
) -> KeyedText:
    """Returns `begin`, then `length` different random tokens twice; token t of the second half looks at the
    one after it in the first half, s = t − length + 1.

    >>> text = make_repeated(vocab_size=9, length=3, seed=0)
    >>> text.ids[:3] == text.ids[3:], np.argwhere(text.keys["induction"]).tolist()
    (True, [[3, 1], [4, 2], [5, 3]])
    """
    usable = np.setdiff1d(np.arange(vocab_size), [*begin, *avoid])
    half = np.random.default_rng(seed).choice(usable, length, replace=False)
    ids = [*begin, *half.tolist(), *half.tolist()]
    keys = np.zeros((len(ids), len(ids)), bool)
    second = np.arange(len(begin) + length, len(ids))
    keys[second, second - length + 1] = True
    return KeyedText(tuple(ids), {"induction": keys})


def make_repeated_sequences(
    config: ModelConfig, seed: int, begin: Sequence[int] = (), avoid: Sequence[int] = ()
) -> list[KeyedText]:
    """Returns the repeated sequences that fit the model's vocabulary and context; none where none does."""
    room = (config.context_length - len(begin)) // 2
    length = min(N_REPEATED, room, config.vocab_size - len({*begin, *avoid}))
    if length < 2:
        return []
    return [make_repeated(config.vocab_size, length, seed + i, begin, avoid) for i in range(N_SEQUENCES)]


def find_word_tokens(tokenizer: Tokenizer, text: str, words: Sequence[str], n_before: int = 0) -> list[range]:
    """Returns for each of the words, which occur in the text in this order, the positions of its tokens.

    A token belongs to a word where the two share a byte of the text: a word of several tokens has them all,
    one token may belong to two words (`cat.` of a tokenizer of words), and a character that the tokenizer
    drops has no token, so that a range can be empty. Position `n_before` is the first token of the text: 1
    behind a bos token.

    >>> from pellucid.text.word_level import CharacterTokenizer
    >>> find_word_tokens(CharacterTokenizer(tuple("ab ")), "ab b", ["ab", "b"], n_before=1)
    [range(1, 3), range(4, 5)]
    """
    spans = np.array(tokenizer.offsets(text), np.int64).reshape(-1, 2)
    starts, ends = (np.maximum.accumulate(side) for side in spans.T)
    found, at, n_bytes = [], 0, 0
    for word in words:
        place = text.find(word, at)
        if place < 0 or not word:
            raise UsageError(f"the word {show(word)} does not occur after character {at} of the text.")
        n_bytes += len(text[at:place].encode())
        end = n_bytes + len(word.encode())
        first, last = np.searchsorted(ends, n_bytes, "right"), np.searchsorted(starts, end, "left")
        found.append(range(n_before + int(first), n_before + max(int(first), int(last))))
        at, n_bytes = place + len(word), end
    return found
