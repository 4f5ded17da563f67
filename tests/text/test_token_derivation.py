"""Why a text was cut so: explained by the readable twins, and true of the fast tokenizer."""

import json

import pytest

from pellucid.text.kinds import kinds, train
from pellucid.text.standard import StandardTokenizer
from pellucid.text.token_derivation import explain_tokens
from pellucid.text.tokenizer import Special
from tests.text.sample_texts import STORY, gpt2_tokenizer


def test_the_cat_is_explained_merge_by_merge() -> None:
    lines = list(explain_tokens(gpt2_tokenizer(), "The cat sat on"))
    assert lines[:3] == [
        "14 bytes, 4 tokens, 3.50 bytes per token",
        "  id  token  bytes        at",
        " 464  The    54 68 65     0–3",
    ]
    start = lines.index("·cat: · c a t")
    assert lines[start + 1 : start + 5] == [
        "  merge      9  a + t  →  · c at",
        "  merge     13  · + c  →  ·c at",
        "  merge  3,541  ·c + at  →  ·cat",
        "  no pair left to merge: 1 token",
    ]


def test_bytes_that_are_not_text_are_shown_as_bytes() -> None:
    assert "<e7>" in "\n".join(explain_tokens(train("bytes", [], 256), "王"))


def test_a_lattice_marks_the_best_path_and_adds_its_scores() -> None:
    text = "\n".join(explain_tokens(train("unigram", [STORY], 300), "the mats"))
    assert "* is on the best path" in text
    best = next(line for line in text.splitlines() if line.startswith("  best:"))
    sum_, _, total = best.partition("   ")[2].partition(" = ")
    assert sum(float(part.strip("() ")) for part in sum_.split(" + ")) == pytest.approx(
        float(total), abs=2e-4
    )


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_can_be_explained(kind: str) -> None:
    tokenizer = train(kind, [STORY], 300)
    assert next(explain_tokens(tokenizer, "the cat")).startswith("7 bytes, ")
    assert next(explain_tokens(tokenizer, "")) == "0 bytes, 0 tokens"


def test_a_long_text_is_cut_to_its_first_words() -> None:
    assert list(explain_tokens(gpt2_tokenizer(), "a b c d", words=2))[-1] == "\n… and 2 more words"


def test_pieces_of_characters_are_shown_as_text() -> None:
    """SentencePiece's BPE merges characters, not bytes, and writes a space as ▁."""
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    file = {
        "version": "1.0", "added_tokens": [], "pre_tokenizer": space, "decoder": space,
        "model": {"type": "BPE", "merges": [["▁", "é"]], "vocab": {"▁": 0, "é": 1, "▁é": 2}},
    }  # fmt: skip
    lines = list(explain_tokens(StandardTokenizer(json.dumps(file), Special()), "é"))
    assert lines[-3:] == ["·é: · é", "  merge      0  · + é  →  ·é", "  no pair left to merge: 1 token"]
