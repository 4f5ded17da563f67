"""A model with quantized weights does all that a model does, and says which weights it has."""

from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import UsageError
from pellucid.base.quantized import QuantizedWeight
from pellucid.model import Model
from tests.formats.gguf.test_reading_blocks import write

Places = dict[str, Path]
IDS = [3, 1, 4, 1, 5]


@pytest.fixture(params=["int8", "int4"])
def weights(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def floats(model: Model) -> Model:
    """The same model with the numbers of its weights as floats."""
    return Model(model.pretrained.to_floats(), model.device, model.dtype)


@pytest.mark.parametrize("kind", ["ours", "learned positions", "huggingface", "gguf"])
def test_it_computes_what_its_numbers_as_floats_compute(kind: str, weights: str, places: Places) -> None:
    model = pellucid.load(places[kind], weights=weights)
    same = floats(model)
    assert torch.equal(model.logits(IDS), same.logits(IDS))
    assert model.generate("the", 8) == same.generate("the", 8)
    assert model.score("the cat").logprobs == same.score("the cat").logprobs
    assert not torch.equal(model.logits(IDS), pellucid.load(places[kind]).logits(IDS))


def test_it_is_evaluated_traced_and_explained(places: Places, weights: str, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"], weights=weights, dtype="float64")
    (tmp_path / "text.txt").write_text("the cat and the hat")
    found, wanted = (str(one.evaluate(tmp_path / "text.txt")) for one in (model, floats(model)))
    assert found == wanted
    tape = model.trace([3, 1, 4]).tape
    with torch.no_grad():
        assert np.abs(tape["logits"][0] - model.logits([3, 1, 4]).numpy()).max() < 1e-10
    assert "logits" in str(model.explain([3, 1, 4], at="logits[t=2,v=5]"))
    reordered = model.in_layout("pairs").logits([3, 1, 4])
    assert float((reordered - model.logits([3, 1, 4])).abs().max()) < 1e-10


def test_its_repr_says_which_weights_it_has(places: Places, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", "llama", "Q4_1")
    for source, given, wanted in (
        (places["ours"], "int4", "int4 weights, float32"),
        (places["ours"], "int8", "int8 weights, float32"),
        (tmp_path / "m.gguf", "file", "Q4_1 weights, float32"),
    ):
        assert wanted in repr(pellucid.load(source, weights=given))
    for given in (None, "file"):
        assert "weights" not in repr(pellucid.load(places["ours"], weights=given))
    assert "weights" not in repr(pellucid.load(tmp_path / "m.gguf"))


def test_other_weights_are_refused_before_anything_is_opened() -> None:
    for given in ("int44", "int5", 4, ["int4"]):
        with pytest.raises(UsageError, match="weights must be one of int8, int4, file"):
            pellucid.load("no such model", weights=given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Did you mean 'int4'"):
        pellucid.load("abcd", weights="int44")


@pytest.mark.parametrize("touched", [False, True], ids=["unread", "with the fast engine made"])
def test_saved_and_loaded_it_has_the_same_integers(
    touched: bool, weights: str, places: Places, tmp_path: Path
) -> None:
    model = pellucid.load(places["ours"], weights=weights)
    if touched:
        assert model.module.to(torch.float64)
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    assert repr(again).count(f"{weights} weights") == 1
    for name in model.config.parameters():
        held, found = model.weights[name], again.weights[name]
        assert isinstance(held, QuantizedWeight) == isinstance(found, QuantizedWeight)
        assert held.equals(found) if isinstance(held, QuantizedWeight) else np.array_equal(held, found)
    assert torch.equal(again.logits(IDS), pellucid.load(places["ours"], weights=weights).logits(IDS))


def test_changed_integers_and_changed_floats_are_what_is_saved(places: Places, tmp_path: Path) -> None:
    model = pellucid.load(places["ours"], weights="int8")
    assert all(model.modified_weight(name) is None for name in model.config.parameters())
    with torch.no_grad():
        model.module.quantized_weights()["embed.weight"].integers[7] = 0
        model.module.final_norm.weight *= 2
    changed = [name for name in model.config.parameters() if model.modified_weight(name) is not None]
    assert changed == ["embed.weight", "final_norm.weight"]
    model.save(tmp_path / "saved")
    again = pellucid.load(tmp_path / "saved")
    assert torch.equal(again.logits(IDS), model.logits(IDS))
    assert isinstance(again.weights["embed.weight"], QuantizedWeight)
    assert not np.asarray(again.weights["embed.weight"])[7].any()


def test_transformers_gets_the_numbers_as_floats(places: Places, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = pellucid.load(places["huggingface"], weights="int4")
    model.save_pretrained(tmp_path / "saved")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert float((theirs(torch.tensor([IDS])).logits[0] - model.logits(IDS)).abs().max()) < 1e-4


def test_a_quantized_folder_is_not_trained_but_its_floats_are(places: Places) -> None:
    model = pellucid.load(places["ours"], weights="int8")
    with pytest.raises(UsageError, match="quantized"):
        model.module.train()
    assert floats(model).module.train()
