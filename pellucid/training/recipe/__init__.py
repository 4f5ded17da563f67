"""A run as one TOML file: model, data, optimizer, schedule, length, evaluation, outputs.

    out = "runs/stories"
    steps = 1200
    [model]
    n_layer = 4
    [data]
    path = "stories:easy"

An unknown key is an error. `key=value` on the command line sets one: `optimizer.lr=3e-4`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pellucid.base import schema
from pellucid.base.errors import ConfigError
from pellucid.base.schema import Range, fields_of
from pellucid.config import ModelConfig
from pellucid.data.rows import Rows
from pellucid.data.sources.settings import DataSettings
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import Part
from pellucid.parts.optimizers import AdamW, OptimizerConfig
from pellucid.parts.schedules import Cosine, ScheduleConfig
from pellucid.training.recipe.sections import (
    MOST,
    SAMPLE_SETTINGS,
    CheckpointSettings,
    EvaluationSettings,
    LoraSettings,
    TrainSettings,
    read_model,
)
from pellucid.training.recipe.toml import format_toml

NARROW = 256
"""Channels below which a new model is initialized by fan-in: there N(0, 0.02) is far smaller than 1/√in, so
that blocks add little to the residual stream at first."""
NARROW_INITIALIZATION, USUAL_INITIALIZATION = "scaled_residual", "gpt2"


def _reads_as(family: type[Part], usual: type[Part]) -> dict[str, Any]:
    """Returns how the field of a part is read: settings alone are those of the usual kind."""

    def read(value: Any, path: str) -> Part:
        given = {"kind": usual.kind} | dict(value) if isinstance(value, Mapping) else value
        return family.read(given, path)

    return {"type": Any, "then": read}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run as data. The text under each key says what it means, and its last line gives an example."""

    out: str
    """The folder of the run: its log, its checkpoints and its model.
    Example: runs/a"""
    steps: Annotated[int, Range(0, MOST)]
    """Optimizer steps of the run; omit them where `data.epochs` is set. `pellucid train --resume RUN steps=N`
    changes them, also when the run is finished; the learning rate then follows the schedule of N steps from
    there on.
    Example: 2000"""
    minutes: Annotated[float, Range(0, MOST)] = 0.0
    """Minutes that training may take. Where its steps would take longer, the run is given fewer, whose
    schedule the learning rate then follows; `extensions` keeps what was decided. 0: no limit.
    Example: 30"""
    extensions: tuple[tuple[int, int], ...] = ()
    """Written by Pellucid where a run was given other steps: [step, steps] for each time. Up to that
    step the run was to have that number of steps, and its learning rate followed their schedule.
    Example: [[400, 400]]"""
    data: DataSettings
    """Where the text is, and how it becomes batches."""
    model: Mapping[str, Any] = field(default_factory=dict, metadata={"type": Any, "then": read_model})
    """The sizes and choices of the model. `model=PRESET` takes those of a preset that `pellucid list` shows,
    and `model.KEY` then changes one. Beside a `start`, only context_length and dropout can be chosen."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Seed of the RNG for the first weights, the order of the rows, and dropout.
    Example: 17"""
    start: str = ""
    """The model whose weights and tokenizer the run begins from. A folder, a .gguf file, or a name that
    `pellucid list` shows. Empty: new weights.
    Example: smollm2"""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Adapters beside the weights of a `start`."""
    optimizer: OptimizerConfig = field(default_factory=AdamW, metadata=_reads_as(OptimizerConfig, AdamW))
    """How a gradient becomes an update."""
    schedule: ScheduleConfig = field(default_factory=Cosine, metadata=_reads_as(ScheduleConfig, Cosine))
    """How the learning rate changes over the run."""
    train: TrainSettings = field(default_factory=TrainSettings)
    """How a step is made."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """How often the validation loss is computed, and what else is shown then."""
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    """How often the state of the run is saved."""

    def __post_init__(self) -> None:
        schema.check(self, fields_of(type(self)), "a recipe")
        if not self.out.strip():
            raise ConfigError("out is empty: name the folder of the run, for example out=runs/a.")
        self._check_start()
        self._resolve_initialization()
        self._check_extensions()
        if self.minutes and self.data.epochs:
            raise ConfigError(
                f"minutes={self.minutes:g} does not go with data.epochs={self.data.epochs}, which decides "
                "the steps: omit one of them."
            )
        if self.train.weights == "bfloat16" and self.train.dtype in ("float32", "float64"):
            raise ConfigError(
                f"train.weights=bfloat16 does not go with train.dtype={self.train.dtype}: products of "
                "bfloat16 weights are bfloat16. Use train.dtype=bfloat16, or omit train.weights."
            )
        for key in ("z_loss", "logits_chunk"):
            if self.train.class_weights and getattr(self.train, key):
                raise ConfigError(
                    f"train.{key} does not go with train.class_weights, under which targets count unequally: "
                    f"omit train.{key}."
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
                    "or omit lora."
                )
            return
        for key in ("tokenizer", "vocab_size"):
            if value := getattr(self.data, key):
                raise ConfigError(
                    f"data.{key}={value!r} does not go with start={self.start!r}, whose own tokenizer is the "
                    f"only one that its weights know: omit data.{key}."
                )

    def _resolve_initialization(self) -> None:
        """Names the initialization that `auto` stands for, so that the run's folder has it."""
        if self.train.initialization != "auto":
            return
        width = self.model.get("d_model")  # another type is refused by the config
        is_narrow = not self.start and type(width) is int and width < NARROW
        kind = NARROW_INITIALIZATION if is_narrow else USUAL_INITIALIZATION
        object.__setattr__(self, "train", dataclasses.replace(self.train, initialization=kind))

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
        """Returns how many steps were planned when the run was at this one."""
        return next((steps for until, steps in self.extensions if step < until), self.steps)

    def ends_at(self, step: int) -> bool:
        """Returns whether the run ends at this step, or ended here before it was extended."""
        return step == self.steps or (step, step) in self.extensions

    def extend(self, step: int, steps: int) -> Self:
        """Returns the recipe with another number of steps, from a step on; what was before it stays."""
        earlier = [pair for pair in self.extensions if pair[0] < step]
        if step and self.steps_at(step - 1) != steps:
            earlier.append((step, self.steps_at(step - 1)))
        return dataclasses.replace(self, steps=steps, extensions=tuple(earlier))

    def resolve_steps(self, rows: Rows) -> Self:
        """Returns the recipe with the steps of `data.epochs` passes over these rows, where that is set."""
        if not self.data.epochs:
            return self
        steps = rows.count_batches(self.data.batch_size, self.data.epochs)
        if self.steps not in (0, steps):
            raise ConfigError(
                f"steps={self.steps} and data.epochs={self.data.epochs}, which takes {steps:,} steps, are "
                "both set: omit one of them."
            )
        return dataclasses.replace(self, steps=steps)

    def config(self, vocab_size: int) -> ModelConfig:
        """Returns the model's config, now that the number of tokens is known."""
        return ModelConfig.from_dict({**self.model, "vocab_size": vocab_size})

    @property
    def length(self) -> int:
        """Tokens in one row of a batch."""
        return int(self.model["context_length"])

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Returns the recipe of a table. With `data.epochs` and without `steps`, the steps are 0 until
        `resolve_steps`."""
        table, data = given, given.get("data") if isinstance(given, Mapping) else None
        if isinstance(data, Mapping) and data.get("epochs"):
            table = {"steps": 0, **given}
        return schema.read(fields_of(cls), table, "a recipe", cls, error=ConfigError)

    def to_dict(self) -> dict[str, Any]:
        return {entry.name: _to_plain(getattr(self, entry.name)) for entry in dataclasses.fields(self)}

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


def _to_plain(value: Any) -> Any:
    """Returns a value of a recipe as its table has it."""
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, Sampling):
        return value.to_dict(always=SAMPLE_SETTINGS)
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {entry.name: _to_plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    return value
