"""The number of torch's threads changes for the thread that asks, and only meanwhile."""

import threading

import pytest
import torch

from pellucid.generation.samplers.one_thread import use_one_thread


def test_only_the_calling_thread_has_one_thread_meanwhile() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_one_thread():
            assert torch.get_num_threads() == 1
            others: list[int] = []
            thread = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
            thread.start()
            thread.join()
            assert others == [2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_number_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="sampler"), use_one_thread():
        raise ValueError("a sampler failed")
    assert torch.get_num_threads() == before
