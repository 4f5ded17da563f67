"""The result of an evaluation: its file has every figure, and its notes what a reader must know."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.evaluation.report import EVALUATION
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


def test_the_file_has_the_sums_of_the_documents_as_columns(tmp_path: Path) -> None:
    make_evaluation().save(tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_bytes())
    assert (data["format"], data["version"]) == ("pellucid-evaluation", 1)
    model = data["models"][0]
    assert model["documents"]["nll"] == [4.0, 2.0] and model["documents"]["name"] == ["a", "b\ud800"]
    assert model["total"]["loss"] == {"value": 6 / 5, "low": 1.0, "high": 2.0}
    assert model["most_expected"][0]["tokens"] == ["·y", "\n"]
    with pytest.raises(UsageError, match="json"):
        EVALUATION.check(tmp_path / "a.svg")


def test_notes_say_what_a_reader_must_know() -> None:
    evaluation = make_evaluation()
    notes = "\n".join(evaluation.notes())
    assert "bits per byte" in notes and "100 samples" in notes and "1 document without a target" in notes
    single = change(evaluation, total=dataclasses.replace(evaluation.models[0].total, n_documents=1))
    assert "no confidence interval" in "\n".join(single.notes())
    unknown = change(evaluation, n_unknown=3, n_ends=0)
    assert "unknown token" in "\n".join(unknown.notes()) and "<s>" in "\n".join(unknown.notes())
