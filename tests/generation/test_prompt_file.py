"""Prompts from a file: every line is read strictly, and a wrong one is named."""

from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.generation.prompt_file import PromptRecord, read_prompt_file, read_prompt_lines


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
