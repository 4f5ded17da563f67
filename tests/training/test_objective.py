"""The loss of a step: class weights and smoothing are the specification's, however a batch is divided."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX
from pellucid.reference.training import forward
from pellucid.training.objective import make_class_weights
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.run import Run
from pellucid.training.step import forward_backward
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.runs.rebuild import rebuild_step
from tests.training.small_models import tokenizer
from tests.training.small_run_folders import train
from tests.training.small_runs import TABLE, WORDS, MadeUp, make_run

WEIGHTS = "train.class_weights={ a = 0.25, d = 3, 6 = 0 }"


def step(run: Run) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the loss and the gradients of the first batch."""
    batch = MadeUp().take(4, slice(0, 4))
    loss, _ = forward_backward(run.state, run.state.prefetcher.to_device(batch))
    grads = {f"d.{n}": p.grad.numpy() for n, p in run.state.weights.named.items() if p.grad is not None}
    return float(loss), grads


@pytest.mark.parametrize(
    ("changes", "objective"),
    [
        ([WEIGHTS], {"class_weights": [0.25, 1, 1, 3, 1, 1, 0]}),
        (["train.label_smoothing=0.2"], {"smoothing": 0.2}),
        (
            [WEIGHTS, "train.label_smoothing=0.2"],
            {"class_weights": [0.25, 1, 1, 3, 1, 1, 0], "smoothing": 0.2},
        ),
    ],
    ids=["weights", "smoothing", "both"],
)
@pytest.mark.parametrize("parts", [1, 4])
def test_the_loss_and_its_gradients_are_the_specification_s(
    changes: list[str], objective: dict[str, Any], parts: int
) -> None:
    """Also in parts, in which the sums of the weights differ."""
    run, batch = make_run(*changes, f"train.accumulate={parts}"), MadeUp().take(4, slice(0, 4))
    loss, grads = step(run)
    weights = {name: value.detach().numpy() for name, value in run.state.weights.named.items()}
    given = {key: np.array(value) for key, value in objective.items()}
    tape = forward(run.state.model.config, weights, batch.ids, batch.targets, objective=given)
    tape.backward(tape.ref("loss"))
    assert loss == pytest.approx(float(tape["loss"]), rel=1e-12)
    assert find_first_mismatch(grads, {name: tape[name] for name in grads}, BETWEEN_ENGINES) is None


def test_class_weights_are_torch_s() -> None:
    run, batch = make_run(WEIGHTS), MadeUp().take(4, slice(0, 4))
    logits = run.state.model(torch.from_numpy(batch.ids)).flatten(0, 1)
    wanted = torch.nn.functional.cross_entropy(
        logits,
        torch.from_numpy(batch.targets).flatten(),
        weight=torch.tensor([0.25, 1, 1, 3, 1, 1, 0], dtype=torch.float64),
        ignore_index=IGNORE_INDEX,
    )
    assert step(run)[0] == pytest.approx(float(wanted.detach()), rel=1e-12)


def test_a_token_is_named_by_its_text_or_its_id() -> None:
    words = tokenizer()
    table = make_class_weights({" cat": 2.0, "<end>": 0.0, "280": 0.5}, words, words.vocab_size + 3)
    assert table is not None and len(table) == words.vocab_size + 3
    assert table[words.encode(" cat")].tolist() == [2.0] and table[280] == 0.5
    assert table[words.id_of("<end>")] == 0 and int((table != 1).sum()) == 3
    assert make_class_weights({}, words, 9) is None


@pytest.mark.parametrize("text", ["z", "a b", "7", "99", ""])
def test_a_text_that_is_not_one_token_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"class_weights.*from 0 to 6"):
        make_class_weights({text: 1.0}, WORDS, 7)


@pytest.mark.parametrize(
    "changes",
    [
        ["train.class_weights=3"],
        ["train.class_weights={ a = -1 }"],
        ["train.class_weights={ a = inf }"],
        ["train.class_weights={ a = true }"],
        [WEIGHTS, "train.z_loss=1e-4"],
        [WEIGHTS, "train.logits_chunk=4"],
    ],
)
def test_class_weights_that_cannot_be_are_refused(changes: list[str]) -> None:
    with pytest.raises(ConfigError, match="class_weights"):
        make_run(*changes)


def test_a_recipe_with_class_weights_is_written_and_read() -> None:
    recipe = Recipe.from_dict(override(TABLE, ['train.class_weights={ " the" = 0.5, "a.b" = 2, d = 3 }']))
    assert recipe.train.class_weights == {" the": 0.5, "a.b": 2.0, "d": 3.0}
    assert Recipe.from_dict(tomllib.loads(recipe.to_toml())) == recipe


def test_a_step_with_class_weights_and_smoothing_is_rebuilt_bit_for_bit(tmp_path: Path) -> None:
    changes = [f"out={tmp_path / 'run'}", "data.path=task:copy", "model.context_length=24", "steps=3"]
    table = TABLE | {"train": {"compile": False}}
    own = ['train.class_weights={ "<end>" = 0.5 }', "train.label_smoothing=0.1"]
    train(Recipe.from_dict(override(table, [*changes, *own])))
    rebuilt = rebuild_step(tmp_path / "run", 3, ["embed.weight"])
    assert rebuilt.is_exact and rebuilt.logged
    assert not rebuilt.judge("embed.weight").bugs
