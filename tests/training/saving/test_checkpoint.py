"""A checkpoint comes back to the last bit, is refused when one bit of it is not what was saved, and opens."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import pellucid
from pellucid.base.errors import FileError, UsageError
from pellucid.formats import checkpoint_manifest
from pellucid.formats.checkpoint_manifest import MANIFEST, check_contents
from pellucid.training.saving.checkpoint import count_bytes, read, read_environment, read_recipe, write
from pellucid.training.saving.environment import compare_environments, get_environment
from tests.training.saving.snapshots import ENVIRONMENT, RECIPE, contents, snapshot


def saved(folder: Path, step: int = 5, **changes: Any) -> Path:
    return write(folder, snapshot(step)._replace(**changes), RECIPE, ENVIRONMENT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_bit_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    first = snapshot(500, dtype)
    made = write(tmp_path, first, RECIPE, ENVIRONMENT)
    again = read(made)
    assert made == tmp_path / "step-0000500"
    assert contents(again) == contents(first)
    assert (read_recipe(made), read_environment(made)) == (RECIPE, ENVIRONMENT)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000500"]


def test_the_layout_is_safetensors_and_json(tmp_path: Path) -> None:
    made = saved(tmp_path)
    found = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert found == {
        "manifest.json",
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/tokenizer_config.json",
        "rank-0/optimizer.safetensors",
        "rank-0/raw.safetensors",
        "rank-0/rng.safetensors",
        "index.json",
        "state.json",
    }
    assert set(json.loads((made / MANIFEST).read_text())["files"]) == found - {MANIFEST}


def test_the_library_reads_the_same_weights_in_their_own_type(tmp_path: Path) -> None:
    first = snapshot(3, torch.bfloat16)
    theirs = load_file(write(tmp_path, first, RECIPE, ENVIRONMENT) / "model" / "model.safetensors")
    assert all(tensor.dtype == torch.bfloat16 for tensor in theirs.values())
    assert all(torch.equal(theirs[name], tensor) for name, tensor in first.weights.items())


def test_the_model_inside_is_opened_by_load(tmp_path: Path) -> None:
    model = pellucid.load(saved(tmp_path, name="mine", trainable={}) / "model")
    weights = snapshot(5).weights
    assert all(np.array_equal(array, weights[name].numpy()) for name, array in model.weights.items())


def test_the_model_inside_is_the_one_that_was_judged(tmp_path: Path) -> None:
    """With a running mean, the mean; what the optimizer goes on from is beside it."""
    made, first = saved(tmp_path), snapshot(5)
    model = pellucid.load(made / "model")
    assert all(np.array_equal(array, first.weights[name].numpy()) for name, array in model.weights.items())
    raw = load_file(made / "rank-0" / "raw.safetensors")
    assert all(torch.equal(raw[name], tensor) for name, tensor in first.trainable.items())


def test_empty_parts_and_strange_numbers_come_back(tmp_path: Path) -> None:
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    whole = {
        "u8": torch.arange(256, dtype=torch.uint8),
        "i64": torch.tensor([-(2**53) - 1, 2**63 - 1, 7]),
        "flag": torch.tensor([True, False]),
        "none": torch.zeros(0, dtype=torch.int32),
    }
    first = snapshot(0)._replace(trainable={}, optimizer={"odd": odd, **whole}, meters={"best": float("inf")})
    again = read(write(tmp_path, first, RECIPE, ENVIRONMENT))
    assert contents(again) == contents(first)


def test_views_and_parameters_are_saved_as_what_they_show(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    first = snapshot(1)._replace(optimizer={"turned": table.T, "learned": torch.nn.Parameter(table)})
    again = read(write(tmp_path, first, RECIPE, ENVIRONMENT)).optimizer
    assert torch.equal(again["turned"], table.T) and torch.equal(again["learned"], table)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"optimizer": {"m": torch.zeros(2, dtype=torch.complex64)}}, "optimizer: m is torch.complex64"),
        ({"rng": {"m": torch.zeros(2, dtype=torch.uint32)}}, "rng: m is torch.uint32"),
        ({"weights": {}}, "embed.weight"),
    ],
)
def test_what_cannot_be_saved_is_reported_and_leaves_nothing(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        saved(tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


# ---- damage


def _text(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table, indent=1) + "\n")


def _manifest(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: _text(folder / MANIFEST, lambda table: table.update(changes))


def _link(folder: Path) -> None:
    (folder / "state.json").rename(folder.parent / "state.json")
    (folder / "state.json").symlink_to(folder.parent / "state.json")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / MANIFEST).unlink(), "manifest.json"),
    "newer": (_manifest(version=3), "has checkpoint format 3; this version of Pellucid reads 2"),
    "foreign": (_manifest(format="other"), "is not a checkpoint"),
    "another step": (_manifest(step=6), "is not as it was written"),
    "no files": (_manifest(files=None), "lists no files"),
    "respelled": (
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes() + b"\n"),
        "is not as it was written",
    ),
    "missing": (
        lambda folder: (folder / "rank-0" / "raw.safetensors").unlink(),
        "'rank-0/raw.safetensors' is missing",
    ),
    "cut off": (lambda folder: (folder / "state.json").write_bytes(b"{}"), "state.json has 2 bytes, not"),
    "added": (
        lambda folder: (folder / "model" / "generation_config.json").write_text("{}"),
        "'model/generation_config.json' does not belong there",
    ),
    "link": (_link, "state.json"),
    "folder link": (
        lambda folder: (folder / "elsewhere").symlink_to(folder.parent),
        "'elsewhere' does not belong there",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_not_as_the_manifest_says_is_refused(tmp_path: Path, case: str) -> None:
    made = saved(tmp_path)
    change, complaint = DAMAGE[case]
    change(made)
    with pytest.raises(FileError, match=complaint):
        read(made)


def test_a_folder_with_the_name_of_another_step_is_refused(tmp_path: Path) -> None:
    made = saved(tmp_path).rename(tmp_path / "step-0000009")
    with pytest.raises(FileError, match="its files are those of step-0000005"):
        read(made)


def test_hidden_files_of_others_do_no_harm(tmp_path: Path) -> None:
    made = saved(tmp_path)
    (made / ".DS_Store").write_text("x")
    (made / "model" / ".nfs0001").write_text("x")
    assert contents(read(made)) == contents(snapshot(5))


@pytest.mark.parametrize(
    "entries",
    [{"state.json": 3}, {"state.json": {"bytes": "x", "sha256": []}}, {"../x": {"bytes": 1, "sha256": ""}}],
)
def test_a_manifest_made_up_by_hand_is_refused(tmp_path: Path, entries: dict[str, Any]) -> None:
    made = saved(tmp_path)
    (made / MANIFEST).write_bytes(checkpoint_manifest.format_manifest(5, entries))
    with pytest.raises(FileError):
        check_contents(made)


@pytest.mark.parametrize("change", [{"step": 6}, {"loader": None}])
def test_a_state_made_up_by_hand_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    made = saved(tmp_path)
    _text(made / "state.json", lambda table: table.update(change))
    entries = json.loads((made / MANIFEST).read_text())["files"]
    entries["state.json"] = checkpoint_manifest.measure(made / "state.json")
    (made / MANIFEST).write_bytes(checkpoint_manifest.format_manifest(5, entries))
    with pytest.raises(FileError, match=r"state\.json is damaged"):
        read(made)


# ---- room


def test_a_full_disk_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    needed = count_bytes(snapshot(5))
    with pytest.raises(FileError, match=rf"step 5.*{needed:,} bytes.*5 "):
        saved(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_reported_are_those_of_the_files(tmp_path: Path) -> None:
    first = snapshot(1, torch.bfloat16)._replace(optimizer={"m": torch.zeros(100_000)})
    files = write(tmp_path, first, RECIPE, ENVIRONMENT).rglob("*")
    size = sum(path.stat().st_size for path in files if path.is_file())
    assert count_bytes(first) < size < count_bytes(first) + 10_000


# ---- what the bits depend on


def test_the_environment_is_plain_data_and_differences_are_reported() -> None:
    now = get_environment("no: not asked for", torch.device("cpu"))
    assert json.loads(json.dumps(now)) == now
    assert (now["device"], now["compiled"], now["ranks"]) == ("cpu", "no", 1)
    assert compare_environments(now, now) == []
    assert compare_environments(now, get_environment("yes", torch.device("cpu"))) == [
        "compiled was no, and is yes now"
    ]
    assert compare_environments(now | {"pellucid": "0.0.1"}, now) == [
        f"pellucid was 0.0.1, and is {pellucid.__version__} now"
    ]
    assert compare_environments({}, {"ranks": 2}) == ["the number of ranks was unknown, and is 2 now"]
