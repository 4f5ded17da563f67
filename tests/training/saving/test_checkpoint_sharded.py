"""A checkpoint of several ranks goes on bit for bit, opens as a model, and loads on any number of ranks."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import FileError
from pellucid.formats.checkpoint_manifest import checkpoint_name, parse_step
from pellucid.training import optimizers
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.sharded import full_tensor
from pellucid.training.events import Evaluated, Stepped
from pellucid.training.run import Run
from pellucid.training.saving import checkpoint
from pellucid.training.saving.run_folder import RunFolder
from tests.training.distributed.forked import Job, job, meeting
from tests.training.saving.snapshots import bits
from tests.training.small_runs import make_run

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
USUAL = ("train.dtype=float32", "train.accumulate=2", DROPOUT)


def contents(made: Run) -> dict[str, Any]:
    """Weights, mean and what the optimizer remembers, whole and to the bit."""
    tensors, _ = optimizers.get_state(made.state.optimizer)
    tables = {"weights": made.state.weights.named, "mean": made.state.average.mean, "optimizer": tensors}
    return {
        f"{part}.{name}": bits(full_tensor(tensor.detach()))
        for part, table in tables.items()
        for name, tensor in table.items()
    }


def save(folder: Path, made: Run, ranks: Ranks) -> Path:
    run = RunFolder(folder)
    run._recipe, run._has_lock = {}, True  # no lock: this is not about two runs in one folder
    ranks.on_main_then_broadcast(lambda: run.checkpoints.mkdir(parents=True, exist_ok=True))
    return run.save(made.state.snapshot(), {}, 2, ranks)


def figures(made: Run, steps: int) -> list[Any]:
    message = []
    for event in made.events():
        if isinstance(event, Stepped):
            message.append((event.step, event.loss, event.grad_norm, event.smoothed))
        if isinstance(event, Evaluated):
            message.append((event.step, event.loss, event.sample))
        if isinstance(event, Evaluated) and event.step == steps:
            break
    return message


@pytest.mark.parametrize(
    "changes",
    [
        ("train.parallel=ddp", "train.ema=0.9"),
        ("train.parallel=ddp", "optimizer.kind=muon"),
        ("train.parallel=fsdp", "train.ema=0.9"),
        ("train.parallel=fsdp", "train.dtype=bfloat16", "train.weights=bfloat16"),
    ],
    ids=["ddp", "ddp muon", "fsdp", "fsdp masters"],
)
def test_on_two_ranks_k_steps_and_k_more_equal_2k_bit_for_bit(
    changes: tuple[str, ...], tmp_path: Path
) -> None:
    _k_and_k(2, changes, tmp_path)


def test_on_three_ranks_gradients_are_added_up_in_one_order(tmp_path: Path) -> None:
    """Of two numbers every order gives the same sum; of three it does not."""
    _k_and_k(3, ("train.parallel=ddp", "data.batch_size=6", "model.d_model=64"), tmp_path)


def _k_and_k(world: int, changes: tuple[str, ...], tmp_path: Path) -> None:
    def work(ranks: Ranks) -> tuple[list[Any], ...]:
        straight = make_run(*USUAL, *changes, ranks=ranks)
        whole_run = figures(straight, 8)
        first = make_run(*USUAL, *changes, ranks=ranks)
        message = figures(first, 4)
        made = save(tmp_path, first, ranks)
        second = make_run(*USUAL, *changes, ranks=ranks)
        second.state.restore(checkpoint.read(made, ranks))
        message += figures(second, 8)
        return whole_run, message, sorted(contents(straight).items()), sorted(contents(second).items())

    for straight, message, wanted, found in job(world, work):
        assert message == straight and len(message) == 10
        assert found == wanted


def test_a_checkpoint_loads_on_any_number_of_ranks_and_either_way(tmp_path: Path) -> None:
    """Saved on 1, 2 and 4, each way, and loaded on 1, 2 and 4: every bit is the same."""
    ways = [(1, "auto"), (2, "ddp"), (2, "fsdp"), (4, "fsdp")]

    def load(ranks: Ranks, way: str) -> list[dict[str, Any]]:
        found, made = [], make_run("train.ema=0.5", f"train.parallel={way}", ranks=ranks)
        for folder in sorted(tmp_path.iterdir()):
            made.state.restore(checkpoint.read(folder / "checkpoints" / "step-0000003", ranks))
            found.append(contents(made))
        return found

    def make(ranks: Ranks, way: str) -> list[dict[str, Any]]:
        made = make_run("train.ema=0.5", f"train.parallel={way}", ranks=ranks)
        for _ in range(3):
            made.step()
        save(tmp_path / f"{ranks.world}-{way}", made, ranks)
        return [contents(made)]

    def everywhere(work: Any) -> list[list[dict[str, Any]]]:
        """What each way gives; the same on all of its ranks."""
        given = []
        for world, way in ways:
            alike = (
                [work(Ranks(), way)] if world == 1 else job(world, lambda ranks, way=way: work(ranks, way))
            )
            assert all(one == alike[0] for one in alike)
            given.append(alike[0])
        return given

    saved = [made for (made,) in everywhere(make)]
    for loaded in everywhere(load):
        assert loaded == saved


def test_the_model_of_a_sharded_checkpoint_opens_and_each_rank_has_saved_only_its_rows(
    tmp_path: Path,
) -> None:
    def work(ranks: Ranks) -> tuple[str, dict[str, Any]]:
        made = make_run("train.ema=0.5", "train.parallel=fsdp", "train.dtype=float32", ranks=ranks)
        made.step()
        path = save(tmp_path, made, ranks)
        return str(path), {name: full_tensor(mean).numpy() for name, mean in made.state.average.mean.items()}

    path, mean = job(2, work)[0]
    model = pellucid.load(tmp_path / "model")
    assert all(np.array_equal(array, mean[name]) for name, array in model.weights.items())
    index = json.loads((Path(path) / "index.json").read_text())
    assert index["ranks"] == 2
    assert index["raw"]["embed.weight"] == {"shape": [7, 8], "pieces": [[0, 0], [1, 4]]}
    sizes = [(Path(path) / f"rank-{rank}" / "optimizer.safetensors").stat().st_size for rank in (0, 1)]
    assert 0.7 < sizes[1] / sizes[0] < 1


def test_an_index_that_does_not_fit_its_pieces_is_refused(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> str:
        made = make_run("train.parallel=fsdp", "train.dtype=float32", ranks=ranks)
        made.step()
        return str(save(tmp_path, made, ranks))

    path = Path(job(2, work)[0])
    index = json.loads((path / "index.json").read_text())
    name = "embed.weight.exp_avg"
    for change, words in {
        "[[0, 0]]": "is not complete",
        "[[0, 0], [1, 3]]": "does not fit the others",
        "[[0, 0], [0, 4]]": "is not complete",
        '[[0, 0], ["x", 4]]': "does not say where",
        "[]": "is not complete",
    }.items():
        index["optimizer"][name]["pieces"] = json.loads(change)
        (path / "index.json").write_text(json.dumps(index))
        with pytest.raises(FileError, match=words):
            checkpoint.read_checked(path)


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_cannot_write_costs_no_checkpoint_and_all_report_it(tmp_path: Path, who: int) -> None:
    def work(ranks: Ranks) -> tuple[str, int]:
        made = make_run("train.parallel=fsdp", ranks=ranks)
        made.step()
        save(tmp_path, made, ranks)
        made.step()

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        right = checkpoint.write_file
        if ranks.rank == who:
            checkpoint.write_file = refuse  # type: ignore[assignment]
        try:
            save(tmp_path, made, ranks)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
        checkpoint.write_file = right
        left = len(list((tmp_path / "checkpoints").iterdir()))
        save(tmp_path, made, ranks)  # and when there is room again, it goes on
        return words, left

    message = job(2, work)
    assert message[who][0].startswith("ResourceError: cannot write") and "No space left" in message[who][0]
    assert (
        message[1 - who][0].startswith(f"RankError: rank {who}: ") and "No space left" in message[1 - who][0]
    )
    assert message[0][1] == 1
    assert checkpoint.read(tmp_path / "checkpoints" / "step-0000002").step == 2


# ---- killed while saving


def going_on(path: Path, at: int, ranks: Ranks) -> Run:
    made = make_run("steps=100000", "train.parallel=fsdp", DROPOUT, ranks=ranks)
    if at:
        made.state.restore(checkpoint.read(path / "checkpoints" / checkpoint_name(at), ranks))
    return made


def halfmade(folder: RunFolder) -> bool:
    return any(one.name.startswith(".") for one in folder.checkpoints.iterdir())


def kills(path: Path, count: int, seed: int) -> None:
    """Jobs of two ranks that save after every step; at some moment one of the two is killed, and the next job
    goes on. In the end all is as if none had been killed."""
    rng, folder = np.random.default_rng(seed), RunFolder(path)
    at = halfway = 0
    for _ in range(count):

        def work(ranks: Ranks, at: int = at) -> None:
            made = going_on(path, at, ranks)
            while True:
                made.step()
                save(path, made, ranks)

        started = Job(2, meeting(work))
        until = time.monotonic() + 30
        while max(folder._steps(), default=0) <= at and time.monotonic() < until:
            time.sleep(0.002)
        in_a_saving = bool(rng.integers(2))
        while in_a_saving and not halfmade(folder) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05 if in_a_saving else 0.3))
        os.kill(started.pids[rng.integers(2)], signal.SIGKILL)
        there = max(folder._steps(), default=0)
        started.results(grace=0.0)
        halfway += halfmade(folder)
        with folder.lock():
            found, skipped = folder.find_newest()
            assert found is not None and not skipped
            assert not halfmade(folder)
        now = parse_step(found.name) or 0
        assert now >= there > at
        at = now
    assert halfway >= count // 8

    def straight(ranks: Ranks) -> dict[str, Any]:
        made = going_on(path, 0, ranks)
        while made.state.meters.step < at:
            made.step()
        return contents(made)

    assert job(2, straight) == job(2, lambda ranks: contents(going_on(path, at, ranks)))


def test_ranks_killed_while_they_save_cost_nothing_that_was_saved(tmp_path: Path) -> None:
    kills(tmp_path, 2, 0)


@pytest.mark.torture
def test_many_ranks_killed_while_they_save_cost_nothing_that_was_saved(tmp_path: Path) -> None:
    kills(tmp_path, 200, 1)
