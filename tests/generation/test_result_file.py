"""A file of results grows line by line, and never replaces anything else."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, ResourceError
from pellucid.generation.result_file import ResultFile


def result(text: str) -> dict[str, Any]:
    return {"prompt": "a", "text": text, "ids": [1], "finish": "length"}


def read(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()]


def test_every_line_is_there_when_its_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as file:
        assert not path.exists()
        for i, text in enumerate(["b", "naïve\n", "\ud800"], 1):
            file.write(result(text))
            assert read(path) == ["b", "naïve\n", "\ud800"][:i]


def test_an_interrupted_block_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with contextlib.suppress(KeyboardInterrupt), ResultFile(path) as file:
        file.write(result("b"))
        raise KeyboardInterrupt
    assert read(path) == ["b"]


def test_a_file_that_exists_is_replaced_only_with_force_and_by_the_first_result(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as file:
        file.write(result("old"))
    with pytest.raises(FileError, match="--force"):
        ResultFile(path)
    with ResultFile(path, force=True) as file:
        assert read(path) == ["old"]
        file.write(result("new"))
    assert read(path) == ["new"]


@pytest.mark.parametrize("content", ["my notes\n", '{"prompt": 1}\n', "[]", "[" * 100_000])
def test_another_s_file_is_never_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes"
    path.write_text(content)
    with pytest.raises(FileError, match="not a file of results"):
        ResultFile(path, force=True)
    with pytest.raises(FileError, match="not a file of results"):
        ResultFile(tmp_path, force=True)
    assert path.read_text() == content


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as file:
        path.write_text("another's")
        with pytest.raises(FileError, match="not a file of results"):
            file.write(result("b"))
    assert path.read_text() == "another's"


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "out.jsonl", os.write
    with ResultFile(path) as file:
        file.write(result("b"))
        monkeypatch.setattr(os, "write", lambda to, data: write(to, data[:5]))
        with pytest.raises(ResourceError):
            file.write(result("c"))
        monkeypatch.setattr(os, "write", write)
        file.write(result("d"))
    assert read(path) == ["b", "d"]
