"""Whatever the disk refuses and whenever the process is killed: nothing that was saved is lost or wrong."""

import contextlib
import errno
import io
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base import files
from pellucid.base.errors import FileError
from pellucid.formats import model_folder
from pellucid.formats.checkpoint_manifest import MANIFEST, checkpoint_name
from pellucid.training.saving import published
from pellucid.training.saving.checkpoint import count_bytes, read
from pellucid.training.saving.run_folder import RunFolder
from tests.half_written import HalfWritten
from tests.rotation import SHARES
from tests.training.saving.snapshots import ENVIRONMENT, contents, in_memory, snapshot

TOML = "steps = 1000\n"
CALLS = ("open", "mkdir", "rename", "replace", "link", "unlink", "rmdir", "chmod", "fsync")


class Killed(BaseException):
    """Nothing that the process would still have done happens."""


class Disk:
    """Counts the calls that reach the disk, and lets the one with a given number fail: once, like a bad
    sector; from then on whatever needs room, like a full disk; or from then on all, like a process killed."""

    def __init__(self, at: int | None, fault: str, exchange: Callable[..., bool] = files.exchange) -> None:
        self.at, self.fault, self.calls, self.exchange = at, fault, 0, exchange
        self.names: list[str] = []

    def call(self, name: str) -> None:
        self.calls += 1
        self.names.append(name)
        if self.at is None or self.calls < self.at:
            return
        if self.fault == "killed":
            raise Killed
        full = self.fault == "full" and name in ("mkdir", "open", "write", "link", "fsync")
        if full or (self.fault == "bad sector" and self.calls == self.at):
            code = errno.ENOSPC if full else errno.EIO
            raise OSError(code, os.strerror(code))

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            patch.setattr(io, "open", self._opened(io.open))
            patch.setattr(files, "exchange", self._watched("exchange", self.exchange))
            yield

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.call(name)
            return None if name == "fsync" else real(*given, **named)

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            self.call("open" if "r" not in mode else "open to read")
            file = real(path, mode, *given, **named)
            return file if "r" in mode else HalfWritten(file, self.call)

        return call


def check_run(folder: RunFolder, least: int) -> int:
    """A restart finds a checkpoint that is one of those saved, to the bit, and no older; its step."""
    with folder.lock():
        found, _ = folder.find_newest()
        assert found is not None
        again = read(found)
        assert again.step >= least
        assert contents(again) == contents(snapshot(again.step))
        assert not [path for path in folder.checkpoints.iterdir() if path.name.startswith(".")]
        assert not list(folder.path.glob(".*")) and not folder.kept
        linked = model_folder.read(folder.path / "model")  # it always is a whole model
        origin = published.read_origin(folder.path / "model")
        assert origin is not None and origin.step <= again.step
        wanted = snapshot(origin.step).weights
        assert all(np.array_equal(linked.weights[name], wanted[name].numpy()) for name in wanted)
    return again.step


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    with folder.lock():
        folder.begin(TOML)
        folder.save(snapshot(0), ENVIRONMENT, 1)
    return folder


def cannot_exchange(*_: object) -> bool:
    return False


@pytest.mark.rotating
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize(
    ("fault", "exchange"),
    [
        *((fault, files.exchange) for fault in ("bad sector", "full", "killed")),
        ("killed", cannot_exchange),
    ],
)
def test_a_fault_at_any_call_to_the_disk_costs_nothing_that_was_saved(
    fault: str, exchange: Callable[..., bool], share: int
) -> None:
    with in_memory() as path:
        folder, newest, step, failed = begun(path / "a"), 1, 1, 0
        with folder.lock(), (disk := Disk(None, fault, exchange)).watched():
            folder.save(snapshot(1), ENVIRONMENT, 1)
        assert {"write", "fsync", "rename", "link", "exchange"} <= set(disk.names)
        calls = range(1 + share, disk.calls + 1, SHARES)
        for at in calls:
            step += 1
            prepared, disk = snapshot(step), Disk(at, fault, exchange)
            with folder.lock():
                try:
                    with disk.watched():
                        folder.save(prepared, ENVIRONMENT, 1)
                    newest = step
                except Killed:
                    failed += 1
                except FileError as error:
                    failed += 1
                    assert str(path) in str(error)  # noqa: PT017
            newest = check_run(folder, newest)
            with folder.lock():  # what the next one starts from: one checkpoint, and the link to it
                folder.save(snapshot(newest), ENVIRONMENT, 1)
                assert len(list(folder.checkpoints.iterdir())) == 1
            assert disk.calls >= at
        assert failed > len(calls) // 2


