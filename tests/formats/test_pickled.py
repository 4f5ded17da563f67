"""Pickled weights are imported without ever being run: a payload leaves no trace but an error."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.formats.huggingface import read
from pellucid.formats.pickled import import_pickled, read_file
from tests.formats.huggingface.models import apart, float64_logits, our_logits, random_ids, random_model

SHARDED = "pytorch_model-0000{}-of-00002.bin"


def pickled_folder(folder: Path, family: str = "gpt2", dtype: str = "bfloat16", sharded: bool = False) -> Any:
    """A folder as it was written before safetensors: one .bin or two, and no safetensors."""
    import torch

    model, writer = random_model(family, 3, tie_word_embeddings=True)
    writer(folder, dtype)
    (folder / "model.safetensors").unlink()
    state = dict(model.to(getattr(torch, dtype)).state_dict())  # with lm_head.weight, tied
    if not sharded:
        torch.save(state, folder / "pytorch_model.bin")
        return model
    names = list(state)
    placed = {name: SHARDED.format(1 + (place % 2)) for place, name in enumerate(names)}
    for shard in set(placed.values()):
        torch.save({name: state[name] for name in names if placed[name] == shard}, folder / shard)
    index = {"metadata": {}, "weight_map": placed}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return model


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_imported_folder_is_the_same_model(tmp_path: Path, family: str, sharded: bool) -> None:
    model = pickled_folder(tmp_path / "old", family, "float64", sharded)
    with pytest.raises(FileError, match="`pellucid import`"):
        read(tmp_path / "old")
    import_pickled(tmp_path / "old", tmp_path / "new")
    pretrained = read(tmp_path / "new")
    ids = random_ids(0, pretrained.config)
    assert apart(our_logits(pretrained, ids), float64_logits(model, ids)) <= 1e-10
    assert "unembed.weight" not in pretrained.weights


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_types_and_numbers_are_kept(tmp_path: Path, dtype: str) -> None:
    model = pickled_folder(tmp_path / "old", dtype=dtype)
    import_pickled(tmp_path / "old" / "pytorch_model.bin", tmp_path / "new")  # the file itself, as well
    pretrained = read(tmp_path / "new")
    wanted = model.state_dict()["transformer.wte.weight"].double().numpy()
    assert np.array_equal(pretrained.weights["embed.weight"], wanted)
    assert set(pretrained.provenance.types.values()) == {
        {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[dtype]
    }


def test_the_format_before_zip_is_read_too(tmp_path: Path) -> None:
    import torch

    torch.save({"a": torch.ones(2, 3)}, tmp_path / "a.bin", _use_new_zipfile_serialization=False)
    assert np.array_equal(read_file(tmp_path / "a.bin")["a"].read(), np.ones((2, 3)))


class Call:
    """Something that pickles as a call."""

    def __init__(self, function: Callable[..., Any], *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given


def _short(text: str) -> bytes:
    return b"\x8c" + struct.pack("B", len(text.encode())) + text.encode()


def _payloads(canary: Path) -> dict[str, bytes]:
    """Twelve ways in which a pickle asks for a call; each would make the canary."""
    import builtins
    import pathlib
    import runpy
    import subprocess

    command, source = f"touch {canary}", f"open({str(canary)!r}, 'w').close()"
    script = canary.parent / "script.py"
    script.write_text(source)
    touch = f"cposix\nsystem\n(S'{command}'\n".encode()
    two = b"\x80\x02"
    state = b"\x80\x04" + _short("builtins") + _short("exec") + b"\x93" + _short(source)
    return {
        "REDUCE os.system": pickle.dumps(Call(os.system, command), 2),
        "REDUCE eval": pickle.dumps(Call(builtins.eval, source), 2),
        "REDUCE exec": pickle.dumps(Call(builtins.exec, source), 2),
        "REDUCE subprocess": pickle.dumps(Call(subprocess.check_call, ["touch", str(canary)]), 2),
        "REDUCE Path.touch": pickle.dumps(Call(pathlib.Path.touch, canary), 4),
        "REDUCE runpy": pickle.dumps(Call(runpy.run_path, str(script)), 2),
        "REDUCE in a table": pickle.dumps({"a": [Call(os.system, command)]}, 2),
        "GLOBAL, old form": touch + b"tR.",
        "INST": f"(S'{command}'\niposix\nsystem\n.".encode(),
        "OBJ": f"(cposix\nsystem\nS'{command}'\no.".encode(),
        "STACK_GLOBAL": state + b"\x85R.",
        "NEWOBJ": two + b"csubprocess\nPopen\n(S'touch'\nS'" + str(canary).encode() + b"'\nl\x85\x81.",
        "BUILD": two + b"ctorch.nn.modules.module\nModule\n)\x81}(S'__setstate__'\ncposix\nsystem\nubS'"
        + command.encode() + b"'\nb.",
        "nested torch.load": pickle.dumps(Call(_unsafe_load(), str(canary.parent / "inner.bin")), 2),
    }  # fmt: skip


def _unsafe_load() -> Callable[..., Any]:
    return pickle.loads


def as_zip(payload: bytes) -> bytes:
    """A payload in the place of data.pkl in a file of `torch.save`."""
    import torch

    whole = io.BytesIO()
    torch.save({"a": torch.ones(2)}, whole)
    made = io.BytesIO()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry.filename, payload if entry.filename.endswith("data.pkl") else data)
    return made.getvalue()


def as_legacy(payload: bytes) -> bytes:
    """A payload after the magic number and version of the older format."""
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
    return magic + pickle.dumps({"little_endian": True}, 2) + payload


def test_the_payloads_are_real(tmp_path: Path) -> None:
    """Unpickled carelessly, they do make the canary; so the next test can fail."""
    made = 0
    for name, payload in _payloads(tmp_path / "canary").items():
        if name in ("nested torch.load", "BUILD", "NEWOBJ"):
            continue
        try:
            pickle.loads(payload)
        except Exception:
            continue
        made += (tmp_path / "canary").exists()
        (tmp_path / "canary").unlink(missing_ok=True)
    assert made >= 10


@pytest.mark.parametrize("wrap", [as_zip, as_legacy, bytes], ids=["zip", "legacy", "bare"])
def test_no_payload_is_ever_run(tmp_path: Path, wrap: Callable[[bytes], bytes]) -> None:
    folder, canary = tmp_path / "model", tmp_path / "canary"
    pickled_folder(folder)
    payloads = _payloads(canary)
    assert len(payloads) >= 12
    for payload in payloads.values():
        (folder / "pytorch_model.bin").write_bytes(wrap(payload))
        with pytest.raises(FileError) as error:
            import_pickled(folder, tmp_path / "out")
        assert "weights_only" not in str(error.value)  # torch advises to open it with code execution allowed
        assert len(str(error.value)) < 300 + len(str(tmp_path))
        assert not canary.exists()
        assert not (tmp_path / "out").exists()


def test_damaged_pickles_give_only_file_errors(tmp_path: Path) -> None:
    from tests.formats.mutations import damaged_bytes

    pickled_folder(tmp_path / "model")
    file = tmp_path / "model" / "pytorch_model.bin"
    whole = file.read_bytes()
    refused = 0
    for seed in range(100):
        file.write_bytes(damaged_bytes(whole, np.random.default_rng(seed)))
        try:
            import_pickled(tmp_path / "model", tmp_path / f"out{seed}")
        except FileError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("held", [[1, 2], {"a": 1}, {"a": "text"}, {1: 2}, 7, {"a": {"b": None}}])
def test_what_is_not_a_table_of_tensors_is_refused(tmp_path: Path, held: Any) -> None:
    import torch

    torch.save(held, tmp_path / "a.bin")
    with pytest.raises(FileError):
        read_file(tmp_path / "a.bin")


def test_shards_outside_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    pickled_folder(folder)
    (folder / "pytorch_model.bin").rename(tmp_path / "x.bin")
    for shard in ("../x.bin", "/x.bin", "x.safetensors"):
        index = {"weight_map": {"a": shard}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        with pytest.raises(FileError, match=r"not a \.bin file"):
            import_pickled(folder, tmp_path / "out")


def test_a_folder_with_nothing_to_import_says_so(tmp_path: Path) -> None:
    pickled_folder(tmp_path / "model")
    (tmp_path / "model" / "pytorch_model.bin").unlink()
    with pytest.raises(FileError, match="nothing to import"):
        import_pickled(tmp_path / "model", tmp_path / "out")


def test_weights_without_a_config_are_refused_with_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(FileError, match=r"weights\.bin.*config\.json"):
        import_pickled(tmp_path / "weights.bin", tmp_path / "out")
