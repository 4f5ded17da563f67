"""The readable tokenizers cut every word as the fast ones do, token for token."""

from collections import Counter
from unicodedata import category

import pytest
from tokenizers import pre_tokenizers

from pellucid.reference.tokenizers import (
    best_path,
    encode_bpe,
    encode_wordpiece,
    pretokenize,
    train_bpe,
)
from pellucid.text.kinds import train
from pellucid.text.standard import BYTE_LETTER, LETTER_BYTE, StandardTokenizer, to_bytes
from tests.text.sample_texts import STORY, strings

# Python knows an older Unicode than the library: characters it does not know yet are left out.
TEXTS = [STORY, *("".join(c for c in s if category(c) != "Cn") for s in strings(400, seed=8))]


def trained(kind: str, size: int = 500) -> StandardTokenizer:
    tokenizer = train(kind, [STORY], size)
    assert isinstance(tokenizer, StandardTokenizer)
    return tokenizer


def test_cutting_into_words_follows_the_pattern() -> None:
    library = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS:
        words = [to_bytes(word).decode() for word, _ in library.pre_tokenize_str(text)]
        assert list(pretokenize(text)) == words


def test_bpe_learns_the_same_merges() -> None:
    words = Counter(word.encode() for word in pretokenize(STORY))
    letters = [to_bytes(letter) for letter in sorted(LETTER_BYTE)]
    merges = trained("bpe").file["model"]["merges"]
    learned = train_bpe(words, letters, len(merges))
    assert learned == [(to_bytes(left), to_bytes(right)) for left, right in merges]


def test_bpe_cuts_the_same_tokens() -> None:
    tokenizer = trained("bpe")
    merges = tokenizer.file["model"]["merges"]
    ranks = {(to_bytes(left), to_bytes(right)): rank for rank, (left, right) in enumerate(merges)}
    for text in TEXTS:
        pieces = [piece for word in pretokenize(text) for piece in encode_bpe(word.encode(), ranks)[0]]
        assert pieces == [tokenizer.bytes_of(id) for id in tokenizer.encode(text)]


def test_bpe_shows_each_merge_in_the_order_of_its_rank_at_that_moment() -> None:
    ranks = {(b"a", b"b"): 2, (b"b", b"c"): 0, (b"a", b"bc"): 1}
    pieces, merges = encode_bpe(b"abcab", ranks)
    assert pieces == (b"abc", b"ab")
    assert [merge.rank for merge in merges] == [0, 1, 2]
    assert merges[0].pieces == (b"a", b"bc", b"a", b"b")


def test_bpe_training_on_an_example_one_can_follow() -> None:
    """aaabdaaabac, as the encyclopedias have it: aa, then ab, then aaab."""
    letters = [bytes([letter]) for letter in b"abcd"]
    assert train_bpe({b"aaabdaaabac": 1}, letters, 3) == [(b"a", b"a"), (b"a", b"b"), (b"aa", b"ab")]


def test_unigram_finds_the_same_best_path() -> None:
    tokenizer = trained("unigram")
    scores = dict(tokenizer.file["model"]["vocab"])
    for text in [*TEXTS[1:], STORY[:2000]]:
        pieces = [
            edge.piece
            for word in pretokenize(text)
            for edge in best_path("".join(map(BYTE_LETTER.__getitem__, word.encode())), scores)
        ]
        assert pieces == [tokenizer.token(id) for id in tokenizer.encode(text)]


def test_unigram_best_path_is_the_best_of_all_cuts() -> None:
    scores = {"a": -1.0, "b": -1.5, "ab": -2.2, "ba": -1.9, "aba": -4.0}

    def cuts(word: str) -> list[list[str]]:
        if not word:
            return [[]]
        return [
            [word[:i], *rest]
            for i in range(1, len(word) + 1)
            if word[:i] in scores
            for rest in cuts(word[i:])
        ]

    for word in ("a", "ab", "ababa", "bbaab"):
        best = max(cuts(word), key=lambda pieces: sum(scores[piece] for piece in pieces))
        path = best_path(word, scores)
        assert sum(edge.score for edge in path) == pytest.approx(sum(scores[piece] for piece in best))
        assert path[-1].total == pytest.approx(sum(edge.score for edge in path))
    assert best_path("xa", scores) == []


def test_wordpiece_cuts_the_same_pieces() -> None:
    tokenizer = trained("wordpiece")
    model, library = tokenizer.file["model"], pre_tokenizers.BertPreTokenizer()
    for text in TEXTS:
        pieces = [
            piece
            for word, _ in library.pre_tokenize_str(text)
            for piece in encode_wordpiece(word, model["vocab"], model["unk_token"])
        ]
        assert pieces == [tokenizer.token(id) for id in tokenizer.encode(text)]


def test_wordpiece_gives_up_on_the_whole_word() -> None:
    vocabulary = {"un", "##able", "##a"}
    assert encode_wordpiece("unable", vocabulary, "?") == ["un", "##able"]
    assert encode_wordpiece("unab", vocabulary, "?") == ["?"]
    assert encode_wordpiece("un" * 60, vocabulary, "?") == ["?"]
