"""One record of settings, the same from whatever table it is read."""

import dataclasses
import json
import tomllib
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pellucid.base.errors import ConfigError, TokenError, UsageError
from pellucid.generation.settings.sampling import DEFAULTS, Sampling
from pellucid.parts import find, kinds
from pellucid.training.recipe.toml import format_toml

IDS = st.lists(st.integers(0, 2**24 - 1), max_size=4).map(tuple)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PART = st.floats(0, 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.just(0.0) | st.floats(1e-6, 1e6),
    "top_k": st.integers(0, 2**24),
    "top_p": PART,
    "min_p": PART,
    "typical_p": PART,
    "repetition_penalty": st.floats(0.01, 100),
    "presence_penalty": st.floats(-100, 100),
    "frequency_penalty": st.floats(-100, 100),
    "logit_bias": st.dictionaries(st.integers(0, 2**24 - 1), st.floats(-1e6, 1e6), max_size=3),
    "banned_tokens": IDS,
    "forced_tokens": IDS,
    "regex": TEXT,
    "json_schema": TEXT,
    "grammar": TEXT,
    "samplers": st.lists(
        st.sampled_from(kinds("samplers")).map(lambda kind: find("samplers", kind).example())
    ).map(tuple),
    "min_new_tokens": st.integers(0, 9),
    "max_new_tokens": st.integers(0, 9),
    "stop": st.lists(TEXT, max_size=3).map(tuple),
    "stop_ids": IDS,
    "seed": st.integers(-(2**63), 2**63 - 1),
    "n": st.integers(1, 64),
    "beams": st.integers(1, 64),
    "length_penalty": st.floats(-100, 100),
    "early_stopping": st.booleans(),
    "context": st.sampled_from(["refuse", "crop", "roll"]),
    "keep": st.integers(0, 99),
}


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    names = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=6))
    try:
        return Sampling(**{name: draw(VALUES[name]) for name in names})
    except UsageError:
        assume(False)
        raise


@given(samplings())
@settings(max_examples=150)
def test_the_same_record_comes_back_through_json_and_toml(sampling: Sampling) -> None:
    table = sampling.to_dict()
    assert Sampling.read(table) == sampling
    assert Sampling.read(json.loads(json.dumps(table))) == sampling
    written = "".join(f"{key} = {format_toml(value)}\n" for key, value in table.items())
    assert Sampling.read(tomllib.loads(written)) == sampling
    assert Sampling().merge(sampling) == sampling == sampling.merge({})


def test_a_table_holds_what_differs_from_the_default() -> None:
    assert Sampling().to_dict() == {}
    assert Sampling(temperature=0.8, stop="x").to_dict() == {"temperature": 0.8, "stop": ["x"]}
    assert Sampling(seed=7).to_dict(always=["temperature"]) == {"temperature": 0.0, "seed": 7}


def test_every_setting_is_drawn_here() -> None:
    assert set(VALUES) == set(DEFAULTS)


def test_a_record_does_not_change_with_the_table_that_it_came_from() -> None:
    biases = {5: 1.0}
    sampling = Sampling(logit_bias=biases)
    biases[6] = 2.0
    assert sampling.logit_bias == {5: 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampling.temperature = 1.0  # type: ignore[misc]


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'temperature'"):
        Sampling.read({"temprature": 1})
    with pytest.raises(UsageError):
        Sampling.read([1])
    with pytest.raises(UsageError):
        Sampling.read({3: 1})


@pytest.mark.parametrize("table", [{"temperature": -1}, {"beams": 2, "temperature": 1}])
def test_a_reader_says_under_which_key_a_value_stands_and_raises_its_own_error(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        Sampling.read(table, "evaluation.sampling", error=ConfigError)
    assert str(refusal.value).startswith(("evaluation.sampling.temperature", "evaluation.sampling.beams"))


def test_later_settings_replace_earlier_ones() -> None:
    first = Sampling(temperature=0.8, seed=7)
    assert first.merge({"temperature": 0}) == Sampling(seed=7)
    assert first.merge(Sampling(top_k=5)) == Sampling(temperature=0.8, seed=7, top_k=5)
    with pytest.raises(UsageError):
        first.merge({"beams": 4})


def test_a_token_beyond_the_vocabulary_is_refused() -> None:
    for name in ("banned_tokens", "forced_tokens", "stop_ids"):
        Sampling(**{name: [9]}).check_vocabulary(10)  # type: ignore[arg-type]
        with pytest.raises(TokenError, match=name):
            Sampling(**{name: [10]}).check_vocabulary(10)  # type: ignore[arg-type]
    with pytest.raises(TokenError, match="logit_bias"):
        Sampling(logit_bias={10: 1}).check_vocabulary(10)
    with pytest.raises(UsageError):
        Sampling(banned_tokens=tuple(range(10))).check_vocabulary(10)


def test_a_record_shows_what_is_not_the_default() -> None:
    assert repr(Sampling(seed=1)) == "Sampling(seed=1)"
