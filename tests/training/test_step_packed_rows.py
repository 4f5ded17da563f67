"""Training on packed rows: a step is that of the documents alone, on every path, and resumes bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.rows import Batch
from pellucid.data.sources.source import Source
from pellucid.reference.training import forward
from pellucid.training.evaluate import evaluate
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.recipe import Recipe
from pellucid.training.run import Run
from pellucid.training.step import forward_backward
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.runs.rebuild import rebuild_step
from tests.training.small_run_folders import go_on, train
from tests.training.small_runs import LENGTH, TABLE, MadeUp, make_run

SEGMENTS = np.array([[0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 1, 1], [0] * 6, [0, 0, 1, 1, 2, 2]])


def packed() -> Batch:
    batch = MadeUp().take(4, slice(0, 4))
    return Batch(batch.ids, batch.targets, SEGMENTS)


def documents(batch: Batch) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns ids and targets [1 T] of each document."""
    assert batch.segments is not None
    return [
        (ids[None, here], targets[None, here])
        for ids, targets, segments in zip(batch.ids, batch.targets, batch.segments, strict=True)
        for here in (segments == number for number in np.unique(segments))
    ]


def step_on(run: Run, batch: Batch) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the loss and the gradients of a batch."""
    state = run.state
    loss, _ = forward_backward(state, state.prefetcher.to_device(batch))
    grads = {f"d.{n}": p.grad.numpy().copy() for n, p in state.weights.named.items() if p.grad is not None}
    state.weights.zero_grads()
    return float(loss), grads


def on_documents_alone(run: Run, batch: Batch) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the same from each document by itself, weighted by its share of the counted targets."""
    total, loss = (batch.targets != IGNORE_INDEX).sum(), 0.0
    grads: dict[str, np.ndarray] = {}
    for ids, targets in documents(batch):
        if share := (targets != IGNORE_INDEX).sum() / total:
            plain = make_run() if run.recipe.train.accumulate > 1 else run
            part, some = step_on(plain, Batch(ids, targets))
            loss += share * part
            grads = {name: grads.get(name, 0.0) + share * grad for name, grad in some.items()}
    return loss, grads


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("train.accumulate=2",),
        ("train.activation_checkpointing=true",),
        ("train.logits_chunk=5",),
        ("train.label_smoothing=0.1", "train.z_loss=1e-3"),
        ("model.positions=learned", "model.attention=linear_elu"),
    ],
    ids=["plain", "accumulate", "checkpointing", "chunked", "smoothing", "linear"],
)
def test_loss_and_gradients_of_a_packed_row_are_those_of_its_documents_alone(
    changes: tuple[str, ...],
) -> None:
    run = make_run(*changes)
    loss, grads = step_on(run, packed())
    alone, wanted = on_documents_alone(run, packed())
    assert loss == pytest.approx(alone, rel=1e-12)
    assert find_first_mismatch(grads, wanted, 1e-10) is None
    plain, _ = step_on(run, MadeUp().take(4, slice(0, 4)))
    assert abs(plain - loss) > 1e-6


def test_a_step_on_packed_rows_is_the_specification_s() -> None:
    run, batch = make_run(), packed()
    loss, grads = step_on(run, batch)
    weights = {name: value.detach().numpy() for name, value in run.state.weights.named.items()}
    tape = forward(run.state.model.config, weights, batch.ids, batch.targets, segments=batch.segments)
    tape.backward(tape.ref("loss"))
    assert loss == pytest.approx(float(tape["loss"]), rel=1e-12)
    assert find_first_mismatch(grads, {name: tape[name] for name in grads}, BETWEEN_ENGINES) is None


def test_the_compiled_objective_takes_segments() -> None:
    state = make_run().state
    batch = state.prefetcher.to_device(packed())
    compiled = torch.compile(state.objective, fullgraph=True, backend="aot_eager")
    given = (batch.ids, batch.targets, batch.segments)
    torch.testing.assert_close(compiled(*given), state.objective(*given), rtol=1e-12, atol=1e-12)


def test_the_validation_loss_is_of_documents_alone() -> None:
    run = make_run()
    run.state.source.validation = [packed()]  # type: ignore[misc, assignment]
    loss, _ = on_documents_alone(run, packed())
    assert evaluate(run.state).loss == pytest.approx(loss, rel=1e-12)


def table(tmp_path: Any, **data: Any) -> dict[str, Any]:
    text = tmp_path / "a.txt"
    text.write_text("".join(f"{'abcdefgh'[i % 8] * (1 + i % 9)}\n" for i in range(300)), "utf-8")
    own = {"path": str(text), "split": "line", "tokenizer": "bytes", "batch_size": 4, "rows": "packed"}
    return TABLE | {"out": str(tmp_path / "run"), "data": own | data, "train": {"compile": False}}


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in run.state.weights.named.items()}


@pytest.mark.parametrize("rows", ["packed", "padded", "streams"])
def test_a_run_resumes_bit_for_bit_and_its_steps_are_rebuilt(tmp_path: Any, rows: str) -> None:
    own = table(tmp_path, rows=rows)
    straight = weights(train(Recipe.from_dict(own)))
    interrupted = train(Recipe.from_dict(own | {"out": str(tmp_path / "other")}), stop=3)
    assert interrupted.state.meters.step == 3
    run = go_on(tmp_path / "other")
    assert all(torch.equal(weight, straight[name]) for name, weight in weights(run).items())
    rebuilt = rebuild_step(tmp_path / "run", 7, ["embed.weight"])
    assert rebuilt.is_exact and rebuilt.logged


def test_the_batch_on_the_device_has_the_segments_of_the_loader(tmp_path: Any) -> None:
    state = train(Recipe.from_dict(table(tmp_path) | {"steps": 1})).state
    assert isinstance(state.source, Source) and state.source.train.length == LENGTH
    batch: DeviceBatch = state.prefetcher.next()
    assert batch.segments is not None and np.array_equal(batch.segments.numpy(), batch.batch.segments)
