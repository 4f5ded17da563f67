"""The choice of a token: as often as its probability says, never a removed one, the same in any batch, and
every number of its entry as defined."""

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.base.errors import ConfigError, PellucidError, UsageError
from pellucid.generation.ledger.entry import MOST_CANDIDATES, SHOWN_CANDIDATES, Entry
from pellucid.generation.samplers import chain as chains
from pellucid.generation.samplers.chain import (
    Chain,
    ChainState,
    Chosen,
    Wanted,
    choose,
    process,
)
from pellucid.generation.samplers.drawn_token import draw_uniform
from pellucid.generation.settings.sampling import Sampling

LOGITS = torch.tensor([0.0, 1.0, -2.0, 3.0, -math.inf, 2.0, 0.5, -1.0])


def make_states(
    size: int, count: int = 1, *, seed: int = 0, prompt: Sequence[int] = (1, 2), **settings: Any
) -> list[ChainState]:
    chain = Chain.make(Sampling(**settings), prompt, size, (), seed)
    return [ChainState(chain, choice) for choice in range(count)]


def take(logits: Tensor, **settings: Any) -> int:
    (found,) = choose(logits[None], make_states(len(logits), **settings))
    assert isinstance(found, Chosen), found
    return found.id


def refuse(logits: Tensor, **settings: Any) -> PellucidError:
    (found,) = choose(logits[None], make_states(len(logits), **settings))
    assert isinstance(found, PellucidError)
    return found


def counts(logits: Tensor, draws: int, seed: int = 0, **settings: Any) -> Tensor:
    """How often each token is drawn, by as many choices of one request."""
    states = make_states(len(logits), draws, seed=seed, **settings)
    drawn = [chosen.id for chosen in choose(logits.expand(draws, -1), states) if isinstance(chosen, Chosen)]
    assert len(drawn) == draws
    return torch.bincount(torch.tensor(drawn), minlength=len(logits))


def unlikeliness(observed: Tensor, probabilities: Tensor) -> tuple[float, float]:
    """Chi-square, and the p of as much or more by chance: Q(k/2, χ²/2)."""
    real = probabilities > 0
    wanted = probabilities[real] * observed.sum()
    chi = ((observed[real] - wanted) ** 2 / wanted).sum().double()
    freedom = torch.tensor((int(real.sum()) - 1) / 2, dtype=torch.float64)
    return float(chi), float(torch.special.gammaincc(freedom, chi / 2))


def distributed(draws: int, seed: int, settings: dict[str, Any]) -> None:
    observed = counts(LOGITS, draws, seed, **settings)
    probabilities = process(LOGITS[None], make_states(len(LOGITS), **settings))[0].softmax(-1)
    chi, p = unlikeliness(observed, probabilities)
    assert p > 0.001, f"chi-square {chi:.1f}, p = {p:.5f}"
    assert not observed[probabilities == 0].any()


def test_samplers_without_anything_to_do_leave_a_greedy_token_to_the_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chains, "_choose", None)
    assert take(LOGITS, temperature=0.0, min_new_tokens=3) == 3  # there is no stop token
    monkeypatch.undo()
    assert take(LOGITS, temperature=0.0, min_new_tokens=3, banned_tokens=(3,)) == 5


# ---- the draw

SETTINGS = [
    {"temperature": 0.7},
    {"temperature": 1.0},
    {"temperature": 2.0},
    {"temperature": 1.5, "top_k": 4},
    {"temperature": 1.0, "top_p": 0.8},
]
EXTREMES: list[dict[str, Any]] = [
    {"temperature": 0.3},
    {"temperature": 10.0},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 1.0, "typical_p": 0.7},
    {"temperature": 1.0, "banned_tokens": [3, 0], "presence_penalty": 0.5},
]


@pytest.mark.rotating
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_come_as_often_as_their_probabilities_say(settings: dict[str, Any]) -> None:
    distributed(10_000, 1, settings)


@pytest.mark.torture
@pytest.mark.parametrize("settings", EXTREMES + SETTINGS, ids=str)
def test_a_hundred_thousand_tokens_come_as_often_as_they_should(settings: dict[str, Any]) -> None:
    distributed(100_000, 2, settings)


def test_the_tokens_of_one_text_come_as_often_as_they_should() -> None:
    (state,) = make_states(len(LOGITS), temperature=1.0)
    drawn = []
    for _ in range(2000):
        (chosen,) = choose(LOGITS[None], [state])
        assert isinstance(chosen, Chosen)
        drawn.append(chosen.id)
        state.append(chosen.id)
    observed = torch.bincount(torch.tensor(drawn), minlength=len(LOGITS))
    assert unlikeliness(observed, LOGITS.double().softmax(-1))[1] > 0.001


