"""Runs task files of lm-eval on a model, offline: local YAML with local data.

A task file is a program: lm-eval runs the functions and templates that it names. Run only those you trust;
`warn_of_code` says which functions they are.
"""

import contextlib
import functools
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import FileError, PellucidError, quote
from pellucid.evaluation.result import TaskMetric, TaskResult

if TYPE_CHECKING:
    from pellucid.evaluation.scoring import Journal
    from pellucid.model import Model

ENVIRONMENT = dict.fromkeys(
    ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "DISABLE_MULTIPROC"), "1"
)
"""Nothing is downloaded: the libraries of Hugging Face read this when they are imported. And lm-eval starts
no processes for its bootstrap. A value that the user has set wins."""
NORMAL = 1.96
"""Standard errors on either side of a value in its 95 % interval."""
SAMPLES = 1000
"""Of lm-eval's bootstrap, for metrics whose standard error has no formula."""


class TaskCodeWarning(UserWarning):
    """A task file runs Python functions."""


def warn_of_code(path: Path) -> None:
    """Warns of each task file, of a folder or included ones, that names Python functions, before one runs."""
    for file, functions in _find_functions(path):
        modules = {
            name: file.parent / f"{name.rpartition('.')[0].replace('.', '/')}.py" for name in functions
        }
        named = [f"{name} of {place}" if place.exists() else name for name, place in modules.items()]
        message = f"{file} runs Python code: {', '.join(named)}. Run only tasks that you trust."
        warnings.warn(message, TaskCodeWarning, stacklevel=3)


def _find_functions(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yields each task file with the functions that it names; lm-eval refuses one that is not YAML."""
    import yaml

    files = sorted(path.glob("**/*.yaml")) if path.is_dir() else [path]
    seen = set[Path]()
    while files:
        if (file := files.pop(0)).resolve() in seen:
            continue
        seen.add(file.resolve())
        try:
            node = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)  # makes no object of a tag
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError):
            continue
        functions, included = _list_tags(node)
        files += [file.parent / name for name in included]
        if functions:
            yield file, functions


def _list_tags(root: Any) -> tuple[list[str], list[str]]:
    """Returns the functions that the nodes of a YAML file name, and the files that they include."""
    import yaml

    functions, included, nodes, seen = list[str](), list[str](), [root], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                nodes += [key, value]
                if key.value == "include":
                    names = value.value if isinstance(value, yaml.SequenceNode) else [value]
                    included += [name.value for name in names if isinstance(name, yaml.ScalarNode)]
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.ScalarNode) and node.tag == "!function":
            functions.append(node.value)
    return sorted(set(functions)), included


def run_lm_eval(
    model: "Model",
    path: Path,
    about: Mapping[str, str],
    journal: "Journal | None" = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[TaskResult]:
    """Returns the result of each task and group of a YAML file, or of all YAML files in a folder.

    `about` are the model's name and fingerprint; log-likelihoods in the `journal` are not computed again.
    """
    with _set_environment(ENVIRONMENT):
        from lm_eval import __version__, simple_evaluate
        from lm_eval.tasks import TaskManager

        from pellucid.evaluation.lm_eval_model import LmEvalModel

        with _silence(), _translate_errors(path):
            manager = TaskManager(include_path=path if path.is_dir() else None, include_defaults=False)
            names = _find_tasks(manager, path)
            lm = LmEvalModel(model, journal, progress)
            found = simple_evaluate(lm, tasks=names, task_manager=manager, bootstrap_iters=SAMPLES)
    about = {**about, "path": str(path), "harness": f"lm-eval {__version__}"}
    rows = found["results"] | found.get("groups", {})
    return [
        _read_result(name, row, found["samples"].get(name, []), lm.truncated, about)
        for name, row in rows.items()
    ]


def _find_tasks(manager: Any, path: Path) -> list[str]:
    """Returns the groups of a folder and the tasks that are in none of them; or the one file."""
    if not path.is_dir():
        return [str(path)]
    groups = manager.all_groups
    grouped = manager.load(groups)["tasks"] if groups else {}
    names = [*groups, *(name for name in manager.all_subtasks if name not in grouped)]
    if not names:
        raise FileError(f"{path} has no task of lm-eval: a task is a .yaml file with the key task or group.")
    _check_all_found(manager, path)
    return names


def _check_all_found(manager: Any, folder: Path) -> None:
    """Raises for a YAML file that names a task and that lm-eval passed over, which it does in silence."""
    import yaml

    known = {entry.yaml_path for entry in manager.task_index.values()}
    for file in sorted(folder.glob("**/*.yaml")):
        if file in known:
            continue
        try:
            node = yaml.compose(file.read_text("utf-8"), Loader=yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise FileError(f"{file} is not YAML: {quote(error)}.") from None
        keys = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        if {"task", "group"} & set(keys):
            raise FileError(
                f"lm-eval cannot read {file}, or another file there has the same task: correct it, or remove "
                "it from the folder."
            )


def _read_result(
    task: str,
    row: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    truncated: Collection[str],
    about: Mapping[str, Any],
) -> TaskResult:
    """Returns one row of lm-eval's results; a metric's key there is "acc,none", its name and its filter."""
    metrics = []
    for key, value in row.items():
        metric, comma, filter = key.partition(",")
        is_metric = comma and not metric.endswith("_stderr") and isinstance(value, int | float)
        if not is_metric or not math.isfinite(value):
            continue
        error = row.get(f"{metric}_stderr,{filter}")
        label = metric if filter == "none" else f"{metric} ({filter})"
        metrics.append(_make_metric(label, float(value), error))
    return TaskResult(
        **about,
        task=task,
        n_questions=int(row.get("sample_len") or len(samples)),
        metrics=tuple(metrics),
        n_truncated=sum(any(given[0] in truncated for given in one["arguments"]) for one in samples),
        questions=tuple(to_plain(one) for one in samples),
    )


def _make_metric(name: str, value: float, error: Any) -> TaskMetric:
    """Returns a metric with its interval; lm-eval says "N/A" where it has no standard error."""
    if not isinstance(error, int | float) or not math.isfinite(error):
        return TaskMetric(name, value)
    return TaskMetric(name, value, value - NORMAL * error, value + NORMAL * error, float(error))


def to_plain(value: Any) -> Any:
    """Returns a value as JSON has it; what JSON does not have is its text.

    >>> to_plain({"a": (1, float("inf")), 2: None})
    {'a': [1, 'inf'], '2': None}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return value if is_finite and (value is None or isinstance(value, str | int | float)) else str(value)


@contextlib.contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables that are not set, for the time of the block."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps the progress bars and the warnings of lm-eval and its libraries from the screen: it warns about
    each default that a task file relies on. What is printed goes to standard error, since standard output may
    be JSON."""
    import datasets
    import tqdm
    from lm_eval.api import task

    logger, bar = logging.getLogger("lm_eval"), tqdm.tqdm
    level, had_bars = logger.level, not datasets.are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    tqdm.tqdm = task.tqdm = functools.partial(bar, disable=True)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(level)
        tqdm.tqdm = task.tqdm = bar
        if had_bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Turns what lm-eval and a task's own code raise into an error about the task file."""
    try:
        yield
    except PellucidError:
        raise
    except Exception as error:
        raise FileError(f"lm-eval cannot run {path}: {type(error).__name__}: {quote(error)}.") from error
