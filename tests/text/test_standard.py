"""Whatever pattern a file cuts words by, nothing of the text is lost, and the ids are the library's."""

import functools
import json

import hypothesis
import hypothesis.strategies as st
import pytest
import tokenizers

from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import LETTER_BYTE, StandardTokenizer
from pellucid.text.tokenizer import Special
from tests.formats.tokenizers import bpe_table

PATTERNS = {
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "letters alone": r"\p{L}+",
    "llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "two ways": r"a|b",
}


@functools.cache
def made(pattern: str) -> tuple[StandardTokenizer, tokenizers.Tokenizer]:
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}
    table = bpe_table() | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, level]}}
    text = json.dumps(table)
    return StandardTokenizer(text, Special()), tokenizers.Tokenizer.from_str(text)


@pytest.mark.parametrize("name", PATTERNS)
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
@hypothesis.given(text=st.text(st.sampled_from("abthein12 .,!?\n'é।")))
def test_ids_are_the_library_s_and_the_text_comes_back(name: str, text: str) -> None:
    ours, library = made(PATTERNS[name])
    assert ours._fast is not None
    ids = ours.encode(text)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert ours.decode(ids) == text


def test_what_bloom_s_pattern_leaves_out_is_kept() -> None:
    ours, _ = made(PATTERNS["bloom"])
    assert ours.decode(ours.encode("a, b. 12")) == "a, b. 12"


def test_a_special_byte_leaves_the_text_to_the_other_library() -> None:
    vocab = {letter: id for id, letter in enumerate(LETTER_BYTE)}
    tokenizer = StandardTokenizer(json.dumps(byte_level_bpe(vocab, [], ["t"])), Special())
    assert tokenizer.split is None
    assert tokenizer.decode(tokenizer.encode("the cat 12")) == "the cat 12"
