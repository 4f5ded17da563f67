"""Several ranks do what one process does: the same losses, weights and evaluations; nothing is sent twice."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError, UsageError
from pellucid.training import step
from pellucid.training.device import decide_compilation
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.sharded import full_tensor, to_local
from pellucid.training.events import Evaluated, Skipped, Stepped
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.run import Run
from pellucid.training.state import TrainState, rows_per_rank
from pellucid.verification.mismatch import find_first_mismatch
from tests.training.distributed.forked import job
from tests.training.small_runs import make_run, recipe

CPU = torch.device("cpu")

STEPS = ("steps=10", "evaluation.every=5", "optimizer.lr=0.01")
CASES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "parts, mean, clipped": ("train.accumulate=2", "train.ema=0.9", "train.clip=0.2", "data.batch_size=8"),
    "muon": ("optimizer.kind=muon",),
    "made again, in chunks": (
        "train.activation_checkpointing=true",
        "train.logits_chunk=3",
        "model.unembedding=linear",
    ),
    "some frozen": ("train.freeze=blocks.0.*",),
    "packed rows": ("data.rows=packed", "train.accumulate=2"),
}


def message(made: Run) -> dict[str, Any]:
    """What a whole run has to show: losses, norms, evaluations and weights."""
    events = list(made.events())
    steps = [event for event in events if isinstance(event, Stepped)]
    judged = [event for event in events if isinstance(event, Evaluated)]
    return {
        "loss": np.array([event.loss for event in steps]),
        "norm": np.array([event.grad_norm for event in steps]),
        "tokens": np.array([event.tokens for event in steps]),
        "judged": np.array([event.loss for event in judged]),
        "sample": [event.sample for event in judged],
        **{name: full_tensor(value.detach()).numpy() for name, value in made.state.weights.named.items()},
        **{f"mean.{name}": full_tensor(value).numpy() for name, value in made.state.average.mean.items()},
    }


def every_case(ranks: Ranks, way: str) -> dict[str, dict[str, Any]]:
    return {
        case: message(make_run(*STEPS, *changes, f"train.parallel={way}", ranks=ranks))
        for case, changes in CASES.items()
    }


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    return every_case(Ranks(), "auto")


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_two_ranks_give_the_losses_and_weights_of_one_process(
    way: str, alone: dict[str, dict[str, Any]]
) -> None:
    """Over 10 steps in float64, rows with unequal numbers of ignored targets on the two."""
    for together in job(2, lambda ranks: every_case(ranks, way)):
        for case, wanted in alone.items():
            found = together[case]
            assert found.pop("sample") == wanted["sample"], case
            numbers = {key: value for key, value in wanted.items() if key != "sample"}
            assert find_first_mismatch(found, numbers, 1e-10) is None, case


def sent(ranks: Ranks, way: str, operation: str) -> list[int]:
    """How often gradients are sent in a step of one part, and in one of four."""
    counts = []
    for parts in (1, 4):
        made = make_run(
            f"train.accumulate={parts}", f"train.parallel={way}", "data.batch_size=8", ranks=ranks
        )
        made.step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            made.step()
        counts.append(sum(e.count for e in seen.key_averages() if e.key == f"c10d::{operation}"))
    return counts


def test_gradients_are_sent_once_a_step_however_many_parts_it_has() -> None:
    ways = (("ddp", "allreduce_"), ("fsdp", "_reduce_scatter_base_"))
    for counts in job(2, lambda ranks: [sent(ranks, *way) for way in ways]):
        assert all(one == four > 0 for one, four in counts)


def losses_in_float32(ranks: Ranks, way: str) -> np.ndarray:
    made = make_run(*STEPS, "train.dtype=float32", "train.accumulate=2", f"train.parallel={way}", ranks=ranks)
    return np.array([event.loss for event in made.events() if isinstance(event, Stepped)])


def test_in_float32_the_losses_are_those_of_one_process_to_1e_5() -> None:
    alone = losses_in_float32(Ranks(), "auto")
    for ways in job(2, lambda ranks: [losses_in_float32(ranks, way) for way in ("ddp", "fsdp")]):
        for losses in ways:
            np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_all_ranks_skip_a_step_whose_gradient_is_not_finite_on_one(way: str) -> None:
    def work(ranks: Ranks) -> tuple[Any, bool]:
        made = make_run(f"train.parallel={way}", ranks=ranks)
        made.step()
        before = {
            name: full_tensor(value.detach()).clone() for name, value in made.state.weights.named.items()
        }
        right, factor = made.state.loss, 1.0 if ranks.is_main else math.nan
        made.state.loss = lambda *batch: right(*batch) * factor
        skipped = made.step()
        same = all(
            torch.equal(full_tensor(made.state.weights.named[name].detach()), w) for name, w in before.items()
        )
        return skipped, same

    for skipped, same in job(2, work):
        assert isinstance(skipped, Skipped) and skipped.name == "loss" and same


def test_a_gradient_that_is_not_finite_in_the_rows_of_one_rank_has_a_name_on_all() -> None:
    def work(ranks: Ranks) -> Any:
        made = make_run("train.parallel=fsdp", ranks=ranks)
        right = step.forward_backward

        def spoiled(state: TrainState, batch: DeviceBatch) -> tuple[torch.Tensor, int]:
            result = right(state, batch)
            slope = made.state.weights.named["blocks.1.attn.q_proj.weight"].grad
            assert slope is not None
            if not ranks.is_main:
                to_local(slope)[0] = math.inf
            return result

        step.forward_backward = spoiled  # in a process of its own
        return made.step()

    for skipped in job(2, work):
        assert isinstance(skipped, Skipped) and skipped.name == "d.blocks.1.attn.q_proj.weight"


def test_each_rank_has_its_own_rng() -> None:
    drawn = job(2, lambda ranks: (make_run(ranks=ranks), torch.rand(3).tolist())[1])
    assert drawn[0] != drawn[1]


def test_a_batch_that_does_not_split_among_the_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.batch_size=6.*4 ranks.*8"):
        rows_per_rank(recipe("data.batch_size=6"), 4)


def test_sharded_weights_are_not_compiled_and_say_so() -> None:
    assert decide_compilation(recipe("train.compile=auto"), CPU, is_sharded=True).startswith("no: its")
    with pytest.raises(UsageError, match=r"train\.compile=true.*train\.parallel=fsdp"):
        decide_compilation(recipe("train.compile=true"), CPU, is_sharded=True)
