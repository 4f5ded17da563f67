"""What is said about wrong weights, losses and gradients of a step; and about a wrong norm, clipping or
update."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.training import optimizers, step
from pellucid.training.objective import Objective
from pellucid.training.weights import Weights
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.training_step import (
    measure_clipping,
    measure_gradients,
    measure_loss,
    measure_norm,
    measure_update,
    measure_weights,
)
from tests.training.small_run_folders import trained
from tests.verification.conftest import CopyRun


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


def test_another_loss_in_the_log_is_named(tmp_path: Path, copy_run: CopyRun) -> None:
    """The replayed step is right, and the run did something else."""
    copy_run(tmp_path / "a", "train.dtype=float32")
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


def test_the_gradient_that_a_norm_misses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.utils.get_total_norm
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda grads: right(grads[:3] + grads[4:]))
    trained(tmp_path / "a", "train.dtype=float32")
    finding = measure_norm(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "grad_norm")
    assert finding.message.endswith(": that of all but d.blocks.0.attn.v_proj.weight")


def test_a_clipped_norm_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = step.clip_grads

    def clip(grads: Any, norm: torch.Tensor, limit: float, is_finite: torch.Tensor) -> None:
        right(grads, norm, limit, is_finite)
        norm.clamp_(max=limit)

    monkeypatch.setattr(step, "clip_grads", clip)
    trained(tmp_path / "a")
    assert measure_norm(RunSubject(tmp_path / "a")).message.endswith(": it is the norm after clipping")


def test_a_clipped_gradient_is_named_with_both_factors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "clip_grads", lambda *given: None)
    trained(tmp_path / "a")
    finding = measure_clipping(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "d.embed.weight.clipped")
    assert "d.embed.weight is multiplied by 1, and all gradients by min(1, 0.1 / " in finding.message


def test_a_gradient_below_the_limit_is_not_clipped(tmp_path: Path) -> None:
    trained(tmp_path / "a", "train.clip=9")
    finding = measure_clipping(RunSubject(tmp_path / "a"))
    assert finding.verdict == "equal" and "one factor of 1 for 20 gradients" in finding.measured


def test_another_count_of_updates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = optimizers.update

    def update(optimizer: torch.optim.Optimizer, is_finite: torch.Tensor) -> None:
        for own in optimizer.state.values():
            own["step"] += 1
        right(optimizer, is_finite)

    monkeypatch.setattr(optimizers, "update", update)
    trained(tmp_path / "a")
    finding = measure_update(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "embed.weight@6")
    assert "the optimizer counts 9 updates of embed.weight before step 6; there were 5" in finding.message


def test_skipped_steps_do_not_count_as_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = step.forward_backward

    def broken(state: Any, batch: Any) -> Any:
        loss, tokens = right(state, batch)
        return (loss * float("nan") if state.meters.step == 2 else loss), tokens

    monkeypatch.setattr(step, "forward_backward", broken)
    trained(tmp_path / "a")
    assert measure_update(RunSubject(tmp_path / "a")).verdict == "equal"


def test_a_large_run_has_the_updates_of_as_many_parameters_as_the_bound_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_run: CopyRun
) -> None:
    monkeypatch.setattr("pellucid.verification.checks.training.run_subject.UPDATE_NUMBERS", 700)
    copy_run(tmp_path / "a")
    assert "14 of 20 parameters" in measure_update(RunSubject(tmp_path / "a")).measured
