"""A step of the loop is the specification's, however it is cut; an interrupted run loses nothing."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.engine.taps import record
from pellucid.reference.optimizers import update
from pellucid.reference.training import forward
from pellucid.training.events import Compared, Ended, EndReason, Evaluated, Skipped, Stepped
from pellucid.training.run import MAX_NONFINITE, Run
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.step import forward_backward
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from tests.rotation import take_turn
from tests.training.small_runs import MadeUp, make_run

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
NEAR_ZERO = "train.initialization=gpt2"
"""Logits begin near 0, so the first loss is ln V."""


def weights(made: Run) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in made.state.weights.named.items()}


def test_a_step_is_the_specification_s_forward_backward_clip_and_update() -> None:
    made = make_run("train.clip=0.05", "optimizer.lr=0.01", "optimizer.weight_decay=0")
    before = weights(made)
    batch = MadeUp().take(4, slice(0, 4))
    done = made.step()
    assert isinstance(done, Stepped)
    tape = forward(made.state.model.config, before, batch.ids, batch.targets)
    tape.backward(tape.ref("loss"))
    optimizer = made.state.recipe.optimizer
    betas = (optimizer.beta1, optimizer.beta2)
    update(tape, "adamw", 1, lr=done.lr, betas=betas, eps=optimizer.eps, weight_decay=0.0, clip=0.05)
    assert done.loss == pytest.approx(float(tape["loss"]), rel=1e-12)
    assert done.grad_norm == pytest.approx(float(tape["grad_norm"]), rel=1e-12)
    wanted = {name: tape[f"{name}@1"] for name in before}
    assert find_first_mismatch(weights(made), wanted, BETWEEN_ENGINES) is None


@pytest.mark.parametrize(
    "rest", [[], ["optimizer.kind=muon", "optimizer.adam_lr=0.02"]], ids=["adamw", "muon"]
)
def test_a_row_that_comes_again_and_again_is_learned_by_heart(rest: list[str]) -> None:
    made = make_run("data.batch_size=1", "schedule.kind=constant", "optimizer.lr=0.02", NEAR_ZERO, *rest)
    row = MadeUp().take(1, slice(0, 1))
    made.state.loader.rows.take = lambda count, mine: row  # type: ignore[method-assign]
    losses = [done.loss for done in (made.step() for _ in range(120)) if isinstance(done, Stepped)]
    assert losses[0] == pytest.approx(math.log(7), rel=0.05) and losses[-1] < 0.01


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulated_gradients_are_those_of_the_whole_batch(parts: int) -> None:
    """With unequal numbers of ignored targets in the parts, where a mean of means would be wrong."""
    whole, pieces = make_run(), make_run(f"train.accumulate={parts}")
    batch = MadeUp().take(4, slice(0, 4))
    losses = [
        float(forward_backward(run.state, run.state.prefetcher.to_device(batch))[0])
        for run in (whole, pieces)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-13)
    a, b = (
        {f"d.{n}": p.grad.numpy() for n, p in made.state.weights.named.items()} for made in (whole, pieces)
    )
    assert find_first_mismatch(a, b, 1e-13) is None
    naive = sum(
        float(whole.state.objective(*(torch.from_numpy(x) for x in (ids, targets))).detach()) / parts
        for ids, targets in zip(*(np.split(x, parts) for x in (batch.ids, batch.targets)), strict=True)
    )
    assert abs(naive - losses[0]) > 1e-4


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (DROPOUT, "train.accumulate=2", "train.ema=0.9"),
        ("optimizer.kind=muon", DROPOUT),
        ("train.dtype=float32", "train.label_smoothing=0.1", "train.z_loss=1e-3"),
        ("train.dtype=bfloat16", DROPOUT),
        ("data.rows=packed", DROPOUT, "train.accumulate=2"),
        ("train.dtype=bfloat16", "train.weights=bfloat16", "train.accumulate=2", "train.ema=0.9"),
    ],
    ids=["plain", "dropout, parts, mean", "muon", "float32", "bfloat16", "packed", "masters"],
)
def test_k_steps_and_k_more_equal_2k_bit_for_bit(changes: tuple[str, ...]) -> None:
    whole = make_run(*changes)
    straight = list(whole.events())
    first = make_run(*changes)
    events: list[Any] = []
    for event in first.events():
        events.append(event)
        if isinstance(event, Evaluated) and event.step == 4:
            break
    kept = _keep(first.state.snapshot())
    for _ in range(2):
        first.step()  # whatever happens to the first run afterwards
    second = make_run(*changes)
    second.state.restore(kept)
    events += list(second.events())[1:]
    message = [[_without_clock(event) for event in every] for every in (straight, events)]
    assert message[0] == message[1]
    for name, value in whole.state.weights.named.items():
        assert torch.equal(value, second.state.weights.named[name]), name
    for name, mean in whole.state.average.mean.items():
        assert torch.equal(mean, second.state.average.mean[name]), name


COMPILED = [("float32", "adamw"), ("bfloat16", "muon"), ("float32", "muon"), ("bfloat16", "adamw")]


def test_a_compiled_run_goes_on_bit_for_bit() -> None:
    """In one of the types each day: to compile a step takes seconds, and each type has its own."""
    for dtype, kind in take_turn(COMPILED):
        changes = (
            f"train.dtype={dtype}",
            f"optimizer.kind={kind}",
            DROPOUT,
            "train.accumulate=2",
            "train.compile=true",
            "model.n_layer=1",
            "steps=4",
            "train.record_every=0",
        )
        straight = make_run(*changes)
        events = []
        for event in straight.events():
            events.append(event)
            if isinstance(event, Stepped) and event.step == 2:
                kept, half = _keep(straight.state.snapshot()), len(events)
        second = make_run(*changes)
        second.state.restore(kept)
        rest = [event for event in second.events() if not isinstance(event, Compared)][1:]
        assert len(rest) >= 2 and [*map(_without_clock, events[half:])] == [*map(_without_clock, rest)]
        assert straight.state.compiled == second.state.compiled == "yes"
        for name, value in straight.state.snapshot().optimizer.items():
            assert torch.equal(value, second.state.snapshot().optimizer[name]), name
        for name, weight in straight.state.weights.named.items():
            assert weight.dtype == torch.float32
            assert torch.equal(weight, second.state.weights.named[name]), name


def _keep(snapshot: Snapshot) -> Snapshot:
    """Returns it as a file would hold it: nothing is shared with the run that goes on."""
    return snapshot._replace(
        weights={n: t.clone() for n, t in snapshot.weights.items()},
        optimizer={n: t.clone() for n, t in snapshot.optimizer.items()},
        trainable={n: t.clone() for n, t in snapshot.trainable.items()},
    )


def _without_clock(event: Any) -> dict[str, Any]:
    return {
        k: v for k, v in vars(event).items() if k not in ("seconds", "tokens_per_second", "memory", "resumed")
    }


@pytest.mark.parametrize(
    "changes", [(), ("model.unembedding=linear", "train.label_smoothing=0.1", "train.z_loss=1e-3")]
)
def test_logits_made_in_chunks_give_the_same_loss_and_gradients(changes: tuple[str, ...]) -> None:
    whole, chunked = make_run(*changes), make_run("train.logits_chunk=5", *changes)
    batch = MadeUp().take(4, slice(0, 4))
    losses = [
        float(forward_backward(run.state, run.state.prefetcher.to_device(batch))[0])
        for run in (whole, chunked)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-13)
    a, b = (
        {f"d.{n}": p.grad.numpy() for n, p in made.state.weights.named.items()} for made in (whole, chunked)
    )
    assert find_first_mismatch(a, b, 1e-12) is None


def test_whoever_watches_sees_logits_even_where_they_are_made_in_chunks() -> None:
    made = make_run("train.logits_chunk=5")
    batch = MadeUp().take(4, slice(0, 4))
    with record("logits") as seen:
        watched = made.state.objective(*(torch.from_numpy(x) for x in (batch.ids, batch.targets)))
    assert seen["logits"].shape == (4, 6, 7)
    unwatched = made.state.objective(*(torch.from_numpy(x) for x in (batch.ids, batch.targets)))
    assert watched.item() == pytest.approx(unwatched.item(), rel=1e-13)


def test_a_step_without_a_finite_gradient_changes_no_weight_and_is_named() -> None:
    made = make_run()
    before, right = weights(made), made.state.loss
    made.state.loss = lambda *batch: right(*batch) * math.nan  # type: ignore[assignment]
    done = made.step()
    assert isinstance(done, Skipped) and (done.step, done.name) == (1, "loss")
    assert all(np.array_equal(before[name], value) for name, value in weights(made).items())
    made.state.loss = right
    assert isinstance(made.step(), Stepped)


def test_a_gradient_alone_that_is_infinite_is_named_by_its_parameter() -> None:
    made = make_run()
    weight = made.state.weights.named["blocks.1.attn.q_proj.weight"]
    weight.register_hook(lambda slope: slope * math.inf)
    done = made.step()
    assert isinstance(done, Skipped) and done.name == "d.blocks.1.attn.q_proj.weight"


def test_many_bad_steps_in_a_row_end_the_run() -> None:
    made = make_run("steps=50")
    right = made.state.loss
    made.state.loss = lambda *batch: right(*batch) * math.nan  # type: ignore[assignment]
    events = list(made.events())
    assert sum(isinstance(event, Skipped) for event in events) == MAX_NONFINITE
    assert isinstance(events[-1], Ended) and events[-1].reason is EndReason.NONFINITE


def test_a_run_stops_early_when_the_validation_loss_no_longer_falls() -> None:
    made = make_run(
        "steps=400", "optimizer.lr=0.05", "evaluation.every=4", "train.patience=3", "train.clip=0"
    )
    last = list(made.events())[-1]
    assert isinstance(last, Ended)
    assert last.reason is EndReason.EARLY_STOPPED and last.step < 400


def test_the_running_mean_is_what_evaluations_see() -> None:
    made = make_run("train.ema=0.5", "optimizer.lr=0.1")
    start = weights(made)
    made.step()
    moved = weights(made)
    for name, mean in made.state.average.mean.items():
        np.testing.assert_allclose(
            mean.numpy(), 0.5 * start[name] + 0.5 * moved[name], rtol=1e-12, atol=1e-15
        )
    with made.state.average.use():
        assert np.array_equal(
            weights(made)["embed.weight"], made.state.weights.named["embed.weight"].detach().numpy()
        )
        assert not np.array_equal(weights(made)["embed.weight"], moved["embed.weight"])
    assert all(np.array_equal(moved[name], value) for name, value in weights(made).items())