def test_the_measure_finds_a_biased_generator() -> None:
    observed = counts(LOGITS, 10_000, temperature=1.2)
    assert unlikeliness(observed, LOGITS.double().softmax(-1))[1] < 1e-6


@pytest.mark.parametrize("possible", [[0], [7], [3], [0, 7], [2, 3]])
def test_a_token_without_probability_is_never_drawn(possible: list[int]) -> None:
    logits = torch.full((8,), -math.inf)
    logits[possible] = 0.0
    assert counts(logits, 500, temperature=1.0).nonzero().flatten().tolist() == possible


@pytest.mark.parametrize("u", [0.0, 0.5, 1.0 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_real_tokens(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "draw_uniform", lambda *key: u)
    logits = torch.tensor([-math.inf, -math.inf, 0.3, 0.1, 0.2, -math.inf])
    assert take(logits, temperature=1.0) == {0.0: 2, 0.5: 4, 1.0 - 2**-53: 3}[u]
    for size in (1000, 10_000):
        flat = torch.cat([torch.zeros(size), torch.full((24,), -math.inf)])
        assert abs(take(flat, temperature=1.0) - u * (size - 1)) <= 1


def test_the_draw_is_in_order_of_score_and_of_equals_the_smaller_id_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shares of 0.4, 0.4, 0.1 and 0.1: tokens 1, 3, 0, 2."""
    logits = torch.tensor([0.1, 0.4, 0.1, 0.4], dtype=torch.float64).log()
    for u, token in ((0.0, 1), (0.39, 1), (0.41, 3), (0.79, 3), (0.81, 0), (0.89, 0), (0.91, 2)):
        monkeypatch.setattr(chains, "draw_uniform", lambda *key, u=u: u)
        assert take(logits, temperature=1.0) == token


def test_a_cumulative_probability_of_exactly_u_does_not_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "draw_uniform", lambda *key: 0.5)
    assert take(torch.zeros(2), temperature=1.0) == 1
    assert take(torch.zeros(8192), temperature=1.0) == 4096


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_a_large_vocabulary_draws_what_a_whole_sort_gives(spread: float) -> None:
    """Rounded scores have many ties; and few tokens are sorted where few suffice."""
    logits = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).mul(spread * 64).round() / 64
    order = logits.double().sort(descending=True, stable=True)
    reached = order.values.softmax(-1).cumsum(-1)
    states = make_states(len(logits), 50, temperature=1.0)
    for state, chosen in zip(states, choose(logits.expand(50, -1), states), strict=True):
        place = int(torch.searchsorted(reached, draw_uniform(0, state.choice, 0), right=True))
        assert isinstance(chosen, Chosen) and chosen.id == order.indices[place]


@pytest.mark.parametrize("temperature", [1e-6, 1e-5])
def test_hardly_any_temperature_is_the_likeliest_token(temperature: float) -> None:
    assert counts(LOGITS, 50, temperature=temperature)[3] == 50


def test_a_large_temperature_makes_every_token_alike() -> None:
    observed = counts(LOGITS, 3000, temperature=1e6)
    real = torch.isfinite(LOGITS)
    assert observed[4] == 0
    assert unlikeliness(observed, real / real.sum())[1] > 0.001


def test_temperature_zero_is_the_largest_score_and_draws_no_random_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(chains, "draw_uniform")
    assert take(LOGITS) == 3
    assert take(torch.tensor([1.0, 2.0, 2.0])) == 1
    assert take(torch.tensor([1.0, 2.0, 2.0]), top_k=1) == 1
    assert take(torch.tensor([1.0, 2.0, 2.0]).bfloat16()) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_logits_give_the_same_tokens_in_every_dtype(dtype: torch.dtype) -> None:
    exact = LOGITS.to(dtype)
    settings = {"temperature": 1.0, "top_p": 0.9}
    assert torch.equal(counts(exact, 200, **settings), counts(exact.double(), 200, **settings))


def test_u_depends_on_seed_choice_and_step() -> None:
    drawn = {draw_uniform(s, c, t) for s in (0, 1, 2**64 - 1) for c in (0, 1) for t in (0, 1)}
    assert len(drawn) == 12 and all(0 <= u < 1 for u in drawn)


# ---- many rows at once

MIXED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_k": 7},
    {"top_k": 3},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.9},
    {"temperature": 2.0, "samplers": ({"kind": "top_k", "top_k": 9}, {"kind": "top_k", "top_k": 5})},
]


@pytest.mark.parametrize("size", [50, 6000])
def test_a_row_has_the_same_scores_and_token_alone_and_in_any_batch(size: int) -> None:
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(40, size, generator=random) * 3
    states = [make_states(size, row + 1, seed=row, **MIXED[row % len(MIXED)])[row] for row in range(40)]
    scores, chosen = process(logits, states), choose(logits, states)
    with_entries = choose(logits, states, [Wanted(entry=True, logprob=True)] * 40)
    order = torch.randperm(40, generator=random).tolist()
    moved = choose(logits[order], [states[i] for i in order])
    for row in range(40):
        alone = logits[row : row + 1]
        assert torch.equal(process(alone, [states[row]])[0], scores[row])
        assert choose(alone, [states[row]]) == [chosen[row]] == [moved[order.index(row)]]
        recorded = with_entries[row]
        assert isinstance(recorded, Chosen) and recorded.id == chosen[row].id  # type: ignore[union-attr]
        assert choose(alone, [states[row]], [Wanted(entry=True, logprob=True)]) == [recorded]


def test_the_logits_are_left_as_they_are() -> None:
    logits = LOGITS.double()[None].clone()
    choose(logits, make_states(8, temperature=0.7, top_k=3), [Wanted(entry=True)])
    assert torch.equal(logits[0], LOGITS.double())


def test_greedy_rows_without_samplers_are_not_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(chains, "process")
    assert [chosen.id for chosen in choose(LOGITS.expand(3, -1), make_states(8, 3))] == [3, 3, 3]  # type: ignore[union-attr]


def test_the_number_of_threads_changes_nothing() -> None:
    """A sum over one long row would be split over them."""
    logits = torch.randn(3, 60_000, generator=torch.Generator().manual_seed(0)) * 3
    settings = {"temperature": 0.9, "top_p": 0.97, "typical_p": 0.9, "min_p": 1e-5}
    states, before, found = make_states(60_000, 3, **settings), torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            found.append((process(logits, states), choose(logits, states, [Wanted(entry=True)] * 3)))
            alone = [choose(logits[i : i + 1], states[i : i + 1], [Wanted(entry=True)])[0] for i in range(3)]
            assert alone == found[-1][1]
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


# ---- errors


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("logits", "words"),
    [
        ([0.0, math.nan, math.nan], "token 1 is NaN"),
        ([0.0, 1.0, math.inf], "token 2 is +∞"),
        ([math.inf, 1.0, math.nan], "token 0 is +∞"),
        ([-math.inf] * 3, "every logit is −∞"),
    ],
)
def test_logits_that_are_not_numbers_are_named(logits: list[float], words: str, temperature: float) -> None:
    error = refuse(torch.tensor(logits), temperature=temperature)
    assert isinstance(error, UsageError) and words in str(error)


class Broken:
    """A constraint that fails at once, or allows nothing."""

    start = 0

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def compute_mask(self, state: int, remaining: int) -> Any:
        if self.error:
            raise self.error
        return np.zeros(8, bool)


def test_an_error_ends_its_own_row_alone() -> None:
    error = ConfigError("no such state.")
    logits, states = LOGITS.repeat(6, 1), make_states(8, 6, temperature=1.0)
    wanted = choose(logits, states)
    logits[1, 6] = math.nan
    for row, broken in ((2, Broken(error)), (3, Broken(None)), (5, Broken(ValueError("no state 7")))):
        chain = Chain.make(Sampling(temperature=1.0), (), 8, (), 0, broken)
        states[row] = ChainState(chain, row)
    found = choose(logits, states, [Wanted(entry=flag) for flag in (False, False, True, True, False, False)])
    assert found[0] == wanted[0] and found[4] == wanted[4]
    assert "token 6 is NaN" in str(found[1])
    assert found[2] is error
    assert isinstance(found[3], UsageError) and str(found[3]).startswith("constraint removed the last token")
    assert isinstance(found[5], UsageError) and str(found[5]) == "the sampler constraint failed: no state 7."


def test_a_sampler_that_is_none_is_refused_when_the_chain_is_made() -> None:
    for samplers in (("top_q",), ({"kind": "top_k"},), ({"kind": "top_k", "top_k": 0},)):
        with pytest.raises(PellucidError):
            make_states(8, temperature=1.0, samplers=samplers)


# ---- the entry


def entry_of(logits: Tensor, **settings: Any) -> Entry:
    (chosen,) = choose(logits[None], make_states(len(logits), **settings), [Wanted(entry=True, logprob=True)])
    assert isinstance(chosen, Chosen) and chosen.entry is not None
    assert chosen.id == chosen.entry.id and chosen.logprob == -chosen.entry.surprisal
    return chosen.entry


def test_an_entry_has_every_number_of_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities of 1/2, 1/4, 1/8, 1/16 and 1/16; at temperature ½ the first are 16 : 4 : 1 of 21."""
    monkeypatch.setattr(chains, "draw_uniform", lambda *key: 0.8)
    logits = torch.tensor([1 / 16, 1 / 4, 1 / 2, 1 / 16, 1 / 8], dtype=torch.float64).log()
    entry = entry_of(logits, temperature=0.5, top_k=3)
    assert (entry.id, entry.u, entry.rank, entry.kept) == (1, 0.8, 1, 3)
    assert entry.logit == math.log(1 / 4)
    assert entry.probability == pytest.approx(4 / 21, rel=1e-14)
    assert entry.surprisal == pytest.approx(math.log(4), rel=1e-14)
    assert entry.entropy == pytest.approx(1.875 * math.log(2), rel=1e-14)
    assert [candidate.id for candidate in entry.candidates] == [2, 1, 4]
    assert [c.probability for c in entry.candidates] == pytest.approx([16 / 21, 4 / 21, 1 / 21], rel=1e-14)
    assert [c.score for c in entry.candidates] == pytest.approx([0, -math.log(4), -math.log(16)], rel=1e-14)
    assert entry.log_normalizer == pytest.approx(math.log(21 / 16), rel=1e-14)
    (removal,) = entry.removed
    assert (removal.sampler, removal.count, removal.ids) == ("top_k", 2, (0, 3))
    assert removal.mass == pytest.approx(2 / 86, rel=1e-14)


def test_a_greedy_entry_has_no_u() -> None:
    entry = entry_of(LOGITS)
    assert (entry.id, entry.u, entry.rank, entry.kept, entry.removed) == (3, None, 0, 7, ())
    assert entry.candidates[0].id == 3 and len(entry.candidates) == 7


@pytest.mark.parametrize("size", [3000, 20_000])
def test_candidates_reach_down_to_the_chosen_token_and_are_at_least_ten(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0))
    peaked = logits.clone()
    peaked[17] = 30.0
    assert len(entry_of(peaked, temperature=1.0).candidates) >= SHOWN_CANDIDATES
    for u in (0.001, 0.1, 0.999):
        monkeypatch.setattr(chains, "draw_uniform", lambda *key, u=u: u)
        entry = entry_of(logits, temperature=1.0)
        shown = entry.candidates
        assert [c.score for c in shown] == sorted((c.score for c in shown), reverse=True)
        for c in shown[:20]:
            assert c.probability == pytest.approx(math.exp(c.score - entry.log_normalizer), rel=1e-12)
        reached = np.cumsum([c.probability for c in shown])
        if u < reached[-1]:
            assert shown[int(np.searchsorted(reached, u, side="right"))].id == entry.id
        else:
            assert len(shown) == MOST_CANDIDATES


def test_what_is_wanted_of_a_row_does_not_change_its_token_and_depends_on_no_other_row() -> None:
    logits = torch.randn(20, 300, generator=torch.Generator().manual_seed(0))
    states = make_states(300, 20, temperature=1.0)
    rng = random.Random(0)
    wanted = [
        Wanted(rng.random() < 0.3, rng.random() < 0.5, rng.choice([0, 1, 20]), rng.random() < 0.5)
        for _ in states
    ]
    plain, found = choose(logits, states), choose(logits, states, wanted)
    for row, (one, needed) in enumerate(zip(found, wanted, strict=True)):
        assert isinstance(one, Chosen)
        assert one.id == plain[row].id  # type: ignore[union-attr]
        assert choose(logits[row : row + 1], states[row : row + 1], [needed]) == [one]
        assert (one.logprob is None) != needed.logprob and len(one.top) == needed.top
        if needed.top and needed.logprob:
            assert dict(one.top).get(one.id, one.logprob) == one.logprob
        if one.entry is not None and one.uncertainty is not None:
            entry = one.entry
            assert one.uncertainty == (entry.entropy, entry.rank, entry.surprisal)
