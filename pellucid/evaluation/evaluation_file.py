"""The evaluation file: JSON with every figure, and the sums of every document.

A record is a table of its fields, except that the documents, of which there may be many, are a table of
columns. The scores of single tokens are kept for the most and the least expected passages alone.
"""

import dataclasses
import functools
import json
import math
import types
from pathlib import Path
from typing import Any, get_args, get_origin

from pellucid.base.files import (
    UNPAIRED,
    Damaged,
    check_format,
    check_output,
    check_suffix,
    make_json_kind,
    need,
    new_file,
    read_bytes,
    validating,
)
from pellucid.base.schema import Field, fields_of, fields_with, read, to_field
from pellucid.evaluation.result import N_SURPRISALS, DocumentSummary, Evaluation
from pellucid.formats.folder import parse_table

FORMAT, VERSION = "pellucid-evaluation", 1
MOST_BYTES = 1 << 30
_COLUMNS = (DocumentSummary,)
"""Records of which many are written as one table of columns."""
EVALUATION = make_json_kind("an evaluation", FORMAT)


def check_evaluation_output(path: Path, force: bool = False) -> None:
    """Raises unless an evaluation may be written there; call it before the work."""
    check_suffix(path, ".json", "an evaluation is a .json file, or a page, .html")
    check_output(path, EVALUATION, force)


def write_evaluation(evaluation: Evaluation, path: Path, force: bool = False) -> None:
    """Writes the file whole or not at all; `force` replaces another evaluation."""
    check_evaluation_output(path, force)
    content = format_evaluation_json(evaluation).encode("utf-8", UNPAIRED)
    with new_file(path, EVALUATION, force) as file:
        file.write(content)


def format_evaluation_json(evaluation: Evaluation) -> str:
    """Returns the content of the file."""
    data = {"format": FORMAT, "version": VERSION, **to_data(evaluation)}
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def to_data(value: Any) -> Any:
    """Returns a record as plain data."""
    if dataclasses.is_dataclass(value):
        return {entry.name: to_data(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, tuple):
        if value and isinstance(value[0], _COLUMNS):
            names = [entry.name for entry in dataclasses.fields(value[0])]
            return {name: [getattr(one, name) for one in value] for name in names}
        return [to_data(inner) for inner in value]
    return value


# ---- reading: a file may be damaged, or come from another program


def read_evaluation(path: Path) -> Evaluation:
    """Returns the evaluation of a file; raises a FileError that names the damage."""
    with validating(path):
        data = parse_table(read_bytes(path, MOST_BYTES))
    data = check_format(path, data, "evaluation", FORMAT, VERSION)
    with validating(path):
        fields = {key: value for key, value in data.items() if key not in ("format", "version")}
        evaluation: Evaluation = read_record(Evaluation, fields, "the evaluation")
        _check(evaluation)
        return evaluation


def read_record(kind: Any, value: Any, name: str) -> Any:
    """Returns a value of the type that a field has, a dataclass too; raises `Damaged` for another value."""
    if isinstance(kind, types.UnionType) and value is not None:
        records = [option for option in get_args(kind) if dataclasses.is_dataclass(option)]
        kind = records[0] if records else kind
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        readers = {field.name: functools.partial(read_record, field.type) for field in fields_of(kind)}
        return read(fields_with(kind, readers), value, name, kind, path=name, error=Damaged)
    inner = get_args(kind)
    if get_origin(kind) is tuple and dataclasses.is_dataclass(inner[0]):
        rows = _read_columns(inner[0], value, name) if inner[0] in _COLUMNS else value
        need(isinstance(rows, list), f"{name} is not a list")
        return tuple(read_record(inner[0], one, f"{name}.{i}") for i, one in enumerate(rows))
    found = to_field(kind).read(value, name, error=Damaged)
    for one in found if isinstance(found, tuple) else (found,):
        need(not isinstance(one, float) or math.isfinite(one), f"{name} has {one}, which is not finite")
        need(not isinstance(one, int) or one >= 0, f"{name} has {one}, and no integer here is negative")
    return found


def _read_columns(kind: Any, value: Any, name: str) -> list[dict[str, Any]]:
    """Returns the rows of a table of columns."""
    if value == []:
        return []
    names = [entry.name for entry in dataclasses.fields(kind)]
    value = read([Field(column, list) for column in names], value, name, path=name, error=Damaged)
    need(len({len(column) for column in value.values()}) == 1, f"{name} has columns of different lengths")
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def _check(evaluation: Evaluation) -> None:
    """Raises unless the sums of the documents are those of the figures, and parts add up to their whole."""
    need(bool(evaluation.models or evaluation.tasks), "it has no model")
    for task in evaluation.tasks:
        need(task.n_questions > 0, f"the task {task.task} has no question")
    for one in evaluation.models:
        name, total, documents = one.model.name, one.total, one.documents
        n_targets, nll = sum(d.n_targets for d in documents), math.fsum(d.nll for d in documents)
        need(
            len(documents) == total.n_documents,
            f"{name} has {len(documents)} documents, not as many as it says",
        )
        need(all(d.n_targets > 0 for d in documents), f"a document of {name} has no target")
        need(n_targets == total.n_targets, f"the documents of {name} have {n_targets} targets")
        need(math.isclose(nll, total.loss.value * n_targets, rel_tol=1e-9), f"the loss of {name} is another")
        sizes = [d.n_bytes for d in documents if d.n_bytes is not None]
        need(total.n_bytes in (None, sum(sizes)), f"the documents of {name} have {sum(sizes)} bytes")
        tops = ((d.n_top1, d.n_top5, d.n_targets) for d in documents)
        need(
            all(a <= b <= c for a, b, c in tops), f"a document of {name} has more right targets than targets"
        )
        need(1 <= one.stride <= one.window, f"the stride of {name} is not from 1 to its window")
        counted = sum(p.n_targets for p in one.positions), sum(one.surprisals)
        need(counted == (n_targets, n_targets), f"{name} has other targets by position or by surprisal")
        need(len(one.surprisals) == N_SURPRISALS, f"{name} has not {N_SURPRISALS} bins of surprisals")
        is_range = all(1 <= p.first <= p.last and p.n_targets for p in one.positions)
        need(is_range, f"a position of {name} has no target or no token before it")
        for passage in (*one.most_expected, *one.least_expected):
            lengths = {len(passage.tokens), len(passage.nll), len(passage.rank)}
            need(len(lengths) == 1 and lengths != {0}, f"a passage of {name} has unequal columns")
