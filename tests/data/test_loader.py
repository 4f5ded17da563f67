"""Batches: every token once in an epoch, the same for any rank, thread and interruption."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.loader import DataLoader
from pellucid.data.rows import Batch, Rows
from pellucid.data.rows.mixture import Mixture
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import POOL, Padded
from pellucid.data.rows.records import Records
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import HEAD
from pellucid.data.tokens import TokenFolder, Tokens
from tests.data.small_corpora import copy_of_prepared, made_before, tokens

BOS = 0


@pytest.fixture(scope="module")
def train() -> Tokens:
    return tokens(documents=30, shard_tokens=150)


@pytest.fixture(scope="module")
def other() -> Tokens:
    return tokens(documents=9, shard_tokens=150)


WAYS: dict[str, Callable[[Tokens], Rows]] = {
    "windows": lambda train: Windows(train, 16, seed=3),
    "packed": lambda train: Packed(train, 16, seed=3, bos=BOS),
    "packed without begin": lambda train: Packed(train, 16, seed=3),
    "padded": lambda train: Padded(train, 40, seed=3, bos=BOS),
    "streams": lambda train: Streams(train, 16),
    "mixture": lambda train: Mixture([Windows(train, 16), Packed(train, 16, bos=BOS)], [2, 1], seed=3),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def taken(loader: DataLoader, count: int) -> list[Batch]:
    return [next(loader) for _ in range(count)]


def same(some: list[Batch], others: list[Batch]) -> None:
    assert len(some) == len(others)
    for a, b in zip(some, others, strict=True):
        assert np.array_equal(a.ids, b.ids) and np.array_equal(a.targets, b.targets)
        assert (a.segments is None) == (b.segments is None)
        assert a.segments is None or b.segments is None or np.array_equal(a.segments, b.segments)


# ---- every token once


@pytest.mark.parametrize("length", [1, 7, 16, 64, 10_000])
def test_every_token_of_an_epoch_is_once_a_target_of_windows(train: Tokens, length: int) -> None:
    """Ids are replaced by places, so that a target says which token of the files it is."""
    rows = Windows(placed(train), length, seed=5)
    for _ in range(3):
        batch = rows.take(rows.per_epoch, slice(0, rows.per_epoch))
        counted = batch.targets != IGNORE_INDEX
        assert sorted(batch.targets[counted].tolist()) == list(range(len(train)))
        assert ((batch.ids[counted] + 1) % len(train) == batch.targets[counted]).all()


class Placed:
    """Tokens whose ids are their places."""

    folder, part = Path("placed"), "train"

    def __init__(self, size: int) -> None:
        self.size = self.vocab_size = size

    def __len__(self) -> int:
        return self.size

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.arange(start, stop)

    read_unchecked = read


def placed(train: Tokens) -> Tokens:
    return Placed(len(train))  # type: ignore[return-value]


def test_epochs_begin_at_other_places_and_go_in_other_orders(train: Tokens) -> None:
    rows = Windows(train, 16)
    assert len({rows.offset(epoch) for epoch in range(20)}) > 15
    orders = [rows.take(rows.per_epoch, slice(0, rows.per_epoch)).ids for _ in range(2)]
    assert not np.array_equal(*orders)


def documents(train: Tokens) -> Counter[tuple[int, ...]]:
    return Counter(tuple(train.document(i).tolist()) for i in range(train.documents))


@pytest.mark.parametrize("length", [1, 5, 64, 1000])
def test_packed_documents_are_all_there_and_none_runs_into_the_next(train: Tokens, length: int) -> None:
    places = sum(len(train.document(i)) for i in range(train.documents))
    rows, found, segment = Packed(train, length, bos=BOS), Counter[tuple[int, ...]](), []
    count = -(-places // length)
    batch = rows.take(count, slice(0, count))
    assert batch.segments is not None and (batch.targets != IGNORE_INDEX).all()
    for id, target in zip(batch.ids.reshape(-1).tolist(), batch.targets.reshape(-1).tolist(), strict=True):
        assert id == (segment[-1] if segment else BOS)
        segment.append(target)
        if target == 0:  # the end token, which only ends documents
            found[tuple(segment)] += 1
            segment = []
        if found.total() == train.documents:
            break
    assert found == documents(train)


def test_segments_of_a_packed_row_change_where_a_document_begins(train: Tokens) -> None:
    batch = Packed(train, 50, bos=BOS).take(8, slice(0, 8))
    assert batch.segments is not None
    begins = batch.ids == BOS
    begins[:, 0] = True
    assert np.array_equal(batch.segments, np.cumsum(begins, axis=1) - 1)


@pytest.mark.parametrize("bos", [BOS, None])
def test_packed_rows_predict_every_token_that_has_one_before_it(train: Tokens, bos: int | None) -> None:
    """Over one epoch of single rows; without a begin token nothing stands before a document's first."""
    wanted = Counter[int]()
    for i in range(train.documents):
        wanted.update(train.document(i)[bos is None :].tolist())
    total = wanted.total()
    packed = Packed(train, 1, bos=bos).take(total, slice(0, total))
    assert Counter(packed.targets.reshape(-1).tolist()) == wanted


