"""What a GPU holds and sends is what the formulas say, and what a real rank has."""

import math

import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.training import optimizers
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.scaling import compute_share, examples, table
from pellucid.training.distributed.sharded import to_local
from tests.training.distributed.forked import job
from tests.training.small_runs import make_run

SMALL = ModelConfig.from_dict(
    {"vocab_size": 10, "context_length": 4, "n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 16}
)
BLOCK = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8
OUTSIDE = 10 * 8 + 8
ALL = OUTSIDE + 2 * BLOCK


def test_ddp_holds_everything_and_sends_each_gradient_twice_but_for_its_own_part() -> None:
    alone, two = (compute_share(SMALL, "ddp", world, 3) for world in (1, 2))
    assert (alone.weights, alone.gradients, alone.optimizer, alone.sent) == (4 * ALL, 4 * ALL, 8 * ALL, 0)
    assert (two.total, two.sent) == (alone.total, 2 * 4 * ALL // 2)


def test_fsdp_holds_its_part_and_sends_half_as_much_again() -> None:
    two = compute_share(SMALL, "fsdp", 2, 3)
    assert (two.weights, two.gradients, two.optimizer) == (2 * ALL, 2 * ALL, 4 * ALL)
    assert two.gathered == 4 * (2 * OUTSIDE + 3 * BLOCK)
    assert two.sent == 4 * (OUTSIDE + 4 * BLOCK + ALL) // 2
    four_parts = compute_share(SMALL, "fsdp", 2, 3, accumulate=4)
    assert four_parts.gradients == 4 * ALL  # whole until they are sent
    assert four_parts.sent == 4 * (4 * (OUTSIDE + 4 * BLOCK) + ALL) // 2


def test_a_rank_has_as_many_bytes_as_are_reported() -> None:
    def work(ranks: Ranks) -> tuple[int, int, ModelConfig]:
        made = make_run("train.dtype=float32", "train.parallel=fsdp", ranks=ranks)
        made.step()
        moments = [
            tensor for tensor in optimizers.get_state(made.state.optimizer)[0].values() if tensor.dim()
        ]
        weights = [to_local(weight) for weight in made.state.weights.named.values()]
        return _bytes(weights), _bytes([to_local(moment) for moment in moments]), made.state.model.config

    weights, moments, config = job(2, work)[0]
    message = compute_share(config, "fsdp", 2, 2)
    assert (weights, moments) == (message.weights, message.optimizer)


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(math.prod(tensor.shape) * tensor.element_size() for tensor in tensors)


def test_activations_made_again_are_fewer() -> None:
    for one in examples():
        again, kept = (
            compute_share(one.config, "ddp", 8, one.rows, recompute=way).activations for way in (True, False)
        )
        assert again < kept / 2


def test_the_table_has_three_models_on_up_to_64_gpus() -> None:
    lines = list(table())
    assert len(lines) == 2 + 3 * 5
    seven = next(line for line in lines if line.startswith("| 6.7 B") and "8 × 8 | fsdp" in line)
    assert float(seven.split("|")[-2]) == pytest.approx(3 * 4 * 6.74 * 63 / 64, rel=0.02)
