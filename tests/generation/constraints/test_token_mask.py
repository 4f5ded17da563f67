"""Masks: by hand, and on random walks, whose texts always match."""

import json
import random
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import TokenError, UsageError
from pellucid.generation.constraints import compile_constraint, token_mask
from pellucid.generation.constraints.token_mask import Constraint
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer
from tests.generation.constraints.walks import TOKENIZERS, Prefer, any_token, farthest_token, walk

PATTERNS = [
    "(red|green)( (red|green|ab))*", "[ab]{3,9}|12", "(ab|12|red) ?(ab)?", r"\{\}|(ab ){0,3}ab",
]  # fmt: skip
"""Patterns that every tokenizer here can spell."""
FREE = [r"[A-Z][a-z]+ \d{1,3}!", r"[^b]*b", r"(\w+, ){2,}and \w+\.", r"\d+-\d+", "a{20,}", ".*é.*"]
"""Patterns for tokenizers with every letter."""
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "n": {"type": ["integer", "null"]},
        "list": {"type": "array", "items": {"type": "number"}},
        "in": {"type": "object", "properties": {"b": {"type": "boolean"}}},
    },
    "required": ["name", "list"],
}


def compile_for(tokenizer: Tokenizer, stop: bool = True, **settings: Any) -> Constraint:
    end = tokenizer.id_of("<end>")
    stop_ids = [] if end is None or not stop else [end]
    found = compile_constraint(Sampling(**settings), tokenizer, tokenizer.vocab_size + 2, stop_ids)
    assert found is not None
    return found


def ids_of(mask: Any) -> list[int]:
    return np.flatnonzero(mask).tolist()


ABC = CharacterTokenizer(
    ("<end>", "a", "b", "ab", "c"), TOKENIZERS["characters"]().special.__class__(eos="<end>")
)


def test_the_masks_of_three_states() -> None:
    """a+b: a must come first, then a or b, or both at once, then the end."""
    found = compile_constraint(Sampling(regex="a+b"), ABC, 5, [0])
    assert found is not None
    assert ids_of(found.compute_mask(0, 9)) == [1, 3]
    assert ids_of(found.compute_mask(0, 1)) == [3]
    middle = found.advance(0, 1)
    assert ids_of(found.compute_mask(middle, 9)) == [1, 2, 3]
    assert ids_of(found.compute_mask(middle, 1)) == [2, 3]
    end = found.advance(middle, 2)
    assert end == found.advance(0, 3)
    assert ids_of(found.compute_mask(end, 9)) == [0]
    assert found.is_complete(end) and found.must_end(end)
    assert not found.is_complete(middle) and not found.must_end(middle)
    assert found.advance(end, 0) == end
    assert [found.count_needed(state) for state in (0, middle, end)] == [1, 1, 0]


def test_a_complete_text_may_go_on_or_end() -> None:
    found = compile_constraint(Sampling(regex="a*"), ABC, 5, [0])
    assert found is not None
    assert ids_of(found.compute_mask(0, 9)) == [0, 1]
    assert not found.must_end(0)
    without = compile_constraint(Sampling(regex="(ab){0,2}"), ABC, 5, [])
    assert without is not None
    assert without.must_end(0, 0) and not without.must_end(0, 1)
    assert without.must_end(without.advance(without.advance(0, 3), 3))


def test_a_token_that_is_not_in_the_mask_cannot_be_added() -> None:
    found = compile_constraint(Sampling(regex="a+b"), ABC, 5, [0])
    assert found is not None
    for id in (2, 4, 5, -1):
        with pytest.raises(TokenError, match="regex"):
            found.advance(0, id)


def test_a_banned_token_is_not_counted_on() -> None:
    found = compile_constraint(Sampling(regex="a+b", banned_tokens=(3,)), ABC, 5, [0])
    assert found is not None
    assert ids_of(found.compute_mask(0, 9)) == [1]
    assert found.count_needed(0) == 2
    with pytest.raises(TokenError, match="spell"):
        compile_constraint(Sampling(regex="a+b", banned_tokens=(2, 3)), ABC, 5, [0])


def test_too_few_new_tokens_are_refused_with_the_number() -> None:
    with pytest.raises(UsageError, match="use 4 or more"):
        compile_constraint(Sampling(regex="(ab){2}c{2}", max_new_tokens=3), ABC, 5, [0])
    assert compile_constraint(Sampling(regex="(ab){2}c{2}", max_new_tokens=4), ABC, 5, [0])


