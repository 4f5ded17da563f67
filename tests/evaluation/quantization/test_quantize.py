"""Quantized models and their bills: what is kept, what is compared with what, and what is refused."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import ConfigError, FileError, PellucidError, UsageError
from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.evaluation import bootstrap
from pellucid.evaluation.quantization import costs, divergence, sample
from pellucid.evaluation.quantization.quantize import (
    BILL,
    TOKENS,
    compute_bill,
    describe_cost,
    describe_written,
    make_quantized,
    resolve_scheme,
    write_quantized,
)
from pellucid.formats import gguf, model_folder
from pellucid.formats.pretrained import as_lazy
from pellucid.model import Model
from pellucid.parts.positions.rope import Rope
from tests.evaluation.quantization.small_bills import make_exact
from tests.evaluation.small_models import make_model
from tests.formats.gguf import random_models

KEPT = "blocks.0.mlp.down_proj.weight"


def wide_model(**changes: Any) -> Model:
    """A model whose rows fill blocks of 32."""
    return make_model(**({"d_model": 64, "n_head": 2, "n_kv_head": 2, "d_head": 32, "d_ff": 64} | changes))


def write_gguf(path: Path) -> Model:
    """A GGUF file with Q8_0 matrices; returns the model that it was made from."""
    original = random_models.model(random_models.LLAMA)
    gguf.write(path, original, "Q8_0")
    return Model(original)


# ---- quantize


@pytest.mark.parametrize(
    ("bits", "group", "scheme"),
    [
        (8, None, Scheme(8)),
        (4, None, Scheme(4, 32)),
        (4, "row", Scheme(4)),
        (8, "row", Scheme(8)),
        (8, 64, Scheme(8, 64)),
    ],
)
def test_every_matrix_is_quantized_by_its_scheme_and_vectors_are_not(
    bits: int, group: Any, scheme: Scheme
) -> None:
    model = wide_model()
    found = pellucid.quantize(model, bits=bits, group=group)
    for name, shape in model.config.parameters().items():
        weight = found.pretrained.weights[name]
        if len(shape) == 2:
            wanted = quantize(model.weights[name], scheme)
            assert isinstance(weight, QuantizedWeight) and (weight.bits, weight.group) == (bits, wanted.group)
            assert np.array_equal(weight.integers, wanted.integers)
        else:
            assert np.array_equal(np.asarray(weight), model.weights[name])
    assert resolve_scheme(model.pretrained, bits, group) == scheme


def test_what_is_kept_is_the_same_number_for_number(tmp_path: Path) -> None:
    model = wide_model()
    found = pellucid.quantize(model, bits=4, keep=[KEPT, "embed.*"])
    found.save(tmp_path / "saved")
    for one in (found, pellucid.load(tmp_path / "saved")):
        for name in (KEPT, "embed.weight"):
            assert not isinstance(one.pretrained.weights[name], QuantizedWeight)
            assert np.array_equal(one.pretrained.weights[name], model.weights[name])
        assert isinstance(one.pretrained.weights[KEPT.replace("down", "up")], QuantizedWeight)


def test_a_quantized_model_computes_with_the_dequantized_weights() -> None:
    model = wide_model()
    found = pellucid.quantize(model, bits=4)
    floats = model.replace(weights={name: np.asarray(w) for name, w in found.pretrained.weights.items()})
    assert np.allclose(found.logits([1, 2, 3]).numpy(), floats.logits([1, 2, 3]).numpy(), atol=1e-4)
    assert not np.allclose(found.logits([1, 2, 3]).numpy(), model.logits([1, 2, 3]).numpy(), atol=1e-2)


def test_what_was_trained_is_quantized() -> None:
    import torch

    model = wide_model()
    with torch.no_grad():
        model.module.get_parameter(KEPT).add_(1.0)
    found = pellucid.quantize(model, bits=8)
    assert np.abs(np.asarray(found.pretrained.weights[KEPT]) - model.weights[KEPT]).max() < 0.05


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bits": 3}, ["8 or 4", "3"]),
        ({"bits": "8"}, ["bits", "'8'"]),
        ({"group": 33}, ["32", "33"]),
        ({"group": 0}, ["32", "0"]),
        ({"group": "rows"}, ["'row'", "rows"]),
        ({"group": 128}, ["128", "64", "--group row"]),
        ({"keep": ["blocks.0.mlp.dwn_proj.weight"]}, ["matches no name", f"Did you mean {KEPT!r}"]),
        ({"keep": [3]}, ["keep"]),
    ],
)
def test_a_wrong_request_says_what_would_work(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as found:
        pellucid.quantize(wide_model(), **arguments)
    assert all(word in str(found.value) for word in words), found.value


def test_a_quantized_model_is_not_quantized_again(tmp_path: Path) -> None:
    pellucid.quantize(wide_model()).save(tmp_path / "saved")
    for model in (pellucid.quantize(wide_model()), pellucid.load(tmp_path / "saved")):
        with pytest.raises(UsageError, match="quantized already"):
            pellucid.quantize(model, bits=4)
        with pytest.raises(UsageError, match="quantized already"):
            compute_bill(model, 4)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_refused_by_its_name(number: float, tmp_path: Path) -> None:
    model = wide_model()
    broken = np.array(model.weights[KEPT])
    broken[1, 2] = number
    model = model.replace(weights={**model.weights, KEPT: broken})
    with pytest.raises(PellucidError, match=KEPT):
        write_quantized(tmp_path / "new", make_quantized(model, 8, None, [], None))
    assert not list(tmp_path.iterdir())
    with pytest.raises(PellucidError, match=KEPT):
        compute_bill(model, 8, on="A cat sat.")


def test_a_preset_without_weights_is_refused() -> None:
    with pytest.raises(FileError, match="no weights"):
        pellucid.quantize("gpt2")


# ---- the bill


def test_the_bill_of_a_quantized_file_says_what_it_cannot_know(tmp_path: Path) -> None:
    """The reference is the file's own blocks: nothing differs, whatever they cost the original."""
    write_gguf(tmp_path / "a.gguf")
    model = pellucid.load(tmp_path / "a.gguf")
    bill = compute_bill(model, weights="file", tokens=50)
    assert bill.total.kl.value == 0 and bill.costs.n_exact == len(bill.matrices)
    assert {one.type for one in bill.matrices} == {"Q8_0"} and "Q8_0" in bill.scheme
    assert f"{bill.bits_per_weight:.3g} bits" in describe_cost(
        pellucid.load(tmp_path / "a.gguf", weights="file")
    )
    assert all(one.bits_per_weight == 8.5 for one in bill.matrices)
    (note,) = bill.notes
    assert "cannot be known from the file alone" in note and "--against" in note
    (note,) = compute_bill(model, 4, tokens=50).notes
    assert "widened to float32" in note and "cannot be known from the file alone" in note


