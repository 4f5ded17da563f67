"""`generate --sweep`: texts side by side on a terminal of any width, and as JSON."""

import json
from pathlib import Path

import pytest

import pellucid
from tests.cli.commands import Shell
from tests.model import folders

OPTIONS = ("--max-new-tokens", "5", "--seed", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.ours(tmp_path_factory.mktemp("ours") / "tiny", generation={})


@pytest.mark.parametrize("columns", [20, 50, 200])
def test_texts_stand_side_by_side(
    shell: Shell, folder: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = shell("generate", folder, "the", "--sweep", "temperature=0,1,2", *OPTIONS)
    assert done.code == 0 and "seed 3" in done.err
    assert all(len(line) <= columns for line in done.out.splitlines())
    heads = [line for line in done.out.splitlines() if "temperature=" in line]
    assert len(heads) == {20: 3, 50: 2, 200: 1}[columns]
    assert done.out.count("distinct") == 3


def test_json_has_every_text_and_figure(shell: Shell, folder: Path) -> None:
    assert shell("generate", folder, "a", "-n", 2, "--sweep", "temperature=1,2", *OPTIONS).code == 0
    sweeps = ("--sweep", "temperature=0,2", "--sweep", "top_k=0,5")
    data = json.loads(shell("generate", folder, "the", *sweeps, *OPTIONS, "--json").out)
    assert data["seed"] == 3 and len(data["rows"]) == 4
    greedy = pellucid.load(folder).generate("the", 5)
    assert data["rows"][0]["texts"] == [greedy] and data["rows"][0]["mean_surprisal"] > 0
