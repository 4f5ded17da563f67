"""Commands are completed, and their arguments are read as a shell reads them."""

from pathlib import Path

import pytest

from pellucid.cli.chat_commands import COMMANDS, _read_output, complete_input


def test_commands_settings_and_files_are_completed(tmp_path: Path) -> None:
    assert set(complete_input("", "/s")) == {f"/{name} " for name in COMMANDS}
    assert "temperature=" in complete_input("/set ", "te")
    assert list(complete_input("/set temperature=", "")) == []
    (tmp_path / "talk.json").write_text("")
    (tmp_path / "folder").mkdir()
    assert set(complete_input("/load ", f"{tmp_path}/")) == {f"{tmp_path}/talk.json", f"{tmp_path}/folder/"}
    assert list(complete_input("/load ", f"{tmp_path}/none/")) == []
    assert list(complete_input("Who are ", "yo")) == []


@pytest.mark.parametrize(
    ("text", "path", "force"),
    [
        ("talk.json", "talk.json", False),
        ("talk.json --force", "talk.json", True),
        ("my talk.json --force", "my talk.json", True),
        ("'my talk.json'", "my talk.json", False),
        ("it's.json", "it's.json", False),
        ("--force", "--force", False),
    ],
)
def test_a_path_is_read_as_a_shell_reads_it(text: str, path: str, force: bool) -> None:
    assert _read_output(text) == (Path(path), force)
