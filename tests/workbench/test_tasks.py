"""Tasks by their paths: all are checked before the first runs."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid import FileError, UsageError
from pellucid.workbench.tasks import evaluate_tasks, read_tasks

LINES = [
    {"context": "A B", "choices": ["C", "D"], "answer": 0},
    {"context": "A B", "choices": ["A", "B C", "D D"], "answer": 2},
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "letters.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    return path


def test_questions_are_answered(questions: Path) -> None:
    model, seen = pellucid.load("abcd"), list[tuple[str, int, int]]()
    tasks = read_tasks(questions)
    (found,) = evaluate_tasks(model, tasks, progress=lambda *done: seen.append(done))
    assert seen == [("letters", 1, 2), ("letters", 2, 2)]
    assert (found.model, found.task, found.harness, found.n_questions) == ("abcd", "letters", "pellucid", 2)
    first = found.questions[0]["log_likelihoods"]
    assert first == pytest.approx(model.loglikelihood("A B", [" C", " D"]))


@pytest.mark.parametrize("paths", [None, 7, [7], ["\0"], b"a.jsonl"])
def test_a_task_is_a_path(paths: Any) -> None:
    with pytest.raises(UsageError):
        read_tasks(paths)


@pytest.mark.parametrize("name", ["none.jsonl", "none.yaml", "none"])
def test_a_missing_file_is_refused(name: str, questions: Path) -> None:
    with pytest.raises(FileError, match=name):
        read_tasks([questions, questions.parent / name])


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UsageError, match=r"a\.txt"):
        read_tasks([tmp_path / "a.txt"])


def test_without_lm_eval_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pellucid\[eval\]'"):
        read_tasks([tmp_path])
