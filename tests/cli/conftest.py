"""A shell for the tests of commands."""

from pathlib import Path

import pytest

from tests.cli.commands import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """In an empty folder, beside which the library and the learner's record are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    return Shell(capsys, monkeypatch)
