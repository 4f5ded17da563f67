"""A LoRA adapter as a folder, read, written and merged: W' = W + (alpha / rank) B A, stored without W.

`peft`'s layout where a Hugging Face family has one tensor for each of our projections:
`adapter_config.json`, and `adapter_model.safetensors` with base_model.model.….q_proj.lora_A.weight (rank, in)
and lora_B.weight (out, rank). Else our own: `adapter.json`, and `adapter.safetensors` with our names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.dtypes import FLOAT_STORAGE, Array, promote
from pellucid.base.errors import ConfigError, FileError, show
from pellucid.base.files import Kind, need, new_folder, read_format, validating
from pellucid.base.lora import A, B, merge
from pellucid.config import ModelConfig
from pellucid.formats.folder import file_in, has_file, read_table, write_table
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface.writing import find_family
from pellucid.formats.library import HUB
from pellucid.formats.pretrained import LazyWeights, Pretrained
from pellucid.formats.rope_layout import halves_to_pairs, in_layout
from pellucid.formats.safetensors_file import StoredTensor, describe_wrong_type, read_file, write_file
from pellucid.parts.positions.rope import Rope

FORMAT, VERSION = "pellucid-adapter", 1
PEFT_CONFIG, PEFT_TENSORS = "adapter_config.json", "adapter_model.safetensors"
OWN_CONFIG, OWN_TENSORS = "adapter.json", "adapter.safetensors"
ADAPTER_FOLDER = Kind("an adapter folder", lambda path: "adapters are never replaced")


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter. `tensors` have our names, blocks.0.attn.q_proj.lora_a and …lora_b; `base` names the
    model that it adapts."""

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


def write_adapter(folder: Path, adapter: Adapter) -> None:
    """Writes an adapter as a new folder, in `peft`'s layout where there is one for it."""
    names, why = peft_names(adapter.config, adapter.paths)
    with new_folder(folder, ADAPTER_FOLDER) as new:
        if names:
            write_file(new / PEFT_TENSORS, _peft_tensors(adapter, names))
            write_table(new / PEFT_CONFIG, _peft_config(adapter, names))
        else:
            write_file(new / OWN_TENSORS, _store(adapter.tensors))
            write_table(new / OWN_CONFIG, _own_config(adapter, why))


def peft_names(config: ModelConfig, paths: list[str]) -> tuple[dict[str, str], str]:
    """Returns the names of these projections in `transformers`; or {} and why `peft`'s layout has none."""
    halves, _ = in_layout(config, {}, "halves")
    try:
        family = families.find(find_family(halves))
    except ConfigError:
        return {}, "no Hugging Face family expresses this config"
    found = {}
    for link in family.links(halves):
        ours = [name.removesuffix(".weight") for name in link.ours if name.endswith(".weight")]
        if not set(ours) & set(paths):
            continue
        theirs = link.theirs.removesuffix(".weight")
        if len(ours) > 1 or link.transposed:
            held = ", ".join(name.rpartition(".")[2] for name in ours)
            how = "concatenated" if len(ours) > 1 else "transposed"
            return {}, f"`transformers` stores {held} {how}, as {theirs.rpartition('.')[2]}"
        found[ours[0]] = theirs
    return found, ""


def _peft_tensors(adapter: Adapter, names: Mapping[str, str]) -> dict[str, StoredTensor]:
    """Returns the tensors in `peft`'s names and layout. Permuting the rows of W permutes those of B alone."""
    rows = {f"{path}.weight": adapter.tensors[path + B] for path in names}
    _, rows = in_layout(adapter.config, rows, "halves")  # type: ignore[assignment]
    tensors: dict[str, Array] = {}
    for ours, theirs in names.items():
        tensors[f"base_model.model.{theirs}.lora_A.weight"] = adapter.tensors[ours + A]
        tensors[f"base_model.model.{theirs}.lora_B.weight"] = np.asarray(rows[f"{ours}.weight"])
    return _store(tensors)


def _peft_config(adapter: Adapter, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": adapter.base.removeprefix(HUB),
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "target_modules": _target_modules(adapter.config, names),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _target_modules(config: ModelConfig, names: Mapping[str, str]) -> list[str]:
    """Returns the last parts of the names where these match no other projection, else the full names."""
    last = sorted({name.rpartition(".")[2] for name in names.values()})
    kinds = {path.split(".", 2)[2] for path in names}  # attn.q_proj, mlp.up_proj, …
    every = [f"blocks.{layer}.{kind}" for layer in range(config.n_layer) for kind in kinds]
    return last if set(every) == set(names) else sorted(names.values())


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


def _store(arrays: Mapping[str, Array]) -> dict[str, StoredTensor]:
    return {
        name: StoredTensor("F32", array.shape, partial(np.asarray, array, np.float32))
        for name, array in arrays.items()
    }


FREE = {
    *(
        "r", "lora_alpha", "lora_dropout", "base_model_name_or_path", "revision", "task_type",
        "inference_mode",
    ),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),  # as the tensors say
    *("peft_type", "peft_version", "auto_mapping", "runtime_config", "megatron_core", "ensure_weight_tying"),
    *("eva_config", "corda_config", "lora_ga_config", "loftq_config"),  # of a value of `init_lora_weights`
    "qalora_group_size",  # of `use_qalora`
}  # fmt: skip
"""Settings of `peft` that leave W + (alpha / rank) B A as it is."""
USUAL = {"bias": ("none",), "init_lora_weights": (True, "gaussian", "orthogonal", "eva", "mica")}
"""The values under which another setting does so, beside those that mean nothing (null, false, [] and {})."""
UNUSUAL = {
    "init_lora_weights": "its base are weights that `peft` changed when it was made",
    "alora_invocation_tokens": "it adapts the tokens after these alone",
}
"""Why a setting changes the formula; a setting that is not known may do so."""


