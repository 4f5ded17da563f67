"""The numbers of the teaching models example-3, example-5 and example-6, run on the tape.

The figures were computed apart from the project, in plain NumPy; "A B" with the target C unless said.
"""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig, preset, preset_text
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, train
from tests.golden.test_texts import PATTERNS, A, B, C, D, near

EXAMPLES = {"example-3": 0.5, "example-5": 0.5, "example-6": 0.25}
"""The models, with the learning rate of their lessons."""
FROZEN = {"example-3": ["embed.weight"], "example-5": ["embed.weight"], "example-6": []}
A_B = [[A, B]], [[IGNORE_INDEX, C]]
ENTROPY = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
"""The loss of one answer for all three prompts, C in two of three: no such answer has a lower one."""


@functools.cache
def weights(name: str) -> Mapping[str, Array]:
    return {key: np.array(rows) for key, rows in tomllib.loads(preset_text(name))["weights"].items()}


def steps(name: str, updates: int, batch: Any = A_B, **changes: Any) -> list[Tape]:
    settings = {"lr": EXAMPLES[name], "freeze": FROZEN[name], "config": preset(name)} | changes
    return train(settings.pop("config"), weights(name), *batch, "sgd", updates, **settings)


def count_right(tape: Tape) -> int:
    return int((tape["probs"][:, 1].argmax(axis=-1) == [C, D, C]).sum())


def losses(tapes: list[Tape]) -> list[float]:
    return [float(tape["loss"]) for tape in tapes]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_gradient_agrees_with_central_differences(name: str) -> None:
    """Each weight by itself moved by 1e-5 to both sides, over the batch of three prompts."""
    config, given = preset(name), dict(weights(name))
    before, *_ = steps(name, 1, PATTERNS)
    for key in given:
        difference = np.empty(given[key].shape)
        for index in np.ndindex(difference.shape):
            move = np.zeros(difference.shape)
            move[index] = 1e-5
            up, down = (
                float(forward(config, {**given, key: given[key] + sign * move}, *PATTERNS)["loss"])
                for sign in (1, -1)
            )
            difference[index] = (up - down) / 2e-5
        assert before[f"d.{key}"] == pytest.approx(difference, rel=0, abs=1e-7), key


# ---- example-3


def test_example_3_forward_of_a_b() -> None:
    tape, _ = steps("example-3", 1)
    assert list(tape["blocks.0.attn.q"][0, 0, 1]) == [1, 2]
    assert tape["blocks.0.attn.k"][0, 0].tolist() == [[3, -1], [-2, 2]]
    assert tape["blocks.0.attn.v"][0, 0].tolist() == [[0, 1], [-1, 0]]
    assert tape["blocks.0.attn.scores"][0, 0, 1] == near(12, np.array([1, 2]) / np.sqrt(2))
    assert tape["blocks.0.attn.pattern"][0, 0, 1] == near(5, [0.33024, 0.66976])
    assert tape["blocks.0.attn.z"][0, 0, 1] == near(5, [-0.66976, 0.33024])
    assert tape["logits"][0, 1] == near(5, [-1, -0.66976, -0.33952, 0.66976])
    assert tape["probs"][0, 1] == near(5, [0.10376, 0.14436, 0.20084, 0.55104])
    assert tape["loss"] == near(5, 1.60523)


def test_example_3_gradients_of_a_b() -> None:
    tape, _ = steps("example-3", 1)
    assert tape["d.blocks.0.attn.z"][0, 0] == near(5, [[0, 0], [-1.10208, -0.90291]])
    assert tape["d.blocks.0.attn.masked"][0, 0] == near(5, [[0, 0], [-0.44347, 0.44347]])
    assert tape["d.blocks.0.attn.q"][0, 0] == near(5, [[0, 0], [-1.56789, 0.94074]])
    assert tape["d.blocks.0.attn.k"][0, 0] == near(5, [[-0.31358, -0.62716], [0.31358, 0.62716]])
    assert tape["d.blocks.0.attn.v"][0, 0] == near(5, [[-0.36395, -0.29818], [-0.73813, -0.60474]])


@pytest.mark.parametrize(
    ("only", "probability", "loss"), [("*", 0.57637, 0.55101), ("unembed.weight", 0.26062, 1.34470)]
)
def test_example_3_one_update(only: str, probability: float, loss: float) -> None:
    _, after = steps("example-3", 1, only=only)
    assert (after["probs"][0, 1, C], after["loss"]) == near(5, [probability, loss])


def test_example_4_learns_all_three_prompts_after_6_updates() -> None:
    tapes = steps("example-3", 20, PATTERNS)
    assert losses(tapes)[:7] == near(4, [1.8568, 1.0628, 0.9601, 0.8754, 0.7899, 0.6859, 0.5392])
    assert [count_right(tape) for tape in tapes] == [0, 1, 1, 2, 2, 2] + 15 * [3]
    assert tapes[20]["loss"] == near(4, 0.0235)


def test_example_4_at_a_tenth_needs_23_updates() -> None:
    right = [count_right(tape) for tape in steps("example-3", 23, PATTERNS, lr=0.1)]
    assert (max(right[:23]), right[23]) == (2, 3)


def test_example_4_at_rate_2_never_learns() -> None:
    tapes = steps("example-3", 100, PATTERNS, lr=2)
    assert max(map(count_right, tapes)) < 3
    assert tapes[100]["loss"] > tapes[0]["loss"]


