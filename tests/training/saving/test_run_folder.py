"""A run's folder: one process at a time, the recipe first, the newest complete checkpoint always found."""

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base import files
from pellucid.base.errors import FileError, UsageError
from pellucid.formats import model_folder
from pellucid.formats.checkpoint_manifest import MANIFEST, checkpoint_name, parse_step
from pellucid.formats.resolve import open_model
from pellucid.training.saving import checkpoint, published
from pellucid.training.saving.checkpoint import read
from pellucid.training.saving.lock import FolderLock
from pellucid.training.saving.run_folder import RunFolder, Status
from tests.training.saving.snapshots import CONFIG, ENVIRONMENT, contents, in_memory, snapshot

TOML = 'out = "runs/a"\nsteps = 1000\n'


@contextmanager
def begun(path: Path, *steps: int, keep: int = 9) -> Iterator[RunFolder]:
    """A new run with some checkpoints, held."""
    folder = RunFolder(path)
    with folder.lock():
        folder.begin(TOML)
        for step in steps:
            folder.save(snapshot(step), ENVIRONMENT, keep)
        yield folder


def steps_of(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.iterdir())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# ---- the life of a run


def test_the_recipe_is_there_first_and_the_newest_model_opens(tmp_path: Path) -> None:
    with begun(tmp_path / "runs" / "a") as folder:
        assert (folder.path / "recipe.toml").read_text() == TOML
        assert folder.find_newest() == (None, [])
        for step in (10, 20):
            made = folder.save(snapshot(step), ENVIRONMENT, 2)
            assert folder.find_newest() == (made, [])
            model = pellucid.load(folder.path / "model")
            weights = snapshot(step).weights
            assert all(np.array_equal(model.weights[name], weights[name].numpy()) for name in weights)
    assert checkpoint.read_recipe(made) == {"out": "runs/a", "steps": 1000}
    tensors = [path / "model" / "model.safetensors" for path in (folder.path, made)]
    assert tensors[0].samefile(tensors[1]) and not (folder.path / "model").is_symlink()


def test_a_run_that_was_moved_still_opens(tmp_path: Path) -> None:
    with begun(tmp_path / "a", 10):
        pass
    (tmp_path / "a").rename(tmp_path / "b")
    assert pellucid.load(tmp_path / "b" / "model").config == CONFIG
    with RunFolder(tmp_path / "b").lock():
        assert RunFolder(tmp_path / "b").find_newest()[0] == tmp_path / "b" / "checkpoints" / checkpoint_name(
            10
        )


def test_a_folder_that_holds_a_run_is_not_begun_again(tmp_path: Path) -> None:
    with begun(tmp_path / "a", 10):
        pass
    folder = RunFolder(tmp_path / "a")
    with folder.lock(), pytest.raises(UsageError, match="`pellucid train --resume"):
        folder.begin("steps = 3\n")
    (tmp_path / "a" / "recipe.toml").unlink()
    with folder.lock(), pytest.raises(UsageError, match="already holds a run"):
        folder.begin("steps = 3\n")
    assert contents(read(tmp_path / "a" / "checkpoints" / checkpoint_name(10))) == contents(snapshot(10))


def tree(path: Path) -> dict[str, bytes]:
    """Every file below a folder and what it holds; of a folder nothing."""
    return {
        str(found.relative_to(path)): found.read_bytes() if found.is_file() else b""
        for found in sorted(path.rglob("*"))
    }


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "model/config.json", "checkpoints/mine", "data/source.json", "recipe.toml", ".git/HEAD"],
)
def test_a_folder_that_is_neither_empty_nor_a_run_is_refused_and_left_as_it_is(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=name.partition("/")[0]), RunFolder(tmp_path).lock():
        pass
    assert tree(tmp_path) == before


def test_what_a_killed_start_left_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".tmp-step-0000001-2-3").mkdir(parents=True)
    (tmp_path / "lock").write_text("")
    with begun(tmp_path, 1) as folder:
        assert folder.find_newest()[0] is not None


def test_a_start_that_is_refused_leaves_nothing_that_it_made(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "runs" / "a").lock():
        pass
    assert tree(tmp_path) == {}
    (tmp_path / "runs").mkdir()
    folder = RunFolder(tmp_path / "runs" / "b")
    with folder.lock():
        folder.begin(TOML)
        (folder.path / "data" / "tokens").mkdir(parents=True)
        folder.abandon()
    assert tree(tmp_path) == {"runs": b""}