@pytest.mark.parametrize("exchange", [files.exchange, cannot_exchange])
def test_a_process_killed_at_any_call_to_the_disk_leaves_a_best_model_that_says_what_it_is(
    exchange: Callable[..., bool],
) -> None:
    with in_memory() as path:
        folder, first = begun(path / "a"), snapshot(1)
        with folder.lock():
            folder.save_best(first, 1.0)
        for at in range(1, 200):
            step, disk = at + 1, Disk(at, "killed", exchange)
            with folder.lock(), contextlib.suppress(Killed), disk.watched():
                folder.save_best(snapshot(step), float(step))
            with folder.lock():
                best, model = folder.read_best(), model_folder.read(folder.path / "best")
                assert best is not None and best.loss == best.step and not folder.kept
                wanted = snapshot(best.step).weights
                assert all(np.array_equal(model.weights[name], wanted[name].numpy()) for name in wanted)
                assert not list(folder.path.glob(".*"))
            if disk.calls < at:
                assert best.step == step
                return
        pytest.fail("a saving calls the disk without end")


@pytest.mark.parametrize("fault", ["bad sector", "full", "killed"])
def test_a_fault_at_the_begin_of_a_run_leaves_a_folder_in_which_it_can_begin(fault: str) -> None:
    with in_memory() as path:
        for at in range(1, 100):
            folder, disk = RunFolder(path / str(at)), Disk(at, fault)
            try:
                with disk.watched(), folder.lock():
                    folder.begin(TOML)
            except (Killed, FileError):
                pass
            folder = RunFolder(path / str(at))
            with folder.lock():
                if not (folder.path / "recipe.toml").exists():
                    folder.begin(TOML)
                assert folder.read_recipe() == {"steps": 1000}
            if disk.calls < at:
                return
        pytest.fail("beginning calls the disk without end")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_refusal_is_one_message_with_the_file_and_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    folder = begun(tmp_path / "a")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with folder.lock():
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            with pytest.raises(FileError) as shown:
                folder.save(snapshot(1), ENVIRONMENT, 1)
        message = str(shown.value)
        assert message.startswith(f"cannot write {folder.checkpoints}") and os.strerror(code) in message
        assert f"The checkpoint of step 1 takes {count_bytes(snapshot(1)):,} bytes, and" in message
        assert message.endswith("Earlier checkpoints are as they were.")
    assert check_run(folder, 0) == 0


# ---- the kernel itself refuses, or kills


def in_a_child(work: Callable[[], None]) -> str:
    """What some work, done in a process forked from this one, says of its failure."""
    out, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            work()
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(out) as file:
        message = file.read()
    os.waitpid(child, 0)
    return message


def test_a_file_larger_than_the_kernel_allows_is_reported_and_costs_nothing(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a")
    large = snapshot(1)._replace(optimizer={"m": torch.zeros(100_000)})

    def save() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with folder.lock():
            folder.save(large, ENVIRONMENT, 1)

    message = in_a_child(save)
    assert message.startswith("ResourceError: cannot write")
    assert "optimizer.safetensors: File too large" in message
    assert check_run(folder, 0) == 0


def test_a_folder_that_one_may_not_write_in_is_reported_and_costs_nothing() -> None:
    with in_memory() as path:
        path.chmod(0o755)
        folder = begun(path / "a")
        for place in (folder.checkpoints, folder.path):
            place.chmod(0o555)
        (folder.path / "lock").chmod(0o666)

        def save() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)
            with folder.lock():
                folder.save(snapshot(1), ENVIRONMENT, 1)

        message = in_a_child(save)
        for place in (folder.checkpoints, folder.path):
            place.chmod(0o755)
        assert message.startswith(f"FileError: cannot write {folder.checkpoints}")
        assert "Permission denied" in message
        assert check_run(folder, 0) == 0


def kills(path: Path, count: int, seed: int) -> None:
    """Processes that save one step after the other, each killed at some moment of a saving."""
    rng, folder, at = np.random.default_rng(seed), begun(path / "a"), 0
    takes, halfway = 0.02, 0  # seconds for a saving, as the last one that was watched took
    for _ in range(count):
        prepared = [snapshot(at + i) for i in range(1, 9)]
        out, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                with folder.lock():
                    os.write(tell, at.to_bytes(8, "little"))
                    for one in prepared:
                        folder.save(one, ENVIRONMENT, 1)
                        os.write(tell, one.step.to_bytes(8, "little"))
            finally:
                os._exit(0)
        os.close(tell)
        message = os.read(out, 8)
        for _ in range(int(rng.integers(3))):
            begin = time.perf_counter()
            message = os.read(out, 8)
            takes = time.perf_counter() - begin
        time.sleep(rng.uniform(0, 1.2 * takes))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(out, "rb") as file:
            message += file.read()
        halfway += any(path.name.startswith(".") for path in folder.checkpoints.iterdir())
        reported = int.from_bytes(message[-8:], "little")
        assert len(message) % 8 == 0 and reported >= at
        at = check_run(folder, reported)
        assert at <= reported + 1
    assert at > count // 2 and halfway > count // 4


