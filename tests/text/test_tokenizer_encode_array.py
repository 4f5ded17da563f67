"""Ids as an array are those of `encode`, for every kind; the faster pattern cuts the same words."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.text.from_files import from_pretrained
from pellucid.text.kinds import kinds
from pellucid.text.standard import StandardTokenizer
from tests.text.sample_texts import STORY, trained

BPE = trained("bpe")
assert isinstance(BPE, StandardTokenizer)
PARTS = ["'s", "'ll", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u0085", "a", "é", "一"]
TEXTS = st.lists(st.sampled_from([*PARTS, "1", "²", ".", "…", "<end>", "\u200b", "🙂"])).map("".join)


@pytest.mark.parametrize("count", [500, pytest.param(50_000, marks=pytest.mark.torture)])
def test_the_faster_pattern_cuts_the_words_of_the_library(count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(TEXTS | st.text())
    def same(text: str) -> None:
        if not any("\ud800" <= letter <= "\udfff" for letter in text):
            ids = BPE.encode_array(text).tolist()
            assert ids == BPE.encode(text) == BPE.library.encode(text, add_special_tokens=False).ids

    same()


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_tokenizer_has_its_own_ids(kind: str) -> None:
    tokenizer, text = trained(kind), STORY[:500]
    ids = tokenizer.encode_array(text)
    assert isinstance(ids, np.ndarray)
    assert ids.tolist() == tokenizer.encode(text)
    assert tokenizer.encode_array("").tolist() == []


def test_another_pattern_is_used_as_it_is(tmp_path: Path) -> None:
    BPE.save(tmp_path)
    file = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    split = {"type": "Split", "pattern": {"Regex": r"\s+|\S+"}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file), "utf-8")
    tokenizer, text = from_pretrained(tmp_path), "the cat  sat\n on " * 9
    assert tokenizer.encode_array(text).tolist() == tokenizer.encode(text) != BPE.encode(text)
