"""A second reader finds every weight, and each way of holding one that is not wrong passes."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import UsageError
from pellucid.base.quantized import SCHEMES, Scheme
from pellucid.formats import model_folder
from pellucid.formats.gguf.quants import BY_NAME
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.model import Model
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files import file_weights
from pellucid.verification.checks.files.file_weights import (
    describe_difference,
    measure_engine_weights,
    measure_file_weights,
)
from pellucid.verification.verdict import Finding
from tests.faults.loaded import quantized
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import FAMILIES, random_model
from tests.model import folders


def measure(path: Path) -> Finding:
    return measure_file_weights(Subject(pellucid.load(path)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_folder_of_any_type_in_shards(family: str, dtype: str, tmp_path: Path) -> None:
    _, writer = random_model(family, 3)
    found = measure(writer(tmp_path, dtype=dtype, max_shard_size="10KB"))
    assert found.verdict == "equal", found
    assert " weights" in found.measured


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16"])
def test_a_gguf_file_of_any_type(kind: str, tmp_path: Path) -> None:
    assert kind in BY_NAME
    quantized(kind)(tmp_path / "model.gguf")
    assert measure(tmp_path / "model.gguf").verdict == "equal"


def test_a_folder_of_ours(tmp_path: Path) -> None:
    assert measure(folders.ours(tmp_path / "ours")).verdict == "equal"


def test_a_model_converted_to_the_other_layout_of_rope_is_not_wrong(tmp_path: Path) -> None:
    halves = pellucid.load(folders.gguf_file(tmp_path / "model.gguf")).in_layout("halves")
    assert measure_file_weights(Subject(halves)).verdict == "equal"
    pairs = pellucid.load(folders.huggingface(tmp_path / "llama", "llama")).in_layout("pairs")
    assert measure_file_weights(Subject(pairs)).verdict == "equal"


def test_weights_that_were_trained_are_not_compared_with_the_file(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    with torch.no_grad():
        model.module.get_parameter("embed.weight").add_(1.0)
    found = measure_file_weights(Subject(model))
    assert found.verdict == "equal" and "1 weight changed since it was read" in found.measured


def test_one_bit_of_one_number_is_seen_and_named(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    name = "blocks.1.mlp.up_proj.weight"
    weight = model.weights[name].copy()
    weight[3, 5] = np.nextafter(weight[3, 5], np.float32(9))
    wrong = Model(replace(model.pretrained, weights={**model.weights, name: weight}))
    found = measure_file_weights(Subject(wrong))
    assert (found.verdict, found.at) == ("BUG", name)
    assert "[3,5]" in found.message and "1 of " in found.message


def test_without_the_gguf_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    found = measure(folders.gguf_file(tmp_path / "model.gguf"))
    assert found.verdict == "skipped" and "pip install gguf" in found.measured


def test_a_model_that_is_in_no_file_is_skipped() -> None:
    assert measure_file_weights(Subject(pellucid.load("abcd"))).verdict == "skipped"


def test_of_a_very_large_model_some_rows_are_compared_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_weights, "MOST_NUMBERS", 10_000)
    for path in (folders.gguf_file(tmp_path / "m.gguf"), folders.huggingface(tmp_path / "gpt2", "gpt2")):
        found = measure(path)
        assert found.verdict == "equal" and "one row in" in found.measured, found


def test_the_engine_holds_each_weight_rounded_once(tmp_path: Path) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, "qwen3")))
    found = measure_engine_weights(subject)
    assert found.verdict == "equal" and "F32, BF16, F16" in found.measured
    with torch.no_grad():
        subject.module(torch.float16).get_parameter("embed.weight")[2, 1] += 0.5
    found = measure_engine_weights(subject)
    assert (found.verdict, found.at) == ("BUG", "embed.weight") and "in F16" in found.message


def test_numbers_beyond_a_type_are_infinite_in_it_and_not_a_bug(tmp_path: Path) -> None:
    model = pellucid.load(folders.huggingface(tmp_path, "llama"))
    large = {**model.weights, "embed.weight": model.weights["embed.weight"] * np.float32(1e9)}
    assert measure_engine_weights(Subject(Model(replace(model.pretrained, weights=large)))).verdict == "equal"


def test_nan_equals_nan_and_zeros_differ_by_their_sign() -> None:
    nan = np.array([1.0, np.nan], np.float32)
    assert describe_difference(nan, nan.copy()) == ""
    assert "differ" in describe_difference(np.zeros(2, np.float32), -np.zeros(2, np.float32))
    assert "shape" in describe_difference(np.zeros(2), np.zeros(3))


# ---- quantized weights


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_the_blocks_of_a_gguf_file_are_compared_part_by_part(kind: str, tmp_path: Path) -> None:
    quantized(kind)(tmp_path / "model.gguf")
    subject = Subject(pellucid.load(tmp_path / "model.gguf", weights="file"))
    found = measure_file_weights(subject)
    assert found.verdict == "equal" and "quantized in the file" in found.measured, found
    assert not subject.requantized and subject.quantized
    assert measure_engine_weights(subject).verdict == "equal"


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_were_quantized_here_are_quantized_again(
    family: str, scheme: str, tmp_path: Path
) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, family), weights=scheme))
    found = measure_file_weights(subject)
    assert found.verdict == "equal" and "quantized here" in found.measured, found
    assert measure_engine_weights(subject).verdict == "equal"


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(4, 32), Scheme(8, 32)], ids=str)
def test_a_folder_of_quantized_weights_is_never_quantized_again(scheme: Scheme, tmp_path: Path) -> None:
    model = quantize_pretrained(random_models.model(random_models.LLAMA), scheme)
    model_folder.write(tmp_path / "model", model)
    for weights in (None, "int8", "int4", "file"):
        if weights in SCHEMES and Scheme.from_name(weights) != scheme:
            with pytest.raises(UsageError, match="quantized already"):
                pellucid.load(tmp_path / "model", weights=weights)
            continue
        subject = Subject(pellucid.load(tmp_path / "model", weights=weights))
        found = measure_file_weights(subject)
        assert found.verdict == "equal" and not subject.requantized, (weights, found)


def test_a_quantized_model_in_the_other_layout_of_rope_is_not_wrong(tmp_path: Path) -> None:
    quantized("Q4_1")(tmp_path / "model.gguf")
    for weights in ("file", "int8"):
        model = pellucid.load(tmp_path / "model.gguf", weights=weights)
        for layout in ("halves", "pairs"):
            assert measure_file_weights(Subject(model.in_layout(layout))).verdict == "equal"


@pytest.mark.parametrize("part", ["integers", "scales", "minimums"])
def test_a_part_that_the_engine_does_not_hold_is_named(part: str, tmp_path: Path) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, "llama"), weights="int4"))
    held = subject.module(torch.float32, subject.layers).quantized_weights()["blocks.1.attn.k_proj.weight"]
    getattr(held, part)[3, 0] += 1
    found = measure_engine_weights(subject)
    assert (found.verdict, found.at) == ("BUG", f"blocks.1.attn.k_proj.weight.{part}")


def test_a_quantized_weight_that_the_engine_holds_as_floats_is_named(tmp_path: Path) -> None:
    subject = Subject(pellucid.load(folders.huggingface(tmp_path, "llama"), weights="int8"))
    module = subject.module(torch.float32, subject.layers)
    floats = module.blocks[0].mlp.up_proj.weight.dequantize()
    del module.blocks[0].mlp.up_proj.weight
    module.blocks[0].mlp.up_proj.weight = torch.nn.Parameter(floats)
    found = measure_engine_weights(subject)
    assert (found.verdict, found.at) == ("BUG", "blocks.0.mlp.up_proj.weight")
