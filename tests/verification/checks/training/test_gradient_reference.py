"""A gradient of another scale is named, and a smaller error than rounding makes is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.verification.checks.training.batch_gradients import (
    compute_by_fast_engine,
    compute_by_specification,
)
from pellucid.verification.checks.training.gradient_reference import compute_reference
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.runs.rebuilt_step import to_float64
from tests.training.small_run_folders import trained

NARROW = ("train.dtype=bfloat16", "train.weights=bfloat16")
LARGER = (
    "model.d_model=48", "model.n_head=4", "model.d_ff=96", "model.context_length=64", "data.batch_size=8",
    "data.path=stories:easy", "evaluation.sample=0", "steps=2", "train.initialization=gpt2",
)  # fmt: skip


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> RunSubject:
    path = tmp_path_factory.mktemp("narrow") / "a"
    trained(path, *NARROW, *LARGER)
    return RunSubject(path)


def test_in_bfloat16_a_gradient_that_is_one_percent_too_large_is_named(narrow: RunSubject) -> None:
    """The error of a gradient is about as large, but its scale is known far better."""
    reference, grads = narrow.reference, narrow.judged.grads
    for name in narrow.trainable:
        healthy = reference.compare(name, to_float64(grads[name]))
        assert healthy.used < 0.6, str(healthy)
    scaled = {name: reference.compare(name, 1.01 * to_float64(grads[name])) for name in narrow.trainable}
    slope, allowed = reference.common_slope(scaled)
    assert abs(slope - 1) > allowed
    name = "blocks.1.mlp.up_proj.weight"
    assert reference.compare(name, 1.03 * to_float64(grads[name])).used > 1


@pytest.mark.parametrize("wrong", [np.zeros_like, np.negative, lambda grad: np.full_like(grad, np.nan)])
def test_a_gradient_that_is_missing_negative_or_nan_is_named(wrong: np.ufunc, narrow: RunSubject) -> None:
    name = "blocks.0.mlp.down_proj.weight"
    found = narrow.reference.compare(name, wrong(to_float64(narrow.judged.grads[name])))
    assert found.used > 1 and f"d.{name}" in str(found)


def test_groups_of_rows_give_the_gradients_of_the_whole_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "a", 'train.class_weights={"a"=0.2}', "train.label_smoothing=0.1", "steps=2")
    problem = RunSubject(tmp_path / "a").problem
    whole, fast = compute_by_specification(problem), compute_by_fast_engine(problem, _cpu())
    monkeypatch.setattr("pellucid.verification.checks.training.batch_gradients.GROUP_TOKENS", 18)
    alone = compute_by_specification(problem)
    for other in (alone, fast):
        assert other.loss == pytest.approx(whole.loss, rel=1e-12)
        assert find_first_mismatch(other.grads, whole.grads, BETWEEN_ENGINES) is None
        assert np.allclose(other.nll, whole.nll, rtol=1e-12)


def test_a_batch_without_targets_has_no_loss_and_no_gradient(narrow: RunSubject) -> None:
    rows = narrow.problem.rows
    empty = replace(narrow.problem, rows=replace(rows, targets=np.full_like(rows.targets, -100)))
    found = compute_reference(empty, "float32", _cpu())
    assert found.exact.loss == 0 and not any(grad.any() for grad in found.exact.grads.values())
    assert found.compare("embed.weight", np.zeros_like(found.exact.grads["embed.weight"])).used == 0


def _cpu() -> torch.device:
    return torch.device("cpu")
