"""A shell for the tests of commands."""

from pathlib import Path

import pytest

from pellucid.base.files import find_user_folder
from tests.cli.commands import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """In an empty folder, with a home of its own for the library and the learner's record; the compiled
    decoders in it are the user's, since compiling one takes seconds."""
    native, home = find_user_folder("cache") / "native", tmp_path.with_name(f"{tmp_path.name}-home")
    native.mkdir(parents=True, exist_ok=True)
    home.mkdir()
    (home / "native").symlink_to(native)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PELLUCID_HOME", str(home))
    return Shell(capsys, monkeypatch, home)
