"""A run as one TOML file: model, data, optimizer, schedule, length, evaluation, outputs.

    out = "runs/stories"
    steps = 1200
    [model]
    n_layer = 4
    [data]
    path = "stories:easy"

A key that means nothing is an error. `key=value` on the command line changes one: `optimizer.lr=3e-4`.
"""

import dataclasses
import json
import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Self, cast

from pellucid.arguments import LARGEST_VOCABULARY
from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, did_you_mean, unknown
from pellucid.files import read_bytes
from pellucid.parts import Part
from pellucid.parts.optimizers import Optimizer
from pellucid.parts.optimizers.adamw import AdamW
from pellucid.parts.schedules import Schedule
from pellucid.parts.schedules.cosine import Cosine
from pellucid.text.corpus.bad_files import CHOICES as BAD_FILE_CHOICES
from pellucid.text.corpus.bad_files import STOP
from pellucid.training.renamed_keys import translate, translate_override

MODEL_KEYS = tuple(entry.name for entry in dataclasses.fields(ModelConfig))
PATHS = str | tuple[str, ...]
FROM_DATA = ("vocab_size",)
"""Keys of the model that the tokenizer decides."""
MADE = ("stories", "task")
"""Texts that are made while the model learns, such as `task:copy`; of each kind there is a recipe."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the text is, and how it becomes batches."""

    path: str | tuple[str, ...]
    """The text to learn from. A file, a folder of texts, a pattern, or a list of them; conversations
    (.jsonl); or a folder of token files, `stories:LEVEL` or `task:NAME`.
    Example: my.txt"""
    split: str = "file"
    """Where one document ends: `file`, `line`, `paragraph`, `separator=TEXT` or `jsonl`. A row of tokens may
    hold the end of one document and the beginning of the next, with an end token between them.
    Example: paragraph"""
    on_bad_file: str = STOP
    """What a file does that cannot be read as text. `stop` refuses the run and lists all such files; `skip`
    omits them; `replace` puts U+FFFD for bytes that are not UTF-8, and counts them.
    Example: skip"""
    tokenizer: str = ""
    """A kind of tokenizer to train on the text, or a folder with one. Empty: the tokenizer that the text
    brings along, or else `bpe`.
    Example: characters"""
    vocab_size: int = 0
    """Number of tokens of a tokenizer that is trained. 0: chosen from the size of the text.
    Example: 8192"""
    batch_size: int = 32
    """Rows of one optimizer step, on all processes together.
    Example: 64"""
    validation: float | str = 0.1
    """Fraction held out for the validation loss, or the path of another text. Of
    few documents, the end of each is held out.
    Example: 0.05"""


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Adapters of low rank, W' = W + (alpha / rank) B A, where A and B alone are trained (Hu et al. 2021,
    arXiv:2106.09685)."""

    rank: int = 0
    """Rank of the adapters; 0 trains the weights themselves. Needs a `start`.
    Example: 8"""
    alpha: float = 16.0
    """Scale of the adapters: their product is multiplied by alpha / rank.
    Example: 32"""
    dropout: float = 0.0
    """Probability with which an input of an adapter is dropped while training.
    Example: 0.05"""
    targets: tuple[str, ...] = ("blocks.*_proj",)
    """Patterns of the names of the projections that get an adapter.
    Example: ["blocks.*.q_proj", "blocks.*.v_proj"]"""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank if self.rank else 0.0


@dataclass(frozen=True, kw_only=True)
class Train:
    """How a step is made."""

    accumulate: int = 1
    """Parts into which a batch is divided to need less memory; their gradients are added.
    Example: 8"""
    clip: float = 1.0
    """Largest gradient norm: a longer gradient is scaled down to it. 0: no clipping.
    Example: 0.5"""
    label_smoothing: float = 0.0
    """Label smoothing: the fraction of the target's probability that is spread over all tokens.
    Example: 0.1"""
    z_loss: float = 0.0
    """Weight z of the z-loss, z · (ln Σ e^logit)², which keeps the logits near 0.
    Example: 1e-4"""
    logits_chunk: int = 0
    """Positions whose logits are computed at a time, to save memory with a large vocabulary. 0: chosen.
    Example: 1024"""
    activation_checkpointing: bool = False
    """Whether the backward pass recomputes a block's activations instead of keeping them. Less memory, for
    about a third more arithmetic.
    Example: true"""
    only: tuple[str, ...] = ()
    """Patterns of the names of the parameters that are trained; all where there is none.
    Example: ["blocks.*"]"""
    freeze: tuple[str, ...] = ()
    """Patterns of the names of the parameters that are not trained.
    Example: ["embed.weight"]"""
    ema: float = 0.0
    """Decay of the moving average of the weights, which is what is evaluated and saved. 0: no average.
    Example: 0.99"""
    patience: int = 0
    """Evaluations without a better validation loss after which the run stops. 0: never.
    Example: 5"""
    on_nonfinite: str = "skip"
    """What happens at a gradient with NaN or Inf. `skip` omits the update, and stops after five in a row;
    `stop` stops at once.
    Example: stop"""
    record_every: int = 100
    """Steps between two records of the sizes of activations, gradients and updates. 0: no records.
    Example: 20"""
    initialization: str = "gpt2"
    """How the weights of a new model are drawn; `pellucid choices initialisations` lists the kinds.
    Example: xavier"""
    device: str = "auto"
    """Where the model is: `auto`, `cpu`, `cuda` or `cuda:N`.
    Example: cpu"""
    dtype: str = "auto"
    """Type of the matrix products. auto: bfloat16 on a GPU, float32 on a CPU.
    Example: float32"""
    threads: int = 0
    """Threads that compute on a CPU; the bits of a run follow from their number. 0: as many as torch chooses.
    Example: 1"""
    weights: str = "float32"
    """Type of the weights in the forward pass; bfloat16 weights are copies of float32 master weights.
    Example: bfloat16"""
    compile: bool | str = "auto"
    """Whether the step is compiled by torch.compile. auto: on a GPU, where the run is long enough.
    Example: false"""
    deterministic: bool | str = "auto"
    """Whether only deterministic kernels are used, so that a run can be repeated bit for bit. auto: on a CPU.
    Example: true"""
    tensorboard: bool = False
    """Whether the figures of the log are written for TensorBoard as well.
    Example: true"""
    parallel: str = "auto"
    """How several processes share a model. `ddp` (or auto) gives each the whole of it, `fsdp` some rows of
    each parameter.
    Example: fsdp"""
    timeout: float = 120.0
    """Seconds without a sign of life after which the other processes end the run.
    Example: 600"""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How often the validation loss is computed, and what else is shown then."""

    every: int = 100
    """Steps between two evaluations.
    Example: 250"""
    batches: int = 0
    """Batches of the validation text that are evaluated. 0: all of it.
    Example: 8"""
    sample: int = 60
    """Tokens of the text that the model writes at each evaluation. 0: none.
    Example: 200"""
    prompt: str = ""
    """The text from which that sample goes on. Empty: the beginning of a document.
    Example: Once upon a time"""


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """How often the state of the run is saved."""

    every: int = 500
    """Steps between two checkpoints.
    Example: 1000"""
    minutes: float = 5.0
    """Minutes without a checkpoint after which one is saved whatever the step. 0: never.
    Example: 15"""
    keep: int = 2
    """Newest checkpoints that are kept; older ones are removed. One that was saved between two of the
    schedule, by the clock or at an interruption, is kept until there is a newer one.
    Example: 5"""
    keep_best: bool = True
    """Whether the model with the lowest validation loss so far is kept as well, in OUT/best.
    Example: false"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run as data. The text under each key says what it means, and its last line gives an example."""

    out: str
    """The folder of the run: its log, its checkpoints and its model.
    Example: runs/a"""
    steps: int
    """Optimizer steps of the run. `pellucid train --resume RUN steps=N` changes them, also when it is
    finished; the learning rate then follows the schedule of N steps from there on.
    Example: 2000"""
    extensions: tuple[tuple[int, int], ...] = ()
    """Written by Pellucid where a run was given other steps: [step, steps] for each time. Up to that
    step the run was to have that number of steps, and its learning rate followed their schedule.
    Example: [[400, 400]]"""
    data: Data
    """Where the text is, and how it becomes batches."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """The sizes and choices of the model. Beside a `start`, only context_length and dropout can be chosen."""
    seed: int = 0
    """Seed of the RNG for the first weights, the order of the rows, and dropout.
    Example: 17"""
    start: str = ""
    """The model whose weights and tokenizer the run begins from. A folder, a .gguf file, or a name that
    `pellucid list` shows. Empty: new weights.
    Example: smollm2"""
    lora: Lora = field(default_factory=Lora)
    """Adapters beside the weights of a `start`."""
    optimizer: Optimizer = field(default_factory=AdamW)
    """How a gradient becomes an update."""
    schedule: Schedule = field(default_factory=Cosine)
    """How the learning rate changes over the run."""
    train: Train = field(default_factory=Train)
    """How a step is made."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """How often the validation loss is computed, and what else is shown then."""
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    """How often the state of the run is saved."""

    def __post_init__(self) -> None:
        for section, key, low, high in BOUNDS:
            value = getattr(getattr(self, section) if section else self, key)
            if not isinstance(value, str) and not low <= value <= high:
                name = f"{section}.{key}" if section else key
                raise ConfigError(f"{name}={value} cannot be: it goes from {_bound(low)} to {_bound(high)}.")
        if not self.out.strip():
            raise ConfigError("out is empty: name the folder of the run, for example out=runs/a.")
        for section, key, words in WORDS:
            value = getattr(getattr(self, section), key)
            if value not in words:
                raise ConfigError(unknown(f"{section}.{key}", value, map(as_text, words)))
        self._check_start()
        self._check_extensions()
        if self.train.weights == "bfloat16" and self.train.dtype in ("float32", "float64"):
            raise ConfigError(
                f"train.weights=bfloat16 does not go with train.dtype={self.train.dtype}: products of "
                "bfloat16 weights are bfloat16. Use train.dtype=bfloat16, or leave it out."
            )
        if self.data.batch_size % self.train.accumulate:
            raise ConfigError(
                f"data.batch_size={self.data.batch_size} does not split into train.accumulate="
                f"{self.train.accumulate} equal parts. Use a number that divides it."
            )

    def _check_start(self) -> None:
        if not self.start:
            if "context_length" not in self.model:
                raise ConfigError("model.context_length is missing: how many tokens a row has.")
            if self.lora.rank:
                raise ConfigError(
                    f"lora.rank={self.lora.rank} adapts a model that is there already: name it with start=, "
                    "or leave lora out."
                )
            return
        for key in ("tokenizer", "vocab_size"):
            if value := getattr(self.data, key):
                raise ConfigError(
                    f"data.{key}={value!r} does not go with start={self.start!r}, whose own tokenizer is the "
                    f"only one that its weights know: leave data.{key} out."
                )

    def _check_extensions(self) -> None:
        before = 0
        for step, steps in self.extensions:
            if not before < step <= min(steps, self.steps):
                raise ConfigError(
                    f"extensions={[list(pair) for pair in self.extensions]} are not those of a run of "
                    f"{self.steps} steps: each is [step, steps], the steps rising and none beyond the end."
                )
            before = step

    def steps_at(self, step: int) -> int:
        """Returns how many steps the run was to have when it was at this one."""
        return next((steps for until, steps in self.extensions if step < until), self.steps)

    def ends_at(self, step: int) -> bool:
        """Whether the run has its end here, or had it before it was given more steps."""
        return step == self.steps or (step, step) in self.extensions

    def extend(self, step: int, steps: int) -> Self:
        """Returns the recipe with another number of steps, from a step on; what was before it stays."""
        earlier = [pair for pair in self.extensions if pair[0] < step]
        if step and self.steps_at(step - 1) != steps:
            earlier.append((step, self.steps_at(step - 1)))
        return dataclasses.replace(self, steps=steps, extensions=tuple(earlier))

    def config(self, vocab_size: int) -> ModelConfig:
        """The model, now that the number of tokens is known."""
        return ModelConfig.from_dict({**self.model, "vocab_size": vocab_size})

    @property
    def length(self) -> int:
        """Tokens in one row of a batch."""
        return int(self.model["context_length"])

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Returns the recipe of a table; keys of the previous version are translated."""
        recipe: Self = _read(cls, translate(given) if isinstance(given, Mapping) else given, "")
        return recipe

    def to_dict(self) -> dict[str, Any]:
        return {
            entry.name: value.to_dict()
            if isinstance(value, Part)
            else dict(value)
            if isinstance(value, Mapping)
            else dataclasses.asdict(value)
            if dataclasses.is_dataclass(value) and not isinstance(value, type)
            else value
            for entry in dataclasses.fields(self)
            for value in [getattr(self, entry.name)]
        }

    def to_toml(self) -> str:
        table = self.to_dict()
        if not self.extensions:
            del table["extensions"]
        lines = [
            f"{key} = {format_toml(value)}" for key, value in table.items() if not isinstance(value, dict)
        ]
        for section, values in table.items():
            if isinstance(values, dict):
                lines += ["", f"[{section}]"] + [
                    f"{key} = {format_toml(value)}" for key, value in values.items()
                ]
        return "\n".join(lines) + "\n"


