"""`pellucid evaluate`: a table, JSON and files; further models with --against; Ctrl-C keeps what is done."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from pellucid.evaluation.windows import MAX_WINDOW
from tests.cli.commands import Shell
from tests.data.small_corpora import text_file
from tests.evaluation.small_models import bpe, make_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and the models that are measured."""
    place = tmp_path_factory.mktemp("measured")
    text_file(place / "text.txt", 20)
    make_model().save(place / "a")
    make_model(bpe(280)).save(place / "b")
    return place


@pytest.fixture
def shell(shell: Shell, place: Path, tmp_path: Path) -> Shell:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    return shell


def test_the_first_argument_is_the_model_and_further_ones_follow_against(shell: Shell) -> None:
    done = shell("evaluate", "a", "text.txt", "--split", "line", "--against", "b", "--samples", "20")
    assert done.code == 0 and "bits per byte" in done.out
    assert shell("evaluate", "a", "b").code == 2  # a model folder is not a text


def test_json_is_the_file(shell: Shell, tmp_path: Path) -> None:
    options = ("--limit", "5", "--split", "line", "--samples", "20", "-o", "x.json", "--json")
    done = shell("evaluate", "a", "text.txt", *options)
    assert done.code == 0
    assert json.loads(done.out) == json.loads((tmp_path / "x.json").read_bytes())
    found = json.loads(done.out)
    assert found["models"][0]["total"]["n_documents"] == 5 and found["limit"] == "5"
    assert shell("evaluate", "a", "text.txt", *options).code == 2
    assert shell("evaluate", "a", "text.txt", *options, "--force").code == 0


def test_standard_input_is_a_text(shell: Shell) -> None:
    done = shell("evaluate", "a", "-", "--json", stdin=b"the cat sat on a mat")
    assert done.code == 0
    assert json.loads(done.out)["models"][0]["documents"]["name"] == ["standard input"]


def test_what_is_interrupted_says_how_to_go_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid.evaluation import scoring

    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": 64})
    score, calls = scoring.score_targets, list[int]()

    def interrupt(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return score(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scoring, "score_targets", interrupt)
    done = shell("evaluate", "a", "text.txt", "-o", "x.json")
    assert done.code == 130 and "x.json.partial" in done.err and Path("x.json.partial").exists()
    assert shell("evaluate", "a", "text.txt", "-o", "x.json").code == 0
    calls.clear()
    done = shell("evaluate", "a", "text.txt")
    assert done.code == 130 and "-o" in done.err
    calls[:] = [1, 1]
    done = shell("evaluate", "a", "text.txt", "-o", "y.json")
    assert done.code == 130 and "y.json" not in done.err and not Path("y.json.partial").exists()


def test_the_help_names_the_bound_of_a_window(shell: Shell) -> None:
    assert str(MAX_WINDOW) in shell("evaluate", "--help").out


def test_tasks_need_no_data(shell: Shell, tmp_path: Path) -> None:
    line = {"context": "the cat", "choices": ["sat", "ran"], "answer": 0}
    (tmp_path / "q.jsonl").write_text(json.dumps(line))
    done = shell("evaluate", "a", "--tasks", "q.jsonl", "--samples", "20")
    assert done.code == 0 and "acc_norm" in done.out and "1 question" in done.out
    both = shell("evaluate", "a", "text.txt", "--tasks", "q.jsonl", "--samples", "20", "--json")
    assert len(json.loads(both.out)["tasks"]) == len(json.loads(both.out)["models"]) == 1
    assert shell("evaluate", "a").code == 2
    assert shell("evaluate", "a", "--tasks", "text.txt").code == 2
