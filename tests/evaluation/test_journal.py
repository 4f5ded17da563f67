"""The journal of an evaluation: what was computed is kept, whatever happens, and by one process at a time."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.evaluation.journal import HEADER, JournalFile, journal_path
from pellucid.evaluation.scoring import TargetScores


def make_scores(n: int, seed: int = 0) -> TargetScores:
    random = np.random.default_rng(seed)
    return TargetScores(random.normal(size=n), random.integers(0, 100, n).astype(np.int32))


def write(path: Path, *sizes: int) -> None:
    with JournalFile(path) as journal:
        for n in sizes:
            journal[f"key {n}"] = make_scores(n, n)


def same(a: TargetScores, b: TargetScores) -> bool:
    return np.array_equal(a.nll, b.nll) and np.array_equal(a.rank, b.rank)


def test_scores_are_read_back_bit_for_bit(tmp_path: Path) -> None:
    path = journal_path(tmp_path / "a.json")
    write(path, 1, 3)
    write(path, 5)
    with JournalFile(path) as journal:
        assert sorted(journal) == ["key 1", "key 3", "key 5"] and "key 2" not in journal
        assert all(same(journal[f"key {n}"], make_scores(n, n)) for n in (1, 3, 5))


def test_a_journal_without_scores_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.partial"
    write(path)
    assert not path.exists()


def test_a_journal_that_served_is_removed(tmp_path: Path) -> None:
    with JournalFile(tmp_path / "a.partial") as journal:
        journal["k"] = make_scores(2)
        journal.remove()
    assert not list(tmp_path.iterdir())


def test_a_line_cut_off_anywhere_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.partial"
    write(path, 1, 2)
    content = path.read_bytes()
    first = len(content) - len(content.splitlines(keepends=True)[-1])
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        with JournalFile(path) as journal:
            assert len(journal) == (size >= len(HEADER) and first <= size)
            journal["new"] = make_scores(4)
        with JournalFile(path) as journal:
            assert same(journal["new"], make_scores(4))


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.partial"
    with JournalFile(path) as journal:
        with pytest.raises(FileError, match="another evaluation"):
            JournalFile(path)
        journal["k"] = make_scores(3)
    with JournalFile(path) as journal:
        assert same(journal["k"], make_scores(3))


def test_a_file_that_is_not_a_journal_is_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "a.partial"
    path.write_text("my notes", "utf-8")
    with pytest.raises(FileError):
        JournalFile(path)
    assert path.read_text("utf-8") == "my notes"
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError):
        JournalFile(tmp_path / "folder")


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"nonsense",
        b'{"key": 1, "nll": "", "rank": ""}',
        b'{"key": "a", "nll": "AAAA", "rank": "AAAA"}',
        b'{"key": "a", "nll": "?", "rank": ""}',
        b'{"key": "a", "nll": "AAAAAAAAAAA=", "rank": ""}',
        b'{"key": "a", "nll": "AAAAAAAA+H8=", "rank": "AAAAAA=="}',  # NaN
        b'{"key": "a", "nll": "AAAAAAAAAAA=", "rank": "/////w=="}',  # -1
    ],
)
def test_a_damaged_journal_is_named_and_kept(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.partial"
    path.write_bytes(HEADER + line + b"\n")
    with pytest.raises(FileError, match="damaged"), JournalFile(path) as journal:
        journal["a"]
    assert path.read_bytes() == HEADER + line + b"\n"


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.partial"
    path.write_bytes(HEADER.replace(b": 1}", b": 2}"))
    with pytest.raises(FileError, match="2"):
        JournalFile(path)
