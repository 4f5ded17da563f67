"""Quantized weights come back from our model folder bit for bit; parts that are wrong, missing or extra are
refused."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.dtypes import STORAGE
from pellucid.base.errors import FileError
from pellucid.base.quantized import QuantizedWeight, Scheme
from pellucid.formats.model_folder import read, write
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.formats.resolve import open_model
from pellucid.formats.safetensors_file import INDEX, ONE_FILE, StoredTensor, read_file, write_file
from tests.formats.mutations import attack
from tests.formats.test_model_folder import DAMAGE, made
from tests.reference.models import CONFIGS

INT4 = Scheme(4, 32)
UP = "blocks.0.mlp.up_proj.weight"


def quantized(config: str = "llama", scheme: Scheme = INT4, keep: tuple[str, ...] = ()) -> Pretrained:
    return quantize_pretrained(made(CONFIGS[config], np.float32), scheme, keep)


def with_weight(name: str, weight: QuantizedWeight) -> Pretrained:
    model = quantized()
    return dataclasses.replace(model, weights={**model.weights, name: weight})


def random_weight(bits: int, has_minimums: bool, shape: tuple[int, int], group: int) -> QuantizedWeight:
    rng, groups = np.random.default_rng(0), (shape[0], -(-shape[1] // group))
    low = 0 if has_minimums else -(2 ** (bits - 1))
    integers = rng.integers(low, low + 2**bits, shape).astype(np.int8)
    scales, minimums = rng.standard_normal((2, *groups)).astype(np.float16)
    return QuantizedWeight(integers, scales, minimums if has_minimums else None, group, bits)


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(8, 32), Scheme(4), Scheme(4, 32)], ids=str)
@pytest.mark.parametrize("config", ["gpt2", "llama", "guide"])
def test_integers_scales_and_minimums_come_back_bit_for_bit(
    tmp_path: Path, config: str, scheme: Scheme
) -> None:
    first = quantized(config, scheme, keep=("*.o_proj.weight",))
    write(tmp_path / "m", first)
    again = open_model(tmp_path / "m")
    assert list(again.weights) == list(first.config.parameters())
    for name, weight in first.weights.items():
        found = again.weights[name]
        if isinstance(weight, QuantizedWeight):
            assert isinstance(found, QuantizedWeight) and found.equals(weight)
            assert again.provenance.types[name] == f"INT{scheme.bits}"
        else:
            assert np.array_equal(found, weight) and again.provenance.types[name] == "F32"
    assert again.provenance.bytes == sum(weight.nbytes for weight in first.weights.values()) + sum(
        # a row of an odd number of nibbles has half a byte more
        weight.shape[0] / 2
        for weight in first.weights.values()
        if isinstance(weight, QuantizedWeight) and weight.bits == 4 and weight.shape[1] % 2
    )
    write(tmp_path / "again", again)
    assert (tmp_path / "again" / ONE_FILE).read_bytes() == (tmp_path / "m" / ONE_FILE).read_bytes()


@pytest.mark.parametrize(("bits", "has_minimums"), [(4, False), (4, True), (5, False), (5, True), (8, False)])
@pytest.mark.parametrize("group", [2, 4, 6])
def test_every_integer_of_every_width_is_stored(
    tmp_path: Path, bits: int, has_minimums: bool, group: int
) -> None:
    weight = random_weight(bits, has_minimums, CONFIGS["llama"].parameters()[UP], group)
    write(tmp_path / "m", with_weight(UP, weight))
    found = read(tmp_path / "m").weights[UP]
    assert isinstance(found, QuantizedWeight) and found.equals(weight)


def test_the_bytes_are_what_the_documentation_says(tmp_path: Path) -> None:
    write(tmp_path / "m", with_weight("blocks.1.mlp.down_proj.weight", four_bits()))
    stored = read_file(tmp_path / "m" / ONE_FILE, STORAGE)
    packed = stored["blocks.1.mlp.down_proj.weight.integers"]
    assert (packed.type, packed.shape) == ("U8", (6, 3))
    assert packed.bits()[:2].tolist() == [[0xF0, 0x87, 0x0A], [0x19, 0x98, 0x08]]
    assert "blocks.1.mlp.down_proj.weight" not in stored
    assert stored["blocks.1.mlp.down_proj.weight.scales"].type == "F16"
    table = json.loads((tmp_path / "m" / "config.json").read_text())["quantization"]
    assert table["blocks.1.mlp.down_proj.weight"] == {"bits": 4, "group": 5, "minimums": False}
    assert table["blocks.0.mlp.down_proj.weight"] == {"bits": 4, "group": 5, "minimums": True}


def four_bits() -> QuantizedWeight:
    """Rows of five integers: −8 7 −1 0 2, and 1 −7 0 1 0."""
    integers = np.array([[-8, 7, -1, 0, 2], [1, -7, 0, 1, 0]] * 3, np.int8)
    return QuantizedWeight(integers, np.ones((6, 1), np.float16), None, 5, 4)


def test_a_folder_of_floats_is_version_1_and_one_of_integers_version_2(tmp_path: Path) -> None:
    write(tmp_path / "floats", made(CONFIGS["llama"]))
    write(tmp_path / "integers", quantized())
    tables = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("floats", "integers")]
    assert [table["version"] for table in tables] == [1, 2]
    assert "quantization" not in tables[0]
    assert tables[1]["quantization"]["blocks.*.attn.q_proj.weight"] == {
        "bits": 4, "group": 6, "minimums": True,
    }  # fmt: skip


def test_shards_hold_parts(tmp_path: Path) -> None:
    first = quantized()
    write(tmp_path / "m", first, shard_bytes=200)
    assert (tmp_path / "m" / INDEX).exists()
    again = read(tmp_path / "m")
    assert all(np.array_equal(np.asarray(again.weights[n]), np.asarray(w)) for n, w in first.weights.items())


def change_table(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    table = json.loads(path.read_text())
    change(table["quantization"])
    path.write_text(json.dumps(table))


Q = "blocks.*.attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda table: table.clear(), "not a table"),
        (lambda table: table.update({"blocks.*.attn_norm.weight": table[Q]}), "never quantized"),
        (lambda table: table.update({"blocks.*.wrong.weight": table[Q]}), "no such weight"),
        (lambda table: table.update({"blocks.0.attn.q_proj.weight": table[Q]}), "twice"),
        (lambda table: table[Q].update(bits=3), "bits 3"),
        (lambda table: table[Q].update(bits=True), "bits True"),
        (lambda table: table[Q].update(bits=8), "8 bits with minimums"),
        (lambda table: table[Q].update(group=0), "group 0"),
        (lambda table: table[Q].update(group=7), "groups of 7 in rows of 6"),
        (lambda table: table[Q].update(group=3), "has the shape"),
        (lambda table: table[Q].update(minimums=None), "minimums None"),
        (lambda table: table[Q].update(minimums=False), "not one of this config's"),
        (lambda table: table[Q].update(extra=1), "'extra'"),
        (lambda table: table[Q].update(bits=5), "has the shape"),
        (lambda table: table.pop(Q), "not one of this config's"),
        (lambda table: table.update({Q: [4, 32]}), "not a table"),
    ],
)  # fmt: skip
def test_a_table_that_the_tensors_contradict_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], complaint: str
) -> None:
    write(tmp_path / "m", quantized())
    change_table(tmp_path / "m", change)
    with pytest.raises(FileError, match=complaint):
        read(tmp_path / "m")


def replace_tensors(folder: Path, **changes: StoredTensor | None) -> None:
    stored = read_file(folder / ONE_FILE, STORAGE)
    held = {name: dataclasses.replace(one, bits=np.array(one.bits()).copy) for name, one in stored.items()}
    held |= {name.replace("__", "."): one for name, one in changes.items()}  # type: ignore[misc]
    write_file(folder / ONE_FILE, {name: one for name, one in held.items() if one is not None})


@pytest.mark.parametrize("part", ["integers", "scales", "minimums"])
def test_missing_extra_and_wrong_parts_are_refused(tmp_path: Path, part: str) -> None:
    write(tmp_path / "m", quantized())
    whole = (tmp_path / "m" / ONE_FILE).read_bytes()
    name = f"embed.weight.{part}"
    own = read_file(tmp_path / "m" / ONE_FILE, STORAGE)[name]
    wrong = np.zeros(own.shape, np.float32)
    for change, complaint in (
        ({name: None}, "missing"),
        ({f"{name}s": own}, "not one of this config's"),
        ({"final_norm.weight.integers": own}, "not one of this config's"),
        ({name: StoredTensor("F32", own.shape, wrong.copy)}, "stored as 'F32'"),
        ({name: StoredTensor(own.type, own.shape[::-1], own.bits().T.copy)}, "has the shape"),
    ):
        replace_tensors(tmp_path / "m", **change)
        with pytest.raises(FileError, match=complaint):
            read(tmp_path / "m")
        (tmp_path / "m" / ONE_FILE).write_bytes(whole)


def test_integers_out_of_their_range_are_refused(tmp_path: Path) -> None:
    down = "blocks.1.mlp.down_proj.weight"
    write(tmp_path / "odd", with_weight(down, four_bits()))
    packed = np.array(read_file(tmp_path / "odd" / ONE_FILE, STORAGE)[f"{down}.integers"].bits())
    packed[4, 2] |= 0x10  # the nibble after the fifth integer
    replace_tensors(tmp_path / "odd", **{f"{down}.integers": StoredTensor("U8", packed.shape, packed.copy)})
    write(tmp_path / "wide", with_weight(UP, random_weight(5, True, CONFIGS["llama"].parameters()[UP], 6)))
    wide = np.full(CONFIGS["llama"].parameters()[UP], 32, np.int8)
    replace_tensors(tmp_path / "wide", **{f"{UP}.integers": StoredTensor("I8", wide.shape, wide.copy)})
    for folder, name, complaint in (
        ("odd", down, "after the last integer"),
        ("wide", UP, "not one of 5 bits"),
    ):
        with pytest.raises(FileError, match=complaint):
            read(tmp_path / folder).weights[name]


def test_damage_gives_only_file_errors(tmp_path: Path) -> None:
    write(tmp_path / "m", quantized())
    seen = attack([tmp_path / "m"], DAMAGE, 300, seed=0)
    refused = sum(number for (_, found), number in seen.items() if found == "FileError")
    assert {found for _, found in seen} <= {"read", "FileError"} and refused > 150