def as_text(word: str | bool) -> str:
    """Returns a word as a recipe has it without quotes: `auto`, `true`."""
    return word if isinstance(word, str) else format_toml(word)


def _bound(number: float) -> str:
    return f"{int(number):,}" if number == number // 1 and math.isfinite(number) else str(number)


MOST = 2**40
BOUNDS: tuple[tuple[str, str, float, float], ...] = (
    ("", "steps", 0, MOST),
    ("", "seed", 0, 2**63 - 1),
    ("data", "vocab_size", 0, LARGEST_VOCABULARY),
    ("data", "batch_size", 1, 2**24),
    ("data", "validation", 0, 0.9),
    ("lora", "rank", 0, 2**16),
    ("lora", "alpha", 0, 2**16),
    ("lora", "dropout", 0, 0.9),
    ("train", "accumulate", 1, 2**20),
    ("train", "clip", 0, math.inf),
    ("train", "label_smoothing", 0, 0.99),
    ("train", "z_loss", 0, 1),
    ("train", "logits_chunk", 0, 2**24),
    ("train", "ema", 0, 0.9999999),
    ("train", "patience", 0, MOST),
    ("train", "timeout", 1, 86_400),
    ("train", "threads", 0, 1024),
    ("train", "record_every", 0, MOST),
    ("evaluation", "every", 1, MOST),
    ("evaluation", "batches", 0, MOST),
    ("evaluation", "sample", 0, 100_000),
    ("checkpoint", "every", 1, MOST),
    ("checkpoint", "minutes", 0, MOST),
    ("checkpoint", "keep", 1, 1000),
)
AUTO: tuple[str | bool, ...] = ("auto", True, False)
WORDS: tuple[tuple[str, str, tuple[str | bool, ...]], ...] = (
    ("data", "on_bad_file", BAD_FILE_CHOICES),
    ("train", "dtype", ("auto", "float32", "bfloat16", "float64")),
    ("train", "weights", ("float32", "bfloat16")),
    ("train", "on_nonfinite", ("skip", "stop")),
    ("train", "compile", AUTO),
    ("train", "deterministic", AUTO),
    ("train", "parallel", ("auto", "ddp", "fsdp")),
)


