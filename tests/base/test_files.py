"""Files are written whole or not at all, and replaced only by order, whoever else writes there."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pellucid.base.errors import FileError, ResourceError, UsageError
from pellucid.base.files import (
    Kind,
    check_output,
    make_folders,
    new_file,
    new_folder,
    partial_folder,
    sweep,
    temporary_folder,
    whole_file,
)


def test_two_that_write_one_file_do_not_write_into_each_other_s(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with whole_file(path) as first:
        first.write(b"1" * 10)
        with whole_file(path) as second:
            second.write(b"2")
        assert path.read_bytes() == b"2"
        first.write(b"1" * 10)
    assert path.read_bytes() == b"1" * 20
    assert list(tmp_path.iterdir()) == [path]


def test_what_ends_badly_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def stopped() -> None:
        with whole_file(path) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stopped()
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"), whole_file(tmp_path / "no" / "model"):
        pass


# ---- one rule for every output

KIND = Kind("a note", lambda path: "" if is_note(path) else "it does not begin with NOTE")


def is_note(path: Path) -> bool:
    file = path / "note" if path.is_dir() else path
    return file.is_file() and file.read_bytes().startswith(b"NOTE")


def write(path: Path, kind: str, text: bytes = b"NOTE 2", force: bool = False) -> None:
    if kind == "file":
        with new_file(path, KIND, force) as file:
            file.write(text)
    else:
        with new_folder(path, KIND, force) as folder:
            (folder / "note").write_bytes(text)


def content(path: Path) -> bytes:
    return (path / "note" if path.is_dir() else path).read_bytes()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_output_is_created_and_replaced_only_by_order(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    write(path, kind, b"NOTE 1")
    with pytest.raises(FileError, match="--force"):
        write(path, kind)
    assert content(path) == b"NOTE 1"
    write(path, kind, force=True)
    assert content(path) == b"NOTE 2" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_not_recognized_is_never_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thesis"
    write(path, kind, b"NOTE")
    (path / "note" if kind == "folder" else path).write_bytes(b"my thesis")
    with pytest.raises(FileError, match="is not a note"):
        write(path, kind, force=True)
    assert content(path) == b"my thesis" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_output_that_comes_while_another_is_made_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    context = new_file(path, KIND) if kind == "file" else new_folder(path, KIND)
    with pytest.raises(FileError), context:
        write(path, kind, b"NOTE theirs")
    assert content(path) == b"NOTE theirs" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
def test_an_output_needs_a_name(path: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        check_output(Path(path), KIND)


def test_folders_above_are_made_and_removed_again_where_it_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b" / "out", KIND):
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    (tmp_path / "a").mkdir()
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b" / "out", KIND):
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


KILLED = """
import os, sys
from pathlib import Path
from pellucid.base import files
path, kind = Path(sys.argv[1]), files.Kind("a note", lambda path: "")
if sys.argv[2] == "file":
    with files.new_file(path, kind, force=True) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), 9)
files.exchange = lambda a, b: False
real, calls = os.replace, []
def replace(a, b):
    real(a, b)
    os.kill(os.getpid(), 9)  # after the old folder was moved aside
os.replace = replace
with files.new_folder(path, kind, force=True) as folder:
    (folder / "note").write_bytes(b"NOTE new")
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_call_sweeps_what_a_killed_one_left_and_puts_back_what_it_moved(
    tmp_path: Path, kind: str
) -> None:
    path, stranger = tmp_path / "out", tmp_path / ".out.partial"
    write(path, kind, b"NOTE 1")
    stranger.write_bytes(b"somebody's")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), kind], check=False)
    assert done.returncode == -9 and len(list(tmp_path.iterdir())) == (3 if kind == "file" else 2)
    with pytest.raises(RuntimeError), new_file(tmp_path / "other", KIND):
        raise RuntimeError  # what was moved aside is not this one's to put back or to remove
    sweep(path)
    assert content(path) == b"NOTE 1" and sorted(tmp_path.iterdir()) == [stranger, path]


def test_what_a_killed_call_left_is_swept_by_one_that_writes_another_path(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "living") as mine:
        dead = mine.with_name(mine.name.replace(mine.name[-16:-8], "00000000"))
        dead.mkdir()
        write(tmp_path / "out", "file")
        assert mine.is_dir() and not dead.exists()


def test_a_call_that_is_refused_sweeps_what_one_left_that_was_killed_after_its_last_rename(
    tmp_path: Path,
) -> None:
    write(tmp_path / "out", "folder")
    with partial_folder(tmp_path / "out") as living:
        dead = living.with_name(living.name.replace(living.name[-16:-8], "00000000"))
        dead.mkdir()
        with pytest.raises(FileError, match="exists already"):
            check_output(tmp_path / "out", KIND, folder=True)
        assert living.is_dir() and not dead.exists()


def test_a_temporary_folder_is_for_this_user_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.iterdir())


def test_a_partial_whose_writer_lives_is_not_swept(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "out") as mine:
        sweep(tmp_path / "out")
        assert mine.is_dir()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_failed_resource(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError) as error:
        write(tmp_path / "out", "file")
    assert error.value.exit_code == 3 and not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_files_is_reported_and_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr(os, "open", refuse)  # as in /proc
    with pytest.raises(FileError), whole_file(tmp_path / "model"):
        pass


def test_names_of_any_length_have_a_partial(tmp_path: Path) -> None:
    write(tmp_path / ("n" * 255), "file")


def test_calls_that_write_the_same_path_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    """Each sweeps what dead writers left, also in the moment in which another has made its own folder."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(60):
                make_folders(tmp_path / "a" / "b")
                with partial_folder(tmp_path / "a" / "b" / "out") as mine:
                    (mine / "file").write_text("mine")
                    assert (mine / "file").read_text() == "mine"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert list((tmp_path / "a" / "b").iterdir()) == []
