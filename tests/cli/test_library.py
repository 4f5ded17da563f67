"""`get` and `list` as a person meets them. No test needs a network: the download is a stand-in."""

import io
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pellucid.base.errors import FileError
from pellucid.cli.library import _progress, get, list_models
from pellucid.formats import fetch
from pellucid.formats.fetch import DownloadProgress, Fetched, Report
from tests.cli.test_export import save_tiny

app = typer.Typer()
app.command("get")(get)
app.command("list")(list_models)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    return tmp_path / "models"


def test_get_says_what_came_and_where_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def arrived(name: str, *, force: bool, report: Report) -> Fetched:
        report(DownloadProgress(10, 93_000_000))
        report(DownloadProgress(20, 93_000_000))
        home.mkdir()
        (home / "smollm2.gguf").write_bytes(bytes(2_000_000))
        return Fetched(name, home / "smollm2.gguf", fresh=True)

    monkeypatch.setattr(fetch, "get", arrived)
    done = run("get", "smollm2")
    assert done.stderr == "downloading smollm2 (93 MB) …\n"
    assert done.stdout.startswith(f"smollm2: {home / 'smollm2.gguf'}, 2 MB\nSmolLM2-135M-Instruct")
    assert "Apache-2.0" in done.stdout


def test_get_of_what_is_here_says_so_and_fetches_nothing(home: Path) -> None:
    home.mkdir()
    (home / "smollm2.gguf").touch()
    done = run("get", "smollm2")
    assert done.exit_code == 0
    assert (
        done.stdout.startswith("smollm2 is downloaded already: ")
        and str(home / "smollm2.gguf") in done.stdout
    )
    assert done.stderr == ""


def test_list_of_an_empty_library_says_what_could_be_fetched(home: Path) -> None:
    done = run("list")
    assert done.exit_code == 0
    assert f"no models yet in {home}" in done.stdout
    assert "smollm2      92.9 MB  Apache-2.0" in done.stdout
    assert "hf:ORG/NAME" in done.stdout
    assert "gpt2          124,439,808 parameters\n" in done.stdout
    assert "abcd          28 parameters               with weights\n" in done.stdout
    assert not home.exists()


def test_list_shows_what_is_here_and_a_broken_model_with_its_reason(home: Path) -> None:
    save_tiny(home / "mine")
    (home / "bad.gguf").write_bytes(b"nonsense")
    done = run("list")
    assert done.exit_code == 0
    mine, bad = (next(x for x in done.stdout.splitlines() if x.split()[:1] == [n]) for n in ("mine", "bad"))
    assert mine.split()[:4] == ["mine", "pellucid", "3,856", "parameters"]
    assert mine.endswith(f"F32  {home / 'mine'}")
    assert bad.split()[1] == "broken"
    assert str(home / "bad.gguf") in bad


def test_list_as_data_is_json(home: Path) -> None:
    save_tiny(home / "mine")
    (home / "bad.gguf").write_bytes(b"nonsense")
    found = json.loads(run("list", "--json").stdout)
    assert found["library"] == str(home)
    bad, mine = found["models"]
    assert mine["parameters"] == 3856 and mine["types"] == {"F32": 20}
    assert "bad.gguf" in bad["broken"]
    assert [known["name"] for known in found["known"]] == ["smollm2"]
    assert {"name": "gpt2", "parameters": 124_439_808, "weights": False} in found["presets"]


def test_a_folder_of_the_name_of_a_preset_is_not_the_preset(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    weights = {one["name"]: one["weights"] for one in json.loads(run("list", "--json").stdout)["presets"]}
    assert weights["abcd"] and not weights["gpt2"]


def test_what_cannot_be_fetched_is_one_error(home: Path) -> None:
    done = run("get", "smollm3")
    assert "one of smollm2, hf:ORG/NAME" in str(done.exception)
    home.parent.chmod(0o700)
    home.write_text("a file where the library should be")
    assert isinstance(run("get", "smollm2").exception, FileError)


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
