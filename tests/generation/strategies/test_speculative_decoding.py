"""Speculation never changes a text: the same tokens as without it, drawn from the target's distribution."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from pellucid.base.errors import PellucidError, UsageError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.samplers.chain import Chain, ChainState, Chosen, choose
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CacheSlots
from pellucid.generation.strategies.speculative import (
    Draft,
    check_speculation,
    draw_while_accepted,
    propose_by_draft,
    propose_by_lookup,
)
from tests.agreement.engines import fast
from tests.generation.draft_models import SAMPLINGS, SIZES, make_models


class Text(NamedTuple):
    ids: list[int]
    proposed: int
    accepted: int
    cache: Cache


@torch.inference_mode()
def generate(
    target: Transformer,
    sampling: Sampling,
    count: int,
    *,
    prompt: Sequence[int] = (1, 2, 3, 1, 2),
    draft: Transformer | None = None,
    lookup: bool = False,
    tokens: int = 4,
    dtype: torch.dtype = torch.float32,
) -> Text:
    """A text by hand: read what was proposed as segments of one token, draw, remove what was rejected."""
    capacity = target.config.context_length
    cache = Cache(target.config, 1, capacity, dtype=dtype)
    draft_slots = CacheSlots(draft or target, 1, capacity, torch.float32)
    chain = Chain(sampling, tuple(prompt), target.config.vocab_size, frozenset(), sampling.seed or 0)
    state = ChainState(chain)
    target.forward_packed([(cache, prompt[:-1])], [0])
    proposals = hits = 0
    while len(state.new) < count:
        text = [*prompt, *state.new]
        room = min(tokens, count - len(state.new) - 1)
        proposed: list[int] = []
        if draft is not None:
            [proposed] = propose_by_draft(draft_slots, [Draft(0, text, state, room)])
        elif lookup:
            proposed = propose_by_lookup(text, room)
        fed = [text[-1], *proposed]
        logits = target.forward_packed([(cache, [id]) for id in fed], range(len(fed)))
        accepted = -1
        [first] = choose(logits[:1], [state])
        for chosen in draw_while_accepted(first, logits, state, proposed):
            assert not isinstance(chosen, PellucidError)
            state.append(chosen.id)
            accepted += 1
        proposals, hits = proposals + len(proposed), hits + accepted
        cache.crop(len(text) + accepted)
    return Text(state.new, proposals, hits, cache)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("greedy", torch.float32), ("penalties", torch.float32), ("penalties", torch.int8)],
)
def test_a_text_is_the_one_without_speculation_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    """Also what the cache holds: a rejected proposal leaves nothing behind that is read."""
    target, draft = make_models(noise=0.2)
    plain = generate(target, SAMPLINGS[name], 24, dtype=dtype)
    for text in (
        generate(target, SAMPLINGS[name], 24, draft=draft, dtype=dtype),
        generate(target, SAMPLINGS[name], 24, lookup=True, dtype=dtype),
    ):
        assert text.ids == plain.ids
        assert 0 < text.accepted < text.proposed
        assert text.cache.host_lengths.tolist() == plain.cache.host_lengths.tolist()
        read = slice(None), slice(None), slice(0, plain.cache.longest)
        for ours, wanted in zip(text.cache.layers, plain.cache.layers, strict=True):
            for one, other in zip(ours.buffers, wanted.buffers, strict=True):
                assert torch.equal(one[read], other[read])


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    """Both draw with the same random numbers."""
    target, _ = make_models()
    text = generate(target, SAMPLINGS["temperature"], 41, draft=target)
    assert text.accepted == text.proposed == 32  # 8 steps of 4 proposals and a token; the last one has none


def test_drafts_of_several_texts_are_those_of_each_alone() -> None:
    _, draft = make_models()
    texts = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [2, 2]]
    counts = [3, 1, 4, 0]

    def draft_for(rows: Sequence[int]) -> list[list[int]]:
        drafts = []
        for row in rows:
            chain = Chain(SAMPLINGS["temperature"], tuple(texts[row]), 12, frozenset(), row)
            drafts.append(Draft(row, texts[row], ChainState(chain), counts[row]))
        return propose_by_draft(CacheSlots(draft, 4, 16, torch.float32), drafts)

    together = draft_for(range(4))
    assert together == [draft_for([row])[0] for row in range(4)]
    assert list(map(len, together)) == counts


def test_a_draft_that_is_behind_reads_its_text_in_order() -> None:
    """Also where it goes on one token before a border of chunks, and beyond the border."""
    _, draft = make_models(3)
    slots, text = CacheSlots(draft, 1, 64, torch.float32, chunk=4), [1, 2, 3, 4, 5, 6, 7, 8]
    chain = Chain.make(Sampling(), text, SIZES["vocab_size"], (), 0)
    for length in (3, 8):
        [[proposed]] = propose_by_draft(slots, [Draft(0, text[:length], ChainState(chain), 1)])
    with torch.no_grad():
        assert proposed == int(draft(torch.tensor([text]))[0, -1].argmax())
    with torch.no_grad():
        keys = slots.cache.layers[0].buffers[0][0, :, :8].clone()
        slots.reset(0)
        draft.forward_cached(torch.tensor([text]), slots.rows[0])
    assert torch.allclose(keys, slots.cache.layers[0].buffers[0][0, :, :8], atol=1e-5)


def test_lookup_takes_the_latest_occurrence_of_the_longest_end() -> None:
    assert propose_by_lookup([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2) == [9, 2]  # 1 2 3 before 2 3
    assert propose_by_lookup([2, 3, 9, 2, 3, 8, 2, 3], 1) == [8]  # the later of two
    assert propose_by_lookup([1, 2, 3, 4, 1, 2, 3], 2, longest=1) == [4, 1]
    assert propose_by_lookup([4, 4], 3) == [4, 4, 4]
    assert propose_by_lookup([4], 3) == propose_by_lookup([], 3) == propose_by_lookup([1, 1], 0) == []


def measure_unlikeliness(counts: Counter[Any], probabilities: dict[Any, float]) -> float:
    """The p of a chi-square as large or larger by chance: Q(k/2, χ²/2); rare texts are counted together."""
    total = counts.total()
    groups = [(counts[text], p * total) for text, p in probabilities.items() if p * total >= 5]
    rest = (total - sum(seen for seen, _ in groups), total - sum(wanted for _, wanted in groups))
    groups += [rest] if rest[1] >= 5 else []
    chi = sum((seen - wanted) ** 2 / wanted for seen, wanted in groups)
    freedom, half = torch.tensor([(len(groups) - 1) / 2, chi / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, half))


def compare_distributions(draws: int, temperature: float) -> None:
    """Texts of two tokens, the first proposed by a draft or drawn against it, from a table of the logits of
    every beginning."""
    target, draft = make_models(noise=0.3, vocab_size=6)
    beginnings = [(), *((id,) for id in range(6))]

    @torch.inference_mode()
    def tabulate(model: Transformer) -> dict[tuple[int, ...], Tensor]:
        return {ids: model(torch.tensor([[1, 2, *ids]]))[0, -1] for ids in beginnings}

    logits, draft_logits = tabulate(target), tabulate(draft)
    states = [
        ChainState(Chain(Sampling(temperature=temperature), (1, 2), 6, frozenset(), seed))
        for seed in range(draws)
    ]
    proposals = choose(draft_logits[()].expand(draws, -1), [state.fork() for state in states])
    firsts = choose(logits[()].expand(draws, -1), states)
    for state, proposal, first in zip(states, proposals, firsts, strict=True):
        assert isinstance(proposal, Chosen)
        rows = torch.stack((logits[()], logits[(proposal.id,)]))
        for chosen in draw_while_accepted(first, rows, state, [proposal.id]):
            assert isinstance(chosen, Chosen)
            state.append(chosen.id)
    rejected = [state for state in states if len(state.new) == 1]
    for state, second in zip(
        rejected, choose(torch.stack([logits[tuple(state.new)] for state in rejected]), rejected), strict=True
    ):
        assert isinstance(second, Chosen)
        state.append(second.id)
    counts = Counter(tuple(state.new) for state in states)
    softmax = {ids: torch.softmax(row.double() / temperature, -1).tolist() for ids, row in logits.items()}
    probabilities = {
        (a, b): softmax[()][a] * softmax[(a,)][b] for a, b in itertools.product(range(6), repeat=2)
    }
    assert measure_unlikeliness(counts, probabilities) > 0.01
    assert 0.01 < len(rejected) / draws < 0.9


def test_speculative_texts_come_as_often_as_the_target_says() -> None:
    compare_distributions(10_000, 1.0)


@pytest.mark.torture
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_many_speculative_texts_come_as_often_as_the_target_says(temperature: float) -> None:
    compare_distributions(100_000, temperature)


def test_what_cannot_be_speculated_with_is_refused_before_a_request() -> None:
    target, draft = make_models()
    check_speculation(Cache(target.config, 1, 64), draft, 12)
    window = {"mask": {"kind": "window", "size": 8}}
    for changes in (window, {"attention": "linear_elu"}):
        other = ModelConfig.from_dict(SIZES | changes)
        with pytest.raises(UsageError, match="rewound"):
            check_speculation(Cache(other, 1, 64), None, 12)
        with pytest.raises(UsageError, match="rewound"):
            check_speculation(Cache(target.config, 1, 64), fast(other), 12)
    check_speculation(Cache(ModelConfig.from_dict(SIZES | window), 1, 8), None, 12)  # never beyond its window
    with pytest.raises(UsageError, match="tokenizer"):
        check_speculation(Cache(target.config, 1, 64), draft, 13)
    with pytest.raises(UsageError, match="capacity=32"):
        check_speculation(Cache(target.config, 1, 64), make_models(context_length=32)[1], 12)
