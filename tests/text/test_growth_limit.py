"""Steps of a tokenizer that would fill the memory are refused, and those of published tokenizers are read."""

import base64
import json
from typing import Any

import pytest

from pellucid.base.errors import FileError
from pellucid.text.growth_limit import MOST_GROWTH, check_growth
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special

Step = dict[str, Any]


def replace(found: str, new: str, kind: str = "String") -> Step:
    return {"type": "Replace", "pattern": {kind: found}, "content": new}


def chain(*steps: Step, part: str = "normalizer", name: str = "normalizers") -> Step:
    return {part: {"type": "Sequence", name: list(steps)}}


def precompile(*texts: str) -> Step:
    held = (0).to_bytes(4, "little") + b"".join(text.encode() + b"\0" for text in texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(held).decode()}


DOUBLE, WORDS = replace("a", "aa"), [replace(" {2,}", "▁", "Regex"), replace(" ", "▁")]
BYTES, NFKD = {"type": "ByteLevel", "trim_offsets": False}, {"type": "NFKD"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
CHARSMAP = precompile("صلى الله عليه وسلم", "a", " ")
DECODER = {"part": "decoder", "name": "decoders"}
GROWING = {
    "doubling": chain(*[DOUBLE] * 27),
    "one long": chain(replace("a", "b" * 65)),
    "one alone": {"normalizer": replace("a", "b" * 65)},
    "nested": chain(*[chain(DOUBLE, DOUBLE)["normalizer"]] * 4),
    "without types": {"normalizer": {"normalizers": [{"pattern": {"String": "a"}, "content": "aa"}] * 7}},
    "expressions": chain(*[replace("[[:alpha:]]", "aa", "Regex")] * 7),
    "matches of nothing": chain(
        *[replace(pattern, "a", "Regex") for pattern in ("x*", "\\b", "(?=a)", "|") * 2]
    ),
    "optional in the library": chain(replace("a{64}?", "a" * 64, "Regex")),
    "an empty pattern": chain(*[replace("", "a")] * 7),
    "what Python cannot read": chain(*[replace("\\K", "a", "Regex")] * 7),
    "prepending": chain({"type": "Prepend", "prepend": "▁" * 7}, {"type": "Prepend", "prepend": "▁" * 8}),
    "decoding": chain(*[DOUBLE] * 7, **DECODER),
    "suffixes of nothing": chain(*[{"type": "BPEDecoder", "suffix": ""}] * 7, **DECODER),
    "letters of bytes": chain(*[BYTES] * 7, part="pre_tokenizer", name="pretokenizers"),
    "both halves": chain(*[DOUBLE] * 6) | {"pre_tokenizer": BYTES},
    "forms of Unicode": chain(*[NFKD, replace(" ", "ﷺ")] * 3),
    "a map": chain(precompile("a" * 2000)),
    "maps": chain(*[precompile("aa"), NFKD] * 8),
}
READ = {
    "Llama 2": chain({"type": "Prepend", "prepend": "▁"}, WORDS[1])
    | chain(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, **DECODER),
    "Gemma": {"normalizer": WORDS[1], "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}}},
    "SmolLM2": {"normalizer": None, "pre_tokenizer": BYTES, "decoder": BYTES},
    "BERT": {"normalizer": {"type": "BertNormalizer"}, "decoder": {"type": "WordPiece", "prefix": "##"}},
    "T5": chain(CHARSMAP, WORDS[0]) | {"pre_tokenizer": METASPACE, "decoder": METASPACE},
    "ALBERT": chain(
        replace("``", '"'), replace("''", '"'), NFKD, {"type": "StripAccents"}, {"type": "Lowercase"},
        CHARSMAP, replace(" {2,}", " ", "Regex"),
    )
    | {"pre_tokenizer": chain({"type": "WhitespaceSplit"}, METASPACE, name="pretokenizers")["normalizer"]},
    "CLIP": chain({"type": "NFC"}, replace("\\s+", " ", "Regex"), {"type": "Lowercase"})
    | {"pre_tokenizer": BYTES},
    "many letters": chain(*[replace("[\\p{L}أإآ]", "ا", "Regex")] * 30, *[replace("x", "y")] * 30),
    "as long as it may": chain(*[DOUBLE] * 6),
    "damaged": {"normalizer": [3], "decoder": {"decoders": {"a": 1}}, "pre_tokenizer": "x"},
}  # fmt: skip


@pytest.mark.parametrize("name", GROWING)
def test_steps_that_lengthen_a_text_too_much_are_refused_and_named(name: str) -> None:
    with pytest.raises(FileError, match=r"(normalizer|pre_tokenizer|decoder).*64 times"):
        check_growth(GROWING[name], "tokenizer.json")


@pytest.mark.parametrize("name", READ)
def test_the_steps_of_published_tokenizers_are_read(name: str) -> None:
    check_growth(READ[name], "tokenizer.json")


def test_a_tokenizer_is_checked_before_the_library_reads_it() -> None:
    """The library applies the steps to added tokens when it reads the file."""
    added = {"id": 1, "content": "a" * 99, "special": False, "normalized": True} | dict.fromkeys(
        ("single_word", "lstrip", "rstrip"), False
    )
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    file = {"version": "1.0", "added_tokens": [added], "model": model} | chain(*[DOUBLE] * 27)
    with pytest.raises(FileError, match=r"normalizers\[6\] \(Replace\)"):
        StandardTokenizer(json.dumps(file), Special())
    file |= chain(*[DOUBLE] * 3)
    assert MOST_GROWTH >= 8
    assert StandardTokenizer(json.dumps(file), Special()).encode("aa") == [0] * 16
