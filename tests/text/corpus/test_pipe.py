"""A text that is a pipe."""

import os
import threading
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.text.corpus import pipe
from pellucid.text.corpus.unpack import chunks


def test_a_pipe_that_nothing_writes_into_is_refused_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=r"is a pipe, and for 0\.1 s no program has opened it to write"):
        list(chunks(str(tmp_path / "pipe"), 100))
    assert not any(thread.name == "pellucid-pipe" for thread in threading.enumerate())


def test_a_pipe_is_read_as_its_writer_fills_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"line\n" * 9000,))
    writer.start()
    assert b"".join(chunks(str(tmp_path / "pipe"), 1000)) == b"line\n" * 9000
    writer.join()
