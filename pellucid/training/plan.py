"""Model size, steps and learning rate for a text, from the size of the text, the time and the machine."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from pellucid.base.errors import ConfigError
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.config import ModelConfig
from pellucid.config.cost import (
    FORWARD_BACKWARD,
    FROZEN_WEIGHTS,
    count_flops_per_token,
    count_parameters,
    estimate_training_memory,
)
from pellucid.data.sources.encoding import vocabulary_for
from pellucid.parts.dropouts import DropoutConfig

UTILIZATION = 0.3
"""The fraction of the measured peak that training is assumed to reach (MFU)."""
TOKENS_PER_PARAMETER = 20
"""The compute-optimal ratio, roughly (Hoffmann et al. 2022, arXiv:2203.15556)."""
EPOCHS = 10
"""Epochs at most. Up to four a text is almost as good as new text (Muennighoff et al. 2023,
arXiv:2305.16264); after that less and less."""
FRESH_EPOCHS = 4
STEPS = 2000
"""About this many steps; what is left of the tokens goes into larger batches."""
MEMORY_SHARE = 0.6
"""The fraction of the memory that a run may be planned to take."""


class Size(NamedTuple):
    n_layer: int
    n_head: int
    d_model: int
    context_length: int
    lr: float
    vocab_size: int
    """At most: a small model with a large vocabulary is little more than its embedding."""


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
MOST_TOKENS_PER_STEP, FEWEST_TOKENS_PER_STEP = 1 << 16, 1 << 9
ANY_SHAPE: Mapping[str, Any] = MappingProxyType({})
TRAINED_SHARE = 0.9
"""The fraction of a text that is not held out."""


@dataclass(frozen=True)
class Budget:
    """The time, and what the machine does in it."""

    minutes: float
    peak: float
    """FLOP/s of the fastest matrix product."""
    memory: int = 0
    """Bytes of memory of the device."""
    utilization: float | None = None
    """The fraction of the peak that training steps were measured to reach; None where none was measured."""

    def __post_init__(self) -> None:
        if not self.minutes > 0 or not math.isfinite(self.minutes):
            raise ConfigError(f"minutes must be above 0; got {self.minutes:g}. Use 10, for example.")

    @property
    def flops(self) -> float:
        return self.peak * (self.utilization or UTILIZATION) * 60 * self.minutes

    def __str__(self) -> str:
        share = UTILIZATION if self.utilization is None else self.utilization
        measured = "" if self.utilization is None else ", as training steps were measured"
        if share > 1:
            speed = f"{share * self.peak / 1e9:,.3g} GFLOP/s{measured}"
            return f"{self.minutes:g} minutes allow at {speed}; the peak was measured on a busy machine"
        return f"{self.minutes:g} minutes allow at {share:.0%} of {self.peak / 1e9:,.3g} GFLOP/s{measured}"


@dataclass(frozen=True)
class Plan:
    """What fits a text and a budget."""

    overrides: dict[str, Any]
    """Keys of a recipe, with dots."""
    reasons: tuple[str, ...]
    """Why, one line each."""
    config: ModelConfig
    """The model that is trained."""
    tokens: int
    """Tokens that it reads, about."""
    epochs: float
    size: int = 0
    """Which size of the table it is, from 1 on; 0 for fine-tuning."""


def describe_longer(plan: Plan, longer: Plan, times: int) -> str:
    """Returns what a plan for `times` the minutes has more than this one.

    No loss is foretold: none of these texts has a fitted scaling law.
    """
    parameters, more = count_parameters(plan.config), count_parameters(longer.config)
    if more <= parameters and longer.tokens < 1.1 * plan.tokens:
        enough = f"{plan.epochs:.1f} epochs of this text are enough"
        why = enough if plan.epochs > 1 else "they do not make one step more"
        return f"{times} times the minutes would buy nothing: {why}"
    size = "the same model"
    if more > parameters:
        size = f"a model of {more:,} parameters, {more / parameters:.1f} times as many"
    return (
        f"{times} times the minutes would buy {size}, and {longer.tokens / plan.tokens:.1f} times the tokens "
        f"({longer.epochs:.1f} epochs); the loss that it reaches, only its training says"
    )


# ---- a new model


def plan_pretraining(
    text_bytes: int, budget: Budget, largest: int = len(SIZES), shape: Mapping[str, Any] = ANY_SHAPE
) -> Plan:
    """Returns the largest model of the table that sees a third of 20 tokens per parameter in the budget, has
    at most ten parameters for each token of the text and fits into the memory, with steps and learning rate.

    `largest` limits the choice to the first sizes of the table. A `shape`, keys of a model with d_model among
    them, is kept instead of any size: vocabulary and learning rate are then those of a size of its width, and
    its rows are shortened where the text is short.
    """
    if text_bytes < 1:
        raise ConfigError("the text is empty: it has 0 bytes.")
    size, why = (
        _match_shape(shape, text_bytes, budget) if shape else _choose_size(text_bytes, budget, largest)
    )
    config = _config(size, text_bytes, shape)
    text_tokens = _count_tokens(text_bytes, config.vocab_size)
    in_time = budget.flops / count_flops_per_token(config)
    tokens = min(in_time, EPOCHS * text_tokens)
    rows = _choose_rows(tokens, config, budget.memory)
    steps = max(1, round(tokens / (rows * config.context_length)))
    chosen = {key: getattr(config, key) for key in ("n_layer", "n_head", "d_model", "context_length")}
    overrides: dict[str, Any] = {
        "steps": steps,
        **{f"model.{key}": value for key, value in chosen.items() if shape.get(key) != value},
        "data.vocab_size": config.vocab_size,
        "data.batch_size": rows,
        "optimizer.lr": size.lr,
        "schedule.warmup": max(1, min(200, steps // 20)),
        "evaluation.every": max(1, steps // 10),
        "checkpoint.every": max(1, steps // 5),
    }
    is_short = in_time > EPOCHS * text_tokens
    limit = f"after {EPOCHS} epochs little is left to learn" if is_short else f"that is what {budget}"
    epochs = tokens / text_tokens
    reasons = [
        f"a vocabulary of {config.vocab_size:,}, because {_why_vocabulary(text_bytes, config.vocab_size)}: "
        f"about {pluralize(text_tokens, 'token')} to train on",
        f"{pluralize(config.n_layer, 'layer')} of {config.d_model}, {count_parameters(config):,} parameters, "
        f"because {why}",
        f"{pluralize(steps, 'step')} of {rows} × {config.context_length} tokens, {epochs:.1f} epochs, "
        f"because {limit}",
    ]
    if epochs > FRESH_EPOCHS and "dropout" not in shape:
        overrides["model.dropout"] = "bernoulli"
        config = dataclasses.replace(config, dropout=DropoutConfig.read("bernoulli"))
        reasons.append(f"dropout, because the text is read for more than {FRESH_EPOCHS} epochs")
    read = steps * rows * config.context_length
    return Plan(overrides, tuple(reasons), config, read, epochs, SIZES.index(size) + 1)


def _match_shape(shape: Mapping[str, Any], text_bytes: int, budget: Budget) -> tuple[Size, str]:
    """Returns the largest size that is not wider than a shape, and words that follow "because"."""
    width = _config(SIZES[0], text_bytes, shape).d_model
    size = max((size for size in SIZES if size.d_model <= width), default=SIZES[0], key=SIZES.index)
    why_not = _why_too_large(size, text_bytes, budget, shape)
    return size, "that was asked for" + (f"; it {why_not}" if why_not else "")


def _choose_size(text_bytes: int, budget: Budget, largest: int) -> tuple[Size, str]:
    """Returns the size and why no larger one was taken, in words that follow "because"."""
    for number, (size, larger) in enumerate(pairwise(SIZES), 1):
        if number == largest:
            return size, "training steps of the next larger one were measured to be too slow"
        if why_not := _why_too_large(larger, text_bytes, budget):
            return size, f"the next larger one {why_not}"
    return SIZES[-1], "it is the largest of the table"


def _why_too_large(
    size: Size, text_bytes: int, budget: Budget, shape: Mapping[str, Any] = ANY_SHAPE
) -> str | None:
    """Returns words that follow "the next larger one"."""
    config = _config(size, text_bytes, shape)
    text_tokens, parameters = _count_tokens(text_bytes, config.vocab_size), count_parameters(config)
    seen = budget.flops / count_flops_per_token(config)
    if seen < TOKENS_PER_PARAMETER / 3 * parameters:
        return (
            f"would see {seen / parameters:.2g} tokens per parameter in this time; {TOKENS_PER_PARAMETER} "
            "are best"
        )
    if parameters > 10 * text_tokens:
        return f"has {parameters / text_tokens:.0f} parameters for each token of the text"
    if estimate_training_memory(config, rows=1).total > MEMORY_SHARE * budget.memory:
        return f"needs more than {MEMORY_SHARE:.0%} of the {format_bytes(budget.memory)} of memory"
    return None


def _why_vocabulary(text_bytes: int, vocab_size: int) -> str:
    suited = vocabulary_for(text_bytes)
    if vocab_size == suited:
        return f"the text has {format_bytes(text_bytes)}"
    return f"the model is too small for the {suited:,} that suit {format_bytes(text_bytes)} of text"


def _config(size: Size, text_bytes: int, shape: Mapping[str, Any]) -> ModelConfig:
    sizes = {key: value for key, value in size._asdict().items() if key != "lr"}
    vocab_size = min(vocabulary_for(text_bytes), size.vocab_size)
    config = ModelConfig.from_dict(sizes | {"vocab_size": vocab_size, **shape})
    length = config.context_length
    while length > 8 and 4 * length > _count_tokens(text_bytes, vocab_size):
        length //= 2  # a text shorter than a few rows could not be cut into any
    return dataclasses.replace(config, context_length=length)


def bytes_per_token(vocab_size: int) -> float:
    """Returns about how many bytes of English prose a token of a byte-pair encoding has.

    >>> bytes_per_token(300), bytes_per_token(3000), bytes_per_token(50_000)
    (2.0, 2.9, 3.7)
    """
    return BYTES_PER_TOKEN[max([size for size in BYTES_PER_TOKEN if size <= vocab_size], default=512)]


def _count_tokens(text_bytes: int, vocab_size: int) -> int:
    """Returns about how many tokens there are to train on."""
    return max(1, round(TRAINED_SHARE * text_bytes / BYTES_PER_TOKEN[vocab_size]))


def _choose_rows(tokens: float, config: ModelConfig, memory: int) -> int:
    """Returns the rows of a batch, a power of two that leaves about `STEPS` steps and fits into memory."""
    wanted = min(max(tokens / STEPS, FEWEST_TOKENS_PER_STEP), MOST_TOKENS_PER_STEP)
    rows = int(2 ** max(0, round(math.log2(wanted / config.context_length))))
    while rows > 1 and estimate_training_memory(config, rows).total > MEMORY_SHARE * memory:
        rows //= 2
    return rows


# ---- fine-tuning

FINETUNE_LR = {"full": 2e-5, "adapters": 2e-4}
"""Small, so that what the model knows is kept; adapters begin with zeros and take larger steps."""
FINETUNE_LENGTH = 256
"""Tokens of a row, where the recipe does not say."""
FINETUNE_EPOCHS, FINETUNE_ROWS, FINETUNE_STEPS = 3, 8, 50
"""Epochs at most; rows of a batch at most, and fewer where there would be fewer steps."""
BYTES_PER_PRETRAINED_TOKEN = 4.0
"""Of English prose, about, with a vocabulary of tens of thousands."""
TEMPLATE_TOKENS = 30
"""Tokens that a chat template adds to a conversation, about."""


def plan_finetuning(text_bytes: int, budget: Budget, config: ModelConfig, how: str, records: int = 0) -> Plan:
    """Returns steps and learning rate for fine-tuning a model, `how` being "full" or "adapters".

    With `records`, the text is that number of conversations, of `text_bytes` together.
    """
    length = min(FINETUNE_LENGTH, config.context_length)
    tokens = max(1, round(TRAINED_SHARE * text_bytes / BYTES_PER_PRETRAINED_TOKEN))
    while not records and length > 8 and 4 * length > tokens:
        length //= 2
    epoch = TRAINED_SHARE * records or tokens / length
    width = min(length, tokens / records + TEMPLATE_TOKENS) if records else length
    passes = FROZEN_WEIGHTS if how == "adapters" else FORWARD_BACKWARD
    in_time = budget.flops / (width * count_flops_per_token(config, length, passes))
    seen, rows = min(in_time, FINETUNE_EPOCHS * epoch), FINETUNE_ROWS
    while rows > 1 and seen / rows < FINETUNE_STEPS:
        rows //= 2
    steps = max(1, round(seen / rows))
    overrides: dict[str, Any] = {
        "steps": steps,
        "model.context_length": length,
        "data.batch_size": rows,
        "optimizer.lr": FINETUNE_LR[how],
        "optimizer.weight_decay": 0.0,
        "schedule.warmup": max(1, steps // 10),
        "evaluation.every": max(1, steps // 5),
        "evaluation.batches": 20,
        "checkpoint.every": max(1, steps // 5),
    }
    is_short = in_time >= FINETUNE_EPOCHS * epoch
    limit = f"after {FINETUNE_EPOCHS} epochs it is memorized" if is_short else f"that is what {budget}"
    kept = (
        "only its adapters are trained, from zero" if how == "adapters" else "small steps keep what it knows"
    )
    batch = f"{rows} conversations" if records else f"{rows} × {length} tokens"
    reasons = (
        f"a learning rate of {FINETUNE_LR[how]:g}, because the model is pretrained: {kept}",
        f"{steps:,} steps of {batch}, {seen / epoch:.1f} epochs, because {limit}",
    )
    return Plan(overrides, reasons, config, round(seen * width), seen / epoch)
