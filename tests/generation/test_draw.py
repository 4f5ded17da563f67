"""One token from the scores: as often as its probability says, and never one without any."""

import math

import pytest
import torch
from torch import Tensor

from pellucid.errors import UsageError
from pellucid.generation.draw import draw
from pellucid.generation.loop import check_request

LOGITS = torch.tensor([0.0, 1.0, -2.0, 3.0, -math.inf, 2.0, 0.5, -1.0])


def counts(logits: Tensor, temperature: float, draws: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.tensor([draw(logits, temperature, rng) for _ in range(draws)])
    return torch.bincount(drawn, minlength=len(logits))


def unlikeliness(observed: Tensor, probabilities: Tensor) -> tuple[float, float]:
    """Chi-square, and the p of as much or more by chance: Q(k/2, χ²/2)."""
    real = probabilities > 0
    wanted = probabilities[real] * observed.sum()
    chi = ((observed[real] - wanted) ** 2 / wanted).sum().double()
    freedom = torch.tensor((int(real.sum()) - 1) / 2, dtype=torch.float64)
    return float(chi), float(torch.special.gammaincc(freedom, chi / 2))


def distributed(draws: int, temperature: float, seed: int) -> None:
    observed = counts(LOGITS, temperature, draws, seed)
    probabilities = torch.softmax(LOGITS.double() / temperature, -1)
    chi, p = unlikeliness(observed, probabilities)
    assert p > 0.001, f"chi-square {chi:.1f}, p = {p:.5f}"
    assert observed[4] == 0


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_tokens_come_as_often_as_their_probabilities_say(temperature: float) -> None:
    distributed(10_000, temperature, seed=1)


@pytest.mark.torture
@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0, 10.0])
def test_a_hundred_thousand_tokens_come_as_often_as_they_should(temperature: float) -> None:
    distributed(100_000, temperature, seed=2)


def test_the_measure_finds_a_biased_generator() -> None:
    probabilities = torch.softmax(LOGITS.double(), -1)
    _, p = unlikeliness(counts(LOGITS, 1.2, 10_000), probabilities)
    assert p < 1e-6


@pytest.mark.parametrize("possible", [[0], [7], [3], [0, 7], [2, 3]])
def test_a_token_without_probability_is_never_drawn(possible: list[int]) -> None:
    logits = torch.full((8,), -math.inf)
    logits[possible] = 0.0
    observed = counts(logits, 1.0, 500)
    assert set(observed.nonzero().flatten().tolist()) == set(possible)


@pytest.mark.parametrize("u", [0.0, 0.5, 1.0 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_real_tokens(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """u = 0 must pass over leading tokens without probability, u just below 1 over trailing ones."""
    monkeypatch.setattr(torch, "rand", lambda *shape, **more: torch.tensor(u, dtype=torch.float64))
    logits = torch.tensor([-math.inf, -math.inf, 0.3, 0.1, 0.2, -math.inf])
    assert draw(logits, 1.0, torch.Generator()) == {0.0: 2, 0.5: 3, 1.0 - 2**-53: 4}[u]
    flat = torch.cat([torch.zeros(1000), torch.full((24,), -math.inf)])
    assert draw(flat, 1.0, torch.Generator()) < 1000


def test_no_warmth_is_the_likeliest_token_and_draws_no_random_number() -> None:
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    assert draw(LOGITS, 0, rng) == 3
    assert torch.equal(before, rng.get_state())
    assert draw(torch.tensor([1.0, 2.0, 2.0]), 0, rng) == 1  # of equals the first


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 1e-320])
def test_hardly_any_warmth_is_the_likeliest_token(temperature: float) -> None:
    assert counts(LOGITS, temperature, 50).argmax() == 3
    assert counts(LOGITS, temperature, 50)[3] == 50


def test_great_heat_is_every_token_alike() -> None:
    observed = counts(LOGITS, 1e9, 3000)
    real = torch.isfinite(LOGITS)
    assert observed[4] == 0
    assert unlikeliness(observed, real / real.sum())[1] > 0.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_scores_and_rng_state_give_the_same_token_in_every_type(dtype: torch.dtype) -> None:
    exact = LOGITS.to(dtype)
    assert torch.equal(counts(exact, 1.0, 200), counts(exact.double(), 1.0, 200))


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf, -math.inf])
def test_a_temperature_that_means_nothing_is_refused(temperature: float) -> None:
    with pytest.raises(UsageError, match="temperature must be"):
        check_request(1, temperature, None, False)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "scores", [[0.0, math.nan, 1.0], [-math.inf] * 3, [0.0, math.inf, 1.0], [math.nan] * 3]
)
def test_scores_that_are_not_numbers_are_refused(scores: list[float], temperature: float) -> None:
    with pytest.raises(UsageError, match="dtype"):
        draw(torch.tensor(scores), temperature, torch.Generator())