def test_the_original_gives_what_the_file_s_quantization_cost(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "a.gguf")
    model.save(tmp_path / "original")
    stored = pellucid.load(tmp_path / "a.gguf")
    bill = compute_bill(stored, weights="file", against=tmp_path / "original", tokens=50)
    assert bill.total.kl.value > 0 and not bill.notes and "original" in bill.reference
    original = model.in_layout("pairs").weights  # GGUF has the other layout
    for one in bill.matrices:
        error = np.linalg.norm(stored.weights[one.name] - original[one.name])
        assert one.relative_error == pytest.approx(error / np.linalg.norm(original[one.name]), rel=1e-4)


def test_the_bill_of_a_saved_model_against_its_original_is_that_of_quantizing_it(tmp_path: Path) -> None:
    model = wide_model()
    model.save(tmp_path / "original")
    pellucid.quantize(model, bits=4).save(tmp_path / "small")
    saved = compute_bill(
        pellucid.load(tmp_path / "small"), weights="file", against=tmp_path / "original", tokens=50
    )
    direct = compute_bill(model, 4, tokens=50)
    assert saved.total == direct.total and saved.costs == direct.costs and saved.bytes == direct.bytes


def test_the_layout_of_rotary_positions_does_not_count_as_an_error(tmp_path: Path) -> None:
    config = dataclasses.replace(wide_model().config, positions=Rope(layout="halves"))
    model = Model.from_config(config, tokenizer=wide_model().tokenizer)
    model.save(tmp_path / "halves")
    bill = compute_bill(make_exact(model).in_layout("pairs"), 8, against=tmp_path / "halves", tokens=30)
    rotated = [one for one in bill.matrices if "q_proj" in one.name]
    assert rotated and all(one.relative_error < 0.02 for one in rotated)


