"""The recorder tells what was there, costs next to nothing, and changes no bit of a run."""

import json
import math
import shutil
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pellucid.engine.taps import record
from pellucid.training.events import Recorded, Skipped
from pellucid.training.history.log import read
from pellucid.training.resume import resume
from pellucid.training.run import Run
from pellucid.training.saving.run_folder import RECORDER, RunFolder
from pellucid.training.step import forward_backward
from tests.training.small_run_folders import trained
from tests.training.small_runs import MadeUp, make_run

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'


def everything(made: Run) -> dict[str, Tensor]:
    taken = made.state.snapshot()
    tables = {
        "weight": taken.weights,
        "optimizer": taken.optimizer,
        "trainable": taken.trainable,
        "rng": taken.rng,
    }
    return {f"{kind} {name}": t.clone() for kind, table in tables.items() for name, t in table.items()}


def after(made: Run, steps: int) -> tuple[dict[str, Tensor], list[Recorded]]:
    found = []
    for _ in range(steps):
        made.step()
        if taken := made.recorder.take():
            found.append(taken)
    return everything(made), found


@pytest.mark.parametrize(
    "changes",
    [
        (DROPOUT, "train.accumulate=2", "train.ema=0.9"),
        ("train.dtype=float32", "optimizer.kind=muon", "train.logits_chunk=5", DROPOUT),
        ("train.dtype=bfloat16", "train.weights=bfloat16", "train.activation_checkpointing=true", DROPOUT),
        pytest.param(("train.dtype=float32", "train.compile=true"), marks=pytest.mark.torture),
    ],
    ids=["float64", "muon", "masters", "compiled"],
)
def test_no_bit_of_a_run_depends_on_it(changes: tuple[str, ...]) -> None:
    if "train.compile=true" in changes and not shutil.which("g++"):
        pytest.skip("no compiler")
    with_it, found = after(make_run("train.record_every=2", *changes), 5)
    without, none = after(make_run("train.record_every=0", *changes), 5)
    assert [taken.step for taken in found] == [1, 2, 4] and none == []
    assert with_it.keys() == without.keys()
    assert all(torch.equal(value, without[name]) for name, value in with_it.items())


def test_its_figures_are_those_of_the_step() -> None:
    made = make_run("train.record_every=1", "optimizer.lr=0.01", "train.clip=0.01")
    name = "blocks.1.mlp.up_proj.weight"
    batch = MadeUp().take(4, slice(0, 4))
    forward_backward(made.state, made.state.prefetcher.to_device(batch))
    slope = made.state.weights.named[name].grad
    assert slope is not None
    length = float(slope.norm())
    made.state.optimizer.zero_grad()
    before = made.state.weights.named[name].detach().clone()
    _, (taken,) = after(made, 1)
    moved = made.state.weights.named[name].detach()
    message = taken.parameters[name]
    assert message["gradient"] == pytest.approx(length, rel=1e-4)
    assert message["weight"] == pytest.approx(float(before.norm()), rel=1e-4)
    assert message["ratio"] == pytest.approx(float((moved - before).norm() / before.norm()), rel=1e-4)
    assert set(taken.parameters) == set(made.state.weights.named)
    made.state.model.eval()
    with torch.no_grad(), record("blocks.1.resid_post", "logits") as seen:
        made.state.model(torch.from_numpy(batch.ids))
    for value in seen:
        x = seen[value]
        assert taken.activations[value]["rms"] == pytest.approx(float(x.square().mean().sqrt()), rel=1e-4)
        assert taken.activations[value]["max"] == pytest.approx(float(x.abs().max()), rel=1e-4)
    assert {"embedded", "blocks.0.mlp.hidden", "final_norm.out", "logits"} <= set(taken.activations)


def test_the_share_of_zeros_is_that_of_silent_channels() -> None:
    made = make_run("train.record_every=1", "model.mlp=relu")
    _, (taken,) = after(made, 1)
    assert 0.3 < taken.activations["blocks.0.mlp.hidden"]["zeros"] < 0.7
    assert taken.activations["blocks.0.resid_post"]["zeros"] == 0


def test_a_step_that_moved_nothing_is_not_recorded() -> None:
    made = make_run("train.record_every=1")
    right = made.state.loss
    made.state.loss = lambda *batch: right(*batch) * math.nan  # type: ignore[assignment]
    assert isinstance(made.step(), Skipped) and made.recorder.take() is None


def test_what_does_not_learn_is_not_among_the_parameters() -> None:
    _, (taken,) = after(make_run("train.record_every=1", "train.only=blocks.1.*"), 1)
    assert taken.parameters and all(name.startswith("blocks.1.") for name in taken.parameters)


def test_who_watches_a_step_sees_the_step_alone() -> None:
    made = make_run("train.record_every=1")
    with record("logits") as seen:
        made.step()
    assert len(seen.calls) == 1 and seen["logits"].shape[0] == 4
    taken = made.recorder.take()
    assert taken is not None and taken.parameters and taken.activations == {}


def test_an_interrupted_run_s_record_is_that_of_an_uninterrupted_one(tmp_path: Path) -> None:
    settings = ("train.record_every=1", "checkpoint.every=3", DROPOUT)
    trained(tmp_path / "a", *settings)
    whole = (tmp_path / "a" / RECORDER).read_text()
    assert [line["step"] for line in read(tmp_path / "a" / RECORDER)] == [1, 2, 3, 4, 5, 6]
    shutil.rmtree(tmp_path / "a" / "checkpoints" / "step-0000006")
    folder = RunFolder(tmp_path / "a")
    with folder.lock():
        again = resume(folder, lambda _: None)
        assert (tmp_path / "a" / RECORDER).read_text() == "".join(whole.splitlines(keepends=True)[:3])
        list(again.events())
    assert (tmp_path / "a" / RECORDER).read_text() == whole
    assert all(line["kind"] != "recorded" for line in read(tmp_path / "a" / "log.jsonl"))
    assert json.loads(whole.splitlines()[0])["kind"] == "recorded"


@pytest.mark.timed
def test_it_costs_less_than_two_hundredths() -> None:
    """At the usual hundred steps: what one recorded step takes more is less than two steps take."""
    sizes = (
        "model.n_layer=4",
        "model.d_model=128",
        "model.d_ff=512",
        "data.batch_size=32",
        "train.dtype=float32",
    )
    plain, recorded = (make_run(f"train.record_every={every}", *sizes) for every in (0, 1))

    def least(made: Run) -> float:
        taken = []
        for _ in range(12):
            begun = time.perf_counter()
            made.step()
            taken.append(time.perf_counter() - begun)
        return min(taken[2:])

    one, more = least(plain), least(recorded)
    assert more - one < 0.02 * 100 * one
