"""The peak is measured beside a run, and leaves no trace in it."""

import time

import pytest
import torch

from pellucid.config import preset
from pellucid.training import machine
from pellucid.training.machine import _measure_product
from pellucid.training.plan import Plan
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


@pytest.fixture
def _is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose second core is taken: products with two threads wait for each other."""
    monkeypatch.setattr(machine, "_peaks", {})
    monkeypatch.setattr(
        machine, "_measure_product", lambda device, dtype, threads: {1: 9e10, 2: 2e9}[threads]
    )
    monkeypatch.setattr(machine, "thread_counts", lambda device: [2, 1])


@pytest.mark.usefixtures("_is_busy")
def test_the_peak_is_the_fastest_product_measured_with_any_number_of_threads() -> None:
    with machine.use_threads(2):
        assert machine.find_peak("cpu", "float32") == 2e9
    with machine.use_threads(1):
        assert machine.measure_peak("cpu", "float32") == 9e10
    with machine.use_threads(2):
        assert machine.measure_peak("cpu", "float32") == 2e9
        assert machine.find_peak("cpu", "float32") == 9e10


@pytest.mark.usefixtures("_is_busy")
def test_a_plan_s_utilization_is_a_share_of_the_larger_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps may be faster with the number of threads whose products happened to be slow."""
    monkeypatch.setattr(machine, "measure_speed", lambda *_: 6e10 if torch.get_num_threads() == 2 else 1e10)
    found = machine.Machine(recipe("train.device=cpu", "train.dtype=float32"), "cpu", True, 1.0)
    plan = Plan({"data.batch_size": 1, "model.context_length": 8}, (), preset("abcd"), tokens=8, epochs=1.0)
    assert found.measure_utilization(plan) == 6e10 / 9e10
    assert found.count == 2


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
