"""Whatever a folder holds, reading it gives a model or one of our errors, and nothing else."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError, PellucidError
from pellucid.formats.huggingface.families import family_names
from pellucid.formats.huggingface.reading import read_config
from pellucid.formats.resolve import open_model
from pellucid.formats.safetensors_file import INDEX, ONE_FILE
from tests.formats.huggingface.models import FAMILIES, random_model
from tests.formats.mutations import damaged_bytes, damaged_json, damaged_safetensors
from tests.formats.tokenizers import bpe_file

Damage = Callable[[bytes, np.random.Generator], bytes]
DAMAGE: dict[str, Damage] = {
    "config.json": damaged_json,
    INDEX: damaged_json,
    ONE_FILE: damaged_safetensors,
    "generation_config.json": damaged_json,
    "tokenizer_config.json": damaged_json,
    "tokenizer.json": damaged_json,
    "chat_template.jinja": damaged_bytes,
}


def folder_of(place: Path, family: str, sharded: bool) -> Path:
    _, writer = random_model(family, 7)
    writer(place, "bfloat16", **({"max_shard_size": 500} if sharded else {}))
    bpe_file(place)
    (place / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    return place


def outcome(folder: Path) -> str:
    """What reading the folder and all of its weights comes to."""
    try:
        pretrained = open_model(folder)
        for array in pretrained.weights.values():
            array.sum()
    except PellucidError as error:
        return type(error).__name__
    return "read"


def attack(tmp_path: Path, count: int, seed: int) -> Counter[tuple[str, str]]:
    folders = [
        folder_of(tmp_path / f"{family}{sharded}", family, sharded)
        for family in FAMILIES
        for sharded in (False, True)
    ]
    assert {outcome(folder) for folder in folders} == {"read"}
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        folder = folders[rng.integers(len(folders))]
        names = [name for name in DAMAGE if (folder / name).exists()]
        name = names[rng.integers(len(names))]
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(DAMAGE[name](whole, rng))
        with np.errstate(all="ignore"):
            seen[name, outcome(folder)] += 1
        (folder / name).write_bytes(whole)
    return seen


def test_damaged_folders_give_only_our_errors(tmp_path: Path) -> None:
    seen = attack(tmp_path, 300, seed=0)
    assert {name for name, _ in seen} == set(DAMAGE)
    assert sum(count for (_, found), count in seen.items() if found == "FileError") > 150
    assert {found for _, found in seen} <= {"read", "FileError"}


@pytest.mark.torture
def test_twenty_thousand_damaged_folders_give_only_our_errors(tmp_path: Path) -> None:
    seen = attack(tmp_path, 20_000, seed=1)
    assert {found for _, found in seen} <= {"read", "FileError"}


@pytest.mark.parametrize(
    "name", ["mixtral", "gpt_neox", "gptj", "qwen3_moe", "deepseek_v3", "phi3", "llama4", "bloomz", "gpt_oss"]
)
def test_a_family_that_is_not_read_is_never_taken_for_another_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{name}"}}')
    with pytest.raises(FileError) as refused:
        read_config(tmp_path)
    said = str(refused.value)
    assert name in said and "Did you mean" not in said and all(known in said for known in family_names())
