"""Every value that the specification emits is in the glossary, with the axes that its shape has."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pellucid.base import registry
from pellucid.base.names import LETTERS, PARAMETERS_AND_VALUES, QUANTIZED_PARTS, describe
from pellucid.config import ModelConfig, preset
from pellucid.parts import families, find, kinds
from pellucid.reference.ops import table
from pellucid.reference.training import forward, join, train
from tests.agreement.engines import DIFFERENT
from tests.reference.models import CONFIGS, weights

IDS, TARGETS = [[1, 2, 0], [3, 1, 1]], [[-100, 0, 2], [1, -100, 3]]


@pytest.mark.parametrize("name", [*CONFIGS, *DIFFERENT])
def test_every_emitted_value_has_a_name_and_the_axes_of_its_shape(name: str) -> None:
    config = CONFIGS.get(name) or DIFFERENT[name]
    tape = join(train(config, weights(config), IDS, TARGETS, "adamw", 2, lr=0.1, clip=1.0))
    for value, array in tape.values.items():
        if "attn.tiles." in value or value in tape.about:
            continue  # described by the steps themselves
        about = describe(value)
        assert about is not None, value
        assert len(about.axes) == array.ndim, value
        for axis, size in zip(about.axes, array.shape, strict=True):
            if axis in ("out", "in"):
                continue
            assert size == config.sizes(2, 3)[axis], value
    for alias in tape.aliases:
        assert describe(alias) is not None, alias


def test_emitted_values_of_a_cached_call_have_names() -> None:
    from pellucid.reference.transformer import cache

    config = CONFIGS["llama"]
    first = forward(config, weights(config), [[1, 2]])
    tape = forward(config, weights(config), [[0]], past=cache(first, config))
    for value, array in tape.values.items():
        about = describe(value)
        assert about is not None and len(about.axes) == array.ndim, value


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_on_the_tape_are_those_of_the_config(name: str) -> None:
    config = CONFIGS[name]
    tape = forward(config, weights(config), IDS)
    assert {ref.name: ref.shape for ref in tape.parameters()} == config.parameters()


def test_names_and_letters_are_unique_and_used() -> None:
    names = [row.name for row in PARAMETERS_AND_VALUES]
    assert len(names) == len(set(names))
    adapters = [describe(f"blocks.0.attn.q_proj.{which}") for which in ("lora_a", "lora_b")]
    parts = [describe(f"blocks.0.attn.q_proj.weight{part}") for part in QUANTIZED_PARTS]
    rows = [*PARAMETERS_AND_VALUES, *filter(None, (*adapters, *parts))]
    assert set(itertools.chain.from_iterable(row.axes for row in rows)) == set(LETTERS)


VARIED = [
    ModelConfig.from_dict(CONFIGS["gpt2"].to_dict() | choices)
    for choices in (
        {"placement": "sandwich", "embed_norm": "layer_norm", "qk_norm": "layer_norm", "positions": "t5"},
        {"placement": "post", "score_cap": "tanh", "logit_cap": "tanh", "positions": "alibi"},
        {"attention": "linear_random", "positions": "rope"},
    )
]
OBJECTIVE = {"smoothing": 0.1, "z": 0.1, "class_weights": np.ones(5)}


def test_every_name_of_the_glossary_is_emitted_by_some_config() -> None:
    emitted: set[str] = set()
    for config in (*CONFIGS.values(), *VARIED):
        objective = OBJECTIVE if config in VARIED else None
        settings = {"objective": objective, "lr": 0.1, "clip": 1.0}
        tape = join(train(config, weights(config), IDS, TARGETS, "adamw", 1, **settings))
        emitted |= {name.replace("blocks.0.", "blocks.L.") for name in (*tape.values, *tape.aliases)}
    packed = forward(VARIED[0], weights(VARIED[0]), IDS, segments=np.zeros(np.shape(IDS), int))
    emitted |= {*packed.values}
    for output in ("linear", "none"):
        config = ModelConfig.from_dict(CONFIGS["gpt2"].to_dict() | {"output": output, "biases": []})
        by_head = forward(config, weights(config), IDS, by_head=True)
        emitted |= {name.replace("blocks.0.", "blocks.L.") for name in by_head.values}
    cached = {f"blocks.L.attn.{name}" for name in ("past_k", "past_v", "k_all", "v_all")}
    biases_of_gated = {"blocks.L.mlp.gate_proj.bias"}
    missing = {row.name for row in PARAMETERS_AND_VALUES} - emitted - cached - biases_of_gated
    assert not missing


def test_a_gradient_update_or_moment_is_described_from_its_value() -> None:
    about = describe("d.blocks.3.attn.scores.via.blocks.3.attn.masked")
    assert about is not None
    assert about.axes == ("b", "h", "t", "s")
    assert about.engines == "reference"
    moment, value = describe("embed.weight.v@2"), describe("blocks.0.attn.v@2")
    assert moment is not None and moment.symbol == "v@2"
    assert value is not None and value.symbol == "V@2"
    assert describe("d.blocks.0.attn.q_proj.weight") is not None
    assert describe("blocks.0.attn.nonsense") is None
    assert describe("d.nonsense") is None


def test_the_parts_of_a_quantized_weight_are_described_from_it() -> None:
    found = [describe(f"embed.weight{part}") for part in QUANTIZED_PARTS]
    assert [(row.symbol, row.axes) for row in found if row] == [
        ("q_E", ("v", "c")), ("s_E", ("v", "group")), ("m_E", ("v", "group")),
    ]  # fmt: skip
    gradient = describe("d.blocks.1.mlp.up_proj.weight.scales")
    assert gradient is not None and gradient.symbol == "ds_1"
    assert describe("blocks.0.attn_norm.weight.scales") is None and describe("logits.scales") is None


def test_every_choice_is_a_part_and_the_specification_has_its_twin() -> None:
    for family in families():
        for kind in kinds(family):
            assert (find(family, kind).family, find(family, kind).kind) == (family, kind)
    assert registry.kinds("pellucid.reference.norms") == kinds("norms")
    assert registry.kinds("pellucid.reference.transformer") == kinds("residuals")
    assert {"none", *registry.kinds("pellucid.reference.layers")} == set(kinds("caps"))
    for kind in set(kinds("mlps")) - {"none"}:
        part = find("mlps", kind)
        assert part.form in registry.kinds("pellucid.reference.mlps")  # type: ignore[attr-defined]
        assert part.activation in table()  # type: ignore[attr-defined]


def test_presets_without_weights_build() -> None:
    assert preset("gpt2").d_head == 64


def test_every_choice_has_a_test_of_its_own() -> None:
    """A table shared by both engines is only as right as its number from outside.

    A folder's kind has its own file of tests, a module's kind is named in the file of its family.
    """
    tests, missing = Path(__file__).parent.parent / "parts", []
    for family in families():
        for kind in set(kinds(family)) - {"none"}:
            own, shared = tests / family / f"test_{kind}.py", tests / f"test_{family}.py"
            words = (f'"{kind}"', f"{find(family, kind).__name__}(", f"test_{kind}_")
            if not own.exists() and not any(word in shared.read_text("utf-8") for word in words):
                missing.append(f"{family}/{kind}")
    assert not missing
