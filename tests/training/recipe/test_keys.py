"""Every key of a recipe is described, and its example is one that a recipe accepts."""

import tomllib

import pytest

from pellucid.training.recipe import Recipe
from pellucid.training.recipe.keys import Key, add_comments, keys, texts
from pellucid.training.recipe.overrides import override
from pellucid.training.recipe.shipped import read_table, recipe_names

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