def test_a_lock_that_its_maker_removed_is_not_taken(tmp_path: Path) -> None:
    """Else a waiting process would lock a file without a name, and a third one a new file."""
    waiting = FolderLock(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    with pytest.raises(UsageError, match="try again"):
        waiting.acquire()
    waiting.close()


# ---- the newest model


def test_a_copied_model_is_a_model(tmp_path: Path) -> None:
    with begun(tmp_path / "a", 10):
        pass
    subprocess.run(["cp", "-r", tmp_path / "a" / "model", tmp_path / "copy"], check=True)
    shutil.rmtree(tmp_path / "a")
    model = pellucid.load(tmp_path / "copy")
    assert np.array_equal(model.weights["embed.weight"], snapshot(10).weights["embed.weight"].numpy())


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_a_model_is_replaced_on_every_kind_of_filesystem(
    links: bool, exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    if not exchange:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    with begun(tmp_path, 10, 20) as folder:
        assert pellucid.load(tmp_path / "model").config == CONFIG
        assert (found := published.read_origin(tmp_path / "model")) and found.step == 20
        assert not list(tmp_path.glob(".*")) and not folder.kept


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def test_a_model_without_its_name_is_found_again(tmp_path: Path) -> None:
    """Killed between the two renames of a system that cannot exchange names."""
    with begun(tmp_path, 10) as folder:
        pass
    model = tmp_path / "model"
    for opens in (lambda: open_model(model), lambda: pellucid.load(model), folder.lock().__enter__):
        killed = tmp_path / f".pellucid-{files._hash_name(tmp_path / 'model')}-00000000.partial"
        killed.mkdir()
        (tmp_path / "model").rename(killed / "replaced")
        opens()
        assert model_folder.read(model).config == CONFIG
        assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["README.md", "config.json", ".notes"])
def test_what_a_user_put_into_the_model_is_never_removed(name: str, tmp_path: Path) -> None:
    with begun(tmp_path, 10) as folder:
        (tmp_path / "model" / name).write_text("mine")
        with pytest.raises(UsageError, match=name):
            folder.check_models()
        folder.save(snapshot(20), ENVIRONMENT, 2)
        assert folder.kept == [tmp_path / "model.kept-1"]
        assert (tmp_path / "model.kept-1" / name).read_text() == "mine"
        assert pellucid.load(tmp_path / "model").config == CONFIG
        assert folder.find_newest()[1] == []  # what people edit is not a file of the checkpoint's


def test_a_copied_run_knows_its_model_by_its_content(tmp_path: Path) -> None:
    with begun(tmp_path / "a", 10):
        pass
    subprocess.run(["cp", "-r", tmp_path / "a", tmp_path / "b"], check=True)
    RunFolder(tmp_path / "b").check_models()
    flip(tmp_path / "b" / "model" / "model.safetensors")
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        RunFolder(tmp_path / "b").check_models()


def test_the_best_model_says_its_step_and_its_loss_and_is_never_purged(tmp_path: Path) -> None:
    with begun(tmp_path, 10, keep=1) as folder:
        assert folder.read_best() is None
        folder.save_best(snapshot(12), 0.5)
        for step in (20, 30):
            folder.save(snapshot(step), ENVIRONMENT, 1)
    best = RunFolder(tmp_path).read_best()
    assert best is not None and (best.step, best.loss) == (12, 0.5)
    weights = snapshot(12).weights
    assert np.array_equal(pellucid.load(tmp_path / "best").weights["embed.weight"], weights["embed.weight"])


def test_a_checkpoint_between_those_of_the_schedule_is_kept_until_there_is_a_newer_one(
    tmp_path: Path,
) -> None:
    with begun(tmp_path) as folder:
        for step in (10, 13, 17, 20, 23):
            folder.save(snapshot(step), ENVIRONMENT, 3, every=10)
            assert folder.find_newest()[0] == folder.checkpoints / checkpoint_name(step)
        assert steps_of(folder) == [checkpoint_name(10), checkpoint_name(20), checkpoint_name(23)]


# ---- what was damaged, and what is not ours


def test_saving_the_same_step_twice_writes_it_once(tmp_path: Path) -> None:
    with begun(tmp_path, 10) as folder:
        before = (folder.checkpoints / checkpoint_name(10)).stat().st_ino
        made = folder.save(snapshot(10), ENVIRONMENT, 2)
        assert made.stat().st_ino == before


def test_a_damaged_step_is_written_again_when_the_run_comes_to_it(tmp_path: Path) -> None:
    with begun(tmp_path, 10, 20) as folder:
        flip(folder.checkpoints / checkpoint_name(20) / "rank-0" / "optimizer.safetensors")
        found, skipped = folder.find_newest()
        assert found == folder.checkpoints / checkpoint_name(10)
        assert len(skipped) == 1 and "skipped the checkpoint of step 20" in skipped[0]
        assert "the content of rank-0/optimizer.safetensors is not what was saved" in skipped[0]
        made = folder.save(snapshot(20), ENVIRONMENT, 2)
        assert folder.find_newest() == (made, [])
        assert steps_of(folder) == [checkpoint_name(10), checkpoint_name(20)]


def test_a_checkpoint_of_a_newer_version_is_skipped_by_name(tmp_path: Path) -> None:
    with begun(tmp_path, 10, 20) as folder:
        path = folder.checkpoints / checkpoint_name(20) / MANIFEST
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 7}))
        found, (line,) = folder.find_newest()
        assert found == folder.checkpoints / checkpoint_name(10)
        assert "has checkpoint format 7; this version of Pellucid reads 2" in line


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    with begun(tmp_path):
        pass
    (tmp_path / "checkpoints" / "step-10").mkdir(parents=True)
    strange = ["notes.txt", ".tmp-mine", "checkpoints/step-00000010", "checkpoints/.tmp-mine", "model.txt"]
    for name in strange:
        (tmp_path / name).write_text("mine")
    folder = RunFolder(tmp_path)
    with folder.lock():
        for step in (10, 20, 30):
            folder.save(snapshot(step), ENVIRONMENT, 1)
        assert folder.find_newest() == (folder.checkpoints / checkpoint_name(30), [])
    with folder.lock():
        assert all((tmp_path / name).read_text() == "mine" for name in strange)
        assert (tmp_path / "checkpoints" / "step-10").is_dir()


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    with begun(tmp_path, 10) as folder:
        pass
    left = folder.checkpoints / ".tmp-step-0000020-123-0"
    (left / "model").mkdir(parents=True)
    (left / "model" / "half").write_text("x")
    with folder.lock():
        assert steps_of(folder) == [checkpoint_name(10)]
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "lock", "model", "recipe.toml"}


