"""A run of `data.epochs` passes: its steps are computed from the data, kept, and exactly that many passes."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import ConfigError, UsageError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.tokens import TokenFolder
from pellucid.training.distributed.ranks import SINGLE_PROCESS
from pellucid.training.forecast import check_recipe
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.saving.run_folder import RunFolder
from tests.cli.commands import Shell
from tests.training.small_run_folders import go_on, train
from tests.training.small_runs import TABLE


def table(folder: Path, **data: Any) -> dict[str, Any]:
    (folder / "a.txt").write_text("".join(f"the cat sat on the mat {i:03}.\n" for i in range(48)), "utf-8")
    own = {"path": str(folder / "a.txt"), "tokenizer": "bytes", "batch_size": 4, "epochs": 2}
    rest = {key: value for key, value in TABLE.items() if key != "steps"}
    seldom = {"evaluation": {"every": 1000, "sample": 3}, "checkpoint": {"every": 1000}}  # each is an fsync
    return rest | seldom | {"out": str(folder / "run"), "data": own | data, "train": {"compile": False}}


@pytest.mark.parametrize("rows", ["windows", "packed", "padded", "streams"])
def test_every_token_is_trained_on_once_in_each_epoch(tmp_path: Path, rows: str) -> None:
    own = table(tmp_path, rows=rows, split="line")
    recipe, _ = check_recipe(Recipe.from_dict(own), SINGLE_PROCESS)
    run = train(Recipe.from_dict(own))
    steps, batches = run.recipe.steps, run.state.source.train
    assert run.state.meters.step == steps and abs(recipe.steps / steps - 1) < 0.3  # the forecast
    batches.restore(dict.fromkeys(batches.state(), 0))
    seen = Counter[int]()
    for _ in range(steps):
        targets = batches.take(4, slice(0, 4)).targets
        seen.update(targets[targets != IGNORE_INDEX].tolist())
    tokens = TokenFolder(tmp_path / "run" / "data" / "tokens")["train"]
    once = Counter(tokens.read(rows == "streams", len(tokens)).tolist())  # a stream's first token is an input
    assert seen == Counter({id: 2 * count for id, count in once.items()})
    assert tomllib.loads((tmp_path / "run" / "recipe.toml").read_text("utf-8"))["steps"] == steps
    shown, _ = check_recipe(run.recipe, SINGLE_PROCESS, is_new=False)
    assert shown.steps == steps


def test_a_resumed_run_keeps_its_epochs_and_takes_no_other_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = train(Recipe.from_dict(table(tmp_path)), stop=3).recipe.steps
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match=r"data\.epochs=2.*steps=900"):
        go_on(folder.path, "steps=900")
    run = go_on(folder.path)
    assert run.state.meters.step == run.recipe.steps == steps > 3 and run.recipe.data.epochs == 2
    done = Shell(capsys, monkeypatch)("train", "--resume", str(folder.path))
    assert done.code == 0 and f"start={folder.path}/model" in done.out and "steps=" not in done.out


def test_steps_and_epochs_that_disagree_are_refused_and_the_later_override_holds(tmp_path: Path) -> None:
    own = table(tmp_path)
    with pytest.raises(ConfigError, match=r"steps=7 and data\.epochs=2"):
        train(Recipe.from_dict(own | {"steps": 7}))
    assert Recipe.from_dict(override(own, ["steps=7"])).data.epochs == 0
    back = Recipe.from_dict(override(own | {"steps": 7}, ["data.epochs=3"]))
    assert (back.steps, back.data.epochs) == (0, 3)
    with pytest.raises(ConfigError, match="steps"):
        Recipe.from_dict(table(tmp_path, epochs=0))


@pytest.mark.parametrize("path", ["task:copy", "stories:tiny"])
def test_text_without_end_has_no_epochs(tmp_path: Path, path: str) -> None:
    own = table(tmp_path, path=path, tokenizer="")
    with pytest.raises(ConfigError, match=r"data\.epochs.*steps"):
        train(Recipe.from_dict(own | {"model": TABLE["model"] | {"context_length": 24}}))
