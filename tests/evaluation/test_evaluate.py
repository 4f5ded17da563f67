"""`pellucid.evaluate`: models by name or at hand, side by side, interrupted and continued."""

from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.base.errors import FileError, PellucidError, TokenError, UsageError
from pellucid.evaluation import scoring
from pellucid.evaluation.evaluate import EvaluationProgress
from pellucid.evaluation.journal import journal_path
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import CharacterTokenizer
from tests.data.small_corpora import text_file
from tests.evaluation.small_models import bpe, make_model, write


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of several batches."""
    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": 64})
    return text_file(tmp_path / "text.txt", 30)


def test_a_model_is_evaluated_by_its_name_or_at_hand(text: Path, tmp_path: Path) -> None:
    model = make_model()
    model.save(tmp_path / "saved")
    named = pellucid.evaluate(tmp_path / "saved", text, split="line", samples=50)
    at_hand = model.evaluate([str(text)], split="line", samples=50)
    assert named.models[0].total == at_hand.models[0].total
    assert named.models[0].model.path == str(tmp_path / "saved")
    assert named.data == at_hand.data == (str(text),)


def test_an_evaluation_is_shown_in_one_line(text: Path) -> None:
    found = make_model().evaluate(text, samples=10)
    loss = found.models[0].total.loss.value
    assert repr(found) == f"<Evaluation: new {loss:.4f} nats per token>"


def test_an_evaluation_is_printed_as_its_table(text: Path) -> None:
    found = make_model().evaluate(text, samples=10)
    assert "perplexity" in str(found)
    assert "perplexity" in found._repr_html_()


def test_models_side_by_side_have_one_window_and_a_paired_difference(text: Path) -> None:
    model, other = make_model(), make_model(bpe(280), context_length=16)
    found = model.evaluate(text, against=[other, model], split="line", samples=50)
    assert [one.window for one in found.models] == [16, 16, 16]
    assert [one.model.name for one in found.models] == ["new", "new (2)", "new (3)"]
    assert [(one.model, one.measure) for one in found.differences] == [
        ("new (2)", "bits_per_byte"),
        ("new (3)", "loss"),
    ]
    assert found.differences[1].difference.value == 0


def test_an_output_is_the_evaluation_and_a_page_another(text: Path, tmp_path: Path) -> None:
    found = make_model().evaluate(text, output=[tmp_path / "a.json", tmp_path / "a.html"], samples=10)
    assert (tmp_path / "a.json").read_text() == found.report().to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "text.txt"]


class Stopped(Exception):
    pass


def stop_after(count: int) -> Any:
    """A progress that raises after this many batches."""
    seen = list[EvaluationProgress]()

    def progress(now: EvaluationProgress) -> None:
        seen.append(now)
        if len(seen) > count:
            raise Stopped

    return progress


def test_an_interrupted_evaluation_continues_and_gives_the_same_file(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other, out = make_model(), make_model(seed=1), tmp_path / "a.json"
    settings: dict[str, Any] = {"against": other, "split": "paragraph", "stride": 20, "samples": 20}
    score, computed = scoring.score_targets, list[int]()

    def count(*arguments: Any) -> Any:
        computed.append(1)
        return score(*arguments)

    monkeypatch.setattr(scoring, "score_targets", count)
    model.evaluate(text, output=tmp_path / "whole.json", **settings)
    batches = len(computed)
    for some in (3, 9, batches // 2 + 5):
        with pytest.raises(Stopped):
            model.evaluate(text, output=out, progress=stop_after(some), **settings)
        assert journal_path(out).exists() and not out.exists()
    model.evaluate(text, output=out, **settings)
    assert out.read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert len(computed) == 2 * batches and not journal_path(out).exists()


def test_what_is_kept_never_serves_another_model_or_text(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    with pytest.raises(Stopped):
        make_model().evaluate(text, output=out, progress=stop_after(4))
    other = make_model(seed=3)
    assert other.evaluate(text, output=out, samples=10) == other.evaluate(text, samples=10)


def test_progress_counts_every_token_up_to_the_total(text: Path) -> None:
    seen = list[EvaluationProgress]()
    found = make_model().evaluate(text, split="line", stride=16, progress=seen.append, samples=10)
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total and seen[0].done == 0
    assert seen[-1].done > found.models[0].total.n_targets  # windows overlap


def test_outputs_are_checked_before_the_work(text: Path, tmp_path: Path) -> None:
    model, (path,) = make_model(), write(tmp_path, mine="mine")
    for output, error in ((path, UsageError), (tmp_path / "no" / "a.json", FileError), ("", UsageError)):
        with pytest.raises(error):
            model.evaluate(text, output=output, progress=stop_after(0))
    (tmp_path / "b.json").write_text("{}", "utf-8")
    with pytest.raises(FileError):
        model.evaluate(text, output=tmp_path / "b.json", force=True, progress=stop_after(0))
    assert (tmp_path / "b.json").read_text("utf-8") == "{}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"window": 33},
        {"stride": 40},
        {"stride": 1.5},
        {"samples": 0},
        {"seed": -1},
        {"split": 3},
        {"split": "chapter"},
        {"limit": "much"},
        {"against": "nowhere"},
        {"against": 3},
        {"output": 3},
        {"output": ["a.json", "./a.json"]},
    ],
)
def test_wrong_arguments_are_refused(text: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(PellucidError):
        make_model().evaluate(text, **wrong)


@pytest.mark.parametrize("data", [3, None, [], [3], "nowhere.txt", b"a"])
def test_wrong_data_are_refused(data: Any) -> None:
    with pytest.raises(PellucidError):
        make_model().evaluate(data)


def test_a_text_that_a_further_model_cannot_read_is_refused_before_the_work(text: Path) -> None:
    letters = make_model(CharacterTokenizer(tuple("abc"), Special()))
    with pytest.raises(TokenError, match=r"text\.txt"):
        make_model().evaluate(text, against=letters, progress=stop_after(0))


def test_standard_input_serves_one_model() -> None:
    with pytest.raises(UsageError, match="standard input"):
        make_model().evaluate("-", against=make_model())
