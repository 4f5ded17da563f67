"""What a run begins from: dice, or a model that is there already, with its tokenizer and chat template."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pellucid.config import ModelConfig, Shapes
from pellucid.errors import ConfigError, FileError
from pellucid.interop import model_folder
from pellucid.interop.adapter import Adapter, peft_names
from pellucid.interop.resolve import open_model
from pellucid.lora import A
from pellucid.model.initializations import initialize
from pellucid.model.lora import adapt, adapters
from pellucid.model.transformer import Transformer
from pellucid.pretrained import Pretrained
from pellucid.training.plan import FINETUNE_LENGTH
from pellucid.training.recipe import Recipe
from pellucid.training.saving.manifest import MODEL

FREE = ("context_length", "dropout")
"""Keys of a model that change none of its weights."""


def resolve_recipe(recipe: Recipe) -> tuple[Recipe, Pretrained | None]:
    """The recipe with nothing left to choose, and the model that it starts from, if it does."""
    if not recipe.start:
        recipe.config(recipe.data.vocab_size or 1)  # refused now, and not after hours of encoding a text
        return recipe, None
    start = open_model(recipe.start)
    if start.tokenizer is None:
        raise ConfigError(f"start={recipe.start!r} has no tokenizer, so it can learn from no text.")
    own = start.config.context_length
    length = recipe.model.get("context_length", min(FINETUNE_LENGTH, own))
    if type(length) is not int or not 1 <= length <= own:
        raise ConfigError(
            f"model.context_length={length!r} does not go with start={recipe.start!r}: its rows have from 1 "
            f"to {own} tokens."
        )
    config_of(recipe, start)
    return replace(recipe, model={**recipe.model, "context_length": length}), start


def base_model_for_resume(recipe: Recipe, checkpoint: Path | None) -> Pretrained | None:
    """What a run that goes on starts from. A checkpoint holds all weights, so the first model may be gone;
    but adapters go on beside the very weights that they were made for, which only that model has."""
    if recipe.start and checkpoint is not None and not recipe.lora.rank:
        return model_folder.read(checkpoint / MODEL)
    return resolve_recipe(recipe)[1]


def need_base(recipe: Recipe, found: str, wanted: str) -> None:
    """Adapters mean something beside one model only."""
    if found != wanted:
        raise FileError(
            f"start={recipe.start!r} is no longer the model that this run's adapters were made for: put that "
            "one back where it was."
        )


def config_of(recipe: Recipe, start: Pretrained) -> ModelConfig:
    """The model's own config, but for dropout. Shorter rows do not make its context shorter."""
    changes = {key: value for key, value in recipe.model.items() if key != "context_length"}
    config = ModelConfig.from_dict({**start.config.to_dict(), **changes})
    for key in changes:
        if key not in FREE and getattr(config, key) != getattr(start.config, key):
            raise ConfigError(
                f"model.{key}={changes[key]!r} does not go with start={recipe.start!r}, whose weights were "
                f"made for another value: omit it. With start, only {' and '.join(FREE)} can be chosen."
            )
    return config


def init_model(
    recipe: Recipe, start: Pretrained | None, vocab_size: int, device: torch.device, dtype: torch.dtype
) -> Transformer:
    """The model before its first step."""
    if start is None:
        model = Transformer.empty(recipe.config(vocab_size), device, dtype)
        return initialize(model, recipe.train.initialization, recipe.seed)
    model = Transformer.from_weights(config_of(recipe, start), start.weights, device, dtype)
    asked = recipe.lora
    if not asked.rank:
        return model
    return adapt(model, asked.targets, asked.rank, asked.scale, asked.dropout, recipe.seed)


def shapes_of(recipe: Recipe, start: Pretrained | None, vocab_size: int) -> Shapes:
    """The parameters of the model that a run begins with, its adapters among them."""
    if not recipe.lora.rank:
        return (config_of(recipe, start) if start else recipe.config(vocab_size)).parameters()
    model = init_model(recipe, start, vocab_size, torch.device("meta"), torch.float32)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def summary(recipe: Recipe, model: Transformer) -> list[str]:
    """For people: what learns, and in which layout adapters are written where that is not `peft`'s."""
    if not recipe.start:
        return []
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    few = adapters(sizes)
    if not few:
        return [f"starting from {recipe.start}: all of its {sum(sizes.values()):,} parameters learn"]
    lines = [
        f"starting from {recipe.start}: its {sum(sizes.values()) - sum(few.values()):,} parameters stay; "
        f"{sum(few.values()):,} learn, in adapters of rank {recipe.lora.rank} for {len(few) // 2} projections"
    ]
    _, why = peft_names(model.config, [name.removesuffix(A) for name in few if name.endswith(A)])
    if why:
        lines.append(f"the adapter is written in a layout of our own and not in peft's, because {why}")
    return lines


def adapter(recipe: Recipe, config: ModelConfig, tensors: Mapping[str, Tensor]) -> Adapter | None:
    """The adapters alone, in the form in which they are written; None where there are none."""
    if not tensors:
        return None
    arrays = {name: np.asarray(tensor.float().cpu().numpy()) for name, tensor in tensors.items()}
    return Adapter(config, arrays, recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout, recipe.start)
