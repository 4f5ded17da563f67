"""A run in its folder: what its log says of each event."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.parts import kinds
from pellucid.training.history.log import read
from pellucid.training.peak import peak
from pellucid.training.recipe import Recipe, changed, table_of
from pellucid.training.run import begin, sees_targets
from pellucid.training.saving.run_folder import RunFolder

SMALL = [
    "steps=2", "model.n_layer=1", "model.d_model=16", "model.n_head=2", "data.batch_size=4",
    "evaluation.every=2", "evaluation.batches=1", "evaluation.sample=2",
]  # fmt: skip


def test_the_log_has_the_share_of_the_peak_and_the_floor_with_the_gap_to_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a")
    with folder.held():
        run = begin(Recipe.from_dict(changed(table_of("stories"), SMALL)), folder, lambda _: None)
        list(run.events())
    lines = {line["kind"]: line for line in read(tmp_path / "a" / "log.jsonl")}
    step, judged = lines["step"], lines["evaluation"]
    work = step["tokens_per_second"] * lines["start"]["flops_per_token"]
    assert step["mfu"] == pytest.approx(work / peak("cpu"))
    assert judged["floor"] == lines["start"]["floor"] > 0
    assert judged["gap"] == judged["loss"] - judged["floor"]
    assert judged["learned"] < 1 and 0 <= judged["accuracy"] <= 1


@pytest.mark.parametrize("kind", kinds("masks"))
def test_a_mask_that_shows_a_target_is_warned_of(kind: str) -> None:
    """The target of a position is the token at the next one."""
    recipe = Recipe.from_dict(changed(table_of("stories"), [f"model.mask={kind}"]))
    config, at = recipe.config(9), np.arange(recipe.length)
    allowed = config.mask.allowed(at, at)
    shown = allowed is None or bool(np.diagonal(allowed, 1).any())
    assert bool(sees_targets(config)) is shown


def test_the_warning_says_how_many_and_what_sees_none() -> None:
    for mask, words in (
        ("none", "predict, so"),
        ("{kind='prefix', length=3}", "in the first 2 of a row, so"),
    ):
        recipe = Recipe.from_dict(changed(table_of("stories"), [f"model.mask={mask}"]))
        told = sees_targets(recipe.config(9))
        assert words in told and "model.mask=causal" in told
