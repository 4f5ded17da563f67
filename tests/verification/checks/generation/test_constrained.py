"""Texts of random tokens, and the search with which masks are compared."""

from pellucid.generation.constraints import compile_constraint
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.word_level import CharacterTokenizer
from pellucid.verification.checks.generation.constrained import TextSearch, judge_walks, walk_masks
from pellucid.verification.checks.generation.constraint_cases import MASK_CASES, OWN_CASES
from tests.formats.gguf import random_models


def test_texts_of_random_tokens_are_right_in_the_models_own_tokenizer() -> None:
    tokenizer = random_models.tokenizer()
    assert judge_walks(tokenizer, [1, 2]) == "2 of 2 texts in its own tokens"
    constraint = compile_constraint(
        Sampling(**OWN_CASES[0].settings), tokenizer, tokenizer.vocab_size, [1, 2]
    )
    assert constraint is not None
    assert OWN_CASES[0].accepts(tokenizer.decode(walk_masks(constraint, [1, 2])))


def test_a_tokenizer_that_cannot_spell_a_text_is_not_called_wrong() -> None:
    assert judge_walks(CharacterTokenizer(tuple("abcd")), []) == "0 of 2 texts in its own tokens"


def test_a_search_counts_the_tokens_that_complete_a_text() -> None:
    """a(b|c)?1 with the tokens a, b, ab, c, 1 and c1."""
    search = TextSearch(MASK_CASES[0])
    assert [search("", left) for left in (1, 2)] == [False, True]
    assert [search("a", left) for left in (0, 1)] == [False, True]
    assert search("a1", 0) and not search("a1b", 9) and not search("b", 9)
