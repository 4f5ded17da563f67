"""`get` and `list` as a person meets them. No test needs a network: the download is a stand-in."""

import io
import json
from pathlib import Path

import pytest

from pellucid.cli.library import _progress
from pellucid.formats import fetch
from pellucid.formats.fetch import DownloadProgress, Fetched, Report
from tests.cli.commands import Shell
from tests.cli.test_export import save_tiny


@pytest.fixture
def home(shell: Shell) -> Path:
    return shell.home / "models"


def test_get_says_what_came_and_where_it_is(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrived(name: str, *, force: bool, report: Report) -> Fetched:
        report(DownloadProgress(10, 93_000_000))
        report(DownloadProgress(20, 93_000_000))
        home.mkdir()
        (home / "smollm2.gguf").write_bytes(bytes(2_000_000))
        return Fetched(name, home / "smollm2.gguf", fresh=True)

    monkeypatch.setattr(fetch, "get", arrived)
    done = shell("get", "smollm2")
    assert done.err == "downloading smollm2 (93 MB) …\n"
    assert done.out.startswith(f"smollm2: {home / 'smollm2.gguf'}, 2 MB\nSmolLM2-135M-Instruct")
    assert "Apache-2.0" in done.out


def test_get_of_what_is_here_says_so_and_fetches_nothing(shell: Shell, home: Path) -> None:
    home.mkdir()
    (home / "smollm2.gguf").touch()
    done = shell("get", "smollm2")
    assert done.code == 0
    assert done.out.startswith("smollm2 is downloaded already: ") and str(home / "smollm2.gguf") in done.out
    assert done.err == ""


def test_list_of_an_empty_library_says_what_could_be_fetched(shell: Shell, home: Path) -> None:
    done = shell("list")
    assert done.code == 0
    assert f"no models yet in {home}" in done.out
    assert "smollm2      92.9 MB  Apache-2.0" in done.out
    assert "hf:ORG/NAME" in done.out
    assert "gpt2          124,439,808 parameters\n" in done.out
    assert "abcd          28 parameters               with weights\n" in done.out
    assert not home.exists()


def test_list_shows_what_is_here_and_a_broken_model_with_its_reason(shell: Shell, home: Path) -> None:
    save_tiny(home / "mine")
    (home / "bad.gguf").write_bytes(b"nonsense")
    done = shell("list")
    assert done.code == 0
    mine, bad = (next(x for x in done.out.splitlines() if x.split()[:1] == [n]) for n in ("mine", "bad"))
    assert mine.split()[:4] == ["mine", "pellucid", "3,856", "parameters"]
    assert mine.endswith(f"F32  {home / 'mine'}")
    assert bad.split()[1] == "broken"
    assert str(home / "bad.gguf") in bad


def test_list_as_data_is_json(shell: Shell, home: Path) -> None:
    save_tiny(home / "mine")
    (home / "bad.gguf").write_bytes(b"nonsense")
    found = json.loads(shell("list", "--json").out)
    assert found["library"] == str(home)
    bad, mine = found["models"]
    assert mine["parameters"] == 3856 and mine["types"] == {"F32": 20}
    assert "bad.gguf" in bad["broken"]
    assert [known["name"] for known in found["known"]] == ["smollm2"]
    assert {"name": "gpt2", "parameters": 124_439_808, "weights": False} in found["presets"]


def test_a_folder_of_the_name_of_a_preset_is_not_the_preset(
    shell: Shell, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    weights = {one["name"]: one["weights"] for one in json.loads(shell("list", "--json").out)["presets"]}
    assert weights["abcd"] and not weights["gpt2"]


def test_what_cannot_be_fetched_is_one_error(shell: Shell, home: Path) -> None:
    done = shell("get", "smollm3")
    assert "one of smollm2, hf:ORG/NAME" in done.err
    home.write_text("a file where the library should be")
    assert shell("get", "smollm2").code == 2


def test_the_bar_draws_a_name_as_it_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a name, brackets are brackets and an escape sequence is visible; neither is obeyed."""
    drawn = io.StringIO()
    monkeypatch.setattr(drawn, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", drawn)
    monkeypatch.setenv("TERM", "xterm")
    with _progress("hf:[bold]x[/nothing]\x1b]0;title\x07") as report:
        report(DownloadProgress(10, 100))
    text = drawn.getvalue()
    assert "[bold]x[/nothing]" in text
    assert "\x1b]0;" not in text
