"""transformers is asked about the same file where it can read it, and the words say what it read."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.formats import gguf
from pellucid.model import Model
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.outside import transformers_run
from pellucid.verification.checks.outside.huggingface import measure_transformers
from pellucid.verification.verdict import Finding
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import FAMILIES, random_model
from tests.model import folders

YARN = random_models.LLAMA | {"positions": random_models.YARN}


def measure(model: Any) -> Finding:
    return measure_transformers(Subject(pellucid.load(model) if isinstance(model, Path) else model))


def gguf_file(path: Path, config: dict[str, Any] = random_models.LLAMA, kind: str = "F32") -> Path:
    gguf.write(path, random_models.model(config), kind)
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_compared_step_by_step(family: str, tmp_path: Path) -> None:
    found = measure(folders.huggingface(tmp_path, family))
    assert found.verdict == "noise", found
    assert "from the same file" in found.measured
    count = int(found.measured.partition(" values")[0].rpartition(" ")[2])
    assert count >= 2 * 13, "too few steps were recorded"


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_scaling_of_rope_agrees(family: str, seed: int, tmp_path: Path) -> None:
    _, writer = random_model(family, seed)  # default, linear, yarn, llama3
    assert measure(writer(tmp_path, dtype="float32")).verdict == "noise"


@pytest.mark.parametrize("positions", [random_models.YARN, random_models.LLAMA3])
def test_scaling_that_transformers_drops_from_gguf_is_not_a_bug_of_ours(
    positions: dict[str, Any], tmp_path: Path
) -> None:
    found = measure(gguf_file(tmp_path / "m.gguf", random_models.LLAMA | {"positions": positions}))
    assert found.verdict == "noise"
    assert found.measured == (
        "transformers departs at angles; llama.cpp and the specification agree with ours"
    )


def test_without_llama_cpp_it_cannot_tell_who_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    found = measure(gguf_file(tmp_path / "m.gguf", YARN))
    assert (found.verdict, found.at) == ("cannot tell", "angles")
    assert "pip install xllamacpp" in found.measured
    assert not found.verdict.is_failure


def test_without_the_gguf_package_it_says_that_it_reads_our_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    found = measure(gguf_file(tmp_path / "m.gguf"))
    assert found.verdict == "noise"
    assert "from our export" in found.measured and "pip install gguf" in found.measured


def test_without_transformers_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.huggingface(tmp_path, "llama")
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = measure(folder)
    assert found.verdict == "skipped" and "pip install transformers" in found.measured


def test_a_folder_of_ours_is_compared_by_our_export(tmp_path: Path) -> None:
    found = measure(folders.ours(tmp_path / "ours"))
    assert found.verdict == "noise" and "from our export" in found.measured


def test_a_trained_model_is_compared_by_our_export_of_what_it_has_become(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    with torch.no_grad():
        model.module.get_parameter("embed.weight").mul_(1.5)
    found = measure(model)
    assert found.verdict == "noise", found
    assert "its weights are no longer the file's" in found.measured


def test_a_weight_that_differs_is_named_with_what_it_is_instead(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    names = ("blocks.1.mlp.gate_proj.weight", "blocks.1.mlp.up_proj.weight")
    swapped = {**model.weights, names[0]: model.weights[names[1]], names[1]: model.weights[names[0]]}
    found = measure(Model(replace(model.pretrained, weights=swapped)))
    assert (found.verdict, found.at) == ("BUG", names[0])
    assert f"it fits if it is {names[1]}, which is in its place" in found.message


def test_the_other_layout_of_rope_is_named_in_the_message(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    rope = replace(model.config.positions, layout="pairs")  # type: ignore[call-arg]
    found = measure(Model(replace(model.pretrained, config=replace(model.config, positions=rope))))
    assert (found.verdict, found.at) == ("BUG", "blocks.0.attn.q_proj.weight")
    assert "the other layout of RoPE (heads of 8 channels)" in found.message


def test_the_fast_engine_is_held_to_the_specification_where_transformers_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, "llama")))
    with torch.no_grad():
        subject.module(torch.float32, subject.layers).get_parameter("final_norm.weight").mul_(1.1)
    found = measure_transformers(subject)
    assert (found.verdict, found.at) == ("BUG", "logits")


def test_a_large_model_is_compared_by_its_first_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Subject, "is_large", True)
    for path in (
        folders.huggingface(tmp_path / "qwen2", "qwen2", num_hidden_layers=3),
        folders.huggingface(tmp_path / "gpt2", "gpt2", n_layer=3),
        gguf_file(tmp_path / "m.gguf", random_models.LLAMA | {"n_layer": 3}, "Q8_0"),
    ):
        found = measure(path)
        assert found.verdict == "noise", found
        assert "the first 2 blocks" in found.measured and "from the same file" in found.measured


def test_the_text_passes_a_window(tmp_path: Path) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, "mistral", sliding_window=50)))
    found = measure_transformers(subject)
    assert found.verdict == "noise"
    assert int(found.measured.partition(" tokens")[0].rpartition(" ")[2]) > 50


def test_positions_over_the_whole_context_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their table departs beyond the text that is read."""
    folder = folders.huggingface(tmp_path, "llama", max_position_embeddings=4096)
    right = transformers_run._rotary

    def wrong(model: Any) -> Any:
        rotary = right(model)

        def tables(x: Any, position_ids: Any) -> Any:
            return rotary(x, position_ids=torch.where(position_ids > 2000, position_ids - 2000, position_ids))

        return tables if rotary is not None else None

    assert measure(folder).verdict == "noise"
    monkeypatch.setattr(transformers_run, "_rotary", wrong)
    found = measure(folder)
    assert (found.verdict, found.at) == ("BUG", "angles")
    position = int(found.message.partition("position ")[2].partition(",")[0])
    assert position > 2000


def test_loud_weights_are_not_called_wrong(tmp_path: Path) -> None:
    """Scores of thousands: a pattern of zeros and ones, whose rounding is large where it is not 0."""
    model, writer = random_model("llama", 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(30.0)
    assert np.isfinite(model.lm_head.weight.detach().numpy()).all()
    assert measure(writer(tmp_path, dtype="float32")).verdict == "noise"
