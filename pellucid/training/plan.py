"""How large a model and how many steps, from the size of the text and the time; and what a run costs."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from pellucid.config import ModelConfig
from pellucid.cost import PARTS, cost, total
from pellucid.data.sources.encoding import vocabulary_for
from pellucid.errors import ConfigError
from pellucid.parts.optimizers import OptimizerConfig

UTILISATION = 0.3
"""The share of the measured peak that training is assumed to reach."""
TOKENS_PER_PARAMETER = 20
"""Hoffmann et al. 2022, arXiv:2203.15556: where a given amount of computing is best spent, roughly."""
EPOCHS = 10
"""How often a text is read, at most. Up to four times it is almost as good as new text (Muennighoff et al.
2023, arXiv:2305.16264); after that less and less."""
FRESH = 4
FROZEN = 2
ROW = 256
"""Tokens of a row in fine-tuning, where the recipe does not say."""
STEPS = 2000
"""About so many, the rest of the tokens going into larger batches."""
MEMORY_SHARE = 0.6
"""Of the memory there is, what a run may be planned to take."""


class Size(NamedTuple):
    n_layer: int
    n_head: int
    d_model: int
    context_length: int
    lr: float
    vocab_size: int
    """At most: a small model with many tokens is little more than their table."""


SIZES = (
    Size(2, 2, 64, 64, 3e-3, 512),
    Size(3, 4, 128, 128, 2e-3, 1024),
    Size(4, 4, 192, 128, 2e-3, 2048),
    Size(5, 4, 256, 256, 1.5e-3, 4096),
    Size(6, 6, 384, 256, 1e-3, 8192),
    Size(8, 8, 512, 256, 1e-3, 8192),
    Size(12, 12, 768, 512, 6e-4, 8192),
)
BYTES_PER_TOKEN = {512: 2.0, 1024: 2.5, 2048: 2.9, 4096: 3.3, 8192: 3.7}
"""Of English prose, about, by the vocabulary of a byte-pair encoding trained on it."""
MOST_TOKENS_A_STEP, FEWEST_TOKENS_A_STEP = 1 << 16, 1 << 9


@dataclass(frozen=True)
class Plan:
    """What fits a text, a time and a machine."""

    overrides: dict[str, Any]
    """Keys of a recipe, with dots."""
    reasons: tuple[str, ...]
    """Why, one line each."""
    size: int = 0
    """Which size of the table it is, from 1 on; 0 where the model is there already."""

    def config(self) -> ModelConfig:
        """The model, with so many tokens."""
        keys = {
            key.removeprefix("model."): value
            for key, value in self.overrides.items()
            if key.startswith("model.")
        }
        return ModelConfig.from_dict(keys | {"vocab_size": self.overrides["data.vocab_size"]})


def planned(
    text_bytes: int,
    minutes: float,
    peak: float,
    memory: int | None = None,
    utilization: float | None = None,
    largest: int = len(SIZES),
) -> Plan:
    """Sizes, steps and learning rate for a text of so many bytes and a machine of so many operations a
    second; the largest model of the table that sees a third of 20 tokens per parameter in the time, has at
    most ten times as many parameters as the text has tokens, and fits into the memory. `utilization` is the
    share of the peak that training steps were measured to reach; `largest` says how many sizes of the table
    may be chosen."""
    if not minutes > 0 or not math.isfinite(minutes):
        raise ConfigError(f"{minutes:g} minutes are no time to train in: use 10, for example.")
    if text_bytes < 1:
        raise ConfigError("there is no text to plan for: it has 0 bytes.")
    memory = machine_memory() if memory is None else memory
    speed = peak * (utilization or UTILISATION) * 60 * minutes
    chosen, why = SIZES[0], "it is the smallest"
    for size, larger in zip(SIZES, (*SIZES[1:], None), strict=True):
        chosen = size
        if size is SIZES[largest - 1] and larger is not None:
            why = "training steps of the next larger one were measured to be too slow"
            break
        if larger is None:
            why = "it is the largest of the table"
        elif why_not := _why_not(larger, text_bytes, speed, memory):
            why = f"the next larger one {why_not}"
            break
    config = _config(chosen, text_bytes)
    vocab_size, text_tokens = config.vocab_size, _tokens(text_bytes, config.vocab_size)
    in_time = speed / flops_per_token(config)
    tokens = min(in_time, EPOCHS * text_tokens)
    epochs = tokens / text_tokens
    rows = _rows(tokens, config, memory)
    steps = max(1, round(tokens / (rows * config.context_length)))
    parameters = sum(map(math.prod, config.parameters().values()))
    overrides: dict[str, Any] = {
        "steps": steps,
        "model.n_layer": chosen.n_layer,
        "model.n_head": chosen.n_head,
        "model.d_model": chosen.d_model,
        "model.context_length": config.context_length,
        "data.vocab_size": vocab_size,
        "data.batch_size": rows,
        "optimizer.lr": chosen.lr,
        "schedule.warmup": max(1, min(200, steps // 20)),
        "evaluation.every": max(1, steps // 10),
        "checkpoint.every": max(1, steps // 5),
    }
    if epochs > FRESH:
        overrides["model.dropout"] = "bernoulli"
    enough = (
        _allowed(minutes, peak, utilization)
        if in_time <= EPOCHS * text_tokens
        else f"after {EPOCHS} times little is left to learn from it"
    )
    reasons = [
        f"a vocabulary of {vocab_size:,}, because {_worth(text_bytes, vocab_size)}: about {text_tokens:,} "
        "tokens to learn from",
        f"{chosen.n_layer} layers of {chosen.d_model}, {parameters:,} parameters, because {why}",
        f"{steps:,} steps of {rows} × {config.context_length} tokens, {epochs:.1f} times the text, because "
        + enough,
    ]
    if epochs > FRESH:
        reasons.append(f"dropout, because the text is read more than {FRESH} times")
    return Plan(overrides, tuple(reasons), SIZES.index(chosen) + 1)


TUNED = {"full": 2e-5, "adapters": 2e-4}
"""Learning rates of fine-tuning: small steps, so that what a model knows is kept. Adapters begin with zeros
and take larger ones."""
TUNED_EPOCHS, TUNED_ROWS, TUNED_STEPS = 3, 8, 50
"""How often a text is read at most; rows of a batch at most, and fewer where there would be fewer steps."""
BYTES_PER_WORD = 4.0
"""Of English prose, about, in a token of a vocabulary of tens of thousands."""
SAID_AROUND = 30
"""Tokens that a chat template adds to a conversation, about."""


def tuned(
    text_bytes: int,
    minutes: float,
    peak: float,
    config: ModelConfig,
    how: str,
    records: int = 0,
    utilization: float | None = None,
) -> Plan:
    """Steps and learning rate for fine-tuning a model on a text, or on so many conversations of so many bytes
    together; in full or by adapters."""
    length = min(ROW, config.context_length)
    tokens = max(1, round(0.9 * text_bytes / BYTES_PER_WORD))
    while not records and length > 8 and 4 * length > tokens:
        length //= 2
    there = 0.9 * records or tokens / length
    width = min(length, tokens / records + SAID_AROUND) if records else length
    per_row = width * flops_per_token(config, length, FROZEN if how == "adapters" else 3)
    in_time = peak * (utilization or UTILISATION) * 60 * minutes / per_row
    seen, rows = min(in_time, TUNED_EPOCHS * there), TUNED_ROWS
    while rows > 1 and seen / rows < TUNED_STEPS:
        rows //= 2
    steps = max(1, round(seen / rows))
    enough = (
        _allowed(minutes, peak, utilization)
        if in_time < TUNED_EPOCHS * there
        else f"after {TUNED_EPOCHS} times it is known by heart"
    )
    overrides: dict[str, Any] = {
        "steps": steps,
        "model.context_length": length,
        "data.batch_size": rows,
        "optimizer.lr": TUNED[how],
        "optimizer.weight_decay": 0.0,
        "schedule.warmup": max(1, steps // 10),
        "evaluation.every": max(1, steps // 5),
        "evaluation.batches": 20,
        "checkpoint.every": max(1, steps // 5),
    }
    kept = "only its adapters learn, from zero" if how == "adapters" else "small steps keep what it knows"
    what, whole = (
        (f"{rows} conversations", "each of them") if records else (f"{rows} × {length} tokens", "the text")
    )
    return Plan(
        overrides,
        (
            f"a learning rate of {TUNED[how]:g}, because the model has learned already: {kept}",
            f"{steps:,} steps of {what}, {seen / there:.1f} times {whole}, because {enough}",
        ),
    )


def _allowed(minutes: float, peak: float, utilization: float | None) -> str:
    """Why there are no more steps, after "because"."""
    known = "" if utilization is None else ", as training steps were measured"
    share = UTILISATION if utilization is None else utilization
    return f"that is what {minutes:g} minutes allow at {share:.0%} of {peak / 1e9:,.3g} GFLOP/s{known}"


def adapter_parameters(config: ModelConfig, rank: int, targets: Sequence[str]) -> int:
    """Of A (rank, in) and B (out, rank) together, for every projection that meets a pattern."""
    return sum(
        rank * sum(shape)
        for name, shape in config.parameters().items()
        if name.endswith(".weight") and any(fnmatchcase(name.removesuffix(".weight"), one) for one in targets)
    )


def _worth(text_bytes: int, vocab_size: int) -> str:
    worth = vocabulary_for(text_bytes)
    if vocab_size == worth:
        return f"the text has {readable_size(text_bytes)}"
    return f"the model is too small for the {worth:,} that {readable_size(text_bytes)} of text are worth"


def _why_not(size: Size, text_bytes: int, speed: float, memory: int) -> str | None:
    """Why a size is too large, in words that go on after "the next larger one"."""
    config = _config(size, text_bytes)
    text_tokens = _tokens(text_bytes, config.vocab_size)
    parameters = sum(map(math.prod, config.parameters().values()))
    seen = speed / flops_per_token(config)
    if seen < TOKENS_PER_PARAMETER / 3 * parameters:
        return (
            f"would see {seen / parameters:.1f} tokens per parameter in this time; {TOKENS_PER_PARAMETER} "
            "are best"
        )
    if parameters > 10 * text_tokens:
        return f"has {parameters / text_tokens:.0f} parameters for each token of the text"
    if training_memory(config, rows=1).total > MEMORY_SHARE * memory:
        return f"needs more than {MEMORY_SHARE:.0%} of the {readable_size(memory)} of memory"
    return None


def _config(size: Size, text_bytes: int) -> ModelConfig:
    sizes = {key: value for key, value in size._asdict().items() if key != "lr"}
    vocab_size, length = min(vocabulary_for(text_bytes), size.vocab_size), size.context_length
    while length > 8 and 4 * length > _tokens(text_bytes, vocab_size):
        length //= 2  # a text shorter than a few rows could not be cut into any
    return ModelConfig(**sizes | {"vocab_size": vocab_size, "context_length": length})


def _tokens(text_bytes: int, vocab_size: int) -> int:
    """How many there are to learn from, about, with a tenth of the text held out."""
    return max(1, round(0.9 * text_bytes / BYTES_PER_TOKEN[vocab_size]))


def _rows(tokens: float, config: ModelConfig, memory: int) -> int:
    """Rows of a batch, a power of two: so many that about `STEPS` steps are left, and that they fit."""
    wanted = min(max(tokens / STEPS, FEWEST_TOKENS_A_STEP), MOST_TOKENS_A_STEP)
    rows = int(2 ** max(0, round(math.log2(wanted / config.context_length))))
    while rows > 1 and training_memory(config, rows).total > MEMORY_SHARE * memory:
        rows //= 2
    return rows


# ---- what a run costs


@dataclass(frozen=True)
class Memory:
    """Bytes, about: what the fast engine keeps for the backward pass has no scores and no patterns."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    def in_words(self) -> str:
        parts = ("weights", "gradients", "optimizer", "activations")
        named = ", ".join(f"{part} {readable_size(getattr(self, part))}" for part in parts)
        return f"{readable_size(self.total)}: {named}"