def test_writing_without_the_lock_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="lock"):
        RunFolder(tmp_path).begin(TOML)


# ---- keeping and removing


def test_only_the_newest_few_are_kept(tmp_path: Path) -> None:
    with begun(tmp_path, 1, 2, 3, 4, keep=2) as folder:
        assert steps_of(folder) == [checkpoint_name(3), checkpoint_name(4)]
        folder.save(snapshot(5), ENVIRONMENT, 0)
        assert steps_of(folder) == [checkpoint_name(5)]


def test_a_damaged_one_does_not_count_among_those_kept(tmp_path: Path) -> None:
    with begun(tmp_path, 1, 2) as folder:
        (folder.checkpoints / checkpoint_name(2) / "state.json").unlink()
        folder.save(snapshot(3), ENVIRONMENT, 2)
        assert steps_of(folder) == [checkpoint_name(1), checkpoint_name(2), checkpoint_name(3)]


def test_a_newer_damaged_one_never_costs_the_complete_one(tmp_path: Path) -> None:
    """Fallen back from a damaged step 30 to step 10, the run saves step 20 and keeps one."""
    with begun(tmp_path, 10, 30) as folder:
        flip(folder.checkpoints / checkpoint_name(30) / "state.json")
        made = folder.save(snapshot(20), ENVIRONMENT, 1)
        assert folder.find_newest()[0] == made


