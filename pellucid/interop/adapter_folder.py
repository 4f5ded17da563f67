"""A LoRA adapter as a folder of its own: W' = W + (alpha / rank) B A, without W.

`peft`'s layout where a Hugging Face family has one tensor for each of our projections:
`adapter_config.json`, and `adapter_model.safetensors` with base_model.model.….q_proj.lora_A.weight (rank, in)
and lora_B.weight (out, rank). Else our own: `adapter.json`, and `adapter.safetensors` with our names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.dtypes import Array
from pellucid.errors import ConfigError
from pellucid.files import Kind, new_folder
from pellucid.interop.folder import write_table
from pellucid.interop.huggingface import families
from pellucid.interop.huggingface.writing import expressing
from pellucid.interop.library import HUB
from pellucid.interop.rope_layout import in_layout
from pellucid.interop.safetensors_file import Stored, write_file

A, B = ".lora_a", ".lora_b"
FORMAT, VERSION = "pellucid-adapter", 1
PEFT_CONFIG, PEFT_TENSORS = "adapter_config.json", "adapter_model.safetensors"
OWN_CONFIG, OWN_TENSORS = "adapter.json", "adapter.safetensors"
ADAPTER_FOLDER = Kind("an adapter folder", lambda path: "adapters are never replaced")


@dataclass(frozen=True)
class Adapter:
    """`tensors` are under our names, blocks.0.attn.q_proj.lora_a and …lora_b; `base` is what it adapts."""

    config: ModelConfig
    tensors: Mapping[str, Array]
    rank: int
    alpha: float
    dropout: float
    base: str

    @property
    def paths(self) -> list[str]:
        """The projections that it adapts."""
        return [name.removesuffix(A) for name in self.tensors if name.endswith(A)]


def write(folder: Path, adapter: Adapter) -> None:
    """Writes an adapter as a new folder, in `peft`'s layout where there is one for it."""
    names, why = their_names(adapter.config, adapter.paths)
    with new_folder(folder, ADAPTER_FOLDER) as new:
        if names:
            write_file(new / PEFT_TENSORS, _peft_tensors(adapter, names))
            write_table(new / PEFT_CONFIG, _peft_config(adapter, names))
        else:
            write_file(new / OWN_TENSORS, _stored(adapter.tensors))
            write_table(new / OWN_CONFIG, _own_config(adapter, why))


def their_names(config: ModelConfig, paths: list[str]) -> tuple[dict[str, str], str]:
    """What `transformers` calls these projections; or none, and why `peft`'s layout cannot say them."""
    halves, _ = in_layout(config, {}, "halves")
    try:
        family = families.find(expressing(halves))
    except ConfigError:
        return {}, "no Hugging Face family has this model's shape"
    found = {}
    for link in family.links(halves):
        ours = [name.removesuffix(".weight") for name in link.ours if name.endswith(".weight")]
        if not set(ours) & set(paths):
            continue
        theirs = link.theirs.removesuffix(".weight")
        if len(ours) > 1 or link.transposed:
            held = ", ".join(name.rpartition(".")[2] for name in ours)
            how = "together" if len(ours) > 1 else "transposed"
            return {}, f"`transformers` keeps {held} {how}, as {theirs.rpartition('.')[2]}"
        found[ours[0]] = theirs
    return found, ""


def _peft_tensors(adapter: Adapter, names: Mapping[str, str]) -> dict[str, Stored]:
    """A reads what enters a projection and B makes its rows, so where rows change places B's do."""
    rows = {f"{path}.weight": adapter.tensors[path + B] for path in names}
    _, rows = in_layout(adapter.config, rows, "halves")  # type: ignore[assignment]
    tensors: dict[str, Array] = {}
    for ours, theirs in names.items():
        tensors[f"base_model.model.{theirs}.lora_A.weight"] = adapter.tensors[ours + A]
        tensors[f"base_model.model.{theirs}.lora_B.weight"] = np.asarray(rows[f"{ours}.weight"])
    return _stored(tensors)


def _peft_config(adapter: Adapter, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base.removeprefix(HUB),
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "target_modules": _targets(adapter.config, names),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _targets(config: ModelConfig, names: Mapping[str, str]) -> list[str]:
    """The last words of the names where these mean no other projection, and else the names in full."""
    last = sorted({name.rpartition(".")[2] for name in names.values()})
    every = [f"blocks.{layer}.{path}" for layer in range(config.n_layer) for path in _kinds(names)]
    return last if set(every) == set(names) else sorted(names.values())


def _kinds(names: Mapping[str, str]) -> set[str]:
    """The projections of a block: attn.q_proj, mlp.up_proj, …"""
    return {path.split(".", 2)[2] for path in names}


def _own_config(adapter: Adapter, why: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "base": adapter.base,
        "rank": adapter.rank,
        "alpha": adapter.alpha,
        "dropout": adapter.dropout,
        "formula": "W' = W + (alpha / rank) B A",
        "why_not_peft": why,
    }


def _stored(arrays: Mapping[str, Array]) -> dict[str, Stored]:
    return {
        name: Stored("F32", array.shape, partial(np.asarray, array, np.float32))
        for name, array in arrays.items()
    }
