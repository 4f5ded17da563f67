"""What docs/recipes.md shows works as it stands there."""

import re
import shlex
import tomllib
from pathlib import Path

import pellucid
from pellucid.data.conversation_file import is_chat, read
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import is_shipped, override, read_table, recipe_names
from tests.data.sources.test_conversations import opened

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")


def example(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_recipe_is_one() -> None:
    recipe = Recipe.from_dict(tomllib.loads(example("recipe")))
    assert recipe.config(recipe.data.vocab_size).n_layer == 4


def test_the_commands_change_keys_that_exist() -> None:
    lines = re.findall(r"^pellucid train (\S+) ([^#\n]*=[^#\n]*)", PAGE, re.MULTILINE)
    assert len(lines) >= 4
    for name, changes in lines:
        assert is_shipped(name)
        Recipe.from_dict(override(read_table(name), shlex.split(changes))).config(9)


def test_every_recipe_is_in_the_table() -> None:
    assert all(f"| `{name}` |" in PAGE for name in recipe_names())


def test_the_conversations_are_read_and_made_into_rows(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(example("conversations"))
    assert is_chat(str(path))
    talks = [messages for _, messages in read(str(path))]
    assert len(talks) == 3 and all(
        talk[-1] == {"role": "assistant", "content": "A parrot."} for talk in talks
    )
    assert opened(path, validation=0.0).train.take(0, slice(0, 1)).ids.size


def test_the_model_loads_and_computes(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(example("model"))
    model = pellucid.load(tmp_path / "mine.toml")
    assert len(model.generate("hot", max_new_tokens=3).split()) >= 1
    assert "probs" in str(model.explain("hot", at="probs[t=0,v=1]"))


def test_every_environment_variable_that_is_read_is_on_the_page() -> None:
    read_at = re.compile(r"environ(?:\.get|\.setdefault)?[\[(][\"'](\w+)[\"']")
    for file in (ROOT / "pellucid").rglob("*.py"):
        for name in {*read_at.findall(file.read_text("utf-8"))} - {"PYTHONPATH"}:
            assert f"`{name}`" in PAGE, f"{file.name} reads {name}"
