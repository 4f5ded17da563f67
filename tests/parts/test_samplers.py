"""Samplers by kind: against those of transformers, by hand, on a tape, and what their settings cannot be."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from pellucid.base.errors import ConfigError, TokenError
from pellucid.generation.samplers.chain import Chain, ChainState, process
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts.samplers import Sampler, Table
from pellucid.parts.samplers.banned_tokens import BannedTokens
from pellucid.parts.samplers.forced_tokens import ForcedTokens
from pellucid.parts.samplers.frequency_penalty import FrequencyPenalty
from pellucid.parts.samplers.logit_bias import LogitBias
from pellucid.parts.samplers.min_new_tokens import MinNewTokens
from pellucid.parts.samplers.min_p import MinP
from pellucid.parts.samplers.presence_penalty import PresencePenalty
from pellucid.parts.samplers.repetition_penalty import RepetitionPenalty
from pellucid.parts.samplers.temperature import Temperature
from pellucid.parts.samplers.top_k import TopK
from pellucid.parts.samplers.top_p import TopP
from pellucid.parts.samplers.typical_p import TypicalP
from tests.parts.samplers.rows import (
    NEW,
    PROMPT,
    V,
    agree,
    apply,
    check_twin,
    kept,
    log_softmax,
    logits_of,
    many,
    random_rows,
)

BANNED, BIAS, STOPS = (3, 0, 17), {3: 1.5, 0: -2.0, 17: 30.0}, (5, 7)


class Case(NamedTuple):
    """A sampler, and its like of transformers."""

    part: Sampler
    theirs: Callable[[Tensor, Tensor], Tensor]
    ids: tuple[int, ...] = (*PROMPT, *NEW)
    rows: Callable[[Tensor], Tensor] = lambda rows: rows
    """What keeps equal scores away, where transformers orders them in another way."""
    view: Callable[[Tensor], Tensor] = lambda scores: scores
    more: Mapping[str, Any] = MappingProxyType({})


def spread(step: float) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows + torch.arange(V) * -step


def make_cases() -> list[Case]:
    """Returns every kind that transformers has, with its settings.

    Of equally probable tokens at the border of top-p, transformers keeps the one that its sort puts first,
    and we the one with the smaller id; of those equally far from the entropy it keeps all, and we the
    smallest set. A temperature divides scores there, and probabilities are compared.
    """
    least = (0, len(NEW), len(NEW) + 1, 100)
    at_least = transformers.MinNewTokensLengthLogitsProcessor
    return [
        Case(BannedTokens(BANNED), transformers.NoBadWordsLogitsProcessor([[id] for id in BANNED])),
        Case(
            LogitBias(BIAS),
            transformers.SequenceBiasLogitsProcessor([[[id], bias] for id, bias in BIAS.items()]),
        ),
        Case(
            ForcedTokens((7, 3)),
            transformers.ForcedBOSTokenLogitsProcessor(7),
            ids=(0,),
            rows=lambda rows: rows.nan_to_num(neginf=-50.0),
            view=lambda scores: scores.softmax(-1),
            more={"new": []},
        ),
        *(
            Case(
                MinNewTokens(count),
                at_least(len(PROMPT), count, list(STOPS), device="cpu"),
                more={"stop": STOPS},
            )
            for count in least
        ),
        *(Case(MinP(p), transformers.MinPLogitsWarper(p)) for p in (0.0, 0.05, 0.7)),
        *(Case(RepetitionPenalty(x), transformers.RepetitionPenaltyLogitsProcessor(x)) for x in (0.5, 1.3)),
        *(
            Case(Temperature(t), transformers.TemperatureLogitsWarper(t), view=log_softmax)
            for t in (0.3, 1.0, 2.5)
        ),
        *(Case(TopK(k), transformers.TopKLogitsWarper(k)) for k in (1, 5, V, V + 1, 10**12)),
        *(
            Case(TopP(p), transformers.TopPLogitsWarper(p), rows=spread(1e-9))
            for p in (0.0, 0.1, 0.5, 0.9, 0.999)
        ),
        Case(TopP(1.0), lambda ids, rows: rows),
        *(Case(TypicalP(p), transformers.TypicalLogitsWarper(p), rows=spread(1e-6)) for p in (0.1, 0.5, 0.9)),
    ]


@many
@pytest.mark.parametrize("case", make_cases(), ids=lambda case: str(case.part))
def test_the_scores_are_those_of_transformers(count: int, case: Case) -> None:
    rows = case.rows(random_rows(count))
    theirs = case.theirs(torch.tensor([case.ids] * count), rows.clone())
    agree(case.view(apply(case.part, rows, **case.more)), case.view(theirs))


@pytest.mark.parametrize(
    "part",
    [
        BannedTokens(BANNED),
        ForcedTokens((1, 2, 3, 4, 5)),
        FrequencyPenalty(0.7),
        LogitBias(BIAS),
        MinNewTokens(9),
        MinP(0.1),
        PresencePenalty(0.7),
        RepetitionPenalty(1.2),
        Temperature(0.7),
        TopK(4),
        TopP(0.0),
        TopP(0.5),
        TopP(0.9),
        TypicalP(0.6),
    ],
    ids=str,
)
def test_the_tape_computes_the_same(part: Sampler) -> None:
    check_twin(part, random_rows(30), **({"stop": STOPS} if part.kind == "min_new_tokens" else {}))


FOUR, SURPRISING = logits_of(0.25, 0.125, 0.5, 0.125), logits_of(0.5, 0.25, 0.125, 0.125)
"""The second has surprisals of 1, 2, 3 and 3 bits, and an entropy of 1¾ bits, to which ¼ is nearest."""
FORCED = ForcedTokens((2, 0))


@pytest.mark.parametrize(
    ("part", "row", "new", "wanted"),
    [
        pytest.param(BannedTokens((1, 3)), [5.0, 6.0, 7.0, 8.0], NEW, [0, 2], id="the others stay"),
        *(
            pytest.param(FORCED, [5.0, 6.0, 7.0], new, wanted, id=f"forced one by one, then free {new}")
            for new, wanted in (([], [2]), ([2], [0]), ([2, 0], [0, 1, 2]))
        ),
        *(
            pytest.param(MinNewTokens(2), [0.0] * 3, new, wanted, id=f"the third may be a stop token {new}")
            for new, wanted in (([], [0, 2]), ([0], [0, 2]), ([0, 0], [0, 1, 2]))
        ),
        *(
            pytest.param(MinP(p), logits_of(0.5, 0.25, 0.2, 0.05), NEW, wanted, id=f"a share of {p}")
            for p, wanted in ((0.49, [0, 1]), (0.1, [0, 1, 2, 3]), (0.11, [0, 1, 2]))
        ),
        pytest.param(MinP(1.0), [1.0, 3.0, 3.0, -math.inf], NEW, [1, 2], id="the most probable alone"),
        pytest.param(TopK(3), [0.1, 5.0, 2.0, -1.0, 3.0], NEW, [1, 2, 4], id="the three largest of five"),
        pytest.param(TopK(2), [1.0, 2.0, 2.0, 3.0, 0.0], NEW, [1, 2, 3], id="those equal to the last too"),
        pytest.param(TopK(3), [-math.inf, 1.0, -math.inf, -math.inf], NEW, [1], id="removed stays removed"),
        # "at most p" gets this example of nucleus sampling wrong: it would keep nothing
        pytest.param(TopP(0.9), logits_of(0.95, 0.05), NEW, [0], id="one reaches 0.9"),
        pytest.param(TopP(0.96), logits_of(0.95, 0.05), NEW, [0, 1], id="two reach 0.96"),
        *(
            pytest.param(TopP(p), FOUR, NEW, wanted, id=f"the smallest set reaches {p}")
            for p, wanted in ((0.5, [2]), (0.75, [0, 2]), (0.76, [0, 1, 2]))
        ),
        pytest.param(TopP(0.5), [1.0, 1.0, 1.0, 1.0], NEW, [0, 1], id="of equals the smaller ids"),
        pytest.param(TopP(0.0), [1.0, 2.0, 2.0], NEW, [1], id="of equals the smaller id"),
        pytest.param(TopP(0.0), [-math.inf, -math.inf, -3.0], NEW, [2], id="one token is always kept"),
        pytest.param(TopP(1e-12), [0.0] * 100_000, NEW, [0], id="one of many tokens is always kept"),
        *(
            pytest.param(TypicalP(p), SURPRISING, NEW, wanted, id=f"the typical ones to {p}")
            for p, wanted in ((0.2, [1]), (0.26, [0, 1]), (0.76, [0, 1, 2]))
        ),
        pytest.param(TypicalP(0.0), SURPRISING, NEW, [1], id="zero keeps one token"),
        pytest.param(TypicalP(1.0), logits_of(0.5, 0.25, 0.25), NEW, [0, 1, 2], id="one keeps all"),
        pytest.param(TypicalP(0.5), [-math.inf, 2.0, -math.inf], NEW, [1], id="what is left is typical"),
        pytest.param("constraint", [0.0, 1.0], NEW, [0, 1], id="no constraint keeps all"),
    ],
)  # fmt: skip
def test_the_tokens_that_are_kept_by_hand(part: Any, row: Any, new: list[int], wanted: list[int]) -> None:
    """Token 1 is a stop token, and so is one that the model does not have, which is passed over."""
    assert kept(apply(part, row, new=new, stop=[1, 1000])) == wanted


@pytest.mark.parametrize(
    ("part", "row", "new", "wanted"),
    [
        # the prompt has 1, 3, 4 and 5, which lose nothing to OpenAI's penalties, of new tokens alone
        (FrequencyPenalty(0.5), [1.0] * 6, [2, 2, 0], [0.5, 1, 0, 1, 1, 1]),
        (FrequencyPenalty(-0.5), [1.0] * 6, [2, 2], [1, 1, 2, 1, 1, 1]),
        (FrequencyPenalty(0.5), [1.0] * 6, [], [1] * 6),
        (PresencePenalty(0.5), [1.0] * 6, [2, 2, 0], [0.5, 1, 0.5, 1, 1, 1]),
        (PresencePenalty(-0.5), [1.0] * 6, [2], [1, 1, 1.5, 1, 1, 1]),
        (PresencePenalty(0.5), [1.0] * 6, [], [1] * 6),
        # a positive score is divided, a negative one multiplied, of the prompt's tokens too
        (RepetitionPenalty(2.0), [4.0, 4.0, -4.0, 0.0, -1.0, 1.0], [2], [4, 2, -8, 0, -2, 0.5]),
        (LogitBias({0: 1.0, 2: -100.0}), [1.0, 2.0, 3.0], [], [2, 2, -97]),
    ],
    ids=str,
)
def test_the_scores_by_hand(part: Sampler, row: list[float], new: list[int], wanted: list[float]) -> None:
    assert apply(part, row, new=new).tolist() == wanted


def test_odds_are_raised_to_the_power_of_one_over_t() -> None:
    """Odds of 9 to 1 become 3 to 1 at T = 2, and 81 to 1 at T = ½."""
    row = [math.log(0.9), math.log(0.1)]
    assert apply(Temperature(2.0), row).softmax(-1).tolist() == pytest.approx([0.75, 0.25])
    assert apply(Temperature(0.5), row).softmax(-1).tolist() == pytest.approx([81 / 82, 1 / 82])


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 1e-320])
def test_the_smallest_temperature_leaves_the_largest_score(temperature: float) -> None:
    after = apply(Temperature(temperature), [1.0, 3.0, 3.0, -math.inf, 2.0]).softmax(-1)
    assert after.tolist() == [0, 0.5, 0.5, 0, 0]


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 5.0])
def test_top_p_of_a_large_vocabulary_gives_what_a_whole_sort_gives(size: float) -> None:
    row = torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * size
    order = row.softmax(-1).sort(descending=True, stable=True)
    before = order.values.cumsum(-1) - order.values
    for p in (0.3, 0.95):
        wanted = order.indices[before < p - 1e-12].sort().values
        assert abs(len(wanted) - len(found := kept(apply(TopP(p), row)))) <= 1
        assert set(wanted.tolist()) <= set(found)


class Alternating:
    """Even tokens after odd ones and odd ones after even ones; the last token is token 5."""

    start = 0

    def compute_mask(self, state: int, remaining: int) -> Table:
        tokens = np.arange(6)
        return tokens % 2 == state if remaining > 1 else tokens == 5

    def advance(self, state: int, id: int) -> int:
        return 1 - id % 2


def test_constraint_the_state_says_which_tokens_are_kept() -> None:
    chain = Chain.make(Sampling(max_new_tokens=3), (), 6, (), 0, Alternating())
    assert [sampler.kind for sampler in chain.samplers] == ["constraint"]
    state, row = ChainState(chain), torch.zeros(1, 6)
    found = []
    for token in (4, 1, 5):
        found.append(kept(process(row, [state])[0]))
        assert found[-1] == kept(process(row, [state.fork()])[0])
        state.append(token)
    assert found == [[0, 2, 4], [1, 3, 5], [5]]


def test_the_ids_of_a_json_table_are_texts() -> None:
    assert Sampler.read({"kind": "logit_bias", "logit_bias": {"3": 1}}) == LogitBias({3: 1.0})
    assert Sampler.read(LogitBias({3: 1.0}).to_dict()) == LogitBias({3: 1.0})


@pytest.mark.parametrize(
    ("kind", "setting", "fact"),
    [
        *(
            (BannedTokens, ids, r"banned_tokens.* must be .*not")
            for ids in (3, "3", [-1], [1.0], [True], ["1"])
        ),
        *(
            (LogitBias, bias, r"logit_bias.* must be .*not")
            for bias in (3, {"a": 1.0}, {-1: 1.0}, {1: "2"}, {1: math.inf}, {1: math.nan}, {True: 1})
        ),
        (MinP, 1.1, "from 0 to 1"),
        (RepetitionPenalty, 0.0, "above 0"),
        (Temperature, 0.0, "greedy"),
        (TopK, 0, "at least 1"),
        (TopP, 1.5, "from 0 to 1"),
        (TypicalP, 1.5, "from 0 to 1"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(kind: type[Sampler], setting: Any, fact: str) -> None:
    with pytest.raises(ConfigError, match=fact):
        kind(setting)


def test_a_biased_token_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(TokenError, match="token 3"):
        apply(LogitBias({3: 1.0}), [0.0] * 3)
