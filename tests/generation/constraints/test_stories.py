"""The stories as a constraint: every output is a story, and every story is possible."""

import random

import numpy as np
import pytest

from pellucid.base.errors import TokenError, UsageError
from pellucid.data.generated.stories import longest, n_bytes, parse, stories
from pellucid.data.sources.generated import spaced_words
from pellucid.generation.constraints import compile_constraint
from pellucid.generation.constraints.stories import StoryConstraint
from pellucid.generation.constraints.token_mask import Constraint
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.tokenizer import Tokenizer
from tests.data.small_corpora import every_story
from tests.generation.constraints.walks import TOKENIZERS, Prefer, any_token, farthest_token, walk

SPELLING = ("bytes", "bpe", "unigram", "stories")


def compile_level(level: str, tokenizer: Tokenizer, stop: bool = True) -> Constraint:
    end = tokenizer.id_of("<end>")
    stop_ids = [end] if stop and end is not None else []
    found = compile_constraint(
        Sampling(grammar=f"stories:{level}"), tokenizer, tokenizer.vocab_size, stop_ids
    )
    assert found is not None
    return found


@pytest.mark.parametrize("prefer", [any_token, farthest_token])
@pytest.mark.parametrize("kind", SPELLING)
def test_a_walk_ends_in_a_story(kind: str, prefer: Prefer) -> None:
    tokenizer, rng = TOKENIZERS[kind](), random.Random(3)
    for stop in (True, False):
        found = compile_level("tiny", tokenizer, stop)
        needed = found.count_needed(found.start)
        for limit in (needed, needed + 1, needed + 5, 2 * needed):
            assert parse("tiny", tokenizer.decode(walk(found, limit, rng, prefer)))


@pytest.mark.parametrize("level", ["easy", "full"])
def test_a_walk_through_a_large_grammar_ends_in_a_story(level: str) -> None:
    own, rng = spaced_words(level), random.Random(4)
    for tokenizer in (own, TOKENIZERS["bpe"]()):
        found = compile_level(level, tokenizer)
        needed = found.count_needed(found.start)
        for limit in (needed, 2 * needed):
            assert parse(level, tokenizer.decode(walk(found, limit, rng)))


def test_every_story_is_possible() -> None:
    tokenizer = spaced_words("tiny")
    found = compile_level("tiny", tokenizer)
    for story in list(every_story("tiny"))[::9]:
        state, ids = found.start, tokenizer.encode(story.text)
        for place, id in enumerate(ids):
            assert found.compute_mask(state, len(ids) + 9 - place)[id], story.text
            state = found.advance(state, id)
        assert found.is_complete(state)


def test_a_large_story_is_possible_with_any_tokens() -> None:
    tokenizer = TOKENIZERS["bpe"]()
    found, text = compile_level("full", tokenizer), next(stories("full", 5, count=1)).text
    state, ids = found.start, tokenizer.encode(text)
    for id in ids:
        assert found.compute_mask(state, 5000)[id]
        state = found.advance(state, id)
    assert found.is_complete(state)


def test_what_is_copied_is_what_was_chosen() -> None:
    """A king is he, and no token begins 'She' after him."""
    tokenizer = spaced_words("tiny")
    found = compile_level("tiny", tokenizer)
    state = found.start
    for id in tokenizer.encode("Once there was a kind king named Tom."):
        state = found.advance(state, id)
    allowed = [tokenizer.token(int(id)) for id in np.flatnonzero(found.compute_mask(state, 200))]
    assert allowed == [" He"]


def test_the_number_needed_is_no_more_than_the_longest_story() -> None:
    tokenizer = TOKENIZERS["bytes"]()
    found = compile_level("tiny", tokenizer)
    shortest = min(n_bytes(story.text) for story in every_story("tiny"))
    assert shortest <= found.count_needed(found.start) <= longest("tiny", n_bytes)[0]


def test_a_level_that_does_not_exist_is_refused() -> None:
    for grammar in ("stories:hard", "stories", "tales:tiny"):
        with pytest.raises(UsageError, match="stories:tiny"):
            compile_constraint(Sampling(grammar=grammar), TOKENIZERS["bytes"](), 258, [])


def test_a_tokenizer_that_cannot_spell_a_story_is_refused() -> None:
    with pytest.raises(TokenError, match="spell"):
        compile_level("tiny", TOKENIZERS["words"]())


def test_a_name_that_cannot_be_spelled_is_never_begun() -> None:
    tokenizer = spaced_words("tiny")
    missing = tokenizer.id_of(" Tom")
    assert missing is not None
    sampling = Sampling(grammar="stories:tiny", banned_tokens=(missing,))
    found = compile_constraint(sampling, tokenizer, tokenizer.vocab_size, [])
    assert isinstance(found, StoryConstraint)
    for seed in range(10):
        assert " Tom" not in tokenizer.decode(walk(found, 60, random.Random(seed)))