# ---- example-5


def test_example_5_forward_of_a_b_closes_one_gate_of_each_position() -> None:
    tape, _ = steps("example-5", 1)
    assert tape["blocks.0.resid_mid"][0] == near(5, [[1, 2], [-1.66976, 0.33024]])
    assert tape["blocks.0.mlp.up"][0] == near(5, [[-1, 2.5], [0.66976, -1.83952]])
    assert tape["blocks.0.resid_post"][0, 1] == near(5, [-0.5, -0.33952])
    assert tape["probs"][0, 1] == near(5, [0.24068, 0.17139, 0.12205, 0.46588])
    assert tape["loss"] == near(5, 2.10334)


def test_example_5_gradient_stops_at_the_closed_gate() -> None:
    tape, _ = steps("example-5", 1)
    assert tape["d.blocks.0.mlp.act"][0, 1] == near(5, [0.18686, 0.65275])
    assert tape["d.blocks.0.mlp.up"][0, 1] == near(5, [0.18686, 0])
    assert np.linalg.norm(tape["d.embedded"]) == near(3, 4.415)


def test_example_5_one_update() -> None:
    _, after = steps("example-5", 1)
    assert (after["probs"][0, 1, C], after["loss"]) == near(5, [0.60300, 0.50583])


def test_example_5_learns_all_three_prompts_after_9_updates() -> None:
    tapes = steps("example-5", 40, PATTERNS)
    right = [count_right(tape) for tape in tapes]
    assert (max(right[:9]), right[9:]) == (2, 32 * [3])
    assert (tapes[0]["loss"], tapes[40]["loss"]) == near(4, [3.1773, 0.0065])


WITHOUT_RESIDUAL = dataclasses.replace(preset("example-5"), residual="none")


def test_example_5_without_its_residual_forward() -> None:
    tape, _ = steps("example-5", 1, config=WITHOUT_RESIDUAL)
    assert (tape["probs"][0, 1, C], tape["loss"]) == near(5, [0.14369, 1.94008])
    assert np.linalg.norm(tape["d.embedded"]) == near(3, 2.441)


def test_example_5_without_its_residual_ends_at_the_entropy_of_the_targets() -> None:
    """With every gate closed, no prompt is seen: the best answer left is the targets' frequencies."""
    tapes = steps("example-5", 60, PATTERNS, config=WITHOUT_RESIDUAL)
    assert all((tape["blocks.0.mlp.up"] <= 0).all() for tape in tapes[10:])
    answers = tapes[60]["probs"][:, 1]
    assert (answers == answers[0]).all()
    assert (tapes[60]["loss"], ENTROPY) == near(4, [0.6407, 0.6365])
    right = answers[0, C] + answers[0, D]  # what is left to lose is the share of A and B
    assert tapes[60]["loss"] == pytest.approx(ENTROPY - np.log(right), abs=1e-5)
    assert answers[0, C] / right == near(2, 2 / 3)
    assert list(map(count_right, tapes[10:])) == 51 * [2]


# ---- example-6


def test_example_6_forward_of_a_b() -> None:
    tape, _ = steps("example-6", 1)
    assert tape["blocks.0.attn.pattern"][0, :, 1] == near(4, [[0.8499, 0.1501], [0.2214, 0.7786]])
    assert tape["blocks.1.attn.pattern"][0, :, 1] == near(4, [[0.5519, 0.4481], [0.2688, 0.7312]])
    assert tape["probs"][0, 1] == near(5, [0.04647, 0.41972, 0.13570, 0.39811])
    assert tape["loss"] == near(5, 1.99732)


def test_example_6_one_update() -> None:
    _, after = steps("example-6", 1)
    assert (after["probs"][0, 1, C], after["loss"]) == near(5, [0.72818, 0.31721])


def test_example_6_learns_all_three_prompts_after_10_updates() -> None:
    tapes = steps("example-6", 40, PATTERNS)
    found = [losses(tapes)[k] for k in (0, 1, 10, 40)]
    assert found == near(4, [2.1019, 0.9122, 0.4363, 0.0083])
    assert list(tapes[1]["probs"][:, 1].argmax(axis=-1)) == [C, C, C]
    right = [count_right(tape) for tape in tapes]
    assert (max(right[:10]), right[10:]) == (2, 31 * [3])


def without_head(block: int, head: int) -> dict[str, Array]:
    name = f"blocks.{block}.attn.o_proj.weight"
    kept = weights("example-6")[name].copy()
    kept[:, 2 * head : 2 * head + 2] = 0
    return {**weights("example-6"), name: kept}


def without(choice: str) -> tuple[ModelConfig, dict[str, Array]]:
    config = dataclasses.replace(preset("example-6"), **{choice: "none"})
    return config, {name: weights("example-6")[name] for name in config.parameters()}


LEFT_OUT = {choice: without(choice) for choice in ("mask", "positions", "residual")} | {
    f"head {head} of block {block}": (preset("example-6"), without_head(block, head))
    for block in (0, 1)
    for head in (0, 1)
}


@pytest.mark.parametrize("part", LEFT_OUT)
def test_example_6_needs_each_part(part: str) -> None:
    whole = forward(preset("example-6"), weights("example-6"), *A_B)["probs"][0, 1]
    assert abs(forward(*LEFT_OUT[part], *A_B)["probs"][0, 1] - whole).max() > 0.1
