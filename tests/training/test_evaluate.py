"""Evaluations during training: how much is evaluated, what is sampled, and what is refused beforehand."""

import dataclasses
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.data.generated import tasks
from pellucid.data.sources.source import open_source
from pellucid.training import evaluate
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override, read_table
from pellucid.training.resume import begin
from pellucid.training.saving.run_folder import RunFolder
from pellucid.training.state import TrainState
from tests.training import small_run_folders
from tests.training.small_runs import MadeUpSource, make_run


@pytest.mark.parametrize(("batches", "count"), [(0, 3), (2, 2)])
def test_all_batches_are_evaluated_unless_the_recipe_says_how_many(batches: int, count: int) -> None:
    run = make_run(f"evaluation.batches={batches}")
    run.state.source.validation = MadeUpSource().validation * 3  # type: ignore[misc,assignment]
    assert len(list(evaluate._batches(run.state))) == count


def test_the_best_loss_and_the_evaluations_since_are_counted() -> None:
    meters = make_run().state.meters
    assert [meters.add_evaluation(loss) for loss in (math.nan, 2.0, 3.0, 2.0, 1.0)] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert (meters.best_loss, meters.evaluations_without_improvement) == (1.0, 0)


def test_a_row_beyond_the_tokenizer_has_no_text_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        """Stands for the engine: it gives a letter, and an id beyond the tokenizer."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def add(self, *_: Any, **__: Any) -> "Made":
            return self

        def result(self) -> list[Any]:
            return [SimpleNamespace(ids=[a, source.tokenizer.vocab_size + 1])]

    run = make_run()
    source = run.state.source
    (a,) = source.tokenizer.encode("a")
    monkeypatch.setattr(evaluate, "Engine", Made)
    assert evaluate.continue_prompt(run.state.model, source, [a], run.state.recipe.evaluation) == "a"


def test_a_task_is_sampled_by_a_held_out_problem_and_the_answer_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe.from_dict(override(read_table("task:copy"), ["model.n_layer=1"]))
    source = open_source(recipe.data, recipe.length, recipe.seed, tmp_path)
    problem = tasks.find("copy")().example(0, 0, "validation").prompt
    read: list[Any] = []

    def answer(_: Any, __: Any, ids: Any, ___: Any) -> str:
        read.append(ids)
        return "abc"

    monkeypatch.setattr(evaluate, "continue_prompt", answer)
    assert (
        evaluate.sample_text(TrainState(recipe, source).model, source, recipe.evaluation) == f"{problem} abc"
    )
    assert read == [[source.begin, *source.tokenizer.encode(problem)]]


def test_a_sample_is_drawn_as_the_recipe_says(tmp_path: Path) -> None:
    recipe = Recipe.from_dict(override(read_table("task:copy"), ["model.n_layer=1", "evaluation.sample=80"]))
    source = open_source(recipe.data, recipe.length, recipe.seed, tmp_path)
    model, ids = TrainState(recipe, source).model.eval(), [source.begin, 5]

    def sample(**settings: Any) -> str:
        how = recipe.evaluation.sampling.merge({"stop_ids": [], **settings})
        return evaluate.continue_prompt(
            model, source, ids, dataclasses.replace(recipe.evaluation, sampling=how)
        )

    first = sample()
    assert first == sample() != sample(seed=1)
    tokens = re.findall("<end>|.", first)
    assert len(tokens) == model.config.context_length - len(ids)
    assert sample(min_new_tokens=9999, forced_tokens=[1] * 999) == source.tokenizer.decode([1] * len(tokens))
    assert sample(context="crop").startswith(first)
    middle = tokens[len(tokens) // 2]
    assert sample(stop=middle) == first.partition(middle)[0]


def test_an_example_prompt_is_the_beginning_of_a_sentence_of_the_text(tmp_path: Path) -> None:
    text, folder = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    text.write_text("The cat sat on the mat. A dog lay there. " * 60)
    asked = (f"data.path={text}", "data.tokenizer=characters")
    with folder.lock():
        run = begin(small_run_folders.recipe(folder.path, *asked), folder, lambda _: None)
    prompt = evaluate.example_prompt(run.state.model, run.state.source, run.recipe.evaluation)
    assert prompt in ("The cat", "A dog lay")  # half of the context of 18 characters


def test_a_sample_leaves_the_weights_as_they_were_and_needs_no_token_that_ends_it() -> None:
    state = make_run("evaluation.sample=9").state
    state.source.end = None  # type: ignore[misc]
    weights = {name: value.clone() for name, value in state.model.named_parameters()}
    assert evaluate.sample_text(state.model.eval(), state.source, state.recipe.evaluation)
    for name, value in state.model.named_parameters():
        assert torch.equal(value, weights[name]) and not value.is_inference() and value.requires_grad
    state.model(torch.tensor([[1]])).sum().backward()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.tokenizer=characters", "evaluation.prompt=é"], "evaluation.prompt='é'"),
        (["data.validation=0", "train.patience=2"], "train.patience=2 .* data.validation=0"),
        (["evaluation.sampling.banned_tokens=[99999]"], "evaluation.sampling.banned_tokens"),
        (["evaluation.sampling.context=roll", "evaluation.sampling.keep=9999"], "evaluation.sampling.keep"),
        (["evaluation.sampling.regex=(a"], "regex"),
    ],
)
def test_what_an_evaluation_would_trip_over_is_reported_before_the_first_step(
    changes: list[str], words: str, tmp_path: Path
) -> None:
    text, folder = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    text.write_text("The cat sat on the mat. " * 50)
    with folder.lock(), pytest.raises(ConfigError, match=words):
        begin(small_run_folders.recipe(folder.path, f"data.path={text}", *changes), folder, lambda _: None)
    assert not (folder.path / "log.jsonl").exists()
