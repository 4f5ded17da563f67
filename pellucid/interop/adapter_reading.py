"""Reading an adapter, ours or `peft`'s, for a model that is there; and the model with it merged."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.dtypes import FLOAT_STORAGE, Array, promote
from pellucid.errors import FileError, show
from pellucid.files import need, read_format, validating
from pellucid.interop.adapter_folder import (
    FORMAT,
    OWN_CONFIG,
    OWN_TENSORS,
    PEFT_CONFIG,
    PEFT_TENSORS,
    VERSION,
    A,
    Adapter,
    B,
    their_names,
)
from pellucid.interop.folder import has, read_table, within
from pellucid.interop.rope_layout import halves_to_pairs
from pellucid.interop.safetensors_file import Stored, not_a_weight, read_file
from pellucid.parts.positions.rope import Rope
from pellucid.pretrained import LazyWeights, Pretrained

UNUSUAL = {
    "bias": ("none", None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
    "lora_bias": (False, None),
    "trainable_token_indices": ([], None),
}
"""Settings of `peft` that change the formula, with the values under which it is W + (alpha / rank) B A."""


def read(folder: Path, config: ModelConfig) -> Adapter:
    """The adapter of a folder, for a model of this config."""
    if has(folder, PEFT_CONFIG):
        return _peft(folder, config)
    if has(folder, OWN_CONFIG):
        return _own(folder, config)
    raise FileError(f"{folder} is not an adapter folder: it has neither {PEFT_CONFIG} nor {OWN_CONFIG}.")


def _peft(folder: Path, config: ModelConfig) -> Adapter:
    path = within(folder, PEFT_CONFIG)
    about = read_table(path)
    with validating(path):
        need(about.get("peft_type") == "LORA", f"peft_type is {show(about.get('peft_type'))}, not 'LORA'")
        for key, usual in UNUSUAL.items():
            value = about.get(key)
            need(value in usual, f"{key} is {show(value)}, another formula than W + (alpha / rank) B A")
    rank, alpha = _numbers(path, about, "r", "lora_alpha")
    linears = [name.removesuffix(".weight") for name in config.parameters() if name.endswith("_proj.weight")]
    names, why = their_names(config, linears)
    if not names:
        raise FileError(f"{folder} is in peft's layout, which this model has no names for: {why}.")
    stored = read_file(within(folder, PEFT_TENSORS))
    ours = {
        f"base_model.model.{theirs}.lora_{part}.weight": path + end
        for path, theirs in names.items()
        for part, end in (("A", A), ("B", B))
    }
    for name in stored:
        if name not in ours:
            made_for = show(about.get("base_model_name_or_path"))
            raise FileError(
                f"{folder} was made for another model ({made_for}): its tensor {show(name)} belongs to no "
                "projection of this one."
            )
    found = _checked(folder / PEFT_TENSORS, {ours[n]: tensor for n, tensor in stored.items()}, config, rank)
    if isinstance(config.positions, Rope) and config.positions.layout == "pairs":
        for name in [n for n in found if n.endswith((f".attn.q_proj{B}", f".attn.k_proj{B}"))]:
            found[name] = halves_to_pairs(found[name], config.d_head)
    return Adapter(config, found, rank, alpha, 0.0, str(about.get("base_model_name_or_path")))


def _own(folder: Path, config: ModelConfig) -> Adapter:
    path = within(folder, OWN_CONFIG)
    about = read_format(path, "adapter", FORMAT, VERSION)
    rank, alpha = _numbers(path, about, "rank", "alpha")
    stored = read_file(within(folder, OWN_TENSORS))
    found = _checked(folder / OWN_TENSORS, stored, config, rank)
    return Adapter(config, found, rank, alpha, 0.0, str(about.get("base")))


def _numbers(path: Path, about: Mapping[str, Any], rank: str, alpha: str) -> tuple[int, float]:
    r, a = about.get(rank), about.get(alpha)
    with validating(path):
        need(isinstance(r, int) and 0 < r <= 2**16, f"{rank} is {show(r)}, not a rank")
        need(isinstance(a, int | float) and 0 <= a < 2**32, f"{alpha} is {show(a)}, not a number ≥ 0")
    return int(r or 0), float(a or 0)


def _checked(path: Path, stored: Mapping[str, Stored], config: ModelConfig, rank: int) -> dict[str, Array]:
    """The tensors in float32, if they come in pairs and each fits its projection."""
    shapes, found = config.parameters(), {}
    with validating(path):
        need(len(stored) > 0, "it holds no adapter")
        for name, tensor in stored.items():
            target = name.rpartition(".")[0]
            need(name.endswith((A, B)) and f"{target}.weight" in shapes, f"{show(name)} adapts nothing here")
            need(tensor.type in FLOAT_STORAGE, not_a_weight(name, tensor.type))
            out, width = shapes[f"{target}.weight"]
            wanted = (rank, width) if name.endswith(A) else (out, rank)
            need(tensor.shape == wanted, f"{show(name)} has the shape {tensor.shape}, not {wanted}")
            need(target + A in stored and target + B in stored, f"{target} has only one of A and B")
            found[name] = np.asarray(tensor.read(), np.float32)
    return found


def merged(model: Pretrained, adapter: Adapter) -> Pretrained:
    """The model with W + (alpha / rank) B A for each weight W that has an adapter, made when asked for."""
    scale = np.float32(adapter.alpha / adapter.rank)
    adapted = {f"{path}.weight": path for path in adapter.paths}

    def weight(name: str) -> Array:
        array = np.asarray(model.weights[name])
        if name not in adapted:
            return array
        a, b = (adapter.tensors[adapted[name] + end] for end in (A, B))
        return array.astype(np.result_type(array, np.float32)) + scale * (b @ a)

    types = {
        name: promote((kind, "F32")) if name in adapted and kind in FLOAT_STORAGE else kind
        for name, kind in model.provenance.types.items()
    }
    return replace(
        model,
        weights=LazyWeights.from_function(model.config.parameters(), weight),
        provenance=replace(model.provenance, types=types),
    )
