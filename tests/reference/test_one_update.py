"""One update of one parameter, small enough to check with a pocket calculator."""

import numpy as np
import pytest

from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.one_update import (
    UpdateInputs,
    UpdateRule,
    record_initial,
    record_skipped_update,
    record_update,
)

NAME = "unembed.bias"


def test_a_clipped_gradient_enters_the_momentum_and_that_the_weight() -> None:
    """‖g‖ = √(3² + 4²) = 5, so the factor is 2.5 / 5; m = 0.5 · 2 + 0.5 · 3 · ½; the mean goes halfway."""
    before = UpdateInputs(
        NAME,
        7,
        np.array([1.0]),
        np.array([3.0]),
        np.array([3.0, 4.0]),
        {"m": np.array([2.0])},
        np.array([9.0]),
    )
    rule = UpdateRule("averaging_momentum", {"lr": 0.1, "beta": 0.5}, clip=2.5, ema=0.5)
    tape = record_update(before, rule)
    found = {name: float(value.ravel()[0]) for name, value in tape.values.items()}
    assert found == pytest.approx(
        {
            f"{NAME}@6": 1.0, f"d.{NAME}@7": 3.0, "lengths@7": 3.0, "grad_norm@7": 5.0, "clip@7": 0.5,
            f"d.{NAME}.clipped@7": 1.5, f"{NAME}.m@6": 2.0, f"{NAME}.m@7": 1.75, f"{NAME}@7": 0.825,
            f"{NAME}.ema@6": 9.0, f"{NAME}.ema@7": 4.9125,
        }
    )  # fmt: skip
    message = str(derive(Trace(tape), f"{NAME}.ema@7[0]", depth=9))
    assert "EMA of " in message and "in update 7" in message


def test_adam_counts_the_updates_that_there_were_and_not_the_steps() -> None:
    """At its first update, m̂ / √v̂ is the sign of the gradient, whichever step it is."""
    before = UpdateInputs(NAME, 5, np.array([1.0]), np.array([-4.0]), np.array([4.0]))
    for t, moved in ((1, 0.1), (None, 0.1 * (0.4 / (1 - 0.9**5)) / np.sqrt(0.016 / (1 - 0.999**5)))):
        settings = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-12} | ({} if t is None else {"t": t})
        assert record_update(before, UpdateRule("adam", settings))[f"{NAME}@5"][0] == pytest.approx(1 + moved)


def test_without_clipping_the_gradient_is_used_as_it_is() -> None:
    tape = record_update(
        UpdateInputs(NAME, 1, np.array([1.0]), np.array([3.0]), np.array([3.0])),
        UpdateRule("sgd", {"lr": 0.5}),
    )
    assert "clip@1" not in tape and float(tape["grad_norm@1"]) == 3.0 and tape[f"{NAME}@1"][0] == -0.5
    assert "before the first update" in Trace(tape).about(f"{NAME}@0").meaning


def test_what_was_not_updated_has_the_same_number_under_both_names() -> None:
    tape = record_skipped_update(
        UpdateInputs(NAME, 3, np.array([1.0]), np.array([np.nan]), moments={"m": np.array([2.0])})
    )
    assert tape.resolve(f"{NAME}@3") == f"{NAME}@2" and tape.resolve(f"{NAME}.m@3") == f"{NAME}.m@2"
    assert np.isnan(tape[f"d.{NAME}@3"][0])
    assert record_initial(NAME, np.array([1.0]))[f"{NAME}@0"] == 1.0