def test_a_killed_process_costs_nothing_that_it_had_saved(tmp_path: Path) -> None:
    kills(tmp_path, 8, 0)


@pytest.mark.torture
def test_a_thousand_killed_processes_cost_nothing_that_they_had_saved(tmp_path: Path) -> None:
    kills(tmp_path, 1000, 1)


# ---- the disk forgets


def damage(folder: RunFolder, rng: np.random.Generator) -> Callable[[], None]:
    """One thing done to the newest of two checkpoints; what puts it right again."""
    newest, older = folder.checkpoints / checkpoint_name(2), folder.checkpoints / checkpoint_name(1)
    files = sorted(path.relative_to(newest) for path in newest.rglob("*") if path.is_file())
    path = newest / files[rng.integers(len(files))]
    before = path.read_bytes()
    data, kind = bytearray(before), rng.integers(6)
    at = int(rng.integers(len(data)))
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[len(data) * int(rng.integers(100)) // 100 :]
    elif kind == 2:
        data[at:at] = rng.bytes(int(rng.integers(1, 9)))
    elif kind == 3:
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif kind == 4:  # with another file of the same checkpoint
        other = newest / files[rng.integers(len(files))]
        return _swap(path, other) if other != path else damage(folder, rng)
    else:  # with the same file of the other checkpoint
        return _swap(path, older / path.relative_to(newest))
    if bytes(data) == before:
        return damage(folder, rng)
    path.write_bytes(data)
    return lambda: _restore(path, before)


def _restore(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _swap(first: Path, second: Path) -> Callable[[], None]:
    one, two = first.read_bytes(), second.read_bytes()
    _restore(first, two)
    _restore(second, one)

    def back() -> None:
        _restore(first, one)
        _restore(second, two)

    return back


def mutations(count: int, seed: int) -> None:
    with in_memory() as path:
        folder = begun(path / "a")
        with folder.lock():
            for step in (1, 2):
                folder.save(snapshot(step), ENVIRONMENT, 3)
            first = folder.checkpoints / checkpoint_name(0)
            for number in range(count):
                same = (folder.checkpoints / checkpoint_name(1) / MANIFEST).read_bytes()
                whole = _hashes(folder)
                back = damage(folder, np.random.default_rng([seed, number]))
                changed = {name for name, data in _hashes(folder).items() if data != whole[name]}
                if changed:  # two checkpoints may have the same tokenizer
                    found, skipped = folder.find_newest()
                    hurt = {name.parts[0] for name in changed}
                    expected = (
                        folder.checkpoints / checkpoint_name(1) if hurt == {checkpoint_name(2)} else first
                    )
                    assert found == expected, f"mutation {number} was not seen"
                    assert len(skipped) == len(hurt)
                    with pytest.raises(FileError):
                        read(folder.checkpoints / checkpoint_name(2))
                back()
                assert same == (folder.checkpoints / checkpoint_name(1) / MANIFEST).read_bytes()
            found, skipped = folder.find_newest()
            assert found == folder.checkpoints / checkpoint_name(2) and not skipped


def _hashes(folder: RunFolder) -> dict[Path, bytes]:
    paths = [path for path in folder.checkpoints.rglob("*") if path.is_file()]
    return {path.relative_to(folder.checkpoints): path.read_bytes() for path in paths}


def test_no_damage_goes_unseen() -> None:
    mutations(60, 0)


@pytest.mark.torture
def test_no_damage_of_much_goes_unseen() -> None:
    mutations(20_000, 1)


def test_two_whole_checkpoints_that_changed_names_are_seen(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a")
    with folder.lock():
        for step in (1, 2):
            folder.save(snapshot(step), ENVIRONMENT, 3)
    first, second = (folder.checkpoints / checkpoint_name(step) for step in (1, 2))
    shutil.move(first, tmp_path / "kept")
    shutil.move(second, first)
    shutil.move(tmp_path / "kept", second)
    found, skipped = folder.find_newest()
    assert found == folder.checkpoints / checkpoint_name(0) and len(skipped) == 2
