"""Weights are read once each, by whichever thread comes first."""

import threading
import time

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.formats.pretrained import LazyWeights
from pellucid.server.explorer import weights
from pellucid.server.explorer.weights import HeldWeights

SHAPES = {f"w{i}": (10, 10) for i in range(20)}


def test_each_weight_is_read_once_whatever_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BACKGROUND_BYTES", 0)
    read: list[str] = []

    def slow(name: str) -> np.ndarray:
        time.sleep(0.001)
        read.append(name)
        return np.full((10, 10), len(read), np.float32)

    held = HeldWeights(LazyWeights.from_function(SHAPES, slow), SHAPES)
    held.read_ahead()
    threads = [threading.Thread(target=held.read_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read) == sorted(SHAPES) and held.read_count == len(held) == 20 and held.bytes == 16_000
    assert 0 < held.speed < 1e12
    assert all(held[name] is held[name] and held[name].dtype == np.float64 for name in held)


def test_a_weight_that_cannot_be_read_fails_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BACKGROUND_BYTES", 0)

    def fail(name: str) -> np.ndarray:
        raise FileError("the file is damaged.")

    held = HeldWeights(LazyWeights.from_function(SHAPES, fail), SHAPES)
    held.read_ahead()
    with pytest.raises(FileError):
        held.read_all()


@pytest.mark.parametrize("shared_bytes", [0, 1_000_000], ids=["mapped", "copied"])
def test_a_copy_is_its_own_also_after_the_weights_are_gone(
    monkeypatch: pytest.MonkeyPatch, shared_bytes: int
) -> None:
    monkeypatch.setattr(weights, "SHARED_BYTES", shared_bytes)
    given = {"w": np.arange(600.0, dtype=np.float32).reshape(20, 30)}
    held = HeldWeights(given, {"w": (20, 30)})
    one, other = held.copy(held["w"]), held.copy(held["w"])
    one[3, 4] = -1.0
    assert held["w"][3, 4] == other[3, 4] == 94.0
    assert np.array_equal(held["w"], given["w"]) and np.array_equal(other, given["w"])
    del held
    other[0, 0] = 7.0
    assert one[3, 4] == -1.0 and one[0, 0] == 0.0 and other[0, 0] == 7.0


def test_weights_are_held_where_the_system_has_no_memory_to_map_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(weights, "SHARED_BYTES", 0)
    monkeypatch.setattr("os.memfd_create", fail, raising=False)
    held = HeldWeights({"w": np.ones((2, 3), np.float32)}, {"w": (2, 3)})
    assert held.copy(held["w"]).tolist() == [[1.0] * 3] * 2
