"""Task files of lm-eval: a file, a folder with a group, and what is wrong with one."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

import pellucid
from pellucid import FileError
from pellucid.evaluation.lm_eval_tasks import TaskCodeWarning
from pellucid.evaluation.tasks import evaluate_tasks, read_tasks

pytest.importorskip("lm_eval", reason="lm-eval, the extra `eval`, is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own imports
]
QUESTIONS = [
    {"context": "A B", "choices": ["C", "D"], "answer": 0},
    {"context": "A B C D", "choices": ["A", "B C", "D D"], "answer": 2},
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {folder}/letters.jsonl, cache_dir: {folder}/cache}}
test_split: train
output_type: multiple_choice
doc_to_text: "{template}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
GROUP = """
group: both
task: [first, second]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
"""


def write_task(folder: Path, name: str, template: str = "{{context}}") -> Path:
    (folder / "letters.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    path = folder / f"{name}.yaml"
    path.write_text(TASK.format(name=name, folder=folder, template=template))
    return path


@pytest.fixture(autouse=True)
def _skip_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-eval lists every installed package, which takes seconds."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


def test_a_file_is_one_task(tmp_path: Path) -> None:
    model = pellucid.load("abcd")
    paths = [tmp_path / "letters.jsonl", write_task(tmp_path, "letters")]
    ours, theirs = evaluate_tasks(model, read_tasks(paths))
    assert (theirs.task, theirs.n_questions) == ("letters", 2) and theirs.harness.startswith("lm-eval 0.")
    assert theirs.metrics[0].name == "acc"
    assert theirs.metrics[0].value == ours.metrics[0].value
    assert theirs.metrics[0].standard_error == pytest.approx(ours.metrics[0].standard_error)
    json.dumps(dataclasses.asdict(theirs), allow_nan=False)


def test_a_folder_is_its_groups_and_the_tasks_in_none(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        write_task(tmp_path, name)
    (tmp_path / "both.yaml").write_text(GROUP)
    found = {one.task: one for one in evaluate_tasks(pellucid.load("abcd"), read_tasks([tmp_path]))}
    assert set(found) == {"both", "first", "second", "third"}
    assert found["both"].metrics[0].value == found["first"].metrics[0].value


def test_contexts_that_lost_their_beginning_are_counted(tmp_path: Path) -> None:
    model = pellucid.load("abcd")
    length = model.config.context_length
    write_task(tmp_path, "long", template="{{context}}" + " A" * (length - 3))
    (found,) = evaluate_tasks(model, read_tasks([tmp_path / "long.yaml"]))
    assert found.n_truncated == 1


def test_nothing_is_printed_but_by_us(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A metric with a bootstrap, for which lm-eval prints a line and starts processes."""
    path = write_task(tmp_path, "letters")
    path.write_text(
        path.read_text().replace("[{metric: acc", "[{metric: acc_norm, aggregation: median}, {metric: acc")
    )
    seen = list[tuple[str, int, int]]()
    (found,) = evaluate_tasks(
        pellucid.load("abcd"), read_tasks([path]), progress=lambda *now: seen.append(now)
    )
    assert "acc_norm" in [metric.name for metric in found.metrics] and seen[-1][1] == seen[-1][2]
    out, err = capfd.readouterr()
    assert not out and "%" not in err


@pytest.mark.parametrize("content", ["a: [", "task: a\n", "task: a\ndataset_path: json\n", "just text", ""])
def test_a_file_that_lm_eval_cannot_run_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(content)
    needs_library = "dataset_path" in content  # which takes seconds to refuse: once is enough
    for path in (tmp_path / "wrong.yaml", *([] if needs_library else [tmp_path])):
        with pytest.raises(FileError, match=str(tmp_path)):
            list(evaluate_tasks(pellucid.load("abcd"), read_tasks([path])))


def test_a_folder_with_one_wrong_file_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, "right")
    (tmp_path / "wrong.yaml").write_text("task: a\ninclude: missing.yaml\n")
    with pytest.raises(FileError, match=r"wrong\.yaml"):
        list(evaluate_tasks(pellucid.load("abcd"), read_tasks([tmp_path])))


CODE = "process_docs: !function steps.process_docs\n"
STEPS = """
import pathlib
pathlib.Path(__file__).with_name("has_run").touch()
def process_docs(documents):
    return documents
"""


def write_code(folder: Path) -> Path:
    """Writes a task that includes a file that names a function."""
    path = write_task(folder, "letters")
    path.write_text(path.read_text() + "include: [base.yml]\n")
    (folder / "base.yml").write_text(CODE)
    (folder / "steps.py").write_text(STEPS)
    return path


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_task_that_runs_code_is_named_with_its_functions_before_they_run(
    tmp_path: Path, is_folder: bool
) -> None:
    path = write_code(tmp_path)
    with pytest.warns(TaskCodeWarning) as warned:
        tasks = read_tasks([tmp_path if is_folder else path])
    (message,) = (str(one.message) for one in warned)
    assert all(fact in message for fact in ("base.yml", "steps.process_docs", str(tmp_path / "steps.py")))
    assert not (tmp_path / "has_run").exists()
    if not is_folder:
        assert len(list(evaluate_tasks(pellucid.load("abcd"), tasks))) == 1
        assert (tmp_path / "has_run").exists()


def test_a_task_without_code_gives_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    read_tasks([write_task(tmp_path, "letters"), tmp_path])
    (tmp_path / "loop.yaml").write_text("a: &a [*a]\ninclude: [loop.yaml, missing.yaml, {b: 1}]\n")
    (tmp_path / "deep.yaml").write_text("[" * 1_500)
    read_tasks([tmp_path])
    assert not [one for one in recwarn if issubclass(one.category, TaskCodeWarning)]


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_a_real_model_gives_the_same_answers_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the documentation: 24 questions of common knowledge."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.chdir(Path(__file__).parents[2])
    tasks = read_tasks(["docs/common-knowledge.jsonl", "docs/common-knowledge.yaml"])
    ours, theirs = evaluate_tasks(pellucid.load(os.environ["PELLUCID_SMOLLM2"]), tasks)
    for row, sample in zip(ours.questions, theirs.questions, strict=True):
        found = [total for total, _ in sample["filtered_resps"]]
        assert row["log_likelihoods"] == pytest.approx(found, abs=1e-6)
    values = [{metric.name: metric.value for metric in one.metrics} for one in (ours, theirs)]
    assert values[1].items() <= values[0].items()
    assert ours.chance == 0.25 and values[0]["acc"] > 0.6
