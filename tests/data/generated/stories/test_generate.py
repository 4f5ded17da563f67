"""Stories come by seed and number, with the stated probabilities."""

from collections import Counter
from itertools import islice
from time import perf_counter

import pytest

from pellucid.data.generated.stories import GrammarError, overlap, stories, story
from pellucid.data.generated.stories.levels import LEVELS, grammar
from tests.data.small_corpora import drawn


@pytest.mark.parametrize("level", LEVELS)
def test_a_story_depends_on_seed_and_number_alone(level: str) -> None:
    together = [s.text for s in stories(level, 7, count=40)]
    assert together == [s.text for s in stories(level, 7, count=40, block=3)]
    assert together == [story(level, 7, number).text for number in range(40)]
    assert together[11:15] == [s.text for s in islice(stories(level, 7, start=11), 4)]


def test_far_stories_cost_no_more_than_near_ones() -> None:
    assert story("full", 7, 10**15).text != story("full", 7, 10**15 + 1).text


@pytest.mark.parametrize(("level", "most"), [("easy", 2), ("full", 0)])
def test_two_seeds_hardly_share_a_story(level: str, most: int) -> None:
    assert overlap(stories(level, 1, count=2000), stories(level, 2, count=2000)) <= most


def test_the_same_seed_overlaps_with_itself() -> None:
    assert overlap(stories("full", 1, count=50), stories("full", 1, start=25, count=50)) == 25


@pytest.mark.parametrize("level", LEVELS)
def test_options_are_drawn_as_often_as_the_grammar_says(level: str) -> None:
    counts = Counter(option for s in drawn(level) for option in s.options)
    tables: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for choice, key, option in grammar(level).options():
        tables.setdefault((choice, key), []).append((counts[option], option.probability))
    for where, counted in tables.items():
        total, freedom = sum(count for count, _ in counted), len(counted) - 1
        assert total, f"{where} never happened"
        square = sum((count - total * p) ** 2 / (total * p) for count, p in counted)
        assert square < freedom + 6 * (2 * freedom) ** 0.5 + 6, where


@pytest.mark.parametrize("level", LEVELS)
def test_the_probabilities_of_each_table_sum_to_one(level: str) -> None:
    sums: Counter[tuple[str, str]] = Counter()
    for choice, key, option in grammar(level).options():
        sums[choice, key] += option.probability  # type: ignore[assignment]
    assert all(abs(total - 1) < 1e-12 for total in sums.values())


def test_a_level_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(GrammarError, match=r"tiny, easy, full.*'eazy'.*'easy'"):
        story("eazy", 1, 0)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(GrammarError, match=r"seed=-1 and start=0 count from 0"):
        story("easy", -1, 0)


@pytest.mark.timed
@pytest.mark.parametrize("level", ["easy", "full"])
def test_ten_megabytes_a_second_come_from_one_core(level: str) -> None:
    def speed() -> float:
        begin = perf_counter()
        size = sum(len(s.text) for s in stories(level, 1, count=3000))
        return size / (perf_counter() - begin)

    assert max(speed() for _ in range(5)) > 10e6
