"""Prompts from a file are read strictly, and a wrong line is named; a file of results grows line by line, and
never replaces anything else."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, ResourceError
from pellucid.generation.prompt_jobs import PromptRecord, ResultFile, read_prompt_file, read_prompt_lines


def test_a_line_is_an_object_a_text_or_ids(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "a", "id": 7, "sampling": {"temperature": 0.5}}\r\n\n"b\u2028c"\n[1, 2]\n', "utf-8"
    )
    assert read_prompt_file(path) == [
        PromptRecord("a", 7, {"temperature": 0.5}, f"{path}, line 1"),
        PromptRecord("b\u2028c", where=f"{path}, line 3"),
        PromptRecord((1, 2), where=f"{path}, line 4"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Once upon a time", "is not JSON"),
        ('{"prompt": "a"', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("1" * 5000, "is not JSON"),
        ('{"promt": "a"}', "'prompt'"),
        ('{"id": 1}', "missing: prompt"),
        ("null", "prompt must be"),
        ("[1, 2.5]", "prompt.*must be"),
        ("[true]", "prompt.*must be"),
        ('{"prompt": "a", "id": [1]}', "id must be"),
        ('{"prompt": "a", "sampling": 5}', "sampling must be"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, words: str) -> None:
    with pytest.raises(FileError, match=rf"p\.jsonl, line 2.*{words}"):
        read_prompt_lines(f'"right"\n{line}\n', "p.jsonl")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_prompts_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="has no prompts"):
        read_prompt_lines(text, "p.jsonl")


def test_a_file_that_is_not_there_or_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*none\.jsonl"):
        read_prompt_file(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'"na\xefve"')
    with pytest.raises(FileError, match="not UTF-8"):
        read_prompt_file(tmp_path / "latin.jsonl")


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
