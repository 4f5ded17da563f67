"""Every choice that a model is made of: what it is, who says so, how it is written, and what it costs.

The folders are listed and their docstrings read, so a new file is a new choice here as well. Files that are
no parts are read without being run: some of them need torch.
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
from pellucid.config import BIAS_PLACES, ModelConfig, preset
from pellucid.cost import Cost, cost
from pellucid.errors import ConfigError, UsageError, did_you_mean
from pellucid.parts import Part

PACKAGE = Path(parts.__file__).parent.parent
PRESET = "smollm2-135m"
"""Costs are told for this shape: every choice of it is a default."""

ELSEWHERE = {
    "initializations": ("model/initializations", "How the weights of a new model are drawn."),
    "hugging_face": ("interop/huggingface/families", "Models in Hugging Face's folders, read and written."),
    "gguf": ("interop/gguf/architectures", "Models in GGUF files, read and written."),
}
RECIPE = {"optimizers": {"optimizer": "adamw"}, "schedules": {"schedule": "cosine"}}
"""The families whose choice a recipe makes, with its keys and their defaults."""
SMALL = ModelConfig(vocab_size=2, context_length=2, n_layer=1, n_head=1, d_model=2)
_CITED = re.compile(r"([A-Z][^;:]{0,60}? (?:19|20)\d\d\b.*?)[;.](?=\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Choice:
    """`value` is what a config holds at its key: a part with its defaults or examples, or places of
    biases."""

    family: str
    kind: str
    idea: str
    formula: str = ""
    source: str = ""
    value: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, with their defaults."""
        return dataclasses.asdict(self.value) if isinstance(self.value, Part) else {}

    def written(self, key: str) -> str:
        """A line of a TOML config that makes this choice, with as many of its settings as fit a line."""
        if isinstance(self.value, tuple):
            return f"{key} = {json.dumps(self.value)}"
        line = f"{key} = {{ kind = {json.dumps(self.kind)}"
        for name, value in self.settings.items():
            more = f"{line}, {name} = {toml(value)}"
            line = more if len(more) < 80 else line
        return f"{line} }}" if self.settings else f"{key} = {json.dumps(self.kind)}"


@dataclass(frozen=True)
class Family:
    """`keys` are the config's keys that take a choice of this family, each with its default; `recipe` those
    of a recipe for training."""

    name: str
    idea: str
    choices: tuple[Choice, ...]
    keys: dict[str, str] = field(default_factory=dict)
    recipe: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What a choice costs beside the default, part by part; or why it does not go with the other choices."""

    key: str
    length: int
    usual: dict[str, Cost]
    here: dict[str, Cost]
    why: str = ""

    @property
    def parts(self) -> list[str]:
        """The parts of the model that cost something else."""
        return [part for part in self.here if self.here[part] != self.usual[part]]


@functools.cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of the config's keys; after them what is chosen outside of a config."""
    keys: dict[str, dict[str, str]] = {}
    for key, part in SMALL.parts().items():
        keys.setdefault(part.family, {})[key] = part.kind
    names = [*keys, *(name for name in parts.families() if name not in keys)]
    made = [
        Family(name, _first_sentence(_told(inspect.getdoc(parts.home(name)))[0]),
               tuple(_of_parts(name)), keys.get(name, {}), RECIPE.get(name, {}))
        for name in names
    ]  # fmt: skip
    made.append(Family("biases", "Which maps and norms add a bias.", tuple(_biases()), {"biases": "none"}))
    made += (Family(name, idea, tuple(_elsewhere(name, at))) for name, (at, idea) in ELSEWHERE.items())
    return tuple(made)


def chosen(name: str) -> list[tuple[Family, Choice]]:
    """What people mean by a name: the kinds of a family (`masks`, or a key: `mask`), or one kind (`rope`,
    `outputs/linear`)."""
    known: dict[str, dict[str, list[tuple[Family, Choice]]]] = {}
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
def usual() -> tuple[ModelConfig, dict[str, Cost]]:
    """`PRESET` and what it costs, for one sequence as long as its context."""
    shape = preset(PRESET)
    return shape, cost(shape)


def beside_default(family: Family, choice: Choice) -> Iterator[Beside]:
    """The cost in `PRESET` with this choice alone changed, once for each key whose default is another."""
    shape, as_it_is = usual()
    for key, default in family.keys.items():
        if choice.kind != default:
            try:
                here = cost(dataclasses.replace(shape, **{key: choice.value}))
                yield Beside(key, shape.context_length, as_it_is, here)
            except ConfigError as error:
                yield Beside(key, shape.context_length, as_it_is, {}, str(error))


def _of_parts(family: str) -> Iterator[Choice]:
    for kind in parts.kinds(family):
        part = parts.find(family, kind)
        home = sys.modules[part.__module__]
        idea, cited = _told(inspect.getdoc(part if home is parts.home(family) else home))
        yield Choice(family, kind, idea, part.formula, part.source or cited, part.example())


def _biases() -> Iterator[Choice]:
    """Each place, with the parameters that a bias there adds."""
    for place in BIAS_PLACES:
        made = dataclasses.replace(SMALL, biases=(place,)).parameters()
        added = (name.replace("blocks.0.", "") for name in made if name not in SMALL.parameters())
        yield Choice("biases", place, f"Adds {', '.join(added)}.", value=(place,))


def _elsewhere(family: str, home: str) -> Iterator[Choice]:
    for kind, doc in sorted(_docstrings(PACKAGE / home)):
        idea, cited = _told(doc)
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


def _told(doc: str | None) -> tuple[str, str]:
    """The first paragraph of a docstring, and the source that a later one begins with, if any."""
    idea, *rest = (" ".join(paragraph.split()) for paragraph in (doc or "").split("\n\n"))
    return idea, next((found[1] for text in rest if (found := _CITED.match(text))), "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def toml(value: Any) -> str:
    """A setting as a config writes it."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