def test_padded_rows_of_an_epoch_hold_every_document_once() -> None:
    few = tokens(documents=POOL * 2)
    rows, found = Padded(few, 1000, bos=BOS, pad=1), Counter[tuple[int, ...]]()
    for _ in range(POOL):
        batch = rows.take(2, slice(0, 2))
        for ids, targets in zip(batch.ids, batch.targets, strict=True):
            size = int((targets != IGNORE_INDEX).sum())
            assert (targets[size:] == IGNORE_INDEX).all() and (ids[size:] == 1).all()
            assert ids[0] == BOS and (ids[1:size] == targets[: size - 1]).all()
            found[tuple(targets[:size].tolist())] += 1
    assert found == documents(few)


def test_padded_rows_of_like_length_come_together() -> None:
    few = tokens(documents=128)
    rows = Padded(few, 1000, bos=BOS)
    batches = [rows.take(8, slice(0, 8)) for _ in range(POOL)]
    padding = sum(int((batch.targets == IGNORE_INDEX).sum()) for batch in batches)
    assert padding < 0.1 * sum(batch.targets.size for batch in batches)
    widths = [batch.ids.shape[1] for batch in batches]
    assert widths != sorted(widths)


def test_a_document_longer_than_a_row_takes_several(train: Tokens) -> None:
    rows = Padded(train, 8, bos=BOS)
    batches = [rows.take(64, slice(0, 64)) for _ in range(POOL)]
    assert max(batch.ids.shape[1] for batch in batches) == 8


@pytest.mark.parametrize("count", [1, 3, 4])
def test_streams_go_on_where_they_ended_and_predict_every_token_but_the_first(
    train: Tokens, count: int
) -> None:
    rows = Streams(train, 16)
    epoch = [rows.take(count, slice(0, count)) for _ in range(rows.count_batches(count))]
    for row in range(count):
        counted = [batch.targets[row] != IGNORE_INDEX for batch in epoch]
        inputs = np.concatenate([batch.ids[row][on] for batch, on in zip(epoch, counted, strict=True)])
        targets = np.concatenate([batch.targets[row][on] for batch, on in zip(epoch, counted, strict=True)])
        assert (inputs[1:] == targets[:-1]).all()
    targets = np.concatenate([batch.targets[row] for row in range(count) for batch in epoch])
    assert np.array_equal(targets[targets != IGNORE_INDEX], train.read(1, len(train)))
    same([rows.take(count, slice(0, count))], epoch[:1])


# ---- epochs

EPOCHS: dict[str, Callable[[Tokens, int], Rows]] = {
    "windows": lambda train, epochs: Windows(train, 16, 3, epochs=epochs),
    "packed": lambda train, epochs: Packed(train, 16, 3, BOS, epochs),
    "packed without bos": lambda train, epochs: Packed(train, 16, 3, epochs=epochs),
    "padded": lambda train, epochs: Padded(train, 40, 3, BOS, epochs=epochs),
    "streams": lambda train, epochs: Streams(train, 16, epochs),
    "records": lambda train, epochs: Records(
        [(train.document(i), train.document(i)) for i in range(train.documents)], 500, epochs=epochs
    ),
}


@pytest.mark.parametrize("make", EPOCHS.values(), ids=EPOCHS)
@pytest.mark.parametrize("batch_size", [1, 4, 7])
def test_epochs_are_exactly_that_many_passes(
    train: Tokens, make: Callable[[Tokens, int], Rows], batch_size: int
) -> None:
    def targets(rows: Rows, batches: int) -> Counter[int]:
        found = np.concatenate(
            [rows.take(batch_size, slice(0, batch_size)).targets.ravel() for _ in range(batches)]
        )
        return Counter(found[found != IGNORE_INDEX].tolist())

    one, three = make(train, 1), make(train, 3)
    once = targets(one, one.count_batches(batch_size, 1))
    batches = three.count_batches(batch_size, 3)
    assert targets(three, batches) == Counter({id: 3 * count for id, count in once.items()})
    assert not targets(three, 20), "targets after the last epoch"
    shorter = make(train, 3)
    assert targets(shorter, batches - 1) != targets(make(train, 3), batches), "a batch without targets"


