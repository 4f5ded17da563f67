"""The tables of docs/recipes.md: the recipes that are shipped, and every key with its meaning."""

import dataclasses
import math
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

from pellucid.training.recipe import Recipe
from pellucid.training.recipe.keys import keys, texts
from pellucid.training.recipe.overrides import read_table, recipe_names

PART_OF = {"optimizer": "optimizers", "schedule": "schedules"}
"""The family of a table that is one choice."""


def recipes_page(text: str) -> str:
    """Returns the page with its two tables made anew."""
    for name, rows in (("recipes", _recipes()), ("keys", _keys())):
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        body = "\n".join(rows)
        text, found = re.subn(pattern, lambda m, body=body: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
        assert found == 1, f"docs/recipes.md has no place for its {name}"
    return text


def _recipes() -> Iterator[str]:
    yield "| name | what it trains | model | parameters | steps × tokens | optimizer |"
    yield "|---|---|---|---|---|---|"
    for name in recipe_names():
        recipe = Recipe.from_dict(read_table(name))
        tokens = f"{recipe.steps:,} × {recipe.data.batch_size * recipe.length:,}"
        model, count = f"`{recipe.start}`, LoRA of rank {recipe.lora.rank}", "as it has"
        if not recipe.start:
            config = recipe.config(recipe.data.vocab_size or 1)
            model = f"{config.n_layer} blocks, {config.d_model} channels, context {config.context_length:,}"
            sizes = (math.prod(shape) for key, shape in config.parameters().items() if key != "embed.weight")
            count = f"{sum(sizes):,}"
        yield f"| `{name}` | {_about(name)} | {model} | {count} | {tokens} | `{recipe.optimizer.kind}` |"


def _about(name: str) -> str:
    """The comment in the first lines of a recipe's file."""
    text = (resources.files("pellucid.training") / "recipes" / f"{name}.toml").read_text("utf-8")
    found = re.match(r"(?:#.*\n)+", text)
    assert found, f"{name}.toml does not begin with a comment that says what it trains"
    return " ".join(found[0].replace("#", "").split())


def _keys() -> Iterator[str]:
    for table, found in keys().items():
        title = f"`[{table}]`" if table else "Above every table"
        about = _describe_table(table) if table else ""
        if table in PART_OF:
            about += f" See [choices.md](choices.md#{PART_OF[table]})."
        yield f"### {title}\n\n{about}\n" if about else f"### {title}\n"
        yield "| key | type | default | meaning | example |\n|---|---|---|---|---|"
        for key in found:
            parts = [key.default] if key.default[:1] in ("{", "[") else key.default.split(", ")
            default = ", ".join(f"`{part}`" for part in parts) if key.default else "required"
            cells = (f"`{key.name}`", key.type, default, key.meaning, f"`{key.name}={key.example}`")
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""


def _describe_table(table: str) -> str:
    """Returns what the key of a table means, also of one in another: `evaluation.sampling`."""
    kind: Any = Recipe
    *outer, name = table.split(".")
    for key in outer:
        kind = next(entry.type for entry in dataclasses.fields(kind) if entry.name == key)
    return texts(kind)[name][0]