def recipe_names() -> list[str]:
    """The names of the shipped recipes: the files of `recipes/`."""
    folder = resources.files("pellucid.training") / "recipes"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name[-5:] == ".toml"
    )


def is_shipped(name: str) -> bool:
    return name in recipe_names() or name.partition(":")[0] in MADE


def read_table(name: str) -> dict[str, Any]:
    """A recipe as plain data: a shipped one by name, or a file.

    A text that is made while the model learns has a recipe of its kind: `task:copy` is `task` with that text.
    """
    if is_shipped(name):
        kind, colon, _ = name.partition(":")
        shipped = resources.files("pellucid.training") / "recipes" / f"{kind}.toml"
        table = tomllib.loads(shipped.read_text("utf-8"))
        return override(table, [f"data.path={name}", f"out=runs/{name.replace(':', '-')}"] if colon else [])
    try:
        if not os.path.lexists(name):
            known, hint = ", ".join(recipe_names()), did_you_mean(name, recipe_names())
            raise ConfigError(f"no recipe and no file called {name!r}; recipes are {known}.{hint}")
        return tomllib.loads(read_bytes(Path(name)).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} is not a recipe: it is not TOML, {error}.") from None


def override(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The same recipe with some keys set: `optimizer.lr=3e-4`, `model.positions=learned`.

    Another kind comes first, and without the settings of the one before.
    """
    result: dict[str, Any] = translate(table)
    texts = dict(_texts(Recipe))
    for text in sorted(
        map(translate_override, overrides), key=lambda text: not text.partition("=")[0].endswith(".kind")
    ):
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise ConfigError(f"{text!r} sets nothing: write KEY=VALUE, such as optimizer.lr=3e-4.")
        *sections, key = path.split(".")
        at = result
        for section in sections:
            inner = at.setdefault(section, {})
            if isinstance(inner, str):  # a part without settings is only its kind
                inner = at[section] = {"kind": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"{path} cannot be set: {section} is {inner!r} and has no keys.")
            at = inner
        if key == "kind" and at.get("kind") != value:
            at.clear()
        read = _value(value)
        is_listed = texts.get(path) == PATHS and isinstance(read, list)
        at[key] = value if path in texts and not isinstance(read, str) and not is_listed else read
    return result


def _texts(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys that hold a text, with their types. It needs no quotes where it looks like a number or a day:
    out=2024."""
    for entry in dataclasses.fields(kind):
        if entry.type in (str, PATHS):
            yield path + entry.name, entry.type
        elif dataclasses.is_dataclass(entry.type) and not issubclass(cast(type, entry.type), Part):
            yield from _texts(entry.type, f"{path}{entry.name}.")


def _value(text: str) -> Any:
    """A value as TOML has it; what is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def format_toml(value: Any) -> str:
    """Returns a value as a recipe has it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {format_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML refuses it, JSON does not
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(f"{value!r} is not UTF-8, and a recipe is: give another name.")
    return text


def _read(kind: Any, given: Any, path: str) -> Any:
    """One section, its keys checked by name and type."""
    where = path or "a recipe"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is a table of keys, not {given!r}.")
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{path}.{key}" if path else key
        if key not in fields:
            raise ConfigError(f"no key {name!r}; {where} has {', '.join(fields)}.{did_you_mean(key, fields)}")
        values[key] = _field(fields[key], value, name)
    needed = [
        entry.name
        for entry in fields.values()
        if entry.default is entry.default_factory is dataclasses.MISSING
    ]
    if missing := [key for key in needed if key not in values]:
        raise ConfigError(f"{where} needs {', '.join(needed)}; missing: {', '.join(missing)}.")
    return kind(**values)


def _field(entry: Any, value: Any, name: str) -> Any:
    kind = entry.type
    if isinstance(kind, type) and issubclass(kind, Part):
        usual = {"kind": entry.default_factory().kind}  # settings alone are those of the usual kind
        return kind.read(usual | dict(value) if isinstance(value, Mapping) else value)
    if dataclasses.is_dataclass(kind):
        return _read(kind, value, name)
    if kind == bool | str:
        if not isinstance(value, bool | str):
            raise ConfigError(f"{name} must be true, false or auto, not {value!r}.")
        return value
    if kind in (float, float | str) and type(value) is int:
        value = float(value)
    if kind == tuple[str, ...]:
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) for one in patterns):
            raise ConfigError(f"{name} is a pattern or a list of them, not {value!r}.")
        return tuple(patterns)
    if kind == tuple[tuple[int, int], ...]:
        return _pairs(value, name)
    if kind is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {value!r}.")
        return value
    if kind == PATHS:
        return _paths(value, name)
    plain = {int: "int", float: "float", str: "str", float | str: "float or str"}
    if kind in plain and (not isinstance(value, kind) or isinstance(value, bool) or value != value):
        whole = (
            f": use {value:.0f}" if kind is int and isinstance(value, float) and value.is_integer() else ""
        )
        raise ConfigError(f"{name} must be {plain[kind]}, not {value!r}{whole}.")
    return _model(value, name) if name == "model" else value


