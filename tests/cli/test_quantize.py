"""`pellucid quantize`: a folder, a bill, a picture; the numbers printed are those of the file."""

import json
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.base.formatting import format_number
from pellucid.base.quantized import QuantizedWeight
from pellucid.model import Model
from tests.cli.commands import Shell
from tests.evaluation.small_models import make_model

FEW = ("--bill", "--tokens", "60")


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model(d_model=64, n_head=2, n_kv_head=2, d_head=32, d_ff=64)


@pytest.fixture
def shell(shell: Shell, model: Model, tmp_path: Path) -> Shell:
    model.save(tmp_path / "a")
    return shell


def test_the_folder_runs_and_its_size_is_printed(shell: Shell, tmp_path: Path) -> None:
    done = shell("quantize", "a", "--bits", "8", "-o", "b")
    assert done.code == 0, done.err
    assert "bits a weight" in done.out and "run it: pellucid generate b" in done.out
    assert shell("generate", "b", "the cat", "--max-new-tokens", "2").code == 0
    found = pellucid.load(tmp_path / "b").pretrained
    assert isinstance(found.weights["embed.weight"], QuantizedWeight)
    assert not (tmp_path / "b" / "bill.json").exists()


def test_keep_keeps(shell: Shell, tmp_path: Path) -> None:
    line = ("quantize", "a", "--bits", "4", "--keep", "embed.*", "--keep", "blocks.1.*", "-o", "b")
    assert shell(*line).code == 0
    ours, theirs = (pellucid.load(tmp_path / name).pretrained.weights for name in "ab")
    for name in ours:
        is_kept = ours[name].ndim == 1 or name.startswith(("embed.", "blocks.1.", "positions."))
        assert isinstance(theirs[name], QuantizedWeight) is not is_kept, name
        assert np.array_equal(ours[name], theirs[name]) is is_kept, name


def test_the_bill_in_the_folder_the_json_and_the_table_are_one(shell: Shell, tmp_path: Path) -> None:
    table = shell("quantize", "a", "--bits", "4", *FEW, "-o", "b")
    assert table.code == 0, table.err
    total = json.loads((tmp_path / "b" / "bill.json").read_bytes())["total"]
    assert f"KL(float32 ‖ quantized): {format_number(total['kl']['value'], 3)}" in table.out
    printed = shell("quantize", "a", "--bits", "4", *FEW, "--json")
    assert printed.code == 0
    assert json.loads(printed.out) == json.loads((tmp_path / "b" / "bill.json").read_bytes())


def test_json_alone_goes_to_standard_output(shell: Shell) -> None:
    done = shell("quantize", "a", "--bits", "8", *FEW, "--json", "-o", "b")
    assert json.loads(done.out)["scheme"] == "int8, per channel" and "run it" in done.err


def test_a_text_and_a_file_are_measured_on(shell: Shell, tmp_path: Path) -> None:
    text = "the cat sat on the mat and the dog sat on the cat"
    (tmp_path / "t.txt").write_text(text)
    found = [
        json.loads(shell("quantize", "a", "--bits", "8", "--bill", "--json", "--on", on).out)
        for on in (text, "t.txt")
    ]
    assert found[0]["total"]["kl"] == found[1]["total"]["kl"]
    assert [one["sample"] for one in found] == ["the given text", "t.txt"]


@pytest.mark.parametrize("name", ["bill.svg", "bill.html"])
def test_a_picture_is_drawn(shell: Shell, tmp_path: Path, name: str) -> None:
    line = ("quantize", "a", "--bits", "4", *FEW, "--plot", name)
    assert shell(*line).code == 0 and (tmp_path / name).stat().st_size > 1000
    assert shell(*line).code == 2 and shell(*line, "--force").code == 0


def test_a_quantized_model_is_not_quantized_again(shell: Shell) -> None:
    assert shell("quantize", "a", "--bits", "8", "-o", "b").code == 0
    done = shell("quantize", "b", "--bits", "4", "-o", "c")
    assert done.code == 2 and "quantized already" in done.err
    done = shell("quantize", "b", "--weights", "file", "--bill", "--against", "a", "--tokens", "60", "--json")
    assert done.code == 0 and json.loads(done.out)["total"]["kl"]["value"] > 0


@pytest.mark.parametrize(
    "place", ["evaluation.quantization.bill.measure_costs", "formats.model_folder.write_table"]
)
def test_an_interrupt_leaves_nothing_half_written(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"pellucid.{place}", interrupt)
    assert shell("quantize", "a", "--bits", "8", *FEW, "-o", "b").code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
