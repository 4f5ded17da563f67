"""The history of messages is kept for the user alone, bounded, and never in the way."""

import json
import os
from pathlib import Path

import pytest

from pellucid.cli import line_editor
from pellucid.cli.line_editor import MOST_ENTRIES, MessageHistory


def test_messages_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"
    history = MessageHistory(path)
    for text in ("one", "two\nlines", "two\nlines", " ", "x" * (1 << 17)):
        history.add(text)
    assert MessageHistory(path).entries == ["one", "two\nlines"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_that_are_not_messages_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'"one"\n{}\nbroken\n\xff\n' + b"[" * 10_000 + b'\n"two"\n"ha')
    assert MessageHistory(path).entries == ["one", "two"]


def test_the_file_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_editor, "MOST_BYTES", 1000)
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f"{json.dumps(f'message {i}')}\n" for i in range(200)))
    history = MessageHistory(path)
    assert path.stat().st_size <= 1000 and path.stat().st_mode & 0o777 == 0o600
    assert MessageHistory(path).entries == history.entries and history.entries[-1] == "message 199"
    assert len(history.entries) <= MOST_ENTRIES


def test_a_history_that_cannot_be_written_is_that_of_this_chat(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = MessageHistory(tmp_path / "file" / "history.jsonl")
    history.add("one")
    assert history.entries == ["one"]
    os.mkfifo(tmp_path / "pipe")
    assert MessageHistory(tmp_path / "pipe").entries == []