def _pairs(value: Any, name: str) -> tuple[tuple[int, int], ...]:
    """Pairs of whole numbers, each written as a list."""
    pairs = value if isinstance(value, list | tuple) else [value]
    for pair in pairs:
        if not isinstance(pair, list | tuple) or [type(number) for number in pair] != [int, int]:
            raise ConfigError(f"{name} must be a list of pairs such as [[100, 200]], not {value!r}.")
    return tuple((first, second) for first, second in pairs)


def _paths(value: Any, name: str) -> str | tuple[str, ...]:
    """One path, or several; a list of one is that one."""
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(one, str) for one in paths):
        raise ConfigError(f"{name} must be a path or a list of paths, not {value!r}.")
    return paths[0] if len(paths) == 1 else tuple(paths)


def _model(given: Any, name: str) -> dict[str, Any]:
    """The keys of a model, whose values the config checks once the vocabulary is known."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} is a table of keys, not {given!r}.")
    for key in given:
        if key in FROM_DATA:
            raise ConfigError(f"{name}.{key} is what the tokenizer has: set data.vocab_size.")
        if key not in MODEL_KEYS:
            known = [known for known in MODEL_KEYS if known not in FROM_DATA]
            raise ConfigError(f"no key '{name}.{key}'; have {', '.join(known)}.{did_you_mean(key, known)}")
    return dict(given)