def read_adapter(folder: Path, config: ModelConfig) -> Adapter:
    """Returns the adapter of a folder, for a model with this config."""
    if has_file(folder, PEFT_CONFIG):
        return _read_peft(folder, config)
    if has_file(folder, OWN_CONFIG):
        return _read_own(folder, config)
    raise FileError(f"{folder} is not an adapter: it has neither {PEFT_CONFIG} nor {OWN_CONFIG}.")


def _read_peft(folder: Path, config: ModelConfig) -> Adapter:
    path = file_in(folder, PEFT_CONFIG)
    about = read_table(path)
    with validating(path):
        need(about.get("peft_type") == "LORA", f"peft_type is {show(about.get('peft_type'))}, not 'LORA'")
    for key, value in about.items():
        if key not in FREE and value and value not in USUAL.get(key, ()):
            reason = UNUSUAL.get(key, "what it adapts may not be W + (alpha / rank) B A")
            raise FileError(
                f"{path}: {show(key)} is {show(value)}, which is not supported: {reason}. Where `peft` "
                "can merge it (`merge_and_unload`), export the folder that the merged model is saved to."
            )
    rank, alpha = _read_numbers(path, about, "r", "lora_alpha")
    linears = [name.removesuffix(".weight") for name in config.parameters() if name.endswith("_proj.weight")]
    names, why = peft_names(config, linears)
    if not names:
        raise FileError(f"{folder} is in peft's layout, which cannot be used for this model: {why}.")
    stored = read_file(file_in(folder, PEFT_TENSORS))
    ours = {
        f"base_model.model.{theirs}.lora_{part}.weight": path + end
        for path, theirs in names.items()
        for part, end in (("A", A), ("B", B))
    }
    for name in stored:
        if name not in ours:
            base = show(about.get("base_model_name_or_path"))
            raise FileError(
                f"{folder} was made for another model ({base}): its tensor {show(name)} is not a "
                "projection of this one."
            )
    found = _check_tensors(
        folder / PEFT_TENSORS, {ours[n]: tensor for n, tensor in stored.items()}, config, rank
    )
    if isinstance(config.positions, Rope) and config.positions.layout == "pairs":
        for name in [n for n in found if n.endswith((f".attn.q_proj{B}", f".attn.k_proj{B}"))]:
            found[name] = halves_to_pairs(found[name], config.d_head)
    return Adapter(config, found, rank, alpha, 0.0, str(about.get("base_model_name_or_path")))


def _read_own(folder: Path, config: ModelConfig) -> Adapter:
    path = file_in(folder, OWN_CONFIG)
    about = read_format(path, "adapter", FORMAT, VERSION)
    rank, alpha = _read_numbers(path, about, "rank", "alpha")
    stored = read_file(file_in(folder, OWN_TENSORS))
    found = _check_tensors(folder / OWN_TENSORS, stored, config, rank)
    return Adapter(config, found, rank, alpha, 0.0, str(about.get("base")))


def _read_numbers(path: Path, about: Mapping[str, Any], rank: str, alpha: str) -> tuple[int, float]:
    r, a = about.get(rank), about.get(alpha)
    with validating(path):
        need(isinstance(r, int) and 0 < r <= 2**16, f"{rank} is {show(r)}, not a rank from 1 to 65536")
        need(isinstance(a, int | float) and 0 <= a < 2**32, f"{alpha} is {show(a)}, not a number ≥ 0")
    return int(r or 0), float(a or 0)


def _check_tensors(
    path: Path, stored: Mapping[str, StoredTensor], config: ModelConfig, rank: int
) -> dict[str, Array]:
    """Returns the tensors in float32; raises unless they come in pairs and each fits its projection."""
    shapes, found = config.parameters(), {}
    with validating(path):
        need(len(stored) > 0, "it has no tensors")
        for name, tensor in stored.items():
            target = name.rpartition(".")[0]
            need(
                name.endswith((A, B)) and f"{target}.weight" in shapes,
                f"{show(name)} does not adapt a projection of this model",
            )
            need(tensor.type in FLOAT_STORAGE, describe_wrong_type(name, tensor.type))
            out, width = shapes[f"{target}.weight"]
            wanted = (rank, width) if name.endswith(A) else (out, rank)
            need(tensor.shape == wanted, f"{show(name)} has the shape {tensor.shape}, not {wanted}")
            need(target + A in stored and target + B in stored, f"{target} has only one of A and B")
            found[name] = np.asarray(tensor.read(), np.float32)
            need(bool(np.isfinite(found[name]).all()), f"{show(name)} has NaN or Inf")
    return found


def merge_adapter(model: Pretrained, adapter: Adapter) -> Pretrained:
    """Returns the model with W + (alpha / rank) B A for each adapted weight W, computed when it is used."""
    scale = np.float32(adapter.alpha / adapter.rank)
    adapted = {f"{path}.weight": path for path in adapter.paths}

    def weight(name: str) -> Array:
        array = np.asarray(model.weights[name])
        if name not in adapted:
            return array
        a, b = (adapter.tensors[adapted[name] + end] for end in (A, B))
        merged: Array = merge(array.astype(np.result_type(array, np.float32)), a, b, scale)
        return merged

    types = {
        name: promote((kind, "F32")) if name in adapted and kind in FLOAT_STORAGE else kind
        for name, kind in model.provenance.types.items()
    }
    return replace(
        model,
        weights=LazyWeights.from_function(model.config.parameters(), weight),
        provenance=replace(model.provenance, types=types),
    )
