"""A config is frozen, strict, and says what would work."""

import dataclasses
import json
import math
from typing import Any

import pytest

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig, preset, presets
from pellucid.parts import kinds
from pellucid.parts.optimizers import AdamW
from pellucid.parts.positions.rope import Rope

SIZES: dict[str, Any] = {"vocab_size": 5, "context_length": 8, "n_layer": 1, "n_head": 2, "d_model": 4}


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_dict(SIZES | changes)
    return str(error.value)


@pytest.mark.parametrize("name", presets())
def test_a_config_survives_json_and_toml(name: str) -> None:
    config = preset(name)
    assert ModelConfig.from_json(config.to_json()) == config
    simple = {key: value for key, value in config.to_dict().items() if not isinstance(value, dict)}
    toml = "\n".join(f"{key} = {json.dumps(value)}" for key, value in simple.items())
    parts = {key: value for key, value in config.to_dict().items() if isinstance(value, dict)}
    tables = "\n".join(
        f"[{key}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in part.items())
        for key, part in parts.items()
    )
    assert ModelConfig.from_toml(f"{toml}\n{tables}") == config


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("smollm2-135m", 134_515_008),
        ("gpt3", 174_604_259_328),
        ("tiny", 2_076_808),
        ("small", 4_591_112),
        ("medium", 25_125_512),
        ("large", 177_740_168),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("llama-3.2-1b", 1_235_814_400),
        ("abcd", 28),
    ],
)
def test_presets_have_their_published_number_of_parameters(name: str, count: int) -> None:
    assert sum(map(math.prod, preset(name).parameters().values())) == count


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        preset("abcd").n_layer = 2  # type: ignore[misc]


def test_sizes_that_are_left_out_follow_from_the_others() -> None:
    config = ModelConfig(**SIZES)
    assert (config.n_kv_head, config.d_head, config.d_ff) == (2, 2, 10)
    assert ModelConfig.from_dict(SIZES | {"mlp": "relu"}).d_ff == 16


def test_a_part_may_be_written_short_or_with_its_settings() -> None:
    short = ModelConfig.from_dict(SIZES | {"positions": "rope"})
    long = ModelConfig.from_dict(SIZES | {"positions": {"kind": "rope", "base": 10000, "layout": "halves"}})
    assert short == long
    assert ModelConfig.from_dict(SIZES | {"positions": {"kind": "rope", "base": 5}}).positions == Rope(
        base=5.0
    )


def test_every_none_choice_is_legitimate() -> None:
    nothing = dict.fromkeys(("positions", "mask", "norm", "mlp", "residual", "output"), "none")
    config = ModelConfig.from_dict(SIZES | nothing)
    assert set(config.parameters()) == {
        "embed.weight",
        "blocks.0.attn.q_proj.weight",
        "blocks.0.attn.k_proj.weight",
        "blocks.0.attn.v_proj.weight",
    }


def test_a_tied_model_has_no_unembedding() -> None:
    assert "unembed.weight" not in preset("gpt2").parameters()
    assert "unembed.weight" in preset("abcd").parameters()


def test_an_unknown_key_is_named_with_the_nearest() -> None:
    assert refused(d_modle=4).endswith("Did you mean 'd_model'?")


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    message = refused(positions="ropee")
    assert ", ".join(kinds("positions")) in message
    assert message.endswith("Did you mean 'rope'?")


