"""The draws of a healthy model are replayed and counted without a departure; wrong ones have a name."""

import numpy as np
import pytest

from pellucid.generation.request import Completion
from pellucid.generation.samplers import drawn_token
from pellucid.generation.settings.sampling import Sampling
from pellucid.verification.checks.check import ReducedModel
from pellucid.verification.checks.generation.sampling import (
    Drawn,
    SamplingCase,
    choose_count,
    choose_temperature,
    count_draws,
    find_dependence,
)
from tests.verification.checks.subjects import make_subject, measure


@pytest.mark.rotating
@pytest.mark.parametrize("gain", [0.0, 0.01, 1.0, 100.0])
def test_a_flat_or_a_sharp_model_draws_as_it_should(gain: float) -> None:
    finding = measure("sampled", gain=gain)
    assert finding.verdict == "equal", f"{finding.at}: {finding.message}"
    assert "would show" in finding.measured


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_draws_in_16_bits_are_replayed_from_their_own_logits(dtype: str) -> None:
    assert measure("sampled", dtype=dtype).verdict == "equal"


@pytest.mark.rotating
@pytest.mark.parametrize("more", [{"vocab_size": 2}, {"vocab_size": 4}, {"context_length": 2}])
def test_a_tiny_model_draws_as_it_should(more: dict[str, object]) -> None:
    assert measure("sampled", **more).verdict == "equal"


def test_a_probability_that_is_a_little_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cumulative probability is a tenth too small: less than counting shows."""
    right = drawn_token.find_place
    monkeypatch.setattr(drawn_token, "find_place", lambda reached, u: right(reached, min(1.1 * u, 0.999)))
    finding = measure("sampled")
    assert (finding.verdict, finding.at) == ("BUG", "sampling.draw")
    assert "u = " in finding.message and "token" in finding.measured


def test_frequencies_that_depart_are_found_whatever_u_is(monkeypatch: pytest.MonkeyPatch) -> None:
    right = drawn_token.find_place
    monkeypatch.setattr(drawn_token, "find_place", lambda reached, u: right(reached, u**2))
    model = ReducedModel(make_subject())
    finding = count_draws(model, model.ids(5), replayed=1)
    assert (finding.verdict, finding.at) == ("BUG", "sampling.draw")
    assert "in which the specification's" in finding.message


def test_random_numbers_of_every_axis_must_differ() -> None:
    numbers = np.random.default_rng(0).random((5, 12, 4))
    assert find_dependence(numbers) is None
    for axis, name in enumerate(("seed", "choice", "place")):
        same = np.repeat(numbers.take([0], axis), numbers.shape[axis], axis)
        finding = find_dependence(same)
        assert finding is not None and finding.at == f"sampling.u[{name}]"
    near = numbers.copy()
    near[:, 1:] = (near[:, :1] + 1e-6 * np.arange(1, 12)[None, :, None]) % 1
    finding = find_dependence(near)
    assert finding is not None and finding.at == "sampling.u[choice]"


def test_settings_lie_between_two_tokens() -> None:
    logits = np.array([5.0, 4.0, 3.9, 1.0, 0.5, 0.4])
    assert choose_count(logits) == 3
    assert choose_count(np.zeros(2)) == 2
    for ordered in (logits, 100 * logits, 0.01 * logits, np.zeros(4)):
        assert not 0.7 < choose_temperature(ordered) < 1.4


def test_rows_of_logits_follow_the_texts_that_go_on() -> None:
    texts = [Completion(0, (1,), "", "stop"), Completion(1, (2, 3), "", "length")]
    rows = [np.zeros((1, 4)), np.ones((1, 4))]
    drawn = Drawn(SamplingCase("draw", Sampling()), [0], texts, rows)
    assert [(choice, place, row[0]) for choice, place, row in drawn.tokens()] == [
        (0, 0, 0.0),
        (1, 0, 0.0),
        (1, 1, 1.0),
    ]
