"""A model's own generation settings, and the names that people know from other libraries."""

from typing import Any

import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.generation.settings.foreign_keys import EXPLANATIONS, HABITS, read_generation
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.table import SETTINGS


@pytest.mark.parametrize(
    ("settings", "ours"),
    [
        ({}, {}),
        ({"bos_token_id": 1, "eos_token_id": [2, 3]}, {"stop_ids": (2, 3)}),
        ({"do_sample": True}, {"temperature": 1.0}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"temperature": 0.6, "top_k": -1}, {"temperature": 0.6, "top_k": 0}),
        ({"do_sample": False, "temperature": 0.6, "top_k": 50}, {"temperature": 0.0}),
        ({"num_beams": 4, "early_stopping": "never"}, {"beams": 4, "early_stopping": False}),
        ({"num_beams": 4, "length_penalty": 2}, {"beams": 4, "length_penalty": 2.0}),
        ({"num_beams": 1, "early_stopping": True, "length_penalty": 2}, {"beams": 1}),
        ({"do_sample": True, "num_beams": 4}, {"temperature": 1.0}),
        ({"temperature": None, "top_k": None}, {}),
        ({"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"suppress_tokens": [5]}, {"banned_tokens": (5,)}),
        ({"max_length": 20, "max_new_tokens": 999, "forced_bos_token_id": 0, "_weird": [1]}, {}),
    ],
)
def test_a_models_own_settings_are_taken_where_they_mean_something(
    settings: dict[str, Any], ours: dict[str, Any]
) -> None:
    assert read_generation(settings) == ours
    assert Sampling.from_generation(settings) == Sampling(**ours)


def test_a_model_whose_own_settings_cannot_be_is_refused_unless_they_are_given() -> None:
    for settings in ({"temperature": "hot"}, {"temperature": -1}, {"do_sample": "no", "temperature": []}):
        with pytest.raises(FileError, match="Set temperature yourself"):
            read_generation(settings)
        assert read_generation(settings, without=["temperature"]) == {}


@pytest.mark.parametrize("key", [*HABITS, *EXPLANATIONS])
def test_another_librarys_name_is_refused_with_ours(key: str) -> None:
    assert key not in SETTINGS
    with pytest.raises(UsageError) as refusal:
        Sampling.read({key: 4})
    assert any(f"{name}=" in str(refusal.value) or f"write {name}" in str(refusal.value) for name in SETTINGS)
