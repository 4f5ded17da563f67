"""Files of ours are written whole or not at all, whoever else writes them."""

from pathlib import Path

import pytest

from pellucid.errors import FileError
from pellucid.files import whole_file


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


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"), whole_file(tmp_path / "no" / "model"):
        pass