def flops_per_token(config: ModelConfig, length: int = 0, passes: int = 3) -> float:
    """Forward and backward over a row of so many tokens, the context where 0: three times the forward pass,
    which is twice where the weights are frozen and need no gradient (`FROZEN`)."""
    length = length or config.context_length
    return passes * total(cost(config, 1, length)).flops / length


IN_BLOCKS = ("norms", "attention", "feed-forward", "residual")
assert set(IN_BLOCKS) < set(PARTS)
STATES = {"sgd": 0, "momentum": 1, "averaging_momentum": 1}
"""Numbers that an optimizer keeps for each parameter, where they are not two."""


def training_memory(
    config: ModelConfig,
    rows: int,
    optimizer: str = "adamw",
    width: int = 4,
    averaged: bool = False,
    length: int = 0,
    adapters: int = 0,
    recompute: bool = False,
) -> Memory:
    """For batches of so many rows at a time; activations take `width` bytes a number, all else four. Where
    there are `adapters`, so many numbers learn and no others. With `recompute`, the stream into each block is
    kept, and one block's own activations."""
    parameters = sum(map(math.prod, config.parameters().values()))
    learning = adapters or parameters
    length = length or config.context_length
    parts = cost(config, rows, length, width)
    kept = total(parts).activation_bytes
    if config.attention.form == "softmax":  # fused: nothing between q, k, v and z is kept
        kept -= config.n_layer * config.attention.numbers(config, config.sizes(rows, length)) * width
    if recompute:
        rest = sum(parts[part].activation_bytes for part in PARTS if part not in IN_BLOCKS)
        kept = (
            rest + config.n_layer * rows * length * config.d_model * width + (kept - rest) // config.n_layer
        )
    states = STATES.get(optimizer, 2) + averaged
    return Memory(4 * (parameters + adapters), 4 * learning, 4 * learning * states, kept)