@pytest.mark.parametrize("prefer", [any_token, farthest_token])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_walk_ends_in_a_text_that_matches(kind: str, prefer: Prefer) -> None:
    tokenizer, rng = TOKENIZERS[kind](), random.Random(1)
    is_free = kind in ("bytes", "bpe", "unigram", "characters")
    for pattern in [*PATTERNS, *(FREE if is_free else [])]:
        for stop in (True, False):
            try:
                found = compile_for(tokenizer, stop, regex=pattern)
            except TokenError:
                assert not is_free
                continue
            needed = found.count_needed(found.start)
            for limit in (max(needed, 1), needed + 1, needed + 7, 30):
                text = tokenizer.decode(walk(found, max(limit, needed), rng, prefer))
                assert re.fullmatch(pattern, text, re.ASCII), (pattern, text)


@pytest.mark.parametrize("prefer", [any_token, farthest_token])
@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram", "characters"])
def test_a_walk_ends_in_json_that_fits_its_schema(kind: str, prefer: Prefer) -> None:
    tokenizer, rng = TOKENIZERS[kind](), random.Random(2)
    found = compile_for(tokenizer, json_schema=json.dumps(SCHEMA))
    needed = found.count_needed(found.start)
    for limit in (needed, needed + 1, needed + 10, 3 * needed):
        value = json.loads(tokenizer.decode(walk(found, limit, rng, prefer)))
        assert list(value) == [name for name in SCHEMA["properties"] if name in value]  # type: ignore[attr-defined]
        assert {"name", "list"} <= value.keys()
        assert isinstance(value["name"], str) and len(value["name"]) <= 8
        assert all(isinstance(number, int | float) for number in value["list"])
        assert value.get("in", {}) in ({}, {"b": True}, {"b": False})


def test_a_word_tokenizer_writes_the_spaces_between_words() -> None:
    tokenizer = WordTokenizer(("A", "B", "C"))
    found = compile_constraint(Sampling(regex="A( B)+|C"), tokenizer, 3, [])
    assert found is not None
    assert ids_of(found.compute_mask(found.start, 5)) == [0, 2]
    after = found.advance(found.start, 0)
    assert ids_of(found.compute_mask(after, 5)) == [1]
    with pytest.raises(TokenError, match="spell"):
        compile_constraint(Sampling(regex="AB"), tokenizer, 3, [])


def test_a_dead_end_of_a_tokenizer_is_avoided() -> None:
    """After b the c is missing, so b is never chosen."""
    tokenizer = CharacterTokenizer(tuple("abd"))
    found = compile_constraint(Sampling(regex="bc|ad?"), tokenizer, 3, [])
    assert found is not None
    assert ids_of(found.compute_mask(0, 5)) == [0]


@pytest.mark.parametrize(("pattern", "error"), [("", UsageError), ("(x{0})*", UsageError), ("é", TokenError)])
def test_a_pattern_without_a_text_to_write_is_refused(pattern: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        compile_constraint(Sampling(regex=pattern), ABC, 5, [0])


def test_a_model_without_a_tokenizer_cannot_be_constrained() -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        compile_constraint(Sampling(regex="a"), None, 5, [0])
    assert compile_constraint(Sampling(), None, 5, [0]) is None


def test_a_constraint_is_made_once() -> None:
    again = [compile_constraint(Sampling(regex="a+", seed=seed), ABC, 5, [0]) for seed in range(2)]
    assert again[0] is again[1]
    assert compile_constraint(Sampling(regex="a+"), ABC, 5, []) is not again[0]


def test_what_is_kept_for_the_states_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_mask, "CACHED_BYTES", 5000)
    tokenizer = TOKENIZERS["bytes"]()
    found = compile_for(tokenizer, regex="[ab]{20}")
    masks = [found.compute_mask(state, 30) for state in range(20)]
    assert len(found._cached) < 20
    assert all((found.compute_mask(state, 30) == mask).all() for state, mask in enumerate(masks))


def test_threads_share_a_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_mask, "CACHED_BYTES", 3000)
    tokenizer, texts = TOKENIZERS["bytes"](), list[str]()
    found = compile_for(tokenizer, regex="([ab]c){9}")

    def run(seed: int) -> None:
        rng = random.Random(seed)
        texts.extend(tokenizer.decode(walk(found, 40, rng)) for _ in range(10))

    threads = [threading.Thread(target=run, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 40 and all(re.fullmatch("([ab]c){9}", text) for text in texts)


@pytest.mark.timed
def test_a_mask_of_a_large_vocabulary_takes_milliseconds() -> None:
    words = tuple(
        sorted(
            {f"{a}{b}{c}{d}" for a in "abcdefg" for b in "hijklmn" for c in "abcdefgh" for d in range(100)}
        )
    )
    tokenizer = CharacterTokenizer((*"abcdefghijklmn0123456789", *words))
    found = compile_constraint(Sampling(regex="[a-z0-9]{1,200}"), tokenizer, tokenizer.vocab_size, [])
    assert found is not None
    start = time.process_time()
    for state in range(1, 11):
        found._find_next(state)
    assert (time.process_time() - start) / 10 < 0.05
