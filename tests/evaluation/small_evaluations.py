"""Evaluations made by hand, of any number of models."""

import math

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


def make_figures(loss: float, documents: int = 40, floor: float | None = 0.5, source: str = "") -> Figures:
    has_interval = documents > 1

    def estimate(value: float, half: float) -> Estimate:
        return Estimate(value, value - half, value + half) if has_interval else Estimate(value)

    return Figures(
        source, documents, 1234, 5000, estimate(loss, 0.0125), math.exp(loss), estimate(loss / 3, 0.01),
        estimate(0.4123, 0.005), estimate(0.8, 0.004), estimate(0.0, 0.0), math.log(300), 4.5, 1.5, floor,
        None if floor is None else estimate(loss - floor, 0.01), None if floor is None else 0.9,
    )  # fmt: skip


def make_passage(text: str = "·cat", size: int = 48, nll: float = 2.5) -> Passage:
    return Passage("a.txt#3", 96, (text,) * 24, (text,) * size, (nll,) * size, tuple(range(size)))


def make_model(
    name: str,
    loss: float = 2.0,
    documents: int = 40,
    floor: float | None = 0.5,
    tokenizer: str = "bpe, 300 tokens",
    text: str = "·cat",
    sources: int = 0,
) -> ModelEvaluation:
    about = EvaluatedModel(name, None, "", 135_000_000, 300, 64, "float32", "cpu", tokenizer, None)
    summaries = [
        DocumentSummary(f"a.txt#{i}", "a.txt", 30, 120, 30 * (loss + i / 10), 12, 24, None)
        for i in range(documents)
    ]
    positions = [PositionLoss(2**k, 2 ** (k + 1) - 1, 100, 100 * (loss + 1 / (k + 1))) for k in range(6)]
    surprisals = [max(200 >> k, 0) for k in range(N_SURPRISALS)]
    return ModelEvaluation(
        model=about,
        window=64,
        stride=32,
        total=make_figures(loss, documents, floor),
        sources=tuple(make_figures(loss, documents, floor, f"source-{i}.txt") for i in range(sources)),
        documents=tuple(summaries),
        positions=tuple(positions),
        surprisals=tuple(surprisals),
        most_expected=(make_passage(text, nll=0.01),) * 5,
        least_expected=(make_passage(text, nll=9.5),) * 5,
        n_omitted=0,
        n_unknown=0,
        n_ends=0,
    )


def make_evaluation(*models: ModelEvaluation, measure: str = "loss", p: float | None = 0.01) -> Evaluation:
    differences = tuple(
        PairedDifference(
            one.model.name, models[0].model.name, measure, Estimate(-0.125, -0.2, -0.05), p, 30, 40
        )
        for one in models[1:]
    )
    return Evaluation(("a.txt", "stories:tiny"), "file", "", 0, 1000, models, differences)
