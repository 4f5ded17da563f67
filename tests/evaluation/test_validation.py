"""How a model is judged: each target that counts once, by its loss and by whether it was the likeliest."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.corpora import tasks
from pellucid.data.sources.source import open_source
from pellucid.errors import ConfigError
from pellucid.evaluation import validation
from pellucid.evaluation.validation import judge, sample
from pellucid.names import IGNORE_INDEX
from pellucid.training.loop import Trainer
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.recipe.shipped import read_table
from pellucid.training.run import begin
from pellucid.training.saving.run_folder import RunFolder
from tests.training import whole_runs
from tests.training.made import trainer

NO = IGNORE_INDEX


def judged(batches: list[list[list[int]]], most: int = 0) -> tuple[float, float]:
    """A model that gives token 1 half of the probability and tokens 0 and 2 a quarter each, everywhere."""
    rows: list[Any] = [(np.zeros_like(targets), np.array(targets)) for targets in batches]
    source: Any = SimpleNamespace(validation=rows, tokenizer=SimpleNamespace(vocab_size=3))
    guess = torch.tensor([0.25, 0.5, 0.25]).log()
    return judge(lambda ids: guess.expand(*ids.shape, 3), source, most, torch.device("cpu"))


def test_targets_of_unequal_batches_count_alike() -> None:
    loss, accuracy = judged([[[1, 1, 1, 0]], [[2, NO, NO, NO]]])
    assert accuracy == 3 / 5
    assert loss == pytest.approx((3 * math.log(2) + 2 * math.log(4)) / 5)


def test_only_so_many_batches_are_judged_where_that_is_asked() -> None:
    assert judged([[[1, 1]], [[0, 0]]], most=1) == (pytest.approx(math.log(2)), 1.0)


def test_nothing_to_judge_is_no_number() -> None:
    assert all(map(math.isnan, judged([])))


def test_a_batch_with_too_many_logits_is_judged_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = trainer(), list[int]()
    whole = made.evaluate()

    def logits(ids: torch.Tensor) -> torch.Tensor:
        seen.append(len(ids))
        return made.objective._logits(ids)

    monkeypatch.setattr(made.objective, "logits", logits)
    monkeypatch.setattr(validation, "AT_ONCE", 3 * made.recipe.length * made.source.tokenizer.vocab_size)
    apart = made.evaluate()
    assert seen == [3, 1]
    assert apart.loss == pytest.approx(whole.loss, rel=1e-13) and apart.accuracy == whole.accuracy


def test_a_task_is_sampled_by_a_held_out_problem_and_the_answer_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe.from_dict(override(read_table("task:copy"), ["model.n_layer=1"]))
    source = open_source(recipe.data, recipe.length, recipe.seed, tmp_path)
    problem = tasks.find("copy")().example(0, 0, "validation").prompt
    read: list[Any] = []

    def answered(_: Any, prompts: Any, **__: Any) -> Iterator[list[int | None]]:
        read.extend(prompts)
        yield from ([id] for id in (*source.tokenizer.encode("abc"), source.end, 1))

    monkeypatch.setattr(validation, "generate", answered)
    assert sample(Trainer(recipe, source).model, source, recipe.evaluation) == f"{problem} abc"
    assert read == [[source.begin, *source.tokenizer.encode(problem)]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.tokenizer=characters", "evaluation.prompt=é"], "evaluation.prompt='é' cannot be read: .*'é'"),
        (["data.validation=0", "train.patience=2"], "train.patience=2 waits .* data.validation=0 holds"),
    ],
)
def test_what_an_evaluation_would_trip_over_is_told_before_the_first_step(
    changes: list[str], words: str, tmp_path: Path
) -> None:
    text, folder = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    text.write_text("The cat sat on the mat. " * 50)
    with folder.held(), pytest.raises(ConfigError, match=words):
        begin(whole_runs.recipe(folder.path, f"data.path={text}", *changes), folder, lambda _: None)
    assert not (folder.path / "log.jsonl").exists()
