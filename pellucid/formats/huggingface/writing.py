"""Writes a Hugging Face folder where a family expresses the config; else names the choice that none has."""

from pathlib import Path
from typing import Any

from pellucid.base.dtypes import BY_CODE, dtype_code, promote
from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.formats.companions import write_companions
from pellucid.formats.folder import new_model_folder, write_table
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface.families import Family
from pellucid.formats.huggingface.keys import TOKEN_IDS
from pellucid.formats.huggingface.reading import read
from pellucid.formats.pretrained import Pretrained, check_token_ids, stored_dtype
from pellucid.formats.rope_layout import in_layout
from pellucid.formats.safetensors_file import SHARD_BYTES, write_tensors


def write(
    folder: str | Path,
    pretrained: Pretrained,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    force: bool = False,
) -> None:
    """Writes a new folder that `transformers` opens; `force` replaces an existing model. Without a
    `dtype` every weight keeps the type of its file; the numbers of a quantized one are float32."""
    check_token_ids(pretrained)
    config, weights = in_layout(pretrained.config, pretrained.weights, "halves")
    model_type = find_family(config, pretrained.provenance.architecture)
    family, shapes = families.find(model_type), config.parameters()
    wanted = dtype_code(dtype)
    tensors = {}
    for link in family.links(config):
        type = wanted or promote(stored_dtype(pretrained, name) for name in link.ours)
        tensors[link.theirs] = link.join(weights, shapes, type, exact=wanted is None)
    ids = {name: pretrained.generation.get(name) for name in TOKEN_IDS}
    table: dict[str, Any] = {
        "architectures": [family.architectures[0]],
        "model_type": model_type,
        **family.keys(config),
        **ids,
        "dtype": BY_CODE[promote(tensor.type for tensor in tensors.values())].name,
    }
    with new_model_folder(Path(folder), force, read) as new:
        write_tensors(new, tensors, shard_bytes)
        write_companions(new, pretrained, for_others=True)
        write_table(new / "config.json", table)


def find_family(config: ModelConfig, before: str = "") -> str:
    """Returns the family that expresses a config exactly; of several, the one that it was `before`."""
    names = sorted(families.family_names(), key=lambda name: name != before)
    complaints = {name: list_differences(families.find(name), config) for name in names}
    for name, complaint in complaints.items():
        if not complaint:
            return name
    nearest = sorted(complaints, key=lambda name: len(complaints[name]))
    raise ConfigError(
        "no Hugging Face family expresses this config: "
        + "; ".join(f"for {name}, {' and '.join(complaints[name])}" for name in nearest)
        + "."
    )


def list_differences(family: Family, config: ModelConfig) -> list[str]:
    """Returns what a family cannot express of a config: each field that differs after writing and reading it.
    Dropout is for training only, and is not written."""
    try:
        back = family.config(family.select_keys(family.keys(config))).to_dict()
    except ConfigError as error:
        return [str(error).rstrip(".")]
    ours = config.to_dict() | {"dropout": back["dropout"]}
    back["biases"], ours["biases"] = sorted(back["biases"]), sorted(ours["biases"])
    return [
        f"{key} is {_describe(value)} and would be {_describe(back[key])}"
        for key, value in ours.items()
        if value != back[key]
    ] + family.limits(config)


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        settings = ", ".join(f"{key}={setting}" for key, setting in value.items() if key != "kind")
        return f"{value['kind']} ({settings})" if settings else str(value["kind"])
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)
