"""The loss of the fast engine with all its settings: the specification's names, numbers and gradients."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.base.names import describe
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from tests.reference.test_loss import LOGITS, SETTINGS, TARGETS, every_setting, specified


def leaf(logits: Any = LOGITS, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(logits, dtype=dtype, requires_grad=True)


def of(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as the fast engine reads them."""
    return {key: torch.tensor(value) if np.ndim(value) else value for key, value in settings.items()}


def recorded(settings: dict[str, Any], targets: Any = TARGETS, fused: bool = False) -> dict[str, Array]:
    logits = leaf()
    with record(gradients=True, fused=fused) as seen:
        loss(logits, torch.tensor(targets), **of(settings)).backward()
    assert logits.grad is not None
    return {**seen.arrays(), "d.logits": logits.grad.numpy()}


def shared(tape: Tape) -> set[str]:
    """The values that the glossary marks for both engines."""
    names = (*tape.values, *tape.aliases)
    return {name for name in names if (entry := describe(name)) and entry.engines == "both"} - {"logits"}


@every_setting
def test_both_engines_agree_on_every_value_and_gradient(settings: dict[str, Any]) -> None:
    tape, got = specified(**settings), recorded(settings)
    assert shared(tape) <= set(got)
    assert not [name for name in got if name not in tape]
    assert find_first_mismatch(got, {name: tape[name] for name in got}, BETWEEN_ENGINES) is None


@every_setting
def test_the_fused_path_gives_the_same_loss_and_gradient(settings: dict[str, Any]) -> None:
    tape, seen, logits = specified(**settings), recorded(settings, fused=True), leaf()
    value = loss(logits, torch.tensor(TARGETS), **of(settings))
    value.backward()
    assert logits.grad is not None
    unseen = {"loss": value.detach().numpy(), "d.logits": logits.grad.numpy()}
    for got in (seen, unseen):
        assert find_first_mismatch(got, {name: tape[name] for name in got}, BETWEEN_ENGINES) is None
    assert "nll" not in seen and "lse" not in seen


@every_setting
@pytest.mark.parametrize("fused", [False, True])
def test_where_no_target_counts_the_loss_is_zero(settings: dict[str, Any], fused: bool) -> None:
    got = recorded(settings, targets=np.full((2, 4), -100), fused=fused)
    assert got["loss"] == 0 and not got["d.logits"].any()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_where_no_target_has_weight_the_loss_is_zero(smoothing: float, fused: bool) -> None:
    settings = SETTINGS["class weights"] | {"smoothing": smoothing}
    got = recorded(settings, targets=np.full((2, 4), 2), fused=fused)
    assert got["loss"] == 0 and not got["d.logits"].any()


@every_setting
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_logits_give_the_loss_of_their_own_numbers(
    settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """Logits up to 200 in bfloat16: the sums are taken in float32, so that nothing is lost or infinite."""
    logits = leaf(LOGITS * 40, dtype)
    value = loss(logits, torch.tensor(TARGETS), **of(settings))
    value.backward()
    wanted = float(specified(logits.detach().double().numpy(), **settings)["loss"])
    assert value.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(wanted, rel=1e-5)
    assert logits.grad is not None and logits.grad.dtype == dtype and logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"smoothing": -0.1}, r"smoothing.*-0.1"),
        ({"z": math.inf}, r"z .*inf"),
        ({"class_weights": np.ones(4)}, r"class_weights must be 5 numbers.*; got the shape \(4,\)"),
    ],
)
def test_settings_that_make_no_loss_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loss(leaf(), torch.tensor(TARGETS), **of(settings))
