"""What is said about wrong weights, losses and gradients of a step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.training import step
from pellucid.training.objective import Objective
from pellucid.training.weights import Weights
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.training_gradients import (
    measure_gradients,
    measure_loss,
    measure_weights,
)
from tests.training.small_run_folders import trained


def test_stale_copies_are_named_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weights, "copy_to_model", lambda self: None)
    trained(tmp_path / "a", "train.dtype=bfloat16", "train.weights=bfloat16")
    finding = measure_weights(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "embed.weight")
    assert "step 6 computes with embed.weight[" in finding.message


def test_a_loss_with_eight_significant_bits_is_of_low_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Objective.forward

    def forward(self: Objective, *batch: Any) -> Tensor:
        return right(self, *batch).bfloat16().float()

    monkeypatch.setattr(Objective, "forward", forward)
    trained(tmp_path / "a", "train.dtype=bfloat16", "train.accumulate=2")
    finding = measure_loss(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("low precision", "loss")
    assert "all 4 losses have 8 significant bits" in finding.message


def test_another_loss_in_the_log_is_named(tmp_path: Path) -> None:
    """The replayed step is right, and the run did something else."""
    trained(tmp_path / "a", "train.dtype=float32")
    log = tmp_path / "a" / "log.jsonl"
    lines = [line.replace('"loss": 2.', '"loss": 3.') for line in log.read_text().splitlines(keepends=True)]
    log.write_text("".join(lines))
    finding = measure_loss(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "loss")
    assert "replayed from step 4, loss of step 6 is 2." in finding.message
    assert "; the log has 3." in finding.message


def test_a_parameter_without_a_gradient_and_those_before_it_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = step.forward_backward

    def forward_backward(state: Any, batch: Any) -> Any:
        found = right(state, batch)
        state.weights.trainable["blocks.1.mlp.down_proj.weight"].grad = None
        state.weights.trainable["blocks.0.mlp.up_proj.weight"].grad *= 1.1
        return found

    monkeypatch.setattr(step, "forward_backward", forward_backward)
    trained(tmp_path / "a")
    finding = measure_gradients(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "d.blocks.1.mlp.down_proj.weight")
    assert "it has no gradient, and the specification gives it one" in finding.message
    assert "of 20 gradients, 1 more: d.blocks.0.mlp.up_proj.weight" in finding.message


def test_all_gradients_a_little_too_large_are_named_by_their_common_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = step.forward_backward

    def forward_backward(state: Any, batch: Any) -> Any:
        found = right(state, batch)
        torch._foreach_mul_(state.weights.grads(), 1 + 3e-5)
        return found

    monkeypatch.setattr(step, "forward_backward", forward_backward)
    trained(tmp_path / "a", "train.dtype=float32")
    finding = measure_gradients(RunSubject(tmp_path / "a"))
    assert finding.verdict == "BUG" and "gradients together " in finding.message
