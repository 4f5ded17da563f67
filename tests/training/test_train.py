"""`pellucid.train` is the command's run without its view."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import ConfigError, UsageError
from pellucid.training.events import Ended, EndReason, Stepped
from pellucid.training.saving.run_folder import RunFolder
from pellucid.training.train import _changes
from tests.training.small_run_folders import TABLE, trained


def test_a_recipe_is_trained_and_its_run_is_the_path_of_its_model(tmp_path: Path) -> None:
    seen: list[Any] = []
    run = pellucid.train(
        TABLE, out=tmp_path / "run", steps=np.int64(3), optimizer={"lr": 0.02}, on_event=seen.append
    )
    assert [event.step for event in seen if isinstance(event, Stepped)] == [1, 2, 3]
    assert isinstance(seen[-1], Ended) and RunFolder(tmp_path / "run").read_status() == ("finished", 3)
    trained(tmp_path / "same", "steps=3", "optimizer.lr=0.02")
    same = pellucid.load(tmp_path / "same" / "model")
    assert run.end_reason is EndReason.FINISHED and run.state.meters.step == 3
    assert torch.equal(pellucid.load(run).logits([1, 2]), same.logits([1, 2]))


def test_a_shipped_recipe_is_known_by_its_name_and_another_kind_drops_the_settings_of_the_first(
    tmp_path: Path,
) -> None:
    tiny = {"context_length": 18, "n_layer": 1, "n_head": 2, "d_model": 8}
    pellucid.train("task:copy", out=str(tmp_path / "a"), steps=1, model=tiny, optimizer={"kind": "sgd"})
    recipe = RunFolder(tmp_path / "a").read_recipe()
    assert recipe["optimizer"]["kind"] == "sgd" and recipe["model"]["n_layer"] == 1


def test_overrides_keep_every_letter_and_the_numbers_of_a_list(tmp_path: Path) -> None:
    out = tmp_path / 'a "😀" \x7f b'
    pellucid.train(TABLE, out=out, steps=1, train={"only": ("*",)}, checkpoint={"minutes": np.float32(2)})
    assert RunFolder(out).read_recipe()["out"] == str(out)
    changes = [*_changes({"extensions": [[np.int64(1), 2]], "data": {"path": [Path("a"), "b"]}})]
    assert changes == ["extensions=[[1, 2]]", 'data.path=["a", "b"]']


def test_a_mask_that_shows_the_targets_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="model.mask=none"):
        pellucid.train(TABLE, out=tmp_path / "a", steps=1, model={"mask": "none"})


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"recipe": 5}, UsageError, "recipe must be"),
        ({"recipe": "storeis"}, ConfigError, "'stories"),
        ({"stesp": 5}, ConfigError, "'steps"),
        ({"steps": "many"}, ConfigError, "steps must be a whole number"),
        ({"steps": None}, UsageError, "steps must be"),
        ({"optimizer": {"lr": object()}}, UsageError, "optimizer.lr must be"),
        ({"steps": -1}, ConfigError, "steps must be .*, not -1"),
    ],
)
def test_a_wrong_recipe_is_refused_and_leaves_nothing(
    given: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        pellucid.train(**({"recipe": TABLE, "out": tmp_path / "run"} | given))
    assert not (tmp_path / "run").exists()


def test_texts_are_trained_on_by_a_recipe_that_is_planned_for_them(tmp_path: Path) -> None:
    for name in ("my.txt", "other.txt"):
        (tmp_path / name).write_text("the cat sat. " * 100)
    texts = [tmp_path / "my.txt", tmp_path / "other.txt"]
    tiny = {"n_layer": 1, "n_head": 1, "d_model": 8, "context_length": 8}
    for recipe, out in ((texts[0], "one"), (texts, "both")):
        pellucid.train(recipe, minutes=0.2, steps=1, out=tmp_path / out, model=tiny, train={"threads": 1})
    assert RunFolder(tmp_path / "both").read_recipe()["data"]["path"] == [*map(str, texts)]
    one = RunFolder(tmp_path / "one").read_recipe()
    assert one["schedule"]["warmup"] >= 1 and one["train"]["initialization"] == "scaled_residual"
    for recipe in ("stories", TABLE):
        with pytest.raises(UsageError, match="minutes"):
            pellucid.train(recipe, minutes=1)


@pytest.mark.parametrize("rows", ["packed", "windows"])
@pytest.mark.parametrize("source", ["stories:easy", "text"])
def test_a_model_reads_a_text_as_its_documents_began(tmp_path: Path, source: str, rows: str) -> None:
    """Generated and packed documents each begin with bos; a window of a text begins anywhere."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Once upon a time {day}.\n" for day in range(200)), "utf-8")
    data = {"path": str(path) if source == "text" else source, "rows": rows, "batch_size": 2}
    if source == "text":
        data |= {"split": "line", "tokenizer": "bytes"}
    pellucid.train(
        "stories", out=tmp_path / "run", steps=1, data=data,
        model={"context_length": 18, "n_layer": 1, "n_head": 1, "d_model": 4},
        evaluation={"batches": 1, "sample": 0},
    )  # fmt: skip
    model = pellucid.load(tmp_path / "run")
    begins = [] if (source, rows) == ("text", "windows") else [model.pretrained.start_id]
    assert model.pretrained.bos_ids == begins
    assert model.encode("Once") == begins + model.pretrained.tokenizer.encode("Once")
