"""The tables of a recipe other than `[data]`, `[optimizer]` and `[schedule]`.

The text under each key says what it means; its last line gives an example. docs/recipes.md is made from them.
"""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pellucid.base.errors import ConfigError, show, unknown
from pellucid.base.schema import OneOf, Range, Single
from pellucid.config import ModelConfig, preset_text, presets
from pellucid.generation.settings.sampling import DEFAULTS, Sampling

MOST = 2**40
AUTO: tuple[str | bool, ...] = ("auto", True, False)
MODEL_KEYS = tuple(entry.name for entry in dataclasses.fields(ModelConfig))
FROM_DATA = ("vocab_size",)
"""Keys of the model that the tokenizer decides."""


def read_model(given: Any, name: str) -> dict[str, Any]:
    """Returns the keys of a model, whose values the config checks once the vocabulary is known."""
    if isinstance(given, str):
        return read_preset(given, name)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} must be a table of keys or the name of a preset, not {show(given)}.")
    for key in given:
        if key in FROM_DATA:
            raise ConfigError(f"{name}.{key} is what the tokenizer has: set data.vocab_size.")
        if key not in MODEL_KEYS:
            known = [known for known in MODEL_KEYS if known not in FROM_DATA]
            raise ConfigError(unknown(f"a key of {name}", key, known))
    return dict(given)


