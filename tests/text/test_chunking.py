"""A long text may be encoded in pieces: the ids are those of the whole."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.text.chunking import can_chunk, chunks
from pellucid.text.kinds import kinds
from tests.data.small_corpora import WORDS
from tests.text.sample_texts import STORY, trained

BPE = trained("bpe")
TEXTS = st.text(
    st.sampled_from("aab  \n\t'sé1²一.,-\u00a0\u200b’_") | st.characters(exclude_categories=["Cs"]),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 20))
def test_ids_of_the_pieces_are_the_ids_of_the_text(text: str, size: int) -> None:
    found = list(chunks(text, size))
    assert "".join(found) == text
    assert [id for piece in found for id in BPE.encode(piece)] == BPE.encode(text)


def test_a_text_of_words_is_cut_into_pieces_of_about_the_size_asked_for() -> None:
    draw = random.Random(0)
    text = " ".join(draw.choice(WORDS) for _ in range(10_000))
    found = list(chunks(text, 1000))
    assert all(1000 <= len(piece) <= 1100 for piece in found[:-1]) and len(found) > 30
    assert [id for piece in found for id in BPE.encode(piece)] == BPE.encode(text)


def test_a_text_without_a_seam_stays_whole() -> None:
    assert list(chunks("一" * 5000, 100)) == ["一" * 5000]


@pytest.mark.parametrize("kind", kinds())
def test_only_tokenizers_of_which_it_is_known_are_cut(kind: str) -> None:
    tokenizer = trained(kind)
    assert can_chunk(tokenizer) == (kind in ("bpe", "bytes", "characters"))
    if can_chunk(tokenizer):
        text = STORY[:500]
        assert [id for piece in chunks(text, 5) for id in tokenizer.encode(piece)] == tokenizer.encode(text)
