"""What is sent ahead to a GPU is what the loader gives next, and changes nothing else. No GPU is needed: the
copies stay where they are."""

import numpy as np
import pytest
import torch

from pellucid.base.errors import FileError
from pellucid.data.loader import DataLoader
from pellucid.data.rows import Batch
from pellucid.data.shard import Ids
from pellucid.training.prefetch import DeviceBatch, Prefetcher
from tests.training.small_runs import MadeUp


class Damaged(MadeUp):
    """Rows of which those of the third batch cannot be read."""

    def take(self, count: int, local: slice) -> Batch:
        made = super().take(count, local)
        if self.at == 3 * count:
            raise FileError("the token file is cut off")
        return made


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which arrays were sent."""
    found: list[str] = []

    def there(feed: Prefetcher, name: str, array: Ids) -> torch.Tensor:
        found.append(name)
        return torch.from_numpy(array.copy())

    monkeypatch.setattr(Prefetcher, "_copy", there)
    return found


def fed(feed: Prefetcher, count: int) -> list[DeviceBatch]:
    """Of these steps, each of which sends the next one's batch."""
    made = []
    for _ in range(count):
        made.append(feed.next())
        feed.prefetch()
    return made


def same(ours: list[DeviceBatch], wanted: list[Batch]) -> bool:
    return all(
        np.array_equal(a.ids, b.ids) and np.array_equal(a.targets, b.targets)
        for a, b in zip(ours, wanted, strict=True)
    )


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_come_in_their_order_and_are_sent_once(sends: list[str], prefetch: int) -> None:
    loader, plain = DataLoader(MadeUp(), 2, prefetch=prefetch), DataLoader(MadeUp(), 2, prefetch=0)
    with loader:
        assert same(fed(Prefetcher(loader, torch.device("cuda")), 5), [next(plain) for _ in range(5)])
        assert loader.state_dict() == plain.state_dict()
    assert sends == ["ids", "targets"] * 6


@pytest.mark.parametrize("prefetch", [0, 2])
def test_what_was_sent_before_going_back_is_not_used_after_it(sends: list[str], prefetch: int) -> None:
    whole = DataLoader(MadeUp(), 2, prefetch=0)
    plain = [next(whole) for _ in range(6)]
    with DataLoader(MadeUp(), 2, prefetch=prefetch) as loader:
        feed, state = Prefetcher(loader, torch.device("cuda")), loader.state_dict()
        fed(feed, 3)
        loader.load_state_dict(state)
        assert same(fed(feed, 5), plain[:5])
        loader.close()
        assert same([feed.next()], plain[5:])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_that_cannot_be_made_is_reported_when_it_is_asked_for(
    sends: list[str], prefetch: int
) -> None:
    """Not while the step before it is at work, whose update would be lost."""
    with DataLoader(Damaged(), 2, prefetch=prefetch) as loader:
        feed = Prefetcher(loader, torch.device("cuda"))
        assert len(fed(feed, 2)) == 2
        for _ in range(2):
            with pytest.raises(FileError, match="cut off"):
                feed.next()