def read_preset(preset: str, name: str) -> dict[str, Any]:
    """Returns the keys of a preset's model without those that the tokenizer decides; `name` is the key that
    an error names."""
    if preset not in presets():
        raise ConfigError(unknown(name, preset, presets()))
    config = tomllib.loads(preset_text(preset))["config"]
    return {key: value for key, value in config.items() if key not in FROM_DATA}


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Adapters of low rank, W' = W + (alpha / rank) B A, where A and B alone are trained (Hu et al. 2021,
    arXiv:2106.09685)."""

    rank: Annotated[int, Range(0, 2**16)] = 0
    """Rank of the adapters; 0 trains the weights themselves. Needs a `start`.
    Example: 8"""
    alpha: Annotated[float, Range(0, 2**16)] = 16.0
    """Scale of the adapters: their product is multiplied by alpha / rank.
    Example: 32"""
    dropout: Annotated[float, Range(0, 0.9)] = 0.0
    """Probability with which an input of an adapter is dropped while training.
    Example: 0.05"""
    targets: Annotated[tuple[str, ...], Single()] = ("blocks.*_proj",)
    """Patterns of the names of the projections that get an adapter.
    Example: ["blocks.*.q_proj", "blocks.*.v_proj"]"""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank if self.rank else 0.0


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a step is made."""

    accumulate: Annotated[int, Range(1, 2**20)] = 1
    """Parts into which a batch is divided to need less memory; their gradients are added.
    Example: 8"""
    clip: Annotated[float, Range(0, math.inf)] = 1.0
    """Largest gradient norm: a longer gradient is scaled down to it. 0: no clipping.
    Example: 0.5"""
    label_smoothing: Annotated[float, Range(0, 0.99)] = 0.0
    """Label smoothing: the fraction of the target's probability that is spread over all tokens.
    Example: 0.1"""
    class_weights: Mapping[str, Annotated[float, Range(0)]] = field(default_factory=dict)
    """Weights of the targets in the loss, Σ w nll / Σ w, by token. A token is named by its text or its id;
    those that are not named have weight 1.
    Example: {" the" = 0.5}"""
    z_loss: Annotated[float, Range(0, 1)] = 0.0
    """Weight z of the z-loss, z · (ln Σ e^logit)², which keeps the logits near 0.
    Example: 1e-4"""
    logits_chunk: Annotated[int, Range(0, 2**24)] = 0
    """Positions whose logits are computed at a time, to save memory with a large vocabulary. 0: chosen.
    Example: 1024"""
    activation_checkpointing: bool = False
    """Whether the backward pass recomputes a block's activations instead of keeping them. Less memory, for
    about a third more arithmetic.
    Example: true"""
    only: Annotated[tuple[str, ...], Single()] = ()
    """Patterns of the names of the parameters that are trained; all where there is none.
    Example: ["blocks.*"]"""
    freeze: Annotated[tuple[str, ...], Single()] = ()
    """Patterns of the names of the parameters that are not trained.
    Example: ["embed.weight"]"""
    ema: Annotated[float, Range(0, 0.9999999)] = 0.0
    """Decay of the moving average of the weights, which is what is evaluated and saved. 0: no average.
    Example: 0.99"""
    patience: Annotated[int, Range(0, MOST)] = 0
    """Evaluations without a better validation loss after which the run stops. 0: never.
    Example: 5"""
    on_nonfinite: Annotated[str, OneOf("skip", "stop")] = "skip"
    """What happens at a gradient with NaN or Inf. `skip` omits the update, and stops after five in a row;
    `stop` stops at once.
    Example: stop"""
    record_every: Annotated[int, Range(0, MOST)] = 100
    """Steps between two records of the sizes of activations, gradients and updates. 0: no records.
    Example: 20"""
    initialization: str = "auto"
    """The distribution of a new model's weights; `pellucid choices initializations` lists the kinds. auto:
    `scaled_residual` where model.d_model is below 256, `gpt2` otherwise; the recipe in the folder of the run
    has the kind that was taken. `xavier` is Xavier's uniform kind.
    Example: xavier"""
    device: str = "auto"
    """Where the model is: `auto`, `cpu`, `cuda` or `cuda:N`.
    Example: cpu"""
    dtype: Annotated[str, OneOf("auto", "float32", "bfloat16", "float64")] = "auto"
    """Type of the matrix products. auto: bfloat16 on a GPU, float32 on a CPU, where bfloat16 is faster if the
    CPU has instructions for it.
    Example: bfloat16"""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Threads that compute on a CPU; the bits of a run follow from their number. 0: as many as torch chooses.
    Example: 1"""
    weights: Annotated[str, OneOf("float32", "bfloat16")] = "float32"
    """Type of the weights in the forward pass; bfloat16 weights are copies of float32 master weights.
    Example: bfloat16"""
    compile: Annotated[bool | str, OneOf(*AUTO)] = "auto"
    """Whether the step is compiled by torch.compile. auto: on a GPU, and on a CPU in bfloat16, where the run
    is long enough. The first compiled step is compared with an eager one before it is used.
    Example: false"""
    deterministic: Annotated[bool | str, OneOf(*AUTO)] = "auto"
    """Whether only deterministic kernels are used, so that a run can be repeated bit for bit. auto: on a CPU.
    Example: true"""
    tensorboard: bool = False
    """Whether the figures of the log are written for TensorBoard as well.
    Example: true"""
    parallel: Annotated[str, OneOf("auto", "ddp", "fsdp")] = "auto"
    """How several processes share a model. `ddp` (or auto) gives each the whole of it, `fsdp` some rows of
    each parameter.
    Example: fsdp"""
    timeout: Annotated[float, Range(1, 86_400)] = 120.0
    """Seconds without a sign of life after which the other processes end the run.
    Example: 600"""


SAMPLE_SETTINGS = {"temperature": 0.8, "seed": 0}
"""How the samples of a run are drawn where its recipe does not say; a recipe that is written says both."""
OTHER_SAMPLE_SETTINGS = {
    "max_new_tokens": "set evaluation.sample, the tokens of the sample",
    "n": "omit it, since a run shows one sample",
}
"""Settings of a request that a sample does not have, and what to do instead."""


def _read_sampling(value: Any, path: str) -> Sampling:
    """Returns the settings of samples; those that are not given are the usual ones."""
    given = SAMPLE_SETTINGS | dict(value) if isinstance(value, Mapping) else value
    return Sampling.read(given, path, error=ConfigError)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """How often the validation loss is computed, and what else is shown then."""

    every: Annotated[int, Range(1, MOST)] = 100
    """Steps between two evaluations.
    Example: 250"""
    batches: Annotated[int, Range(0, MOST)] = 0
    """Batches of the validation text that are evaluated. 0: all of it.
    Example: 8"""
    sample: Annotated[int, Range(0, 100_000)] = 60
    """Tokens of the text that the model writes at each evaluation. 0: none.
    Example: 200"""
    prompt: str = ""
    """The prompt that the sample continues. Empty: the beginning of a document.
    Example: Once upon a time"""
    sampling: Sampling = field(
        default_factory=lambda: Sampling.read(SAMPLE_SETTINGS),
        metadata={"type": Any, "then": _read_sampling},
    )
    """How the sample is drawn, with the settings of `pellucid generate`. The same seed at every evaluation
    draws with the same random numbers.
    Example: { temperature = 0.5, top_p = 0.95 }"""

    def __post_init__(self) -> None:
        for key, remedy in OTHER_SAMPLE_SETTINGS.items():
            if getattr(self.sampling, key) != DEFAULTS[key]:
                raise ConfigError(f"evaluation.sampling.{key} is not a setting of a sample: {remedy}.")
        if self.sampling.seed is None:
            raise ConfigError("evaluation.sampling.seed is missing: give a whole number, such as 0.")


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """How often the state of the run is saved."""

    every: Annotated[int, Range(1, MOST)] = 500
    """Steps between two checkpoints.
    Example: 1000"""
    minutes: Annotated[float, Range(0, MOST)] = 5.0
    """Minutes without a checkpoint after which one is saved whatever the step. 0: never.
    Example: 15"""
    keep: Annotated[int, Range(1, 1000)] = 2
    """Newest checkpoints that are kept; older ones are removed. One that was saved between two of the
    schedule, by the clock or at an interruption, is kept until there is a newer one.
    Example: 5"""
    keep_best: bool = True
    """Whether the model with the lowest validation loss so far is kept as well, in OUT/best.
    Example: false"""
