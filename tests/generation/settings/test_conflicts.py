"""Settings that cannot be combined are refused with what would work."""

from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.settings.conflicts import RULES, drop_conflicts, find_ineffective
from pellucid.generation.settings.sampling import DEFAULTS, Sampling

CASES: list[tuple[dict[str, Any], str]] = [
    ({"beams": 2, "temperature": 0.5}, "temperature=0"),
    ({"beams": 2, "context": "crop"}, "refuse"),
    ({"beams": 2, "n": 3}, "beams=3"),
    ({"n": 2}, "0.8"),
    ({"typical_p": 0.5}, "0.8"),
    ({"min_new_tokens": 5, "max_new_tokens": 4}, "min_new_tokens=5"),
    ({"forced_tokens": [1, 2], "max_new_tokens": 1}, "max_new_tokens=1"),
    ({"forced_tokens": [1, 2], "banned_tokens": [2]}, "omit"),
    ({"context": "roll"}, "keep=16"),
    ({"keep": 4}, "roll"),
    ({"regex": "a", "json_schema": "{}"}, "omit"),
    ({"regex": "a", "grammar": "stories:easy"}, "omit"),
    ({"json_schema": "{}", "grammar": "stories:easy"}, "omit"),
    *(
        ({constraint: "a", name: value}, f"omit {name}")
        for constraint in ("regex", "json_schema", "grammar")
        for name, value in (("forced_tokens", [1]), ("stop", "x"), ("min_new_tokens", 1))
    ),
]


@pytest.mark.parametrize(("settings", "remedy"), CASES)
def test_a_conflict_is_refused_and_each_half_of_it_is_not(settings: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Sampling(**settings)
    assert remedy in str(refusal.value) and str(refusal.value).startswith(tuple(settings))


def test_every_rule_has_a_case() -> None:
    broken = [SimpleNamespace(**{**DEFAULTS, **settings}) for settings, _ in CASES]
    assert all(any(rule.applies(settings) for settings in broken) for rule in RULES)


def test_what_looks_like_a_conflict_and_is_none() -> None:
    assert Sampling(n=4, temperature=1)
    assert Sampling(n=4, beams=4)
    assert Sampling(min_new_tokens=4, max_new_tokens=4)
    assert Sampling(forced_tokens=[1], banned_tokens=[2], max_new_tokens=1)
    assert Sampling(context="roll", keep=1)
    assert Sampling(regex="a", max_new_tokens=3, banned_tokens=[1])


def test_a_sampler_that_changes_nothing_is_one_that_never_removes_the_token_that_is_taken() -> None:
    greedy, beams = Sampling(top_k=1, top_p=0.5), Sampling(top_k=1, beams=2)
    assert len(find_ineffective(greedy, ["top_k", "top_p", "early_stopping"])) == 3
    assert not find_ineffective(beams, ["top_k", "early_stopping"])


def test_a_weak_setting_gives_way_to_a_strong_one() -> None:
    assert drop_conflicts({"temperature": 0.6, "top_k": 5}, {"beams": 4}, DEFAULTS) == {"top_k": 5}
    assert drop_conflicts({"beams": 4}, {"temperature": 0.6}, DEFAULTS) == {}
    assert drop_conflicts({"min_new_tokens": 9}, {"max_new_tokens": 9}, DEFAULTS) == {"min_new_tokens": 9}
    assert drop_conflicts({}, {"beams": 4, "temperature": 1.0}, DEFAULTS) == {}
