"""A file of a conversation is read strictly, and never written over anything else."""

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError
from pellucid.generation.conversation_file import (
    Exchange,
    SavedConversation,
    read_conversation,
    write_conversation,
)
from pellucid.generation.settings.sampling import Sampling

SAVED = SavedConversation(
    "tiny", "Be.", Sampling(temperature=0.5, stop="END"), [Exchange("Who?", "Mé \ud800."), Exchange("", "")]
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    write_conversation(path, SAVED)
    assert read_conversation(path) == SAVED
    with pytest.raises(FileError):
        write_conversation(path, SAVED)
    write_conversation(path, SAVED._replace(exchanges=[]), force=True)
    assert read_conversation(path).exchanges == []


@pytest.mark.parametrize("content", ["notes", "{}", '{"format": "pellucid-trace"}', "[" * 100_000])
def test_another_file_is_never_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.json"
    path.write_text(content)
    with pytest.raises(FileError):
        write_conversation(path, SAVED, force=True)
    assert path.read_text() == content


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"model": 5},
        {"system": 5},
        {"sampling": {"temprature": 1}},
        {"sampling": {"temperature": -1}},
        {"sampling": []},
        {"messages": {}},
        {"messages": ["hi"]},
        {"messages": [{"role": "user", "content": "a"}]},
        {"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]},
        {"messages": [{"role": "user", "content": 1}, {"role": "assistant", "content": "b"}]},
        {"messages": [{"role": "user", "content": "a", "x": 1}, {"role": "assistant", "content": "b"}]},
        {"more": 1},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "talk.json"
    write_conversation(path, SAVED)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(FileError):
        read_conversation(path)


def test_what_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    with pytest.raises(FileError):
        read_conversation(path)
    write_conversation(path, SAVED)
    for key in ("model", "system", "sampling", "messages"):
        data = json.loads(path.read_bytes())
        del data[key]
        broken = tmp_path / "broken.json"
        broken.write_text(json.dumps(data))
        with pytest.raises(FileError):
            read_conversation(broken)
