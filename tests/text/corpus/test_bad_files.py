"""Bad files of a corpus are all known before any work, and skipped or mended where that is asked for."""

import gzip
import os
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.text.corpus import BadFilesError, Corpus
from pellucid.text.corpus.bad_files import SHOWN

BAD = {
    "junk.txt": b"text\0text",
    "latin1.txt": "ein Stück Käse".encode("latin-1"),
    "utf16.txt": "hello".encode("utf-16"),
    "cut.txt.gz": gzip.compress(b"text " * 99)[:-9],
    "records.jsonl": b'{"step": 1}\n',
    "end.md": b"good text " * 9999 + b"\xff",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the cat sat")
    (tmp_path / "z.txt").write_text("on the mat")
    for name, data in BAD.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_all_bad_files_are_listed_at_once_with_what_would_work(folder: Path) -> None:
    corpus = Corpus(folder, setting="data.on_bad_file=")
    with pytest.raises(BadFilesError) as refused:
        corpus.check()
    assert {os.path.basename(file) for file in refused.value.files} == set(BAD)
    for words in (*BAD, "6 of 8 files", "data.on_bad_file=skip", "data.on_bad_file=replace"):
        assert words in str(refused.value)


def test_many_bad_files_are_counted_and_some_named(tmp_path: Path) -> None:
    for i in range(SHOWN + 7):
        (tmp_path / f"{i:02}.txt").write_bytes(b"\xff")
    (tmp_path / "good.txt").write_text("good")
    with pytest.raises(BadFilesError, match="and 7 more") as refused:
        Corpus(tmp_path).check()
    assert len(refused.value.files) == SHOWN + 7 and str(refused.value).count("not UTF-8: ") == SHOWN


def test_bad_files_are_skipped_whole_and_named(folder: Path) -> None:
    corpus = Corpus(folder, on_bad_file="skip")
    assert [document.text for document in corpus.documents()] == ["the cat sat", "on the mat"]
    assert {os.path.basename(one.file) for one in corpus.skipped} == set(BAD)
    assert corpus.report.files == 2


def test_where_every_file_is_bad_nothing_is_left_to_skip_to(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(BadFilesError, match="replace puts") as refused:
        Corpus(tmp_path, on_bad_file="skip").check()
    assert "skip omits" not in str(refused.value)


def test_replacing_mends_bytes_but_not_damaged_files(folder: Path) -> None:
    with pytest.raises(BadFilesError) as refused:
        Corpus(folder, on_bad_file="replace").check()
    assert {os.path.basename(file) for file in refused.value.files} == {"cut.txt.gz", "records.jsonl"}
    assert "replace puts" not in str(refused.value)  # it would not help
    corpus = Corpus(folder / "latin1.txt", on_bad_file="replace")
    assert [document.text for document in corpus.documents()] == ["ein St�ck K�se"]
    assert corpus.report.replaced_bytes == 2


def test_a_pipe_is_not_read_by_the_check(tmp_path: Path) -> None:
    """It can be read only once, and opening it would wait."""
    os.mkfifo(tmp_path / "pipe")
    Corpus(tmp_path / "pipe").check()


def test_a_file_that_became_bad_after_the_check_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good")
    corpus = Corpus(tmp_path, on_bad_file="skip")
    corpus.check()
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(FileError):
        list(corpus.documents())