def interleavings(path: Path, count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in which savings, damage, restarts and other processes follow each other at random."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    prepared = [snapshot(step)._replace(optimizer={}, trainable={}) for step in range(30)]
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        folder, good, at = RunFolder(path / str(number)), set[int](), 0
        with folder.lock():
            folder.begin(TOML)
        for _ in range(int(rng.integers(3, 9))):
            folder = RunFolder(folder.path)
            present = [name for name in steps_of(folder) if name.startswith("step-")]
            action = rng.choice(["save", "save", "damage", "strange", "restart"])
            if action == "save":
                at, keep = at + int(rng.integers(1, 4)), int(rng.integers(1, 4))
                with folder.lock():
                    folder.save(prepared[at], ENVIRONMENT, keep)
                good.add(at)
                found = {parse_step(name) for name in steps_of(folder)}
                lost = good - found
                assert at in found
                assert all(sum(step in found for step in good if step > old) >= keep for old in lost)
                good -= lost
            elif action == "damage" and present:
                name = str(rng.choice(present))
                (folder.checkpoints / name / str(rng.choice([MANIFEST, "state.json"]))).write_text("{}")
                good.discard(int(name.removeprefix("step-")))
            elif action == "strange":
                (folder.checkpoints / ".tmp-step-0000099-1-1").mkdir(exist_ok=True)
            else:
                with folder.lock():
                    assert not any(name.startswith(".tmp") for name in steps_of(folder))
            newest, _ = folder.find_newest()
            assert newest == (folder.checkpoints / checkpoint_name(max(good)) if good else None)
            at = max(good, default=0)  # where a run that falls back goes on from
        shutil.rmtree(folder.path)


def test_no_interleaving_costs_the_last_complete_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_memory() as path:
        interleavings(path, 80, 0, monkeypatch)


@pytest.mark.torture
def test_no_interleaving_of_many_costs_the_last_complete_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_memory() as path:
        interleavings(path, 5000, 1, monkeypatch)


# ---- two processes


@contextmanager
def another_process(work: Callable[[], None]) -> Iterator[int]:
    """A forked process that does some work, tells that it has, and sleeps until it is killed."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            work()
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(ready, 1) == b"x"
        yield child
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_second_process_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with begun(tmp_path / "a", 10):
        pass
    folder = RunFolder(tmp_path / "a")
    first = RunFolder(tmp_path / "a").lock()
    with another_process(first.__enter__) as child:
        with (
            pytest.raises(UsageError, match=f"process {child} on {socket.gethostname()}"),
            folder.lock(),
        ):
            pass
        assert folder.read_status() == Status("running", 10)
    with folder.lock():  # the lock ended with the process that was killed
        pass
    assert folder.read_status() == Status("interrupted", 10)


def test_a_second_run_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).lock(),
        pytest.raises(UsageError, match=f"process {os.getpid()}"),
        RunFolder(tmp_path).lock(),
    ):
        pass


def test_a_child_of_the_holder_does_not_hold_the_lock(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    held = folder.lock()
    held.__enter__()
    with another_process(lambda: None):
        held.__exit__(None, None, None)
        with RunFolder(tmp_path).lock():
            pass


def test_looking_at_a_run_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    with begun(tmp_path):
        pass
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, [looking]).start()
    with RunFolder(tmp_path).lock():
        pass


# ---- how it stands


def test_a_run_says_how_it_stands(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_status() == Status("new", 0)
    with begun(tmp_path) as same:
        assert folder.read_status() == Status("running", 0)
    assert folder.read_status() == Status("new", 0)
    (tmp_path / "log.jsonl").write_text('{"kind": "start"}\n')
    assert folder.read_status() == Status("interrupted", 0)
    with same.lock():
        same.save(snapshot(7), ENVIRONMENT, 2)
    end = '{"kind": "end", "step": %d, "why": "finished"}\n{"kind": "st'
    (tmp_path / "log.jsonl").write_text(end % 7)
    assert folder.read_status() == Status("finished", 7)
    (tmp_path / "log.jsonl").write_text(end % 9)  # whose checkpoint was lost
    assert folder.read_status() == Status("interrupted", 7)
    (tmp_path / "log.jsonl").write_text('{"kind": "end", "why": "interrupted"}\n')
    assert folder.read_status() == Status("interrupted", 7)


def test_a_recipe_that_is_gone_or_damaged_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*recipe\.toml"):
        RunFolder(tmp_path).read_recipe()
    (tmp_path / "recipe.toml").write_text("steps = = 3")
    with pytest.raises(FileError, match=r"recipe\.toml is not TOML"):
        RunFolder(tmp_path).read_recipe()


def test_a_path_that_cannot_be_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(UsageError, match="is a file"), RunFolder(tmp_path / "a").lock():
        pass
