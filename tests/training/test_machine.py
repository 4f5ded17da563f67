"""The peak is measured beside a run, and leaves no trace in it."""

import time

import pytest
import torch

from pellucid.training import machine
from pellucid.training.machine import _measure_product
from tests.training.small_runs import recipe


def test_measuring_does_not_advance_the_rng_of_the_run() -> None:
    before = torch.get_rng_state()
    assert _measure_product.__wrapped__("cpu", "float32", 1) > 1e8
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_library_sets_up_at_its_first_product_is_not_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer than all measuring may, which then ended with that one figure."""
    sides: list[int] = []

    def seconds(a: torch.Tensor, b: torch.Tensor, times: int) -> float:
        sides.append(len(a))
        time.sleep(0.002 if len(sides) > 1 else 2 * machine.PEAK_SECONDS)
        return 0.02 if len(sides) > 1 else 2 * machine.PEAK_SECONDS

    monkeypatch.setattr(machine, "PEAK_SECONDS", 0.1)
    monkeypatch.setattr(machine, "_time_products", seconds)
    assert _measure_product.__wrapped__("cpu", "float32", 1) == 2 * 256**3 / 0.02
    assert sides.count(256) > 2


@pytest.mark.parametrize(
    ("changes", "narrow", "is_told"),
    [
        ((), 2.5e11, True),
        ((), 1.2e11, False),
        (("train.dtype=float32",), 2.5e11, False),
        (("train.dtype=bfloat16",), 2.5e11, False),
        (("train.weights=bfloat16",), 2.5e11, False),
    ],
)
def test_faster_products_in_bfloat16_are_mentioned_where_no_type_was_chosen(
    monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...], narrow: float, is_told: bool
) -> None:
    speeds = {"float32": 1e11, "bfloat16": narrow}
    monkeypatch.setattr(machine, "measure_peak", lambda device, dtype: speeds[dtype])
    lines = machine.hint_dtype(recipe("train.device=cpu", "train.dtype=auto", *changes))
    assert bool(lines) is is_told and all("train.dtype=bfloat16" in line for line in lines)
