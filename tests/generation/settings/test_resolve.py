"""The model's own settings, a preset and what is given become one record, which says where each is from."""

from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.settings.resolve import PRESETS, describe, resolve_sampling
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.table import SETTINGS

OWN = {"do_sample": True, "temperature": 0.6, "top_k": 40, "eos_token_id": 2}


def test_what_is_given_goes_before_the_preset_and_the_preset_before_the_models_own() -> None:
    sampling, origins = resolve_sampling(OWN, "balanced", {"top_p": 0.5})
    preset = PRESETS["balanced"].settings
    assert sampling == Sampling(**{**preset, "top_p": 0.5, "stop_ids": (2,)})
    assert origins["top_p"] == "given" and origins["temperature"] == "preset balanced"
    assert origins["stop_ids"] == "model"


def test_without_a_preset_the_models_own_settings_hold() -> None:
    assert resolve_sampling(OWN).sampling == Sampling(temperature=0.6, top_k=40, stop_ids=(2,))
    assert resolve_sampling().sampling == Sampling()


@pytest.mark.parametrize(
    ("own", "asked", "left"),
    [
        ({"temperature": 0.6, "top_k": 9}, {"beams": 4}, {"beams": 4, "top_k": 9}),
        ({"num_beams": 4}, {"temperature": 1}, {"temperature": 1}),
        ({"min_new_tokens": 9}, {"max_new_tokens": 5}, {"max_new_tokens": 5}),
        ({"temperature": "hot"}, {"temperature": 0}, {}),
    ],
)
def test_the_models_own_settings_give_way(own: Any, asked: Any, left: Any) -> None:
    sampling, origins = resolve_sampling(own, given=asked)
    assert sampling == Sampling(**left)
    assert set(origins) == set(left) | set(asked)


def test_a_preset_does_not_give_way_silently() -> None:
    with pytest.raises(UsageError):
        resolve_sampling(None, "creative", {"beams": 4})
    with pytest.raises(UsageError, match="balanced"):
        resolve_sampling(None, "balancd")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_means_the_same_with_every_model(name: str) -> None:
    own = {
        "temperature": 0.6,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.5,
        "typical_p": 0.5,
        "repetition_penalty": 2,
    }
    beams = {"do_sample": False, "num_beams": 4, "length_penalty": 2.0}
    preset = resolve_sampling(None, name).sampling
    assert resolve_sampling(own, name).sampling == preset
    assert resolve_sampling(beams, name).sampling.beams == 1
    assert (preset.temperature == 0) == (name == "greedy")


def test_every_setting_is_described_once_with_its_origin() -> None:
    text = describe(*resolve_sampling(OWN, "creative", {"seed": 7, "stop": ["\n"]}))
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    assert list(lines) == ["model", "preset creative", "given", "default"]
    assert lines["given"] == "stop '\\n', seed 7"
    named = [entry.split()[0] for line in lines.values() for entry in line.split(", ")]
    assert sorted(named) == sorted(SETTINGS)


def test_settings_without_origins_are_given_or_default() -> None:
    assert describe(Sampling(seed=7)).startswith("given: seed 7\ndefault: temperature 0")
