"""Each other reading is a config with weights, and computes what the mistake of that name computes."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.explanation.probe.readings import CONVENTIONS as READINGS
from pellucid.explanation.probe.readings import Convention, ModelReading
from pellucid.parts.positions import PositionsConfig, RotaryAngles
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.mistakes import CONVENTIONS, Program

SIZES: dict[str, Any] = {"vocab_size": 8, "context_length": 8, "n_layer": 1, "n_head": 4, "d_model": 16}
LLAMA = ModelConfig.from_dict({**SIZES, "n_kv_head": 2, "positions": {"kind": "rope", "base": 1000.0}})
GPT2 = ModelConfig.from_dict(
    {
        **SIZES,
        "positions": "learned",
        "norm": "layer_norm",
        "mlp": "gelu_tanh",
        "unembedding": "linear",
        "biases": ["qkv", "output", "mlp", "norm", "unembed"],
    }
)
VARIED = ModelConfig.from_dict(
    {
        **LLAMA.to_dict(),
        "qk_norm": "rms_norm",
        "embed_norm": "rms_norm",
        "score_cap": "tanh",
        "logit_cap": "tanh",
        "mask": {"kind": "window", "size": 3},
        "positions": {"kind": "rope_linear", "layout": "pairs"},
    }
)
ALIBI = ModelConfig.from_dict({**LLAMA.to_dict(), "positions": "alibi"})
CONFIGS = {"llama": LLAMA, "gpt2": GPT2, "varied": VARIED, "alibi": ALIBI}
IDS, TARGETS = [[1, 5, 2, 7, 3]], [[5, 2, 7, 3, 4]]
SAME = {
    "RoPE layout": "RoPE layout",
    "RoPE rotation": "RoPE rotated the other way",
    "learned positions": "learned positions counted from 1",
    "position bias": "position bias omitted",
    "QK-norm": "QK-norm omitted",
    "embedding norm": "embedding norm omitted",
    "score soft-cap": "score soft-cap omitted",
    "logit soft-cap": "logit soft-cap omitted",
    "norm": "norm",
    "norm gain": "norm gain read as 1 + γ",
    "gate and up": "gate and up swapped",
    "query heads": "query head h on key/value head h % K",
    "output projection": "output projection transposed",
    "biases": "biases omitted",
    "unembedding": "unembedding",
    "embedding": "embedding multiplied by √C",
    "RoPE base": "RoPE base larger",
    "activation": "activation",
    "scores": "scores without 1/√D",
}
"""The choices whose first alternative is the first variant of a mistake; of the base, ten times."""
ELSEWHERE = (("query heads", ALIBI), ("norm", VARIED))
"""A bias belongs to a head, so heads stay where they are; the mistake also swaps the norms of q and k."""


def weights_of(config: ModelConfig) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    made = {name: rng.normal(0, 0.5, shape) for name, shape in config.parameters().items()}
    return {name: w + 1 if "norm.weight" in name else w for name, w in made.items()}


def find(name: str) -> Convention:
    return next(choice for choice in READINGS if choice.name == name)


def loss(reading: ModelReading) -> float:
    return float(forward(reading.config, reading.weights, IDS, TARGETS)["loss"])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", SAME)
def test_a_reading_computes_what_the_mistake_of_its_name_computes(name: str, config: ModelConfig) -> None:
    """In the specification; two ways that share no code: other weights and config, and other steps."""
    given = ModelReading(config, weights_of(config))
    tape = forward(config, given.weights, IDS, TARGETS)
    variant = next(CONVENTIONS[SAME[name]](Program(tape, config)), None)
    others = find(name).list_alternatives(given)
    if (name, config) in ELSEWHERE:
        return
    assert bool(variant) == bool(others)
    if variant:
        other, wanted = others[2 if name == "RoPE base" else 0], float(variant.rerun(tape)["loss"])
        assert loss(other) == pytest.approx(wanted, rel=1e-6 if name == "unembedding" else 1e-12)
        assert loss(other) != loss(given)


def test_interleaved_heads_are_those_of_keys_repeated_as_a_whole() -> None:
    """K₀ K₁ K₀ K₁ in place of K₀ K₀ K₁ K₁: what `tile` gives where `repeat` is meant."""
    given = ModelReading(LLAMA, weights_of(LLAMA))
    every = {
        name: np.tile(w, (2, 1)) if ".k_proj." in name or ".v_proj." in name else w
        for name, w in given.weights.items()
    }
    (other,) = find("query heads").list_alternatives(given)
    assert loss(other) == pytest.approx(loss(ModelReading(replace(LLAMA, n_kv_head=4), every)), rel=1e-12)


@dataclass(frozen=True)
class Backwards(PositionsConfig):
    rope: Rope = field(default_factory=Rope)

    def rotation(self, positions: Any, d_head: int) -> RotaryAngles:
        rotation = self.rope.rotation(positions, d_head)
        return RotaryAngles(-rotation.angles, rotation.layout)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_rope_rotated_the_other_way_is_rope_with_negative_angles(layout: str) -> None:
    rope = Rope(1000.0, layout)
    config = replace(LLAMA, positions=rope, biases=("qkv",))
    given = ModelReading(config, weights_of(config))
    (other,) = find("RoPE rotation").list_alternatives(given)
    wanted = loss(ModelReading(replace(config, positions=Backwards(rope)), given.weights))
    assert loss(other) == pytest.approx(wanted, rel=1e-12)


def test_a_scale_makes_its_difference_behind_a_norm_too() -> None:
    """A norm of the queries undoes what is done to their weights."""
    given = ModelReading(VARIED, weights_of(VARIED))
    assert all(abs(loss(other) - loss(given)) > 1e-3 for other in find("scores").list_alternatives(given))


def test_every_choice_applies_to_some_model_and_none_changes_the_weights_of_the_given_reading() -> None:
    applied = set()
    for config in CONFIGS.values():
        weights = weights_of(config)
        before = {name: weight.copy() for name, weight in weights.items()}
        given = ModelReading(config, weights)
        for choice in READINGS:
            for other in choice.list_alternatives(given):
                applied.add(choice.name)
                assert choice.compare(given, other)
                assert set(other.weights) == set(other.config.parameters())
                shared = sum(other.weights.get(name) is weight for name, weight in weights.items())
                assert 2 * shared >= len(weights)
        assert all(np.array_equal(before[name], weights[name]) for name in weights)
    assert applied == {choice.name for choice in READINGS}


def test_an_alternative_says_what_stands_for_what() -> None:
    given = ModelReading(LLAMA, weights_of(LLAMA))
    notes = {
        choice.name: [choice.compare(given, one) for one in choice.list_alternatives(given)]
        for choice in READINGS
    }
    assert notes["RoPE base"][:2] == ["4,000 for 1,000", "250 for 1,000"]
    assert notes["RoPE layout"] == ["pairs for halves"]
    assert notes["norm eps"] == ["0.001 for 1e-05", "1e-07 for 1e-05"]
    assert notes["window"] == ["window of 4 for causal"]
    assert "rope_linear of 4 for rope" in notes["RoPE scaling"]


def test_a_choice_that_no_model_can_have_is_left_out() -> None:
    """YaRN wants pairs with fewer rotations than others, which a base of 1 does not give."""
    config = ModelConfig.from_dict({**LLAMA.to_dict(), "positions": {"kind": "rope", "base": 1.0}})
    given = ModelReading(config, weights_of(config))
    kinds = {one.config.positions.kind for one in find("RoPE scaling").list_alternatives(given)}
    assert kinds == {"rope_linear", "rope_llama3"}
    others = find("RoPE base").list_alternatives(given)
    bases = [getattr(one.config.positions, "base", 0) for one in others]
    assert bases == [4.0, 10.0, 2.0]


def test_what_is_beyond_a_worse_base_is_not_read() -> None:
    given = ModelReading(LLAMA, weights_of(LLAMA))
    base = find("RoPE base")
    four, quarter, ten, tenth, two, half = base.list_alternatives(given)
    assert base.is_beyond(ten, four, given) and base.is_beyond(tenth, quarter, given)
    assert not any(base.is_beyond(other, four, given) for other in (quarter, tenth, two, half))
    assert not find("norm eps").is_beyond(four, four, given)
