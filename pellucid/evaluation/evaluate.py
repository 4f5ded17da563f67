"""Evaluation on texts: `pellucid.evaluate`, for one model or several side by side."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.base.arguments import check_bool, check_function, check_int, check_path, check_text, to_list
from pellucid.base.errors import UsageError
from pellucid.base.files import check_distinct
from pellucid.evaluation.tasks import evaluate_tasks, read_tasks
from pellucid.formats.pretrained import parameter_count
from pellucid.model import AnyModel, Model, Paths, load, to_model

if TYPE_CHECKING:
    from pellucid.evaluation.documents import Documents
    from pellucid.evaluation.journal import JournalFile
    from pellucid.evaluation.result import EvaluatedModel, Evaluation, ModelEvaluation

MOST_SAMPLES = 1_000_000


class EvaluationProgress(NamedTuple):
    """How far an evaluation has come, in tokens that the model now evaluated has read."""

    model: str
    """Its name, and that of the task that it does."""
    done: int
    total: int | None
    """None where the text can be read only once."""


Progress = Callable[[EvaluationProgress], None]


def evaluate(
    model: "Model | str | os.PathLike[str]",
    /,
    data: Paths = (),
    *,
    tasks: Paths = (),
    against: AnyModel | Sequence[AnyModel] = (),
    window: int | None = None,
    stride: int | None = None,
    split: str = "file",
    limit: int | str | None = None,
    samples: int = 1000,
    seed: int = 0,
    output: Paths = (),
    force: bool = False,
    progress: Progress = lambda _: None,
) -> "Evaluation":
    """Returns how well a model predicts texts, and how other models differ from it.

    `data` is a text file, a folder, a `.jsonl` file, a token folder, `stories:LEVEL` or `task:NAME`, or a
    list of them; `limit` is a number of documents or a size ("50kB") of each. Long texts are read in windows
    of `window` tokens, one every `stride`. `tasks` are files of multiple-choice questions (.jsonl) and tasks
    of lm-eval (.yaml, or a folder). `against` are further models, each compared with the first.
    `samples` and `seed` are those of the bootstrap. `output` is an evaluation file (.json) or a page (.html),
    or a list of both; what is computed is kept beside it, so that the same call continues after an
    interruption.

    >>> import pathlib, tempfile, pellucid
    >>> text = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = text.write_text("A B A C A B")
    >>> total = pellucid.evaluate("abcd", text).models[0].total
    >>> f"{total.n_targets} targets, {total.loss.value:.4f} nats per token, perplexity {total.perplexity:.3f}"
    '5 targets, 1.7354 nats per token, perplexity 5.671'
    """
    model = to_model(model)
    from pellucid.evaluation.documents import read_documents
    from pellucid.evaluation.report import EVALUATION
    from pellucid.evaluation.result import Evaluation

    sources, outputs = _list_paths("data", data), [Path(path) for path in _list_paths("output", output)]
    check_int("samples", samples, least=1, most=MOST_SAMPLES)
    check_int("seed", seed, least=0)
    check_distinct(outputs)
    for path in outputs:
        EVALUATION.check(path, check_bool("force", force))
    questions = read_tasks(tasks)
    models = [model, *_load_models(model, against)]
    check_read_once(sources, len(models))
    split = check_text("split", split)
    check_function("progress", progress)
    has_documents = bool(sources) or not questions
    documents = [
        read_documents(sources, one.pretrained, split=split, limit=limit) for one in models if has_documents
    ]
    sizes = _resolve_windows(models, window, stride)
    settings = {"samples": samples, "seed": seed}
    names = _name_models(models)
    totals = [
        _count_tokens(texts, name, sizes)  # of all models first: what cannot be encoded is refused here
        for texts, name in zip(documents, names, strict=has_documents)
    ]
    with _keep_progress(outputs) as journal:
        found = [
            _evaluate_one(one, texts, name, total, sizes, settings, journal, progress)
            for one, texts, name, total in zip(models, documents, names, totals, strict=has_documents)
        ]
        evaluation = Evaluation(
            data=tuple(sources),
            split=split,
            limit="" if limit is None else str(limit),
            models=tuple(found),
            differences=tuple(_compare(models, found, i, settings) for i in range(1, len(found))),
            tasks=tuple(
                result
                for one, name in zip(models, names, strict=True)
                for result in evaluate_tasks(
                    one,
                    questions,
                    name=name,
                    journal=journal,
                    progress=lambda *now: progress(EvaluationProgress(*now)),
                    **settings,
                )
            ),
            **settings,
        )
        for path in outputs:
            evaluation.save(path, force)
        if journal is not None:
            journal.remove()
    return evaluation


def check_read_once(sources: Sequence[str], n_models: int) -> None:
    """Raises where several models would need standard input."""
    if n_models > 1 and "-" in sources:
        raise UsageError("standard input can be read once, and each model needs it: give a file.")


def _list_paths(parameter: str, given: Any) -> list[str]:
    return [check_path(parameter, one) for one in to_list(given)]


def _load_models(first: "Model", against: Any) -> "list[Model]":
    """Returns the further models; those that are named compute where and as the first does."""
    return [
        one
        if isinstance(one, Model)
        else load(check_path("against", one), device=first.device, dtype=first.dtype)
        for one in to_list(against)
    ]


def _resolve_windows(models: "Sequence[Model]", window: int | None, stride: int | None) -> tuple[int, int]:
    """Returns window and stride, the same for all models."""
    from pellucid.evaluation.windows import resolve_window

    window = None if window is None else check_int("window", window, least=1)
    stride = None if stride is None else check_int("stride", stride, least=1)
    return resolve_window(min(one.config.context_length for one in models), window, stride)


def _name_models(models: "Sequence[Model]") -> list[str]:
    """Returns the models' names; of equal ones, all but the first have a number."""
    seen, names = Counter[str](), []
    for model in models:
        seen[name := model.short_name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


@contextmanager
def _keep_progress(outputs: Sequence[Path]) -> "Iterator[JournalFile | None]":
    """Yields the journal beside the first output, which stays unless it is removed."""
    from pellucid.evaluation.journal import JournalFile, journal_path

    if not outputs:
        yield None
        return
    with JournalFile(journal_path(outputs[0])) as journal:
        yield journal


def _count_tokens(documents: "Documents", name: str, sizes: tuple[int, int]) -> int | None:
    """Returns the tokens that a model will read; None for standard input, which can be read once."""
    from pellucid.evaluation.evaluation import refuse_without_targets
    from pellucid.evaluation.windows import count_inputs

    if "-" in documents.data:
        return None
    return count_inputs(documents, *sizes) or refuse_without_targets(documents, name)


def _evaluate_one(
    model: "Model",
    documents: "Documents",
    name: str,
    total: int | None,
    sizes: tuple[int, int],
    settings: dict[str, int],
    journal: "JournalFile | None",
    progress: Progress,
) -> "ModelEvaluation":
    from pellucid.evaluation.evaluation import evaluate_model

    window, stride = sizes
    done = 0

    def count(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(EvaluationProgress(name, done, total))

    progress(EvaluationProgress(name, 0, total))
    return evaluate_model(
        model.module,
        documents,
        describe_model(model, documents, name),
        window=window,
        stride=stride,
        journal=journal,
        progress=count,
        **settings,
    )


def describe_model(model: "Model", documents: "Documents", name: str) -> "EvaluatedModel":
    """Returns which model it is, and how it reads and computes."""
    from pellucid.evaluation.result import EvaluatedModel
    from pellucid.generation.ledger.ledger import compute_fingerprint

    path, tokenizer = model.pretrained.provenance.path, documents.tokenizer
    return EvaluatedModel(
        name=name,
        path=str(path.resolve()) if path.exists() else None,
        fingerprint=compute_fingerprint(model),
        parameters=parameter_count(model.config.parameters()),
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        dtype=model.dtype,
        device=model.device,
        tokenizer=f"{tokenizer.kind}, {tokenizer.vocab_size:,} tokens",
        bos=None if documents.bos is None else tokenizer.visible(documents.bos),
    )


def _compare(
    models: "Sequence[Model]", found: "Sequence[ModelEvaluation]", i: int, settings: dict[str, int]
) -> Any:
    from pellucid.data.sources.source import is_same_tokenizer
    from pellucid.evaluation.evaluation import compare_models

    is_same = is_same_tokenizer(models[i].tokenizer, models[0].tokenizer)
    return compare_models(found[i], found[0], is_same_tokenizer=is_same, **settings)
