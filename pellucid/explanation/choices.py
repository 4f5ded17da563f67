"""Every choice of a model: its idea, source, formula, settings and cost.

The folders are listed and their docstrings read, so a new file is a new choice here as well. Files that are
not parts are parsed and not imported: some of them need torch.
"""

import ast
import dataclasses
import functools
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid import parts
from pellucid.base.errors import ConfigError, UsageError, did_you_mean
from pellucid.config import BIAS_PLACES, ModelConfig, preset
from pellucid.config.cost import Cost, cost, total
from pellucid.parts import Part

PACKAGE = Path(parts.__file__).parent.parent
PRESET = "smollm2-135m"
"""Costs are computed for this config, whose choices are all defaults."""

OTHER_FAMILIES = {
    "initializations": ("engine/initializations", "How the weights of a new model are drawn."),
    "hugging_face": ("formats/huggingface/families", "Models in Hugging Face's folders, read and written."),
    "gguf": ("formats/gguf/architectures", "Models in GGUF files, read and written."),
}
RECIPE = {"optimizers": {"optimizer": "adamw"}, "schedules": {"schedule": "cosine"}}
"""The families whose choice a recipe makes, with its keys and their defaults."""
SMALL = ModelConfig(vocab_size=2, context_length=2, n_layer=1, n_head=1, d_model=2)
_CITED = re.compile(r"([A-Z][^;:]{0,60}? (?:19|20)\d\d\b.*?)[;.](?=\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Choice:
    """One kind of a family. `value` is its value in a config: a part with default or example settings, or
    places of biases."""

    family: str
    kind: str
    idea: str
    formula: str = ""
    source: str = ""
    value: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, with their defaults, or an example where there is none."""
        return dataclasses.asdict(self.value) if isinstance(self.value, Part) else {}

    @property
    def required_settings(self) -> dict[str, Any]:
        """The settings without a default, each with an example."""
        return self.value.required_settings() if isinstance(self.value, Part) else {}

    def to_toml(self, key: str) -> str:
        """Returns a line of a TOML config that makes this choice, with as many of its settings as fit."""
        if isinstance(self.value, tuple):
            return f"{key} = {json.dumps(self.value)}"
        line = f"{key} = {{ kind = {json.dumps(self.kind)}"
        for name, value in self.settings.items():
            more = f"{line}, {name} = {format_toml(value)}"
            line = more if len(more) < 80 else line
        return f"{line} }}" if self.settings else f"{key} = {json.dumps(self.kind)}"


@dataclass(frozen=True)
class ChoiceFamily:
    """A family of choices. `keys` are the config's keys that take one, each with its default; `recipe` the
    keys of a training recipe."""

    name: str
    idea: str
    choices: tuple[Choice, ...]
    keys: dict[str, str] = field(default_factory=dict)
    recipe: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CostComparison:
    """The cost of a choice and of the default, part by part; or why it cannot be combined with the preset."""

    key: str
    length: int
    usual: dict[str, Cost]
    here: dict[str, Cost]
    why: str = ""

    @property
    def parts(self) -> list[str]:
        """The parts of the model whose cost differs."""
        return [part for part in self.here if self.here[part] != self.usual[part]]


@functools.cache
def families() -> tuple[ChoiceFamily, ...]:
    """Returns every family, in the order of the config's keys, then those outside of a config."""
    keys: dict[str, dict[str, str]] = {}
    for key, part in SMALL.parts().items():
        keys.setdefault(part.family, {})[key] = part.kind
    names = [*keys, *(name for name in parts.families() if name not in keys)]
    found = [
        ChoiceFamily(name, _first_sentence(_split_docstring(inspect.getdoc(parts.home(name)))[0]),
               tuple(_list_parts(name)), keys.get(name, {}), RECIPE.get(name, {}))
        for name in names
    ]  # fmt: skip
    found.append(
        ChoiceFamily("biases", "Which maps and norms add a bias.", tuple(_list_biases()), {"biases": "none"})
    )
    found += (
        ChoiceFamily(name, idea, tuple(_list_folder(name, at))) for name, (at, idea) in OTHER_FAMILIES.items()
    )
    return tuple(found)


def find_choices(name: str) -> list[tuple[ChoiceFamily, Choice]]:
    """Returns the choices of a name: a family (`masks`, or a key: `mask`), or one kind (`rope`,
    `outputs/linear`)."""
    known: dict[str, dict[str, list[tuple[ChoiceFamily, Choice]]]] = {}
    for family in families():
        kinds = [(family, choice) for choice in family.choices]
        for word in (family.name, *family.keys, *family.recipe):
            known.setdefault(word, {})[family.name] = kinds
        for pair in kinds:
            full = f"{family.name}/{pair[1].kind}"
            for word in (pair[1].kind, full):
                known.setdefault(word, {})[full] = [pair]
    if name not in known:
        raise UsageError(
            f"{name!r} is not a family or a kind; `pellucid choices` lists them.{did_you_mean(name, known)}"
        )
    found = known[name]
    if name not in found and len(found) > 1:
        raise UsageError(f"{name!r} is a kind of several families: use {' or '.join(found)}.")
    return found.get(name) or next(iter(found.values()))


@functools.cache
def preset_cost() -> tuple[ModelConfig, dict[str, Cost]]:
    """Returns `PRESET` and its cost for one sequence as long as its context."""
    shape = preset(PRESET)
    return shape, cost(shape)


def compare_costs(family: ChoiceFamily, choice: Choice) -> Iterator[CostComparison]:
    """Yields the cost of `PRESET` with only this choice changed, for each key whose default is another."""
    shape, usual = preset_cost()
    for key, default in family.keys.items():
        if choice.kind != default:
            try:
                here = cost(dataclasses.replace(shape, **{key: choice.value}))
                yield CostComparison(key, shape.context_length, usual, here)
            except ConfigError as error:
                yield CostComparison(key, shape.context_length, usual, {}, str(error))


def describe_choice(family: ChoiceFamily, choice: Choice) -> dict[str, Any]:
    """Returns plain data: what a choice is, how it is written, and what it costs relative to the default."""
    return {
        "family": family.name,
        "kind": choice.kind,
        "idea": choice.idea,
        "formula": choice.formula,
        "source": choice.source,
        "settings": choice.settings,
        "config": [choice.to_toml(key) for key in family.keys],
        "recipe": [choice.to_toml(key) for key in family.recipe],
        "default_of": [key for key, kind in (family.keys | family.recipe).items() if kind == choice.kind],
        "cost": [
            {"preset": PRESET, "tokens": costs.length, "key": costs.key}
            | ({"why_not": costs.why} if costs.why else dataclasses.asdict(total(costs.here)))
            for costs in compare_costs(family, choice)
        ],
    }


def _list_parts(family: str) -> Iterator[Choice]:
    for kind in parts.kinds(family):
        part = parts.find(family, kind)
        home = sys.modules[part.__module__]
        idea, cited = _split_docstring(inspect.getdoc(part if home is parts.home(family) else home))
        yield Choice(family, kind, idea, part.formula, part.source or cited, part.example())


def _list_biases() -> Iterator[Choice]:
    """Yields each place of a bias, with the parameters that it adds."""
    for place in BIAS_PLACES:
        found = dataclasses.replace(SMALL, biases=(place,)).parameters()
        added = (name.replace("blocks.0.", "") for name in found if name not in SMALL.parameters())
        yield Choice("biases", place, f"Adds {', '.join(added)}.", value=(place,))


def _list_folder(family: str, home: str) -> Iterator[Choice]:
    for kind, doc in sorted(_docstrings(PACKAGE / home)):
        idea, cited = _split_docstring(doc)
        yield Choice(family, kind, idea, source=cited)


def _docstrings(home: Path) -> Iterator[tuple[str, str | None]]:
    """Yields each kind of a folder or a module with its docstring, read without importing anything."""
    if home.is_dir():
        for file in home.glob("[!_]*.py"):
            yield file.stem, ast.get_docstring(ast.parse(file.read_text("utf-8")))
        return
    for node in ast.parse(home.with_suffix(".py").read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) in ("kind", "registry.kind"):
                    yield ast.literal_eval(mark.args[0]), ast.get_docstring(node)


def _split_docstring(doc: str | None) -> tuple[str, str]:
    """Returns the first paragraph of a docstring, and the source that a later one begins with, if any."""
    idea, *rest = (" ".join(paragraph.split()) for paragraph in (doc or "").split("\n\n"))
    return idea, next((found[1] for text in rest if (found := _CITED.match(text))), "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def format_toml(value: Any) -> str:
    """Returns a setting as TOML."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
