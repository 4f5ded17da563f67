"""What is computed from the grammar agrees with listing and with sampling."""

import math

import pytest

from pellucid.data.generated.stories import (
    count_stories,
    entropy,
    log_probability,
    longest,
    mean_words,
    n_bytes,
    n_words,
    vocabulary,
    words_of,
)
from pellucid.data.generated.stories.exact import _Longest
from pellucid.data.generated.stories.grammar import Option
from pellucid.data.generated.stories.levels import LEVELS, grammar
from tests.data.small_corpora import drawn, every_story


class _LongestOfAll(_Longest):
    """Leaves nothing out: slower, and plainly right."""

    def worth_visiting(self, options: tuple[Option, ...], ahead: frozenset[str]) -> tuple[Option, ...]:
        return options


def test_no_two_derivations_of_tiny_give_one_text_and_the_probabilities_sum_to_one() -> None:
    everything = list(every_story("tiny"))
    assert len({one.text for one in everything}) == len(everything) == count_stories("tiny")
    assert abs(math.fsum(math.exp(one.log_probability) for one in everything) - 1) < 1e-12


def test_tiny_has_the_entropy_and_the_lengths_of_its_list() -> None:
    everything = [(math.exp(one.log_probability), one.text) for one in every_story("tiny")]
    assert abs(entropy("tiny") - math.fsum(-p * math.log(p) for p, _ in everything)) < 1e-12
    assert abs(mean_words("tiny") - math.fsum(p * n_words(text) for p, text in everything)) < 1e-12
    assert longest("tiny")[0] == max(n_words(text) for _, text in everything)
    assert longest("tiny", n_bytes)[0] == max(n_bytes(text) for _, text in everything)


@pytest.mark.parametrize("level", ["easy", "full"])
def test_a_sample_agrees_with_the_exact_entropy_and_mean_length(level: str) -> None:
    sample = drawn(level)
    for exact, seen in (
        (entropy(level), [-s.log_probability for s in sample]),
        (mean_words(level), [float(n_words(s.text)) for s in sample]),
    ):
        mean = sum(seen) / len(seen)
        error = math.sqrt(sum((x - mean) ** 2 for x in seen)) / len(seen)
        assert abs(mean - exact) < 5 * error


@pytest.mark.parametrize(("level", "context"), [("easy", 128), ("full", 256)])
def test_the_longest_story_fits_the_context_with_two_tokens_to_spare(level: str, context: int) -> None:
    length, text = longest(level)
    assert length == len(words_of(text)) <= context - 2
    assert log_probability(level, text) > -math.inf


@pytest.mark.parametrize("level", LEVELS)
def test_no_story_is_longer_than_the_longest_which_the_grammar_writes(level: str) -> None:
    for measure in (n_words, n_bytes):
        length, text = longest(level, measure)
        assert measure(text) == length
        assert log_probability(level, text) > -math.inf
        assert max(measure(s.text) for s in drawn(level)[:2000]) <= length


@pytest.mark.parametrize("level", LEVELS)
def test_the_words_left_out_of_the_search_would_not_have_made_it_longer(level: str) -> None:
    assert _LongestOfAll(grammar(level), n_words).total()[0] == longest(level)[0]


@pytest.mark.parametrize(
    ("level", "least", "most"), [("tiny", 40, 60), ("easy", 200, 400), ("full", 600, 1000)]
)
def test_the_vocabulary_is_what_stories_are_made_of(level: str, least: int, most: int) -> None:
    words = vocabulary(level)
    assert least <= len(words) == len(set(words)) <= most
    seen = {word for s in drawn(level)[:6000] for word in words_of(s.text)}
    assert seen <= set(words)
    assert level == "full" or seen == set(words)
