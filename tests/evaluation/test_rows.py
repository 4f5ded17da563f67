"""The rows of an evaluation: every cell from the record, and no row without a figure."""

from dataclasses import replace

from pellucid.evaluation.result import Estimate, TaskMetric, TaskResult
from pellucid.evaluation.rows import (
    describe_differences,
    describe_tasks,
    format_estimate,
    has_one_tokenizer,
    make_figure_rows,
    make_source_rows,
    make_task_rows,
)
from tests.evaluation.small_evaluations import make_evaluation, make_model


def test_the_cells_are_the_figures_of_each_model() -> None:
    rows = {
        row.label.strip(): row.cells
        for row in make_figure_rows(make_evaluation(make_model("a"), make_model("b", 3)))
    }
    assert rows["loss, nats per token"] == ["2.0000 ±0.0125", "3.0000 ±0.0125"]
    assert rows["entropy floor"] == ["0.5000", "0.5000"]
    assert rows["perplexity"] == ["7.39", "20.09"]
    assert rows["top-1 accuracy"][0] == "41.2% ±0.5"
    assert rows["parameters"] == ["135M", "135M"]


def test_a_figure_that_no_model_has_does_not_make_a_row() -> None:
    known = {row.label.strip() for row in make_figure_rows(make_evaluation(make_model("a")))}
    unknown = {row.label.strip() for row in make_figure_rows(make_evaluation(make_model("a", floor=None)))}
    assert known - unknown == {"entropy floor", "above the floor", "fraction learned"}
    assert "exact match" not in known


def test_the_sources_of_one_model_have_several_figures_and_of_two_one_each() -> None:
    one = list(make_source_rows(make_evaluation(make_model("a", sources=2))))
    assert [row[0] for row in one] == ["", "source-0.txt", "source-1.txt"]
    assert one[1][3] == "2.0000 ±0.0125"
    both = list(make_source_rows(make_evaluation(make_model("a", sources=2), make_model("b", 3, sources=2))))
    assert both[0] == ["nats per token", "a", "b"] and both[2][2] == "3.0000 ±0.0125"
    assert not list(make_source_rows(make_evaluation(make_model("a"))))
    missing = list(make_source_rows(make_evaluation(make_model("a", sources=2), make_model("b"))))
    assert missing[1][2] == ""


def test_losses_of_different_tokenizers_are_not_put_beside_each_other() -> None:
    alike = make_evaluation(make_model("a"), make_model("b"))
    apart = make_evaluation(
        make_model("a", sources=1), make_model("b", tokenizer="words, 300 tokens", sources=1)
    )
    assert has_one_tokenizer(alike) and not has_one_tokenizer(apart)
    assert not has_one_tokenizer(make_evaluation(make_model("a"), make_model("b"), measure="bits_per_byte"))
    assert next(make_source_rows(apart))[0] == "bits per byte"


def describe(p: float | None, measure: str = "loss", n_unknown: int = 0) -> str:
    other = replace(make_model("b"), n_unknown=n_unknown)
    [line] = describe_differences(make_evaluation(make_model("a"), other, measure=measure, p=p))
    return line


def test_a_difference_is_better_worse_or_not_decided() -> None:
    assert describe(0.01) == (
        "b − a: −0.1250 ±0.0750 nats per token, p = 0.01: better; better on 30 of 40 documents."
    )
    assert "better;" not in describe(0.3) and "p = 0.3" in describe(0.3)
    assert "p =" not in describe(None)


def test_a_model_that_loses_text_to_the_unknown_token_is_not_called_better() -> None:
    assert "b does not predict all of the text" in describe(0.01, "bits_per_byte", n_unknown=5)
    assert "better" not in describe(0.01, "bits_per_byte", n_unknown=5)
    assert "better" in describe(0.01, "loss", n_unknown=5)  # both lose the same text


def test_an_estimate_without_an_interval_is_its_value() -> None:
    assert format_estimate(Estimate(2.0)) == "2.0000"
    assert format_estimate(None) == ""


METRICS = (TaskMetric("acc", 0.75, 0.65, 0.85, about="the sum"), TaskMetric("perplexity", 12.5))
RESULT = TaskResult("a", "f", "sky", "sky.jsonl", "pellucid", 8, METRICS, 0.25)


def test_each_model_has_a_cell() -> None:
    other = replace(RESULT, model="b", metrics=METRICS[:1])
    theirs = replace(RESULT, model="b", harness="lm-eval 0.4.13", chance=None)
    evaluation = replace(make_evaluation(make_model("a")), tasks=(RESULT, other, theirs))
    assert [(row.label, row.cells) for row in make_task_rows(evaluation)] == [
        ("sky", ["8 questions", "8 questions"]),
        ("  acc", ["75.0% ±10.0", "75.0% ±10.0"]),
        ("  perplexity", ["12.5000", ""]),
        ("  chance", ["25.0%", "25.0%"]),
        ("sky (lm-eval 0.4.13)", ["", "8 questions"]),
        ("  acc", ["", "75.0% ±10.0"]),
        ("  perplexity", ["", "12.5000"]),
    ]


def test_truncated_contexts_and_confident_errors_are_described() -> None:
    task = replace(RESULT, n_truncated=3, confidently_wrong=("x: this, not that",))
    evaluation = replace(make_evaluation(make_model("a")), tasks=(task,))
    _, truncated, wrong = describe_tasks(evaluation)
    assert "3 questions" in truncated and "x: this, not that" in wrong


def test_without_data_the_tasks_are_alone() -> None:
    evaluation = replace(make_evaluation(make_model("a")), data=(), models=(), tasks=(RESULT,))
    lines = str(evaluation).splitlines()
    assert lines[0].split() == ["a"] and lines[1].startswith("sky") and "data:" not in " ".join(lines)
