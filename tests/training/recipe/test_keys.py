"""Every key of a recipe is described, and its example is one that a recipe accepts."""

import tomllib
from typing import Any

import pytest

from pellucid.base.errors import ConfigError
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.keys import Key, add_comments, keys, texts
from pellucid.training.recipe.overrides import override, read_table, recipe_names

ALL = [key for table in keys().values() for key in table]
NEEDS = {
    "lora.rank": ["start=smollm2", "data.tokenizer=", "data.vocab_size=0"],
    "start": ["data.tokenizer=", "data.vocab_size=0"],
    "optimizer.beta2_start": ["optimizer.beta2_warmup=9"],
    "optimizer.beta2_warmup": ["optimizer.beta2_start=0.1"],
    "optimizer.adam_beta2_start": ["optimizer.adam_beta2_warmup=9"],
    "optimizer.adam_beta2_warmup": ["optimizer.adam_beta2_start=0.1"],
    "model.attention": ["model.positions=learned"],
    "evaluation.sampling.beams": ["evaluation.sampling.temperature=0"],
    "evaluation.sampling.keep": ["evaluation.sampling.context=roll"],
    "data.mixture_weights": ['data.path=["a.txt", "b.txt"]'],
}
"""What a key asks of others."""


REQUIRED = {
    "out": "a",
    "steps": "1",
    "data.path": "x.txt",
    "model.context_length": "8",
    "model.n_layer": "1",
    "model.n_head": "1",
    "model.d_model": "4",
}


def resolve(keys: dict[str, str]) -> dict[str, Any]:
    """Returns the whole recipe of these keys alone, with the config of its model."""
    recipe = Recipe.from_dict(override({}, [f"{name}={value}" for name, value in keys.items()]))
    return recipe.to_dict() | {"model": recipe.config(9).to_dict()}


def test_every_default_on_the_page_is_what_a_recipe_without_the_key_gets() -> None:
    assert {key.name for key in ALL if not key.default} == set(REQUIRED)
    for key in ALL:
        table, _, name = key.name.partition(".")
        if not key.default:
            with pytest.raises(ConfigError, match="missing"):
                resolve({other: value for other, value in REQUIRED.items() if other != key.name})
        elif table in ("optimizer", "schedule") and name != "kind":  # each kind with its own default
            for kind, default in (each.split(" ", 1) for each in key.default.split(", ")):
                chosen = REQUIRED | {f"{table}.kind": kind}
                assert resolve(chosen | {key.name: default}) == resolve(chosen), key.name
        elif key.default == "none" and table == "evaluation":
            assert resolve(REQUIRED)["evaluation"]["sampling"].get(name.partition(".")[2]) is None
        else:
            assert resolve(REQUIRED | {key.name: key.default}) == resolve(REQUIRED), key.name


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_every_key_has_a_meaning_and_an_example_that_a_recipe_accepts(key: Key) -> None:
    assert key.meaning.endswith("."), "write what it means under its field; the last line is `Example: VALUE`"
    assert key.example and len(key.summary) <= 100
    table, _, name = key.name.partition(".")
    kind = key.default.partition(" ")[0]  # settings of a part name the kinds that have them
    chosen = [f"{table}.kind={kind}"] if table in ("optimizer", "schedule") and name != "kind" else []
    asked = [*chosen, *NEEDS.get(key.name, []), f"{key.name}={key.example}"]
    recipe = Recipe.from_dict(override(read_table("stories"), asked))
    if not recipe.start:
        recipe.config(100)


def test_keys_of_a_recipe_are_all_there() -> None:
    names = {key.name for key in ALL}
    table = Recipe.from_dict(read_table("books")).to_dict()
    for section, value in table.items():
        found = {f"{section}.{key}" for key in value} if isinstance(value, dict) else {section}
        assert found <= names, found - names
    assert "model.vocab_size" not in names and "out" in names and "data" not in names


def test_a_setting_that_several_kinds_have_tells_the_default_of_each() -> None:
    (rate,) = (key for key in ALL if key.name == "optimizer.lr")
    assert "adamw 0.0006" in rate.default and "muon 0.02" in rate.default


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_with_comments_is_the_same_recipe(name: str) -> None:
    recipe = Recipe.from_dict(read_table(name))
    text = add_comments(recipe)
    assert Recipe.from_dict(tomllib.loads(text)) == recipe
    (line,) = (line for line in text.splitlines() if line.startswith("patience = "))
    assert line.endswith(f"# {texts(type(recipe.train))['patience'][0].partition('. ')[0]}")
    plain = [line for line in text.splitlines() if " = " in line and "  # " not in line]
    assert not plain