def test_another_model_is_not_an_original(tmp_path: Path) -> None:
    make_model().save(tmp_path / "other")
    with pytest.raises(ConfigError, match="not the original"):
        compute_bill(wide_model(), 8, against=tmp_path / "other", tokens=50)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "8 or 4"),
        ({"weights": "file"}, "no quantized weights"),
        ({"weights": "file", "bits": 8}, "omit bits"),
        ({"weights": "int8"}, "--bits 8"),
        ({"weights": "int9"}, "file"),
        ({"bits": 8, "on": ""}, "two tokens"),
        ({"bits": 8, "tokens": 0}, "tokens"),
        ({"bits": 8, "on": "nowhere.txt"}, "does not exist"),
    ],
)
def test_a_bill_that_cannot_be_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(PellucidError, match=words):
        compute_bill(wide_model(), **arguments)


def test_the_page_has_the_numbers_of_the_bill() -> None:
    page = (Path(__file__).parents[3] / "docs" / "quantization.md").read_text("utf-8")
    shown = dict(re.findall(r"<!-- (\w+) -->([^<]*)<!-- /\1 -->", page))
    wanted = {
        "tokens": TOKENS,
        "new": divergence.NEW_TOKENS,
        "span": sample.SPAN,
        "spans": bootstrap.FEWEST_UNITS,
        "most": costs.MOST_TOKENS,
        "fewest": costs.FEWEST_TOKENS,
        "operations": costs.OPERATIONS,
    }
    assert {name: float(shown[name].replace(",", "")) for name in wanted} == wanted


# ---- the folder


def test_the_folder_has_the_model_and_its_bill(tmp_path: Path) -> None:
    model = wide_model()
    quantized, bill = make_quantized(model, 8, None, [], None), compute_bill(model, 8, tokens=50)
    seen = list[tuple[str, int, int | None]]()
    write_quantized(tmp_path / "new", quantized, bill, progress=lambda *now: seen.append(now))
    assert (tmp_path / "new" / BILL).is_file() and seen[-1][1] == seen[-1][2] == bill.n_weights
    found = pellucid.load(tmp_path / "new")
    assert as_lazy(found.pretrained.weights).types.keys() == as_lazy(quantized.weights).types.keys()
    assert found.pretrained.provenance.bytes == bill.bytes
    with pytest.raises(FileError, match="exists already"):
        write_quantized(tmp_path / "new", quantized)
    write_quantized(tmp_path / "new", quantized, force=True)
    assert not (tmp_path / "new" / BILL).exists()


def test_the_summary_has_bytes_before_and_after_and_a_command(tmp_path: Path) -> None:
    model = wide_model()
    write_quantized(tmp_path / "my model", make_quantized(model, 8, None, [], None))
    size = model_folder.read(tmp_path / "my model").provenance.bytes
    first, second = describe_written(model.pretrained, tmp_path / "my model")
    count = sum(array.size for array in model.weights.values())
    assert f"{8 * size / count:.2f} bits a weight" in first and "kB in float32" in first
    assert "pellucid generate '" in second and "my model'" in second


# ---- one line


def test_the_line_says_how_weights_are_held_and_what_that_cost(tmp_path: Path) -> None:
    model = wide_model()
    assert describe_cost(model) == ""
    bill = compute_bill(model, 8, tokens=50)
    write_quantized(tmp_path / "new", make_quantized(model, 8, None, [], None), bill)
    line = describe_cost(pellucid.load(tmp_path / "new"))
    assert line.startswith("weights: int8, ") and f"{bill.bits_per_weight:.3g} bits a weight" in line
    assert f"KL {bill.total.kl.value:.2g}" in line and f"{bill.total.flips.value:.1%} top-1 changes" in line
    (tmp_path / "new" / BILL).write_text("{}")
    assert "cannot be read" in describe_cost(pellucid.load(tmp_path / "new"))
    (tmp_path / "new" / BILL).unlink()
    assert describe_cost(pellucid.load(tmp_path / "new")).endswith("bits a weight")
    assert describe_cost(pellucid.quantize(model)).endswith(f"{bill.bits_per_weight:.3g} bits a weight")


def test_the_line_of_a_quantized_file_says_whether_its_blocks_are_used(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    assert (
        describe_cost(pellucid.load(tmp_path / "a.gguf")) == "weights: float32, widened from the file's Q8_0"
    )
    again = describe_cost(pellucid.load(tmp_path / "a.gguf", weights="int4"))
    assert again.startswith("weights: int4, ") and again.endswith("quantized from the file's Q8_0, widened")
    line = describe_cost(pellucid.load(tmp_path / "a.gguf", weights="file"))
    assert line.startswith("weights: the file's own Q8_0 blocks, ") and line.endswith("bits a weight")