@dataclass(frozen=True)
class Forecast:
    parameters: int
    flops_per_token: float
    tokens_per_step: int
    tokens: int
    flops: float
    memory: Memory
    seconds: float
    peak: float
    utilization: float | None = None
    """The fraction of the peak that training steps were measured to reach; None where none was tried."""

    def lines(self) -> list[str]:
        """For people."""
        memory, share = self.memory, self.utilization
        reached = f"if training reaches {UTILISATION:.0%}"
        if share is not None:
            reached = f"as training steps were measured to reach {100 * share:.2g}%"
        return [
            f"parameters        {self.parameters:,}",
            f"tokens            {self.tokens:,}: {self.tokens_per_step:,} in each step, "
            f"{self.tokens / self.parameters:.1f} for each parameter",
            f"operations        {self.flops_per_token:.4g} for each token, {self.flops:.4g} in all",
            f"memory, about     {memory.in_words()}",
            f"time, about       {_duration(self.seconds)}, {reached} of this machine's measured "
            f"{self.peak / 1e9:,.0f} GFLOP/s",
        ]


class _Data(Protocol):
    @property
    def batch_size(self) -> int: ...


class _Train(Protocol):
    @property
    def accumulate(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ema(self) -> float: ...
    @property
    def activation_checkpointing(self) -> bool: ...


class _Lora(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def targets(self) -> tuple[str, ...]: ...


class Run(Protocol):
    """What a forecast reads of a recipe."""

    @property
    def steps(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def lora(self) -> _Lora: ...
    @property
    def data(self) -> _Data: ...
    @property
    def train(self) -> _Train: ...
    @property
    def optimizer(self) -> OptimizerConfig: ...


def forecast(recipe: Run, config: ModelConfig, peak: float, utilization: float | None = None) -> Forecast:
    """What a run will take on a machine that computes `peak` operations a second at best, of which training
    reaches the fraction `utilization`."""
    adapters = adapter_parameters(config, recipe.lora.rank, recipe.lora.targets)
    per_token = flops_per_token(config, recipe.length, FROZEN if adapters else 3)
    per_step = recipe.data.batch_size * recipe.length
    tokens = recipe.steps * per_step
    flops = per_token * tokens
    return Forecast(
        sum(map(math.prod, config.parameters().values())),
        per_token,
        per_step,
        tokens,
        flops,
        memory_of(recipe, config),
        flops / (peak * (utilization or UTILISATION)),
        peak,
        utilization,
    )


def memory_of(recipe: Run, config: ModelConfig, world: int = 1) -> Memory:
    """The memory of a run, about; that of one rank where `world` ranks share the batch."""
    return training_memory(
        config,
        max(1, recipe.data.batch_size // (recipe.train.accumulate * world)),
        recipe.optimizer.kind,
        {"bfloat16": 2, "float64": 8}.get(recipe.train.dtype, 4),
        recipe.train.ema > 0,
        recipe.length,
        adapter_parameters(config, recipe.lora.rank, recipe.lora.targets),
        recipe.train.activation_checkpointing,
    )


def machine_memory(device: str = "cpu") -> int:
    """Bytes of memory that there are."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def readable_size(count: float) -> str:
    """
    >>> readable_size(999), readable_size(2_500_000), readable_size(577_267e9)
    ('999 bytes', '2.5 MB', '577,267 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:,.0f} {unit}"
        count /= 1000
    raise AssertionError


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(3660), _duration(200_000)
    ('42 s', '1 h 1 min', '56 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 10 else f"{seconds / 3600:.0f} h"
