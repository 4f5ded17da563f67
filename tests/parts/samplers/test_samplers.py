"""What holds for every sampler, found by listing the folder."""

import math
from dataclasses import fields

import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.generation.samplers.chain import Chain, ChainState, choose, process
from pellucid.generation.samplers.row_operations import ROW_OPERATIONS
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import find, kinds
from pellucid.parts.samplers import Sampler
from pellucid.reference.ops import table
from tests.parts.samplers.rows import apply, make_state, random_rows

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
