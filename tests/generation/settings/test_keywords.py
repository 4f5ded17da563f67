"""Keywords win over presets, presets over the model's own settings; every key of `Sampling` is a keyword."""

import dataclasses
import typing
from typing import Any

import pytest
import torch

import pellucid
from pellucid.base.errors import ConfigError, UsageError
from pellucid.generation.settings.keywords import SamplingOptions, read_options, split_seeds
from pellucid.generation.settings.resolve import PRESETS
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import Model
from tests.formats.gguf import random_models

POSITIONAL = {"max_new_tokens", "temperature", "seed", "n"}
"""Keys of `Sampling` that are parameters of their own."""


def tiny(**generation: Any) -> Model:
    return Model(random_models.model(random_models.LLAMA, generation=generation))


def test_every_key_of_sampling_is_a_keyword() -> None:
    fields = {entry.name for entry in dataclasses.fields(Sampling)}
    assert set(typing.get_type_hints(SamplingOptions)) == fields - POSITIONAL


def test_without_settings_a_text_is_greedy_unless_the_model_samples() -> None:
    assert read_options(tiny(), {}).sampling == Sampling()
    own = {"do_sample": True, "temperature": 0.6, "top_k": 40}
    assert read_options(tiny(**own), {}).sampling == Sampling(temperature=0.6, top_k=40)
    assert read_options(tiny(**own), {"temperature": 0}).sampling.temperature == 0
    assert read_options(tiny(**own | {"do_sample": False}), {}).sampling.temperature == 0


def test_a_keyword_that_is_none_is_not_given() -> None:
    own = {"do_sample": True, "temperature": 0.6}
    assert read_options(tiny(**own), {"temperature": None, "seed": None}).sampling.temperature == 0.6


def test_a_preset_stands_between_the_model_and_the_keywords() -> None:
    model = tiny(do_sample=True, temperature=0.123)
    call = read_options(model, {"preset": "creative", "top_k": 5})
    assert (
        call.sampling.temperature == PRESETS["creative"].settings["temperature"] and call.sampling.top_k == 5
    )
    assert call.origins["temperature"] == "preset creative" and call.origins["top_k"] == "given"


def test_a_whole_sampling_takes_the_place_of_the_model_s_settings() -> None:
    model = tiny(do_sample=True, temperature=0.6, top_k=40)
    given = Sampling(temperature=0.9, seed=3)
    assert read_options(model, {"sampling": given}).sampling == given
    assert read_options(model, {"sampling": given, "top_p": 0.5}).sampling == given.merge({"top_p": 0.5})
    with pytest.raises(UsageError, match="give one of them"):
        read_options(model, {"sampling": given, "preset": "greedy"})


def test_how_a_request_is_run_is_not_a_setting_of_it() -> None:
    call = read_options(tiny(), {"cache": "int8", "lookup": True, "draft_tokens": 3, "parse_special": True})
    assert call.engine == {"cache_dtype": torch.int8, "lookup": True, "draft_tokens": 3}
    assert call.parse_special and call.sampling == Sampling()
    draft = tiny()
    assert read_options(tiny(), {"draft": draft}).engine["draft"] is draft
    assert read_options(tiny(), {"draft": "abcd"}).engine["draft"].name == "abcd"
    with pytest.raises(ConfigError, match="int8"):
        read_options(tiny(), {"cache": "int4"})


def test_one_seed_is_for_all_prompts_and_several_are_one_for_each() -> None:
    assert [one.seed for one in split_seeds(Sampling(seed=3), None, 2)] == [3, 3]
    assert [one.seed for one in split_seeds(Sampling(), 5, 2)] == [5, 5]
    assert [one.seed for one in split_seeds(Sampling(), range(2), 2)] == [0, 1]
    with pytest.raises(UsageError, match="1 seed for 2 prompts"):
        split_seeds(Sampling(), [1], 2)


def test_sampling_is_public() -> None:
    assert pellucid.Sampling is Sampling


def test_a_number_of_proposals_without_any_is_refused() -> None:
    with pytest.raises(UsageError, match="draft"):
        read_options(tiny(), {"draft_tokens": 3})
