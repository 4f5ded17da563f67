"""Tasks: questions of a JSONL file of ours, and task files of lm-eval, run on one model.

    evaluate_tasks(model, ["questions.jsonl", "my_task.yaml", "tasks/"])

Every path is checked before the first task runs.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_path, to_list
from pellucid.base.errors import FileError, UsageError
from pellucid.base.files import check_readable

if TYPE_CHECKING:  # torch is imported when a task runs
    from pellucid.evaluation.multiple_choice import Question
    from pellucid.evaluation.result import TaskResult
    from pellucid.evaluation.scoring import Journal
    from pellucid.model import Model

    Tasks = dict[Path, list[Question] | None]

LM_EVAL_MISSING = "task files of lm-eval need lm-eval: pip install 'pellucid[eval]'"
Progress = Callable[[str, int, int], None]
"""Called with the names of model and task, and how many tokens of how many are done."""


def read_tasks(paths: Any) -> "Tasks":
    """Returns the questions of each JSONL file, None for a task file or folder of lm-eval; raises where a
    path is neither, or where lm-eval is needed and is not installed."""
    given = [Path(check_path("tasks", one)) for one in to_list(paths)]
    return {path: _read_task(path) for path in given}


def _read_task(path: Path) -> "list[Question] | None":
    if path.suffix == ".jsonl":
        from pellucid.evaluation.multiple_choice import read_questions

        return read_questions(path)
    check_readable(path)
    if not path.exists():
        raise FileError(f"cannot read {path}: No such file or directory.")
    if not path.is_dir() and path.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"{path} is not a task: give questions as .jsonl, a task of lm-eval as .yaml, or a folder of "
            "such tasks."
        )
    if importlib.util.find_spec("lm_eval") is None:
        raise UsageError(LM_EVAL_MISSING)
    from pellucid.evaluation.lm_eval_tasks import warn_of_code

    warn_of_code(path)
    return None


def evaluate_tasks(
    model: "Model",
    tasks: "Tasks",
    *,
    name: str | None = None,
    seed: int = 0,
    samples: int = 1000,
    journal: "Journal | None" = None,
    progress: Progress = lambda name, done, total: None,
) -> "Iterator[TaskResult]":
    """Yields the result of each task, in order; `seed` and `samples` are those of the bootstrap, `name` is
    that of the model among others."""
    from pellucid.evaluation.multiple_choice import score_questions, summarize_choices
    from pellucid.generation.ledger.ledger import compute_fingerprint

    if not tasks:
        return
    about = {"model": name or model.short_name, "fingerprint": compute_fingerprint(model)}
    for path, questions in tasks.items():
        show = functools.partial(progress, f"{about['model']}: {path.stem}")
        if questions is None:
            from pellucid.evaluation.lm_eval_tasks import run_lm_eval

            yield from run_lm_eval(model, path, about, journal, show)
            continue
        scored = score_questions(
            model.module,
            model.pretrained,
            questions,
            journal=journal,
            progress=show,
        )
        yield summarize_choices(
            list(scored), task=path.stem, path=str(path), samples=samples, seed=seed, **about
        )
