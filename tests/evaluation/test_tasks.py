"""Tasks by their paths: all are checked before the first runs."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid import FileError, UsageError
from pellucid.evaluation import continuations
from pellucid.evaluation.tasks import evaluate_tasks, read_tasks

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
    assert seen == [("abcd: letters", 4, 11), ("abcd: letters", 11, 11)]  # tokens
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


def test_tasks_are_part_of_an_evaluation(questions: Path, tmp_path: Path) -> None:
    """With data or without; of each model; in the file and on the page."""
    out, page = tmp_path / "a.json", tmp_path / "a.html"
    found = pellucid.evaluate("abcd", tasks=questions, against="abcd", output=[out, page], samples=20)
    assert found.models == () and [one.model for one in found.tasks] == found.names == ["abcd", "abcd (2)"]
    assert out.read_text() == found.report().to_json()
    assert "How well abcd and abcd (2) do the tasks" in page.read_text()
    text = tmp_path / "a.txt"
    text.write_text("A B A C A B")
    both = pellucid.evaluate("abcd", text, tasks=[questions], samples=20)
    assert both.models and both.tasks == found.tasks[:1]
    with pytest.raises(UsageError):
        pellucid.evaluate("abcd")


def test_an_interrupted_task_continues_where_it_was(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuations, "MOST_CONTEXTS", 1)
    whole = pellucid.evaluate("abcd", tasks=questions, samples=20)

    def interrupt(now: Any) -> None:
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"tasks": questions, "output": tmp_path / "a.json", "samples": 20}
    with pytest.raises(KeyboardInterrupt):
        pellucid.evaluate("abcd", progress=interrupt, **settings)
    computed, score = list[int](), continuations._score_groups

    def count(module: Any, groups: Any) -> Any:
        computed.append(len(groups))
        return score(module, groups)

    monkeypatch.setattr(continuations, "_score_groups", count)
    assert pellucid.evaluate("abcd", **settings) == whole
    assert computed == [1]  # of two contexts
