"""The table of settings: a value of any natural form is read, one that cannot be is refused by name."""

import math
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.settings.sampling import DEFAULTS
from pellucid.generation.settings.table import SETTINGS, parse_setting
from pellucid.parts.samplers import Sampler


def test_the_table_has_every_setting_of_the_record_in_its_order() -> None:
    assert list(SETTINGS) == list(DEFAULTS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_and_the_example_of_a_setting_can_be_read(name: str) -> None:
    assert SETTINGS[name].read(DEFAULTS[name]) == DEFAULTS[name]
    example = SETTINGS[name].read(SETTINGS[name].example)
    assert SETTINGS[name].read(SETTINGS[name].to_plain(example)) == example
    assert SETTINGS[name].meaning.endswith(".")


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", 1, 1.0),
        ("temperature", 1e-6, 1e-6),
        ("top_k", np.int64(5), 5),
        ("stop", "\n", ("\n",)),
        ("stop", ["a", "b"], ("a", "b")),
        ("stop_ids", 2, (2,)),
        ("stop_ids", None, None),
        ("banned_tokens", np.array([3, 1]), (3, 1)),
        ("banned_tokens", {3}, (3,)),
        ("forced_tokens", range(2), (0, 1)),
        ("logit_bias", {"262": -2, 5: np.float64(1.5)}, {262: -2.0, 5: 1.5}),
        ("json_schema", {"type": "integer"}, '{"type": "integer"}'),
        ("seed", -1, -1),
        ("samplers", {"kind": "top_k", "top_k": 5}, (Sampler.read({"kind": "top_k", "top_k": 5}),)),
    ],
)
def test_a_value_is_read_in_its_natural_forms(name: str, given: Any, read: Any) -> None:
    found = SETTINGS[name].read(given)
    assert found == read and type(found) is type(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, math.nan) for name, setting in SETTINGS.items() if setting.type is float),
        *((name, 1e300) for name, setting in SETTINGS.items() if setting.type is float),
        *((name, 1.5) for name, setting in SETTINGS.items() if setting.type is int),
        *((name, 2**70) for name, setting in SETTINGS.items() if setting.type is int),
        *((name, object()) for name in SETTINGS),
        *((name, b"x") for name in SETTINGS),
        ("temperature", 1e-9),
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", None),
        ("top_p", 1.01),
        ("repetition_penalty", 0),
        ("n", 0),
        ("n", 65),
        ("beams", 1_000_000),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("stop", "x" * 101),
        ("stop", "\ud800"),
        ("regex", "x" * 100_000),
        ("banned_tokens", [-1]),
        ("banned_tokens", "the"),
        ("banned_tokens", range(5000)),
        ("banned_tokens", [[1]]),
        ("logit_bias", {262: math.inf}),
        ("logit_bias", {" the": 1}),
        ("logit_bias", {"1": 1, 1: 2}),
        ("logit_bias", dict.fromkeys(range(1025), 0)),
        ("logit_bias", [1]),
        ("early_stopping", "never"),
        ("context", "corp"),
        ("samplers", "topk"),
        ("samplers", [{"kind": "top_k", "k": 5}]),
        ("samplers", [{"kind": "top_p", "top_p": 5.0}]),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        SETTINGS[name].read(value)
    assert str(refusal.value).startswith(name)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("temperature=0.5", ("temperature", 0.5)),
        ("top-k=5", ("top_k", 5)),
        ("stop=a=b", ("stop", ("a=b",))),
        ('stop=["a", "b"]', ("stop", ("a", "b"))),
        ("banned_tokens=[1, 2]", ("banned_tokens", (1, 2))),
        ("banned_tokens=7", ("banned_tokens", (7,))),
        ("max_new_tokens=null", ("max_new_tokens", None)),
        ('json_schema={"type": "null"}', ("json_schema", '{"type": "null"}')),
        ("early_stopping=true", ("early_stopping", True)),
        ("context=crop", ("context", "crop")),
        ('logit_bias={"5": 1}', ("logit_bias", {5: 1.0})),
    ],
)
def test_a_setting_is_read_from_a_text(text: str, setting: tuple[str, Any]) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize("text", ["temperature", "temperature=hot", "heat=1", "=1", "", "seed=" + "9" * 5000])
def test_a_text_that_sets_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_setting(text)