def test_a_mixture_has_no_epochs(train: Tokens) -> None:
    with pytest.raises(ConfigError, match="epochs"):
        Mixture([Windows(train, 4)], [1]).count_batches(4, 1)


# ---- the same stream


@ways
def test_ranks_share_the_batches_of_one(train: Tokens, way: Callable[[Tokens], Rows]) -> None:
    alone = taken(DataLoader(way(train), 12, prefetch=0), 20)
    for world in (2, 3, 4):
        ranks = [DataLoader(way(train), 12 // world, rank, world, prefetch=0) for rank in range(world)]
        for batch in alone:
            parts = [next(rank) for rank in ranks]
            width = batch.ids.shape[1]
            for part, whole in (
                (p, slice(i * len(p.ids), (i + 1) * len(p.ids))) for i, p in enumerate(parts)
            ):
                inner = part.ids.shape[1]  # a rank's padded rows may all be shorter
                assert np.array_equal(part.ids, batch.ids[whole, :inner])
                assert np.array_equal(part.targets, batch.targets[whole, :inner])
                assert inner == width or (batch.targets[whole, inner:] == IGNORE_INDEX).all()


@ways
@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_how_many_are_made_ahead_does_not_change_them(
    train: Tokens, way: Callable[[Tokens], Rows], prefetch: int
) -> None:
    with DataLoader(way(train), 4, prefetch=prefetch) as loader:
        same(taken(loader, 30), taken(DataLoader(way(train), 4, prefetch=0), 30))


@ways
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("at", [0, 1, 17, 33])
def test_a_resumed_loader_gives_what_an_uninterrupted_one_does(
    train: Tokens, way: Callable[[Tokens], Rows], prefetch: int, at: int
) -> None:
    with (
        DataLoader(way(train), 4, prefetch=prefetch) as first,
        DataLoader(way(train), 4, prefetch=prefetch) as second,
    ):
        taken(first, at)
        state = first.state_dict()
        assert all(type(value) is int for value in state.values()) and len(state) < 24
        taken(second, 5)
        second.load_state_dict(state)
        same(taken(second, 25), taken(first, 25))


@ways
def test_another_number_of_ranks_goes_on_with_the_same_rows(
    train: Tokens, way: Callable[[Tokens], Rows]
) -> None:
    two = [DataLoader(way(train), 4, rank, 2, prefetch=0) for rank in range(2)]
    for rank in two:
        taken(rank, 9)
    alone = DataLoader(way(train), 8, prefetch=0)
    alone.load_state_dict(two[0].state_dict())
    assert two[0].state_dict() == two[1].state_dict()
    assert np.array_equal(next(alone).targets[:4, 0], next(two[0]).targets[:, 0])


@ways
def test_closing_a_loader_loses_no_batch(train: Tokens, way: Callable[[Tokens], Rows]) -> None:
    loader, found = DataLoader(way(train), 4, prefetch=3), []
    for _ in range(5):
        found += taken(loader, 3)
        loader.close()
    same(found, taken(DataLoader(way(train), 4, prefetch=0), 15))
    assert "pellucid-loader" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("name", ["windows", "packed", "padded"])
def test_another_seed_gives_other_batches(train: Tokens, name: str) -> None:
    kind = {"windows": Windows, "packed": Packed, "padded": Padded}[name]
    one, two = kind(train, 16, seed=1).take(4, slice(0, 4)), kind(train, 16, seed=2).take(4, slice(0, 4))
    assert one.ids.shape != two.ids.shape or not np.array_equal(one.ids, two.ids)


def test_a_mixture_has_its_sources_by_weight_and_each_in_its_order(train: Tokens, other: Tokens) -> None:
    mixture = Mixture([Windows(train, 16, seed=1), Windows(other, 16, seed=2)], [3, 1], seed=7)
    drawn = mixture.draw(0, 20_000)
    assert abs((drawn == 0).mean() - 0.75) < 4 * (0.75 * 0.25 / 20_000) ** 0.5
    batch, ahead = mixture.take(200, slice(0, 200)), drawn[:200]
    for i, alone in enumerate([Windows(train, 16, seed=1), Windows(other, 16, seed=2)]):
        count = int((ahead == i).sum())
        assert np.array_equal(batch.ids[ahead == i], alone.take(count, slice(0, count)).ids)


def test_a_source_of_weight_nothing_never_comes(train: Tokens, other: Tokens) -> None:
    mixture = Mixture([Windows(train, 16), Windows(other, 16), Windows(other, 16)], [0, 1, 0])
    assert set(mixture.draw(0, 5000).tolist()) == {1}


# ---- what cannot be


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_damaged_shard_is_one_error_that_names_file_and_place_and_nothing_hangs(
    tmp_path: Path, prefetch: int
) -> None:
    folder = copy_of_prepared(tmp_path)
    shard = folder / "train-00002.tokens"
    data = bytearray(shard.read_bytes())
    data[HEAD.size + 20 : HEAD.size + 22] = b"\xff\xff"
    shard.write_bytes(data)
    for way in WAYS.values():
        with DataLoader(way(TokenFolder(folder)["train"]), 8, prefetch=prefetch) as loader:
            for _ in range(2):  # asking again does not hang, either
                with pytest.raises(FileError, match=r"train-00002.tokens .*token 10 \(byte 44\) is 65535"):
                    taken(loader, 200)


def test_a_state_that_cannot_be_is_refused(train: Tokens) -> None:
    loader = DataLoader(Padded(train, 8), 4)
    with pytest.raises(ConfigError, match="no batch 16"):
        loader.load_state_dict(loader.state_dict() | {"at.batch": POOL})


def test_a_state_of_other_batches_is_refused_and_says_what_differs(train: Tokens, other: Tokens) -> None:
    state = DataLoader(Windows(train, 16, seed=3), 4).state_dict()
    for rows, batch_size, what in (
        (Windows(train, 8, seed=3), 4, "length was 16, .* 8"),
        (Windows(train, 16, seed=4), 4, "seed was 3, .* 4"),
        (Windows(other, 16, seed=3), 4, f"tokens was {len(train)}, .* {len(other)}"),
        (Windows(train, 16, seed=3), 5, "rows_in_all was 4, .* 5"),
    ):
        with pytest.raises(ConfigError, match=what):
            DataLoader(rows, batch_size).load_state_dict(state)
    loader = DataLoader(Windows(train, 16, seed=3), 4)
    with pytest.raises(ConfigError, match="format 9"):
        loader.load_state_dict(state | {"format": 9})
    with pytest.raises(ConfigError, match="'row' is -1"):
        loader.load_state_dict(state | {"at.row": -1})


IMPOSSIBLE: list[tuple[Callable[[Tokens], object], str]] = [
    (lambda t: Windows(t, 0), "length=0"),
    (lambda t: DataLoader(Windows(t, 4), 0), "batch_size=0"),
    (lambda t: DataLoader(Windows(t, 4), 1, rank=2, world_size=2), "rank=2"),
    (lambda t: DataLoader(Windows(t, 4), 1, prefetch=-1), "prefetch=-1"),
    (lambda t: Packed(t, 4, bos=10**6), "bos=1000000"),
    (lambda t: Padded(t, 4, pad=-1), "pad=-1"),
    (lambda t: Mixture([], []), "0 sources"),
    (lambda t: Mixture([Windows(t, 4)], [0]), r"weights \[0\]"),
    (lambda t: Mixture([Windows(t, 4)], [float("nan")]), r"weights \[nan\]"),
    (lambda t: Mixture([Streams(t, 4)], [1]), "streams rows"),
    (lambda t: Mixture([Windows(t, 4), Windows(t, 5)], [1, 1]), r"\[4, 5\]"),
]


@pytest.mark.parametrize(("make", "message"), IMPOSSIBLE, ids=[message for _, message in IMPOSSIBLE])
def test_impossible_settings_are_refused(
    train: Tokens, make: Callable[[Tokens], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(train)


def test_padded_batches_keep_their_size(train: Tokens) -> None:
    rows = Padded(train, 8)
    rows.take(4, slice(0, 4))
    with pytest.raises(ConfigError, match="4 rows, not 5"):
        rows.take(5, slice(0, 5))


def test_an_empty_part_has_no_batches() -> None:
    empty = TokenFolder(made_before())["validation"]
    for make in (Windows, Packed, Padded, Streams):
        with pytest.raises(ConfigError, match="'validation'"):
            make(empty, 4)


@ways
@pytest.mark.parametrize("prefetch", [0, 2])
def test_looking_at_the_next_batch_takes_nothing(
    train: Tokens, way: Callable[[Tokens], Rows], prefetch: int
) -> None:
    """Neither from who reads on, nor from who goes on from where the reader stood."""
    plain = taken(DataLoader(way(train), 4, prefetch=0), 12)
    with DataLoader(way(train), 4, prefetch=prefetch) as loader:
        taken(loader, 5)
        state = loader.state_dict()
        same([loader.peek(), loader.peek()], [plain[5], plain[5]])
        assert loader.state_dict() == state
        same(taken(loader, 2), plain[5:7])
        loader.peek()
        loader.load_state_dict(state)
        same(taken(loader, 7), plain[5:])
        loader.peek()
        loader.close()
        same(taken(loader, 1), taken(DataLoader(way(train), 4, prefetch=0), 13)[12:])
