"""The rule for a full context: what fits is generated, what does not is refused with the number that fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.base.errors import TokenError, UsageError
from pellucid.generation.context import check_fits, shorten
from pellucid.generation.settings.sampling import DEFAULT_NEW_TOKENS, Sampling


def test_as_many_as_fit_are_generated_where_no_number_is_given() -> None:
    assert check_fits(60, Sampling(), 64) == 4
    assert check_fits(1, Sampling(), 10_000) == DEFAULT_NEW_TOKENS


def test_a_number_that_fits_is_that_number() -> None:
    assert check_fits(60, Sampling(max_new_tokens=4), 64) == 4
    assert check_fits(64, Sampling(max_new_tokens=0), 64) == 0


@pytest.mark.parametrize(
    ("length", "sampling", "facts"),
    [
        (60, Sampling(max_new_tokens=5), ("60", "64", "at most 4", "59")),
        (64, Sampling(), ("64", "63")),
        (80, Sampling(max_new_tokens=0), ("80", "64")),
        (60, Sampling(min_new_tokens=5), ("at most 4",)),
        (60, Sampling(forced_tokens=(1, 2, 3, 4, 5)), ("at most 4",)),
    ],
)
def test_what_does_not_fit_is_refused_with_the_number_that_fits(
    length: int, sampling: Sampling, facts: tuple[str, ...]
) -> None:
    with pytest.raises(TokenError) as refusal:
        check_fits(length, sampling, 64)
    assert all(fact in str(refusal.value) for fact in facts)


@pytest.mark.parametrize("rule", ["crop", "roll"])
def test_a_text_that_goes_on_has_any_length(rule: str) -> None:
    assert check_fits(1000, Sampling(context=rule, keep=int(rule == "roll"), max_new_tokens=500), 64) == 500


def test_a_kept_beginning_leaves_room() -> None:
    assert check_fits(9, Sampling(context="roll", keep=63), 64)
    with pytest.raises(TokenError, match="63"):
        check_fits(9, Sampling(context="roll", keep=64), 64)


@pytest.mark.parametrize("rule", [{}, {"context": "crop"}])
def test_a_bidirectional_prefix_is_read_in_one_call(rule: dict[str, str]) -> None:
    sampling = Sampling(**rule)  # type: ignore[arg-type]
    assert check_fits(5, sampling, 64, bidirectional_prefix=5)
    for length in (0, 4):
        with pytest.raises(TokenError):
            check_fits(length, sampling, 64, bidirectional_prefix=5)
    with pytest.raises(UsageError):
        check_fits(9, sampling, 64, bidirectional_prefix=float("inf"))
    with pytest.raises(UsageError):
        check_fits(99, sampling, 64, bidirectional_prefix=65)


def test_crop_keeps_the_last_half_and_roll_the_first_tokens_too() -> None:
    assert shorten(range(9), "crop", 0, 8) == [5, 6, 7, 8]
    assert shorten(range(100), "roll", 2, 8) == [0, 1, 97, 98, 99]
    assert shorten(range(8), "crop", 0, 8) == list(range(8))
    assert shorten(range(9), "crop", 0, 8, bidirectional_prefix=6) == [3, 4, 5, 6, 7, 8]


@given(
    context=st.integers(1, 40),
    length=st.integers(1, 100),
    rule=st.sampled_from(["crop", "roll"]),
    data=st.data(),
)
def test_what_is_read_again_fits_and_ends_with_the_last_token(
    context: int, length: int, rule: str, data: st.DataObject
) -> None:
    keep, prefix = data.draw(st.integers(0, context - 1)), data.draw(st.integers(0, context))
    kept = shorten(range(length), rule, keep, context, prefix)
    assert min(length, max(prefix, 1)) <= len(kept) <= context
    assert kept[-1] == length - 1 and kept == sorted(set(kept))
    if length > context and rule == "roll":
        assert kept[:keep] == list(range(keep))
