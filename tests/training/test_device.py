"""Deterministic algorithms: prepared in time, and their price measured without a trace in the run."""

import os
import re

import pytest
import torch

from pellucid.training import device, machine
from tests.training.small_runs import make_run, recipe


def test_the_price_is_reported_and_the_run_is_as_it_was() -> None:
    run = make_run("train.dtype=float32", "model.dropout={kind='bernoulli', hidden=0.2}")
    rng_state, weights = torch.get_rng_state(), [weight.clone() for weight in run.state.model.parameters()]
    message = device.describe_determinism_cost(run.state.objective, 4, 6)
    assert re.search(r"4 rows take [\d.]+ ms, and [\d.]+ ms .*train\.deterministic=false .*[+-]\d+%", message)
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert all(map(torch.equal, run.state.model.parameters(), weights))
    assert all(weight.grad is None for weight in run.state.model.parameters())
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("wanted", "device", "deterministic"),
    [("auto", "cpu", True), ("false", "cpu", False), ("auto", "cuda", False), ("true", "cuda", True)],
)
def test_the_same_bits_are_a_choice_on_a_gpu(wanted: str, device: str, deterministic: bool) -> None:
    run = make_run(f"train.deterministic={wanted}")
    run.state.device = torch.device(device)
    assert run.state.is_deterministic is deterministic


def test_the_setting_of_cublas_is_there_before_the_first_product(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []

    def product(*_: torch.Tensor) -> None:
        found.append(os.environ.get(device.CUBLAS_KEY))

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.delenv(device.CUBLAS_KEY, raising=False)
    machine._measure_product.__wrapped__("cpu", "float32", 1)
    assert found[0] == device.CUBLAS_VALUE
    monkeypatch.delenv(device.CUBLAS_KEY)
    make_run()
    assert os.environ[device.CUBLAS_KEY] == device.CUBLAS_VALUE


def test_a_given_setting_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.CUBLAS_KEY, ":16:8")
    device.configure_torch()
    assert os.environ[device.CUBLAS_KEY] == ":16:8"


def test_a_run_computes_with_the_threads_of_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a resumed run sums in the same order."""
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    device.configure_torch()
    assert used == []
    device.configure_torch(3)
    assert used == [3]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        (("steps=2000",), "no: on a CPU"),
        (("steps=2000", "train.dtype=bfloat16"), "yes"),
        (("steps=2000", "train.weights=bfloat16"), "yes"),
        (("steps=1999", "train.dtype=bfloat16"), "no: 1999 steps"),
    ],
)
def test_a_long_run_in_bfloat16_is_compiled_on_a_cpu(changes: tuple[str, ...], answer: str) -> None:
    asked = recipe("train.dtype=auto", "train.compile=auto", *changes)
    assert device.decide_compilation(asked, torch.device("cpu"), is_sharded=False).startswith(answer)
