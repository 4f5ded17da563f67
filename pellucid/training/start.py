"""The start of a run: a random initialization, or a model with its tokenizer and chat template."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pellucid.base.errors import ConfigError, FileError
from pellucid.base.lora import A
from pellucid.config import ModelConfig, Shapes, presets
from pellucid.engine.initializations import initialize
from pellucid.engine.lora import adapt, adapters
from pellucid.engine.transformer import Transformer
from pellucid.formats import model_folder
from pellucid.formats.adapter import Adapter, peft_names
from pellucid.formats.checkpoint_manifest import MODEL
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.resolve import is_config_only, open_model
from pellucid.training.plan import FINETUNE_LENGTH
from pellucid.training.recipe import Recipe

FREE = ("context_length", "dropout")
"""Keys of a model that do not change the shapes of its weights."""


def resolve_recipe(recipe: Recipe) -> tuple[Recipe, Pretrained | None]:
    """Returns the complete recipe, and the model that it starts from; None for a new one."""
    if not recipe.start:
        recipe.config(recipe.data.vocab_size or 1)  # refused now, and not after hours of encoding a text
        return recipe, None
    if is_config_only(recipe.start):
        shape = f"model={recipe.start}" if recipe.start in presets() else "its [config] as [model]"
        raise ConfigError(
            f"start={recipe.start!r} is config-only: it has no weights to start from. {shape} trains a new "
            "model of its shape."
        )
    start = open_model(recipe.start).to_floats()
    if start.tokenizer is None:
        raise ConfigError(f"start={recipe.start!r} has no tokenizer, so it cannot be trained on text.")
    longest = start.config.context_length
    length = recipe.model.get("context_length", min(FINETUNE_LENGTH, longest))
    if type(length) is not int or not 1 <= length <= longest:
        raise ConfigError(
            f"model.context_length={length!r} does not go with start={recipe.start!r}: its rows have from 1 "
            f"to {longest} tokens."
        )
    make_config(recipe, start)
    return replace(recipe, model={**recipe.model, "context_length": length}), start


def base_model_for_resume(recipe: Recipe, checkpoint: Path | None) -> Pretrained | None:
    """Returns the model that a resumed run starts from: its checkpoint's, so that the first model may be
    gone; or that first model where there are adapters, which a checkpoint holds merged only."""
    if recipe.start and checkpoint is not None and not recipe.lora.rank:
        return model_folder.read(checkpoint / MODEL)
    return resolve_recipe(recipe)[1]


def check_base(recipe: Recipe, fingerprint: str, saved: str) -> None:
    """Refuses a base model other than the one whose adapters were trained."""
    if fingerprint != saved:
        raise FileError(
            f"start={recipe.start!r} is not the model that this run's adapters were trained with: put that "
            "one back where it was."
        )


def make_config(recipe: Recipe, start: Pretrained) -> ModelConfig:
    """Returns the config of `start` with the recipe's dropout. Shorter rows do not shorten its context."""
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
    """Returns the model before its first step."""
    if start is None:
        model = Transformer.empty(recipe.config(vocab_size), device, dtype)
        return initialize(model, recipe.train.initialization, recipe.seed)
    model = Transformer.from_weights(make_config(recipe, start), start.weights, device, dtype)
    lora = recipe.lora
    if not lora.rank:
        return model
    return adapt(model, lora.targets, lora.rank, lora.scale, lora.dropout, recipe.seed)


def get_parameter_shapes(recipe: Recipe, start: Pretrained | None, vocab_size: int) -> Shapes:
    """Returns the parameters and shapes of the model before its first step, adapters included."""
    if not recipe.lora.rank:
        return (make_config(recipe, start) if start else recipe.config(vocab_size)).parameters()
    model = init_model(recipe, start, vocab_size, torch.device("meta"), torch.float32)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def summary(recipe: Recipe, model: Transformer) -> list[str]:
    """Returns lines about which parameters are trained, and the layout of adapters where it is not peft's."""
    if not recipe.start:
        return []
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    adapted = adapters(sizes)
    if not adapted:
        return [f"starting from {recipe.start}: all of its {sum(sizes.values()):,} parameters are trained"]
    trained = sum(adapted.values())
    lines = [
        f"starting from {recipe.start}: its {sum(sizes.values()) - trained:,} parameters are frozen; "
        f"{trained:,} are trained, in adapters of rank {recipe.lora.rank} for {len(adapted) // 2} projections"
    ]
    _, why = peft_names(model.config, [name.removesuffix(A) for name in adapted if name.endswith(A)])
    if why:
        lines.append(f"the adapter is written in a layout of our own and not in peft's, because {why}")
    return lines


def warn_of_visible_targets(config: ModelConfig, length: int) -> str:
    """Returns a warning where the mask lets positions of a row attend to the token that they predict, which
    is the one at the next position; empty where it does not."""
    here = np.arange(length - 1)[:, None]
    visible = config.mask.compute_mask(here, here + 1)
    count = len(here) if visible is None else int(np.count_nonzero(visible))
    if not count:
        return ""
    return (
        f"warning: model.mask={config.mask.kind} lets {count:,} of the {length:,} positions of a row attend "
        "to the token that they predict, so the loss there falls to 0 without anything learned of text; "
        "model.mask=causal prevents that."
    )


def make_adapter(recipe: Recipe, config: ModelConfig, tensors: Mapping[str, Tensor]) -> Adapter | None:
    """Returns the adapters as they are written; None where there are none."""
    if not tensors:
        return None
    arrays = {name: np.asarray(tensor.float().cpu().numpy()) for name, tensor in tensors.items()}
    return Adapter(config, arrays, recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout, recipe.start)
