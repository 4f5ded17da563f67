"""What a device has, and what of it is free."""

from pellucid.model.device_memory import get_device_memory, get_free_memory


def test_free_memory_is_a_part_of_the_host_s() -> None:
    assert 0 < get_free_memory() <= get_device_memory()
