"""Our model folder: any config comes back as it was written, and damaged or newer ones are refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import FileError, PellucidError
from pellucid.config import ModelConfig, preset
from pellucid.formats.model_folder import read, write
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.formats.resolve import open_model
from pellucid.formats.safetensors_file import INDEX, ONE_FILE
from pellucid.text.word_level import WordTokenizer
from tests.formats.mutations import attack, damaged_json, damaged_safetensors
from tests.reference.models import CONFIGS, weights

WORDS = WordTokenizer(("A", "B", "C", "D"))


def made(config: ModelConfig, dtype: type = np.float64) -> Pretrained:
    arrays = {name: array.astype(dtype) for name, array in weights(config).items()}
    return Pretrained("made", config, arrays, WORDS, Provenance(Path("made"), "made", "", {}, 0))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_config_and_weight_comes_back(tmp_path: Path, name: str, dtype: type) -> None:
    first = made(CONFIGS[name], dtype)
    write(tmp_path / "m", first)
    again = open_model(tmp_path / "m")
    assert again.config == first.config
    assert list(again.weights) == list(first.config.parameters())
    for key, array in first.weights.items():
        assert again.weights[key].dtype == array.dtype
        assert np.array_equal(again.weights[key], array)
    assert (again.own_name, again.provenance.format) == ("made", "pellucid")
    assert again.tokenizer is not None and again.tokenizer.encode("A D") == [0, 3]


def test_config_json_is_what_the_design_says(tmp_path: Path) -> None:
    write(tmp_path / "m", made(CONFIGS["llama"]))
    table = json.loads((tmp_path / "m" / "config.json").read_text())
    assert table["model_type"] == "pellucid"
    assert (table["format"], table["version"]) == ("pellucid-model", 1)
    assert ModelConfig.from_dict(table["config"]) == CONFIGS["llama"]
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_shards_and_types_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "a", made(CONFIGS["gpt2"]), dtype="bfloat16", shard_bytes=300)
    assert (tmp_path / "a" / INDEX).exists()
    narrow = read(tmp_path / "a")
    assert set(narrow.provenance.types.values()) == {"BF16"}
    write(tmp_path / "b", narrow)
    again = read(tmp_path / "b")
    assert again.provenance.types == narrow.provenance.types
    assert all(np.array_equal(again.weights[name], array) for name, array in narrow.weights.items())


def test_a_folder_that_holds_something_is_never_written_over(tmp_path: Path) -> None:
    write(tmp_path / "m", made(CONFIGS["llama"]))
    with pytest.raises(FileError, match="exists already"):
        write(tmp_path / "m", made(CONFIGS["gpt2"]))
    assert read(tmp_path / "m").config == CONFIGS["llama"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    first = made(CONFIGS["llama"])
    with pytest.raises(PellucidError):
        write(
            tmp_path / "m", dataclasses.replace(first, weights={**first.weights, "embed.weight": np.ones(3)})
        )
    assert list(tmp_path.iterdir()) == []


def changed(folder: Path, **changes: Any) -> Path:
    write(folder, made(CONFIGS["llama"]))
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(table | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 3}, "has model format 3; this version of Pellucid reads 1 and 2"),
        ({"version": 2}, "quantization is None"),
        ({"quantization": {"embed.weight": {"bits": 8, "group": 6, "minimums": False}}}, "'quantization'"),
        ({"version": None}, "has model format None"),
        ({"format": "other"}, "is not a model"),
        ({"name": 3}, "name is 3"),
        ({"config": []}, "has no config"),
        ({"config": {}}, "a config needs vocab_size"),
        ({"config": preset("gpt2").to_dict()}, "weight"),
        (
            {"config": preset("gpt2").to_dict() | {"norm": {"kind": "layer_norm", "eps": 10**400}}},
            "finite",
        ),
        ({"extra": 1}, "'extra'"),
    ],
)
def test_newer_and_damaged_folders_are_refused(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(FileError, match=complaint):
        open_model(changed(tmp_path / "m", **changes))


DAMAGE = {"config.json": damaged_json, ONE_FILE: damaged_safetensors}


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.torture)])
def test_damage_gives_only_file_errors(count: int, tmp_path: Path) -> None:
    write(tmp_path / "m", made(CONFIGS["llama"]))
    seen = attack([tmp_path / "m"], DAMAGE, count, seed=0)
    refused = sum(number for (_, found), number in seen.items() if found == "FileError")
    assert {found for _, found in seen} <= {"read", "FileError"} and refused > count // 2
