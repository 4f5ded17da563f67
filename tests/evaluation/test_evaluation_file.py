"""The evaluation file: read back as it was, strict about what others wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.evaluation.evaluation_file import EVALUATION, read_evaluation
from pellucid.evaluation.result import (
    N_SURPRISALS,
    DocumentSummary,
    Estimate,
    EvaluatedModel,
    Evaluation,
    Figures,
    ModelEvaluation,
    PairedDifference,
    Passage,
    PositionLoss,
)


def make_evaluation() -> Evaluation:
    """Two documents of 6 nats and 5 tokens together."""
    model = EvaluatedModel("m", None, "f" * 64, 10, 4, 8, "float32", "cpu", "bpe, 4 tokens", "<s>")
    figures = Figures(
        source="",
        n_documents=2,
        n_targets=5,
        n_bytes=None,
        loss=Estimate(6 / 5, 1.0, 2.0),
        perplexity=3.3,
        bits_per_byte=None,
        accuracy=Estimate(0.8),
        top5_accuracy=Estimate(1.0),
        exact_match=Estimate(0.5),
        uniform=1.4,
        unigram=1.2,
        bigram=0.3,
    )
    documents = (
        DocumentSummary("a", "x", 2, 8, 4.0, 1, 2, -3.0),
        DocumentSummary("b\ud800", "x", 3, None, 2.0, 3, 3, None),
    )
    one = ModelEvaluation(
        model=model,
        window=8,
        stride=4,
        total=figures,
        sources=(),
        documents=documents,
        positions=(PositionLoss(1, 1, 5, 6.0),),
        surprisals=(5,) + (0,) * (N_SURPRISALS - 1),
        most_expected=(Passage("a", 0, ("·x",), ("·y", "\n"), (0.5, 1 / 3), (0, 7)),),
        least_expected=(),
        n_omitted=1,
        n_unknown=0,
        n_ends=2,
    )
    difference = PairedDifference("m", "m", "loss", Estimate(0.0, 0.0, 0.0), 1.0, 0, 2)
    return Evaluation(("x",), "file", "", 0, 100, (one, one), (difference,))


def change(evaluation: Evaluation, **changes: Any) -> Any:
    return dataclasses.replace(evaluation, models=(dataclasses.replace(evaluation.models[0], **changes),))


def test_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    evaluation = make_evaluation()
    evaluation.save(tmp_path / "a.json")
    assert read_evaluation(tmp_path / "a.json") == evaluation
    data = json.loads((tmp_path / "a.json").read_bytes())
    assert (data["format"], data["version"]) == ("pellucid-evaluation", 1)
    assert data["models"][0]["documents"]["nll"] == [4.0, 2.0]


def test_an_evaluation_is_a_json_file_or_a_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="json"):
        EVALUATION.check(tmp_path / "a.svg")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    text, path = (
        make_evaluation().report().to_json().encode("utf-8", "backslashreplace"),
        tmp_path / "a.json",
    )
    for size in range(0, len(text) - 2, 101):
        path.write_bytes(text[:size])
        with pytest.raises(FileError):
            read_evaluation(path)


def mutate(data: dict[str, Any], address: str, value: Any) -> None:
    *path, last = address.split(".")
    here: Any = data
    for key in path:
        here = here[int(key)] if isinstance(here, list) else here[key]
    if value is ...:
        del here[last]
    else:
        here[last] = value


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("version", 2),
        ("format", "other"),
        ("models", []),
        ("models", {}),
        ("extra", 1),
        ("seed", ...),
        ("seed", 1.5),
        ("models.0.total.loss", 1.2),
        ("models.0.total.loss.value", 1.3),
        ("models.0.total.loss.value", float("nan")),
        ("models.0.total.loss.value", float("inf")),
        ("models.0.total.n_targets", 6),
        ("models.0.total.n_documents", 3),
        ("models.0.documents", [1, 2]),
        ("models.0.documents.nll", [1.0]),
        ("models.0.documents.nll", 3),
        ("models.0.documents.nll", ["a", "b"]),
        ("models.0.documents.n_targets", [5, 0]),
        ("models.0.documents.other", [1, 2]),
        ("models.0.documents.name", ...),
        ("models.0.most_expected.0.nll", [0.5]),
        ("models.0.model", None),
        ("samples", -1),
        ("models.0.n_unknown", -1),
        ("models.0.window", 0),
        ("models.0.total.n_bytes", 7),
        ("models.0.documents.n_bytes", [-5, 5]),
        ("models.0.documents.n_top1", [9, 0]),
        ("models.0.documents.n_top5", [9, 0]),
        ("models.0.surprisals", []),
        ("models.0.positions", []),
        ("models.0.positions.0.first", 0),
        ("models.0.positions.0.n_targets", 0),
        ("models.0.most_expected.0.rank", [-1, 0]),
        ("models.0.most_expected.0.nll", [float("inf"), 1.0]),
    ],
)
def test_a_file_that_says_something_impossible_is_refused(tmp_path: Path, address: str, value: Any) -> None:
    data = json.loads(make_evaluation().report().to_json())
    mutate(data, address, value)
    (tmp_path / "a.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(FileError):
        read_evaluation(tmp_path / "a.json")


def test_a_key_that_comes_twice_is_refused(tmp_path: Path) -> None:
    text = make_evaluation().report().to_json().replace('"seed":', '"seed": 7, "seed":')
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "backslashreplace"))
    with pytest.raises(FileError, match="twice"):
        read_evaluation(tmp_path / "a.json")


def test_notes_say_what_a_reader_must_know() -> None:
    evaluation = make_evaluation()
    notes = "\n".join(evaluation.notes())
    assert "bits per byte" in notes and "100 samples" in notes and "1 document without a target" in notes
    single = change(evaluation, total=dataclasses.replace(evaluation.models[0].total, n_documents=1))
    assert "no confidence interval" in "\n".join(single.notes())
    unknown = change(evaluation, n_unknown=3, n_ends=0)
    assert "unknown token" in "\n".join(unknown.notes()) and "<s>" in "\n".join(unknown.notes())
