"""Safetensors files: read lazily, written tensor by tensor, and refused where they contradict themselves."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.dtypes import FLOAT_STORAGE
from pellucid.base.errors import FileError
from pellucid.formats.safetensors_file import (
    INDEX,
    StoredTensor,
    read_file,
    read_tensors,
    write_file,
    write_tensors,
)


def tensors(seed: int = 0) -> dict[str, StoredTensor]:
    """A tensor of each type and some shapes; bits are drawn, so every pattern can come."""
    rng = np.random.default_rng(seed)
    made = {}
    shapes = [(), (1,), (3,), (5, 3), (2, 3, 4), (0, 4)]
    for type, dtype in FLOAT_STORAGE.items():
        for shape in shapes:
            bits = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)
            made[f"{type}.{'x'.join(map(str, shape))}"] = StoredTensor(type, shape, lambda bits=bits: bits)  # type: ignore[misc]
    return made


def raw(stored: StoredTensor) -> tuple[str, tuple[int, ...], bytes]:
    return stored.type, stored.shape, stored.bits().tobytes()


def file_of(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_what_is_written_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    write_file(tmp_path / "a.safetensors", tensors())
    found = read_file(tmp_path / "a.safetensors")
    assert {name: raw(tensor) for name, tensor in found.items()} == {
        name: raw(tensor) for name, tensor in tensors().items()
    }


def test_the_library_reads_what_is_written_and_finds_each_tensor_aligned(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    write_file(tmp_path / "a.safetensors", tensors())
    theirs = load_file(tmp_path / "a.safetensors")
    for name, tensor in tensors().items():
        assert theirs[name].reshape(-1).view(dtype=_uint8()).numpy().tobytes() == tensor.bits().tobytes()
    header = json.loads((tmp_path / "a.safetensors").read_bytes()[8:].partition(b"}}")[0] + b"}}")
    assert header.pop("__metadata__") == {"format": "pt"}
    for entry in header.values():
        assert entry["data_offsets"][0] % FLOAT_STORAGE[entry["dtype"]].itemsize == 0


def _uint8() -> Any:
    import torch

    return torch.uint8


def test_narrow_types_are_widened_exactly(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    values = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    kinds = {"h": torch.float16, "b": torch.bfloat16, "s": torch.float32, "d": torch.float64}
    save_file({name: values.to(kind) for name, kind in kinds.items()}, tmp_path / "a.safetensors")
    for name, tensor in read_file(tmp_path / "a.safetensors").items():
        array = tensor.read()
        assert array.dtype == (np.float64 if name == "d" else np.float32)
        assert np.array_equal(array, values.to(kinds[name]).double().numpy())


def test_float32_is_read_through_the_map_and_not_copied(tmp_path: Path) -> None:
    write_file(tmp_path / "a.safetensors", tensors())
    stored = read_file(tmp_path / "a.safetensors")["F32.5x3"]
    assert np.shares_memory(stored.read(), stored.read())
    assert not stored.read().flags.writeable


def test_shards_are_filled_in_order_and_read_as_one(tmp_path: Path) -> None:
    write_tensors(tmp_path, tensors(), shard_bytes=100)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / INDEX).read_text())
    assert list(index["weight_map"]) == list(tensors())
    assert index["metadata"]["total_size"] == sum(tensor.bits().nbytes for tensor in tensors().values())
    assert {n: raw(t) for n, t in read_tensors(tmp_path).items()} == {n: raw(t) for n, t in tensors().items()}


def test_one_tensor_is_made_at_a_time(tmp_path: Path) -> None:
    """Each array is let go before the next is made, so writing needs no second model."""
    import weakref

    alive: list[weakref.ref[Any]] = []

    def bits() -> Any:
        assert sum(made() is not None for made in alive) <= 1
        array = np.zeros(10, np.float32)
        alive.append(weakref.ref(array))
        return array

    write_file(tmp_path / "a.safetensors", {f"t{i}": StoredTensor("F32", (10,), bits) for i in range(5)})
    assert len(alive) == 5


def test_a_tensor_that_is_not_a_weight_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a", {"n": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8))
    found = read_file(path)["n"]
    assert (found.type, found.shape) == ("I64", (1,))
    with pytest.raises(FileError, match="'n' is stored as 'I64'"):
        found.read()


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
TWICE = f'{{"a": {json.dumps(F32)}, "a": {json.dumps(F32)}}}'.encode()
BROKEN = {
    "empty": (b"", b"", "not a safetensors file"),
    "no table": (b"[1]", b"", "not a safetensors file"),
    "no JSON": (b"{", b"", "not a safetensors file"),
    "duplicate": (TWICE, bytes(4), "comes twice"),
    "long name": ({"n" * 513: F32}, bytes(4), "513 characters"),
    "past the end": ({"a": F32}, bytes(3), "is cut short: it has 7. B of the 7. B"),
    "hole": ({"a": F32 | {"data_offsets": [4, 8]}}, bytes(8), "not a safetensors file"),
    "overflow": ({"a": F32 | {"shape": [1 << 62, 4]}}, bytes(4), "not a safetensors file"),
    "infinite": (
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}',
        bytes(4),
        "not a safetensors file",
    ),
    "negative": ({"a": F32 | {"shape": [-1]}}, bytes(4), "not a safetensors file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused(tmp_path: Path, case: str) -> None:
    header, data, complaint = BROKEN[case]
    with pytest.raises(FileError, match=complaint):
        read_file(file_of(tmp_path / "a.safetensors", header, data))


def test_a_file_that_is_cut_short_and_a_folder_without_weights_say_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has no weights: neither model.safetensors nor"):
        read_tensors(tmp_path)
    path = tmp_path / "model.safetensors"
    write_file(path, tensors())
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FileError, match=r"is cut short: .*Copy it again, whole\."):
        read_tensors(tmp_path)


def test_too_many_tensors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.formats.safetensors_file.MAX_TENSORS", 3)
    write_file(tmp_path / "a.safetensors", tensors())
    with pytest.raises(FileError, match="24 tensors"):
        read_file(tmp_path / "a.safetensors")


def _index(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index))

    return apply


def _swap(placed: dict[str, Any]) -> None:
    first, last = next(iter(placed)), list(placed)[-1]
    placed[first], placed[last] = placed[last], placed[first]


def _twice(folder: Path) -> None:
    text = (folder / INDEX).read_text()
    (folder / INDEX).write_text(text.replace('"weight_map"', '"weight_map": {}, "weight_map"'))


def _first_shard(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


def _link_shard(to: str) -> Callable[[Path], object]:
    """Returns a change: the first shard becomes a link."""

    def change(folder: Path) -> None:
        shard = _first_shard(folder)
        shard.unlink()
        shard.symlink_to(to)

    return change


BAD_SHARDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "path": (_index(lambda placed: placed.update({"F32.3": "../x.safetensors"})), "not a .safetensors file"),
    "absolute": (
        _index(lambda placed: placed.update({"F32.3": "/x.safetensors"})),
        "not a .safetensors file",
    ),
    "number": (_index(lambda placed: placed.update({"F32.3": 3})), "not a .safetensors file"),
    "another suffix": (_index(lambda placed: placed.update({"F32.3": "x.bin"})), "not a .safetensors file"),
    "NUL": (_index(lambda placed: placed.update({"F32.3": "\0.safetensors"})), "missing|not the name"),
    "long name": (
        _index(lambda placed: placed.update({"F32.3": "A" * 999 + ".safetensors"})),
        "is missing",
    ),
    "missing shard": (lambda folder: _first_shard(folder).unlink(), "is missing"),
    "only in the index": (
        _index(lambda placed: placed.update(ghost=next(iter(placed.values())))),
        "'ghost' is not in",
    ),
    "only in a shard": (_index(lambda placed: placed.pop("F32.3")), "the index"),
    "in another shard": (_index(_swap), "the index"),
    "no weight_map": (lambda folder: (folder / INDEX).write_text("{}"), "no weight_map"),
    "empty weight_map": (_index(lambda placed: placed.clear()), "no weight_map"),
    "key twice": (_twice, "comes twice"),
    "dangling link": (_link_shard("../gone.safetensors"), "broken link to .*gone.* No such file"),
    "link to itself": (_link_shard("model-00001-of-00005.safetensors"), "broken link|leads back"),
    "link to a folder": (_link_shard(".."), "a folder and not a file"),
    "link to a device": (_link_shard("/dev/zero"), "a pipe or a device and not a file"),
}


@pytest.mark.parametrize("case", BAD_SHARDS)
def test_shards_that_contradict_their_index_are_refused(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_tensors(folder, tensors(), shard_bytes=100)
    change, complaint = BAD_SHARDS[case]
    change(folder)
    with pytest.raises(FileError, match=complaint):
        read_tensors(folder)


def test_the_links_of_hugging_faces_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write_file(blobs / "0123", tensors())
    (snapshot / "model.safetensors").symlink_to(Path("..") / ".." / "blobs" / "0123")
    assert list(read_tensors(snapshot))


def link_out(folder: Path, name: str) -> Path:
    """Moves a file of a folder to another, and leaves a link; returns where it is now."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    shutil.move(folder / name, elsewhere / name)
    (folder / name).symlink_to(elsewhere / name)
    return elsewhere / name


@pytest.mark.parametrize("shard_bytes", [100, 10**9], ids=["shards", "one file"])
def test_links_to_files_of_the_same_user_are_followed_and_noted_once(
    tmp_path: Path, shard_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_tensors(folder, tensors(), shard_bytes)
    real = [link_out(folder, path.name) for path in sorted(folder.iterdir())]
    for _ in range(2):
        assert set(read_tensors(folder)) == set(tensors())
    assert sorted(str(record.args[1]) for record in caplog.records if record.args) == list(map(str, real))


def test_a_link_to_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write a link into a shared folder cannot make others read their own files for it."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_tensors(folder, tensors())
    link_out(folder, "model.safetensors")
    own = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        fields = list(own(path))
        fields[4] += path.name == "model.safetensors"  # the owner
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(FileError, match="a file of another user"):
        read_tensors(folder)
