"""The chain on a tape chooses what the chain in torch chooses, and each of its numbers explains itself."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.generation.samplers.chain import Chain, ChainState, Chosen, Wanted, choose, process
from pellucid.generation.samplers.sampling_steps import append_chain
from pellucid.generation.settings.sampling import Sampling
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from tests.reference.models import check_explained

V = 12
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 5, "top_p": 0.8},
    {"repetition_penalty": 1.5, "banned_tokens": [3, 4]},
    {
        "temperature": 1.3, "min_p": 0.02, "typical_p": 0.9, "presence_penalty": 0.5,
        "frequency_penalty": 0.3, "logit_bias": {2: 1.0}, "min_new_tokens": 9,
        "samplers": [{"kind": "top_k", "top_k": 8}] * 2,
    },
]  # fmt: skip
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings))


def make_state(settings: dict[str, Any], seed: int = 0) -> ChainState:
    return ChainState(Chain.make(Sampling(**settings), (1, 2), V, (0,), seed), choice=1, new=[5, 5, 7])


def make_logits(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(1, 3, V)) * 2


@every_setting
def test_the_tape_chooses_the_same_token_with_the_same_probability(settings: dict[str, Any]) -> None:
    for seed in range(25):
        logits, state, tape = make_logits(seed), make_state(settings, seed), Tape()
        tape.parameter("logits", logits)
        append_chain(tape, "logits", 1, state)
        rows = torch.from_numpy(logits[:, 1])
        (chosen,) = choose(rows, [state], [Wanted(entry=True)])
        assert isinstance(chosen, Chosen) and chosen.entry is not None
        assert tape["sampling.id"].item() == chosen.id
        assert tape["sampling.probability"].item() == pytest.approx(chosen.entry.probability, rel=1e-12)
        probs = process(rows, [state])[0].softmax(-1).numpy()
        np.testing.assert_allclose(tape["sampling.probs"][0, 0], probs, rtol=1e-12)


@every_setting
def test_every_number_is_explained_and_has_a_meaning(settings: dict[str, Any]) -> None:
    tape = Tape()
    append_chain(tape, tape.parameter("logits", make_logits()), 2, make_state(settings))
    check_explained(tape)


def test_the_derivation_of_a_probability_leads_through_each_sampler_to_the_logits() -> None:
    tape = Tape()
    settings = {"temperature": 0.6, "repetition_penalty": 1.2, "top_k": 5, "top_p": 0.8}
    append_chain(tape, tape.parameter("logits", make_logits()), 2, make_state(settings))
    lines = str(derive(Trace(tape), "sampling.probability", depth=9, most=None))
    places = [
        lines.index(f"sampling.{name}") for name in ("probability", "probs", "top_p.scores", "top_k.scores")
    ]
    places += [
        lines.index(f"sampling.{name}") for name in ("temperature.scores", "repetition_penalty.scores")
    ]
    assert places == sorted(places)
    assert "s_top_k[v] = s_temperature[v] if s_temperature[v] ≥ b_top_k, else -∞" in lines
    assert "parameter, logits" in lines


def test_two_samplers_of_one_kind_have_names_of_their_own() -> None:
    tape = Tape()
    settings = {"samplers": [{"kind": "top_k", "top_k": 8}, {"kind": "top_k", "top_k": 3}]}
    append_chain(tape, tape.parameter("logits", make_logits()), 0, make_state(settings))
    assert np.isfinite(tape["sampling.top_k.scores"]).sum() == 8
    assert np.isfinite(tape["sampling.top_k_2.scores"]).sum() == 3
