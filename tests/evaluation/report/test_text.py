"""The table on a terminal: never wider than it, and every model in it."""

import pytest

from pellucid.base.columns import display_width
from pellucid.evaluation.report.text import format_evaluation
from tests.evaluation.report.small_evaluations import make_evaluation, make_model


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(count: int, width: int) -> None:
    models = [make_model(f"runs/a/long/name/of/a/model-{i}", 2 + i, sources=3) for i in range(count)]
    lines = list(format_evaluation(make_evaluation(*models), width))
    assert max(map(display_width, lines)) <= width
    for i in range(count):
        assert any(f"del-{i}" in line for line in lines)
        assert sum(f"{2 + i}.0000 ±0.0125" in line for line in lines) >= 1


def test_the_baselines_stand_below_the_loss_and_the_notes_at_the_end() -> None:
    evaluation = make_evaluation(make_model("a"))
    lines = list(format_evaluation(evaluation))
    first = next(i for i, line in enumerate(lines) if line.startswith("loss"))
    assert [line.split("  ")[1] for line in lines[first + 1 : first + 6]] == [
        "entropy floor",
        "above the floor",
        "bigram baseline",
        "unigram baseline",
        "uniform, ln V",
    ]
    joined = " ".join(lines)
    assert all(note in joined for note in evaluation.notes())


def test_one_document_has_no_interval() -> None:
    lines = list(format_evaluation(make_evaluation(make_model("a", documents=1))))
    assert not any("±" in line for line in lines)
