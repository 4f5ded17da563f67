"""Several ranks do what one process does: the same losses, weights and evaluations; nothing is sent twice."""

from typing import Any

import numpy as np
import pytest

from pellucid.explain.compare import first_departure
from pellucid.training.events import Evaluated, Stepped
from pellucid.training.loop import Trainer
from pellucid.training.pieces import whole
from pellucid.training.ranks import Ranks
from tests.training.forked import job
from tests.training.made import trainer

STEPS = ("steps=20", "evaluation.every=10", "optimizer.lr=0.01")
CASES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "parts, mean, clipped": ("train.accumulate=2", "train.ema=0.9", "train.clip=0.2", "data.batch_size=8"),
    "muon": ("optimizer.kind=muon",),
    "made again, in chunks": ("train.recompute=yes", "train.chunk=3", "model.unembedding=linear"),
    "some frozen": ("train.freeze=blocks.0.*",),
}


def told(made: Trainer) -> dict[str, Any]:
    """What a whole run has to show: losses, norms, evaluations and weights."""
    events = list(made.run())
    steps = [event for event in events if isinstance(event, Stepped)]
    judged = [event for event in events if isinstance(event, Evaluated)]
    return {
        "loss": np.array([event.loss for event in steps]),
        "norm": np.array([event.grad_norm for event in steps]),
        "tokens": np.array([event.tokens for event in steps]),
        "judged": np.array([event.loss for event in judged]),
        "sample": [event.sample for event in judged],
        **{name: whole(value.detach()).numpy() for name, value in made.weights.named.items()},
        **{f"mean.{name}": whole(value).numpy() for name, value in made.average.mean.items()},
    }


def every_case(ranks: Ranks, way: str) -> dict[str, dict[str, Any]]:
    return {
        case: told(trainer(*STEPS, *changes, f"train.parallel={way}", ranks=ranks))
        for case, changes in CASES.items()
    }


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_two_ranks_give_the_losses_and_weights_of_one_process(way: str) -> None:
    """Over 20 steps in float64, rows with unequal numbers of ignored targets on the two."""
    alone = every_case(Ranks(), "auto")
    for together in job(2, lambda ranks: every_case(ranks, way)):
        for case, wanted in alone.items():
            found = together[case]
            assert found.pop("sample") == wanted["sample"], case
            numbers = {key: value for key, value in wanted.items() if key != "sample"}
            assert first_departure(found, numbers, 1e-10) is None, case
