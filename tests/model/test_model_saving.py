"""What is saved is the model as it now is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import FileError, PellucidError, UsageError
from pellucid.formats import model_folder
from pellucid.model import Model
from tests.formats.gguf import random_models

Places = dict[str, Path]
IDS = [3, 1, 4, 1, 5]


def theirs(folder: Path, **more: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **more).eval()


@pytest.mark.parametrize("touched", [False, True], ids=["unread", "with the fast engine made"])
@pytest.mark.parametrize("kind", ["ours", "learned positions", "huggingface", "gguf"])
def test_saved_and_loaded_it_is_the_same_model(
    kind: str, touched: bool, places: Places, tmp_path: Path
) -> None:
    model = pellucid.load(places[kind])
    if touched:
        assert model.module
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    assert again.config == model.config and again.pretrained.own_name == model.pretrained.stored_name
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    assert again.encode("the naïve cat") == model.encode("the naïve cat")
    assert again.eos_ids == model.eos_ids
    assert again.generate("the", 8) == model.generate("the", 8)


def test_the_teaching_model_can_be_saved(tmp_path: Path) -> None:
    pellucid.load("abcd").save(tmp_path / "abcd")
    again = pellucid.load(tmp_path / "abcd")
    assert again.trace("A B").tape["probs"][0, 1, 2] == pytest.approx(0.32384, abs=1e-5)


@pytest.mark.parametrize("kind", ["ours", "learned positions", "gguf"])
def test_transformers_loads_what_save_pretrained_writes(kind: str, places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places[kind])
    model.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        found = theirs(tmp_path / "saved")(torch.tensor([IDS])).logits[0]
    assert float((found - model.logits(IDS)).abs().max()) < 1e-4
    again = pellucid.load(
        tmp_path / "saved"
    )  # of a GGUF file in the other layout, so sums are in another order
    assert float((again.logits(IDS) - model.logits(IDS)).abs().max()) < 1e-4


def test_an_edit_of_the_module_is_saved(places: Places, tmp_path: Path) -> None:
    model, name = pellucid.load(places["ours"]), "blocks.0.attn.q_proj.weight"
    with torch.no_grad():
        model.module.get_parameter(name).mul_(-1)
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    assert np.array_equal(again.weights[name], -pellucid.load(places["ours"]).weights[name])
    model.save_pretrained(tmp_path / "theirs")
    assert torch.equal(pellucid.load(tmp_path / "theirs").logits(IDS), model.logits(IDS))


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("stored", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_what_was_only_run_is_saved_bit_for_bit(stored: str, dtype: str, tmp_path: Path) -> None:
    model_folder.write(tmp_path / "given", random_models.model(random_models.LLAMA), stored)
    model = pellucid.load(tmp_path / "given", dtype=dtype)
    model.logits(IDS)
    model.save(tmp_path / "saved")
    weights = (files(tmp_path / name)["model.safetensors"] for name in ("given", "saved"))
    assert next(weights) == next(weights)


@pytest.mark.parametrize(
    ("dtype", "type"), [("float64", "F64"), ("float32", "F32"), ("bfloat16", "BF16"), ("float16", "F16")]
)
def test_what_was_trained_is_saved_in_its_own_type(
    dtype: str, type: str, places: Places, tmp_path: Path
) -> None:
    model, name = pellucid.load(places["ours"], dtype=dtype), "embed.weight"
    with torch.no_grad():
        model.module.get_parameter(name).add_(0.1)
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved", dtype=dtype)
    kept = dict(model.pretrained.provenance.types)
    assert again.pretrained.provenance.types == kept | {name: type}
    assert torch.equal(again.logits(IDS), model.logits(IDS))


def test_a_module_in_another_type_is_another_model(places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"])
    model.module.to(torch.bfloat16)
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved", dtype="bfloat16")
    assert set(again.pretrained.provenance.types.values()) == {"BF16"}
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    assert all(np.array_equal(again.weights[name], value) for name, value in model.weights.items())


def test_force_replaces_a_model_and_nothing_else(places: Places, tmp_path: Path) -> None:
    model, other = pellucid.load(places["ours"]), pellucid.load(places["gguf"])
    model.save(tmp_path / "saved")
    other.save(tmp_path / "saved", force=True)
    assert pellucid.load(tmp_path / "saved").pretrained.own_name == other.pretrained.own_name
    model.save_pretrained(tmp_path / "saved", force=True)
    assert near_to(pellucid.load(tmp_path / "saved"), model)
    (tmp_path / "saved" / "thesis.txt").write_text("years of work")
    before = files(tmp_path / "saved")
    with pytest.raises(FileError, match=r"it holds thesis\.txt"):
        model.save(tmp_path / "saved", force=True)
    assert files(tmp_path / "saved") == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def near_to(a: Model, b: Model) -> bool:
    return float((a.logits(IDS) - b.logits(IDS)).abs().max()) < 1e-4


def test_a_model_does_not_replace_what_it_is_read_from(tmp_path: Path) -> None:
    model_folder.write(tmp_path / "given", random_models.model(random_models.LLAMA))
    before = files(tmp_path / "given")
    with pytest.raises(FileError, match="read from there"):
        pellucid.load(tmp_path / "given").save(tmp_path / "given", force=True)
    assert files(tmp_path / "given") == before


def test_a_replacement_that_fails_leaves_what_was_there(places: Places, tmp_path: Path) -> None:
    pellucid.load(places["ours"]).save(tmp_path / "saved")
    before = files(tmp_path / "saved")
    with pytest.raises(PellucidError, match="no Hugging Face family"):
        Model(random_models.model(random_models.LLAMA | {"residual": "none"})).save_pretrained(
            tmp_path / "saved", True
        )
    assert files(tmp_path / "saved") == before and [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_the_keywords_of_habit_are_taken_where_they_change_nothing(places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"])
    model.save_pretrained(tmp_path / "saved", safe_serialization=True, max_shard_size="5GB")
    with pytest.raises(UsageError, match="safetensors alone"):
        model.save_pretrained(tmp_path / "other", safe_serialization=False)
    with pytest.raises(TypeError):
        model.save_pretrained(tmp_path / "other", push_to_hub=True)  # type: ignore[call-arg]
    assert not (tmp_path / "other").exists()


def test_tied_weights_are_saved_once(places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"])
    assert model.module
    model.save(tmp_path / "saved")
    assert "unembed.weight" not in pellucid.load(tmp_path / "saved").weights


def test_nothing_is_overwritten_and_no_half_of_a_model_is_left(places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"])
    model.save(tmp_path / "saved")
    before = sorted((file.name, file.read_bytes()) for file in (tmp_path / "saved").iterdir())
    with pytest.raises(FileError, match="saved"):
        model.save(tmp_path / "saved")
    assert sorted((file.name, file.read_bytes()) for file in (tmp_path / "saved").iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_what_no_family_expresses_is_reported_in_words(tmp_path: Path) -> None:
    model = Model(random_models.model(random_models.LLAMA | {"residual": "none"}))
    with pytest.raises(PellucidError, match="no Hugging Face family"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
