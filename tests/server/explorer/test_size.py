"""The size of a run is known before it is computed: its steps exactly, its bytes closely."""

from dataclasses import replace
from typing import Any

import pytest

import pellucid
from pellucid.config import ModelConfig, preset
from pellucid.parts import kinds
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.server.explorer.size import estimate_size, find_most_tokens
from tests.reference.models import CONFIGS, weights
from tests.small_choices import small


def count_own_bytes(tape: Tape) -> int:
    return sum(value.nbytes for name, value in tape.values.items() if tape.roles[name] != "param")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"target": "C"},
        {"target": "C", "backward": True},
        {"target": "C", "update": "sgd"},
        {"target": "C", "update": "adamw", "steps": 3},
    ],
)
def test_the_steps_of_every_kind_of_run_are_known(more: dict[str, Any]) -> None:
    tape = pellucid.trace("abcd", "A B", **more).tape
    run = {key: value for key, value in more.items() if key in ("backward", "update")}
    size = estimate_size(preset("abcd"), 2, has_target="target" in more, updates=more.get("steps", 1), **run)
    assert size.steps == len(tape.steps)
    assert count_own_bytes(tape) <= size.bytes < 2.5 * count_own_bytes(tape)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("layers", [1, 3])
def test_the_size_of_every_model_is_known(name: str, layers: int) -> None:
    config = replace(CONFIGS[name], n_layer=layers)
    tape = forward(config, weights(config), [[1, 3, 1, 0]], [[3, 1, 2, 0]])
    assert tuple(estimate_size(config, 4, has_target=True)) == (len(tape.steps), count_own_bytes(tape))
    tape.backward(tape.ref("loss"))
    size = estimate_size(config, 4, backward=True)
    assert size.steps == len(tape.steps)
    assert size.bytes == pytest.approx(count_own_bytes(tape), rel=0.1)


# the steps of tiled attention depend on the number of tokens
@pytest.mark.parametrize("attention", [kind for kind in kinds("attentions") if kind != "tiled"])
def test_the_size_of_every_attention_is_known(attention: str) -> None:
    sizes = {"vocab_size": 5, "context_length": 8, "n_layer": 2, "n_head": 2, "d_model": 4, "d_ff": 6}
    config = ModelConfig.from_dict(sizes | {"attention": small("attentions", attention)})
    tape = forward(config, weights(config), [[1, 3, 1, 0, 2]])
    size = estimate_size(config, 5)
    assert size.steps == len(tape.steps) and size.bytes == pytest.approx(count_own_bytes(tape), rel=0.3)


def test_the_most_tokens_are_those_that_fit() -> None:
    config = preset("gpt2")
    most = find_most_tokens(config, 10**9)
    assert estimate_size(config, most).bytes <= 10**9 < estimate_size(config, most + 1).bytes
    assert find_most_tokens(config, 10**12) == config.context_length and find_most_tokens(config, 0) == 1
