"""A process that ends by itself is started again, but not for ever."""

from pellucid.base.restarts import FORGET_SECONDS, RestartLimit


def test_a_restart_is_forgotten_after_an_hour() -> None:
    now = 0.0
    limit = RestartLimit(2, lambda: now)
    assert [limit.allow() for _ in range(3)] == [True, True, False]
    now = FORGET_SECONDS - 1
    assert not limit.allow()
    now = FORGET_SECONDS
    assert [limit.allow() for _ in range(3)] == [True, True, False]


def test_ends_more_than_an_hour_apart_are_mended_for_ever() -> None:
    now = 0.0
    limit = RestartLimit(1, lambda: now)
    for hour in range(10):
        now = hour * FORGET_SECONDS
        assert limit.allow() and not limit.allow()
