"""Whatever a folder holds, reading it gives a model or one of our errors, and nothing else."""

from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.formats.huggingface.families import family_names
from pellucid.formats.huggingface.reading import read_config
from pellucid.formats.safetensors_file import INDEX, ONE_FILE
from tests.formats.huggingface.models import FAMILIES, random_model
from tests.formats.mutations import Damage, attack, damaged_bytes, damaged_json, damaged_safetensors, outcome
from tests.formats.tokenizers import bpe_file

DAMAGE: dict[str, Damage] = {
    "config.json": damaged_json,
    INDEX: damaged_json,
    ONE_FILE: damaged_safetensors,
    "generation_config.json": damaged_json,
    "tokenizer_config.json": damaged_json,
    "tokenizer.json": damaged_json,
    "chat_template.jinja": damaged_bytes,
}


def folders_of(place: Path) -> list[Path]:
    """A folder of each family with one file of weights and with several; all of them can be read."""
    folders = []
    for family in FAMILIES:
        _, writer = random_model(family, 7)
        for settings in ({}, {"max_shard_size": 500}):
            folders.append(writer(place / f"{family}{len(settings)}", "bfloat16", **settings))
            bpe_file(folders[-1])
            (folders[-1] / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert {outcome(folder) for folder in folders} == {"read"}
    return folders


def test_damaged_folders_give_only_our_errors(tmp_path: Path) -> None:
    seen = attack(folders_of(tmp_path), DAMAGE, 300, seed=0)
    assert {name for name, _ in seen} == set(DAMAGE)
    assert sum(count for (_, found), count in seen.items() if found == "FileError") > 150
    assert {found for _, found in seen} <= {"read", "FileError"}


@pytest.mark.torture
def test_twenty_thousand_damaged_folders_give_only_our_errors(tmp_path: Path) -> None:
    seen = attack(folders_of(tmp_path), DAMAGE, 20_000, seed=1)
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
