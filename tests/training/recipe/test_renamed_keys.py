"""Recipes, overrides and run folders of the previous version mean what they meant."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import ConfigError
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.recipe.renamed_keys import RENAMED, describe_renamed, translate
from tests.training.recipe.test_recipe import SMALL

OLD: dict[str, Any] = {
    "optimizer": {"kind": "muon", "decay": 0.3, "adam_decay": 0.2},
    "train": {
        "bad": "stop", "z": 1e-4, "chunk": 7, "record": 3, "recompute": "yes", "smoothing": 0.1,
        "initialisation": "xavier", "compile": "no", "deterministic": "yes", "tensorboard": "yes",
    },
}  # fmt: skip
NEW: dict[str, Any] = {
    "optimizer": {"kind": "muon", "weight_decay": 0.3, "adam_weight_decay": 0.2},
    "train": {
        "on_nonfinite": "stop", "z_loss": 1e-4, "logits_chunk": 7, "record_every": 3,
        "activation_checkpointing": True, "label_smoothing": 0.1, "initialization": "xavier",
        "compile": False, "deterministic": True, "tensorboard": True,
    },
}  # fmt: skip


def overrides(table: dict[str, Any]) -> list[str]:
    return [
        f"{section}.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for section, values in table.items()
        for key, value in values.items()
    ]


def test_the_keys_of_the_previous_version_mean_what_they_meant() -> None:
    new = Recipe.from_dict(SMALL | NEW)
    assert Recipe.from_dict(SMALL | OLD) == new
    assert Recipe.from_dict(override(SMALL, overrides(OLD))) == new
    assert Recipe.from_dict(override(SMALL | OLD, overrides(NEW))) == new
    assert Recipe.from_dict(tomllib.loads(new.to_toml())) == new


def test_every_old_key_is_named_once_with_its_new_name() -> None:
    lines = describe_renamed(OLD, overrides(OLD))
    assert len(lines) == len(RENAMED) + 3  # compile, deterministic and tensorboard are named with their value
    assert all(any(old in line and new in line for line in lines) for old, new in RENAMED.items())
    assert "train.compile=no is now train.compile=false" in lines
    assert describe_renamed(NEW, overrides(NEW)) == []


@pytest.mark.parametrize("value", ["no", "false", False])
def test_a_quoted_boolean_is_the_boolean(value: str | bool) -> None:
    assert Recipe.from_dict(SMALL | {"train": {"compile": value}}).train.compile is False
    for text in ("train.compile=false", 'train.compile="false"', "train.compile=no"):
        assert Recipe.from_dict(override(SMALL, [text])).train.compile is False
    assert describe_renamed({"train": {"compile": "false"}}, ["train.compile=false"]) == []


def test_a_key_set_by_both_names_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.bad.*train\.on_nonfinite"):
        Recipe.from_dict(SMALL | {"train": {"bad": "stop", "on_nonfinite": "skip"}})


@pytest.mark.parametrize("table", [{}, {"train": 3}, {"train": {"compile": 3}}])
def test_a_table_without_old_keys_is_left_as_it_is(table: dict[str, Any]) -> None:
    assert translate(table) == table


def test_the_recipe_of_an_old_run_is_read() -> None:
    table = tomllib.loads((Path(__file__).parents[2] / "golden/run-2/recipe.toml").read_text("utf-8"))
    recipe = Recipe.from_dict(table)
    assert recipe.train.on_nonfinite == table["train"]["bad"]
    assert recipe.train.compile is False
