"""What holds for every sampler, found by listing the folder."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.explanation.formula import build_formula
from pellucid.explanation.trace import Trace
from pellucid.generation.samplers.chain import Chain, ChainState, choose, process
from pellucid.generation.samplers.row_operations import ROW_OPERATIONS
from pellucid.generation.samplers.sampling_steps import append_chain
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import find, kinds
from pellucid.parts.samplers import Sampler
from pellucid.reference.ops import table
from pellucid.reference.tape import Tape
from tests.parts.samplers.rows import apply, kept, logits_of, make_state, random_rows

KINDS = kinds("samplers")
every_kind = pytest.mark.parametrize("kind", KINDS)


def example(kind: str) -> Sampler:
    return Sampler.read(find("samplers", kind).example())


def test_the_order_is_the_stated_one() -> None:
    wanted = (
        "repetition_penalty presence_penalty frequency_penalty logit_bias banned_tokens min_new_tokens "
        "forced_tokens constraint temperature top_k top_p min_p typical_p"
    )
    assert sorted(KINDS, key=lambda kind: example(kind).order) == wanted.split()
    assert len({example(kind).order for kind in KINDS}) == len(KINDS)


def test_a_setting_of_a_request_is_the_sampler_of_the_same_name() -> None:
    """`constraint` is made of three settings."""
    settings = {kind: getattr(example(kind), kind) for kind in KINDS if kind != "constraint"}
    chain = Chain.make(Sampling(**settings), (), 32, (), 0)
    assert [sampler.kind for sampler in chain.samplers] == [
        kind for kind in sorted(KINDS, key=lambda kind: example(kind).order) if kind != "constraint"
    ]
    assert all(sampler == example(sampler.kind) for sampler in chain.samplers)
    assert Chain.make(Sampling(), (), 32, (), 0).samplers == ()


def rank(keys: Sequence[float]) -> list[int]:
    return sorted(range(len(keys)), key=lambda i: (-keys[i], i))


def keep_mass(keys: Sequence[float], probs: Sequence[float], p: float) -> list[int]:
    order = rank(keys)
    return [i for place, i in enumerate(order) if place == 0 or sum(probs[j] for j in order[:place]) < p]


def surprisal_gaps(q: Sequence[float]) -> list[float]:
    entropy = -sum(x * math.log(x) for x in q)
    return [-abs(-math.log(x) - entropy) for x in q]


FILTERS: dict[str, tuple[str, Callable[[Sequence[float], Any], list[int]]]] = {
    "top_k": (
        "s_i if s_i ≥ the k-th largest score, else −∞",
        lambda q, k: [i for i, x in enumerate(q) if x >= sorted(q, reverse=True)[k - 1]],
    ),
    "top_p": (
        "s_i if i is first in rank, or Σ_j q_j over the tokens j before it in rank < p, else −∞; "
        "q = softmax(s); rank: the largest q first, of equals the smaller id",
        lambda q, p: keep_mass(q, q, p),
    ),
    "typical_p": (
        "s_i if i is first in rank, or Σ_j q_j over the tokens j before it in rank < p, else −∞; "
        "q = softmax(s); rank: the smallest |−ln q − H| first, of equals the smaller id",
        lambda q, p: keep_mass(surprisal_gaps(q), q, p),
    ),
    "min_p": (
        "s_i if q_i ≥ p · max q, else −∞; q = softmax(s)",
        lambda q, p: [i for i, x in enumerate(q) if x >= p * max(q)],
    ),
}
"""The printed formula of each filter of probabilities, and the same transcribed by hand."""


@pytest.mark.parametrize(
    ("kind", "setting", "probs", "wanted"),
    [
        ("top_k", 2, (0.25, 0.25, 0.25, 0.25), [0, 1, 2, 3]),
        ("top_k", 1, (0.125, 0.375, 0.375, 0.125), [1, 2]),
        ("top_p", 0.3, (0.25, 0.25, 0.25, 0.25), [0, 1]),
        ("top_p", 0.0, (0.25, 0.25, 0.25, 0.25), [0]),
        ("top_p", 0.8, (0.125, 0.375, 0.375, 0.125), [0, 1, 2]),
        ("typical_p", 0.3, (0.25, 0.25, 0.25, 0.25), [0, 1]),
        ("typical_p", 0.0, (0.25, 0.25, 0.25, 0.25), [0]),
        ("typical_p", 0.2, (0.125, 0.375, 0.375, 0.125), [1]),
        ("min_p", 1.0, (0.25, 0.25, 0.25, 0.25), [0, 1, 2, 3]),
        ("min_p", 1.0, (0.125, 0.375, 0.375, 0.125), [1, 2]),
    ],
)
def test_on_equal_scores_the_printed_formula_is_what_runs(
    kind: str, setting: float, probs: tuple[float, ...], wanted: list[int]
) -> None:
    formula, transcribed = FILTERS[kind]
    part = Sampler.read({"kind": kind, kind: setting})
    assert part.formula == formula
    assert sorted(transcribed(probs, setting)) == wanted
    assert kept(apply(part, logits_of(*probs))) == wanted


def test_every_sampler_that_compares_tokens_has_its_formula_tried_on_equal_scores() -> None:
    by_token = {"banned_tokens", "constraint", "forced_tokens", "min_new_tokens"}  # removed by their ids
    removing = {kind for kind in KINDS if "−∞" in example(kind).formula}
    assert removing - by_token == FILTERS.keys()


def test_the_printed_formulas_of_the_draw_say_which_of_equals_is_first() -> None:
    for name, temperature, fact in (
        ("sampling.id", 0.0, "the first v whose"),
        ("sampling.mass_before", 1.0, "of equals the smaller v first"),
    ):
        tape = Tape()
        state = ChainState(Chain.make(Sampling(temperature=temperature), (), 4, (), 0))
        append_chain(tape, tape.constant("logits", np.zeros((1, 1, 4))), 0, state)
        formula = build_formula(Trace(tape), tape.steps[name], (0,) * tape[name].ndim)
        assert fact in formula, formula


@every_kind
def test_a_sampler_is_written_and_read(kind: str) -> None:
    part = example(kind)
    assert Sampler.read(part.to_dict()) == part
    assert part.formula and part.source
    for entry in fields(part):
        with pytest.raises(ConfigError):
            Sampler.read({"kind": kind, entry.name: object()})
        with pytest.raises(ConfigError):
            Sampler.read(kind)


@every_kind
def test_one_token_that_is_left_stays(kind: str) -> None:
    """All −∞ but one; token 5 is the one that the example forces."""
    row = torch.full((16,), -math.inf, dtype=torch.float64)
    row[5] = -3.0
    after = apply(example(kind), row, new=[])
    assert (after > -torch.inf).nonzero().flatten().tolist() == [5]


@every_kind
def test_rows_with_other_settings_and_texts_run_together(kind: str) -> None:
    rows = random_rows(9, seed=1)
    texts = [[], [3], [3, 3, 4]]
    states = [make_state(*[example(kind)] * (i % 2 + 1), new=texts[i // 3], stop=[2]) for i in range(9)]
    together = process(rows, states)
    for row, state, wanted in zip(rows, states, together, strict=True):
        assert torch.equal(process(row[None], [state])[0], wanted)


@every_kind
def test_a_row_without_any_token_is_an_error_and_not_a_crash(kind: str) -> None:
    """The tokens are all banned before the other samplers run."""
    rows = random_rows(2, seed=2).nan_to_num(neginf=-9.0)
    ban = {"kind": "banned_tokens", "banned_tokens": list(range(32))}
    states = [make_state(ban, example(kind)), make_state()]
    failed, free = choose(rows, states)
    assert "banned_tokens removed the last token" in str(failed) or kind in str(failed)
    assert free == choose(rows[1:], states[1:])[0]
    states = [ChainState(Chain.make(Sampling(temperature=1.0, samplers=(ban, example(kind))), (), 32, (), 0))]
    assert isinstance(choose(rows[:1], states)[0], Exception)


def test_every_operation_in_torch_is_one_of_the_tape() -> None:
    assert set(ROW_OPERATIONS) <= set(table())