def test_an_unknown_setting_is_named() -> None:
    message = refused(positions={"kind": "rope", "bas": 2})
    assert "'bas'" in message and message.endswith("Did you mean 'base'?")
    assert "has no keys: omit 'x'" in refused(mlp={"kind": "relu", "x": 1})
    assert "base must be a finite number ≥ 0, not 'big'" in refused(positions={"kind": "rope", "base": "big"})
    assert "or a table with a `kind`" in refused(norm=3)
    assert "or a table with a `kind`" in refused(norm={"eps": 1e-5})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_model": 5}, "5 / 2 = 2.5. Use d_model=4 or 6, or set d_head."),
        ({"d_model": 1}, "Use d_model=2, or set d_head."),
        ({"n_head": 4, "n_kv_head": 3}, "Use n_kv_head=2 or 4."),
        ({"d_model": 6, "positions": "rope"}, "d_head=3 is odd. Use d_head=4"),
        ({"d_model": 3, "n_head": 1, "positions": "sinusoidal"}, "Use d_model=4."),
        ({"positions": {"kind": "rope", "layout": "thirds"}}, "layouts halves and pairs, not 'thirds'"),
        ({"output": "none", "d_head": 3}, 'Use output = "linear", or d_head=2.'),
        ({"n_layer": 10**8}, "n_layer must be a whole number from 1 to 10,000, not 100000000."),
        ({"norm": {"kind": "rms_norm", "eps": -1.0}}, "eps must be a finite number ≥ 0, not -1.0."),
        ({"n_layer": 0}, "n_layer must be a whole number from 1 to 10,000, not 0."),
        ({"n_layer": True}, "n_layer must be a whole number from 1 to 10,000, not True."),
        ({"d_model": 4.0}, "d_model must be a whole number from 1 to 2,147,483,648, not 4.0: use 4."),
        ({"d_ff": -1}, "d_ff must be a whole number from 0 to 2,147,483,648, not -1."),
        ({"biases": ["qvk"]}, "Did you mean 'qkv'?"),
        ({"biases": "qkv"}, "biases must be a list, not 'qkv'."),
    ],
)
def test_impossible_sizes_are_refused_with_what_would_work(changes: dict[str, Any], words: str) -> None:
    assert words in refused(**changes)


def test_the_constructor_converts_as_from_dict_does() -> None:
    given: dict[str, Any] = {"positions": "rope", "norm": {"kind": "rms_norm", "eps": 1}, "biases": ["qkv"]}
    config = ModelConfig(**SIZES, **given)
    assert config == ModelConfig.from_dict(SIZES | given)
    assert config.positions == Rope() and config.biases == ("qkv",)
    assert dataclasses.replace(config, positions="learned").positions.kind == "learned"  # type: ignore[arg-type]
    assert ModelConfig.from_dict(SIZES | {"positions": Rope()}).positions == Rope()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("positions", 5),
        ("positions", None),
        ("positions", "ropee"),
        ("positions", {"base": math.nan}),
        ("positions", {"kind": "rope", "base": math.nan}),
        ("positions", {"kind": "rope", 5: 6}),
        ("positions", preset("abcd").norm),
        ("positions", Rope),
        ("embed_norm", "layernorm"),
        ("embed_norm", {"kind": "rms_norm", "eps": "small"}),
        ("mask", {"kind": "window", "size": 2.0}),
        ("mask", {"kind": "window", "size": 10**5000}),
        ("biases", "qkv"),
        ("biases", 5),
        ("biases", [5]),
        ("n_layer", 10**5000),
        ("n_layer", -(10**5000)),
        ("d_model", "4"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_constructor_refuses_what_from_dict_refuses_and_names_the_field(field: str, value: Any) -> None:
    messages = []
    for make in (lambda given: ModelConfig(**given), ModelConfig.from_dict):
        with pytest.raises(ConfigError, match=rf"\b{field}\b") as message:
            make(SIZES | {field: value})
        messages.append(str(message.value))
    assert messages[0] == messages[1]


def test_a_part_checks_its_own_settings() -> None:
    assert Rope(base=5) == Rope(base=5.0) and type(Rope(base=5).base) is float
    for wrong in ({"base": math.nan}, {"base": "big"}, {"base": -1.0}, {"base": True}, {"layout": 5}):
        with pytest.raises(ConfigError, match=f"positions 'rope': {min(wrong)}"):
            Rope(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="lr must be a finite number"):
        AdamW(lr="fast")  # type: ignore[arg-type]


def test_missing_sizes_are_named() -> None:
    with pytest.raises(ConfigError, match="missing: n_head, d_model"):
        ModelConfig.from_dict({"vocab_size": 5, "context_length": 8, "n_layer": 1})


def test_what_is_not_a_config_is_said_to_be_none() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        ModelConfig.from_json("{")
    with pytest.raises(ConfigError, match=r"not \[\]"):
        ModelConfig.from_json("[]")
    with pytest.raises(ConfigError, match="not TOML"):
        ModelConfig.from_toml("a = ")
    with pytest.raises(ConfigError, match="not JSON"):
        ModelConfig.from_json("9" * 5000)
    with pytest.raises(ConfigError, match="not 'gpt2'"):
        ModelConfig.from_dict("gpt2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Did you mean 'gpt2'"):
        preset("gtp2")
