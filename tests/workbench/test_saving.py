"""What is saved is the model as it now is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.errors import FileError, PellucidError
from pellucid.workbench import Model
from tests.interop.gguf import made_up

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
    assert again.config == model.config and again.name == model.name
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    assert again.ids("the naïve cat") == model.ids("the naïve cat")
    assert again.stop == model.stop
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
    model = pellucid.load(places["ours"])
    with torch.no_grad():
        model.module.blocks[0].attn.q_proj.weight.mul_(-1)  # type: ignore[union-attr, operator]
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    name = "blocks.0.attn.q_proj.weight"
    assert np.array_equal(again.weights[name], -model.weights[name])
    model.save_pretrained(tmp_path / "theirs")
    assert torch.equal(pellucid.load(tmp_path / "theirs").logits(IDS), model.logits(IDS))


@pytest.mark.parametrize(
    ("dtype", "type"), [("float64", "F64"), ("float32", "F32"), ("bfloat16", "BF16"), ("float16", "F16")]
)
def test_a_made_engine_is_saved_in_its_own_type(
    dtype: str, type: str, places: Places, tmp_path: Path
) -> None:
    model = pellucid.load(places["ours"], dtype=dtype)
    assert model.module
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved", dtype=dtype)
    assert set(again.pretrained.source.types.values()) == {type}
    assert torch.equal(again.logits(IDS), model.logits(IDS))


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


def test_what_no_family_expresses_is_told_in_words(tmp_path: Path) -> None:
    model = Model(made_up.model(made_up.LLAMA | {"residual": "none"}))
    with pytest.raises(PellucidError, match="no Hugging Face family expresses this config"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
