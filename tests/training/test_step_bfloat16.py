"""Training on a CPU with products in bfloat16 learns what float32 learns."""

from itertools import pairwise
from pathlib import Path

import torch

from pellucid.training.events import Evaluated, Stepped
from tests.training.small_run_folders import trained

SIZES = (
    "data.path=stories:easy", "steps=60", "data.batch_size=4", "model.context_length=80", "model.d_model=32",
    "model.d_ff=64", "model.n_head=4", "optimizer.lr=0.003", "train.clip=1.0", "train.record_every=0",
    "evaluation.every=60", "evaluation.batches=8", "evaluation.sample=0", "checkpoint.every=60",
)  # fmt: skip
SEEDS = range(3)


def train(folder: Path, dtype: str, seed: int) -> tuple[list[float], float]:
    """Returns the loss of every step, and the last validation loss."""
    events = trained(folder / f"{dtype}-{seed}", *SIZES, f"train.dtype={dtype}", f"seed={seed}")
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    return losses, [event.loss for event in events if isinstance(event, Evaluated)][-1]


def test_the_loss_in_bfloat16_differs_by_less_than_seeds_do(tmp_path: Path) -> None:
    """Of six runs: the curves of one seed in both types are closer, on the way and at the end, than
    those of two seeds in float32."""
    wide, narrow = ([train(tmp_path, dtype, seed) for seed in SEEDS] for dtype in ("float32", "bfloat16"))
    curves = [torch.tensor([curve for curve, _ in runs]) for runs in (wide, narrow)]
    ends = [torch.tensor([end for _, end in runs]) for runs in (wide, narrow)]
    assert (ends[0] < 0.7 * curves[0][:, 0]).all()  # something was learned
    assert not torch.equal(ends[0], ends[1])
    assert (ends[1] - ends[0]).abs().max() < ends[0].std() / 4
    between_types = (curves[1] - curves[0]).abs().mean(1).max()
    between_seeds = min((a - b).abs().mean() for a, b in pairwise(curves[0]))
    assert between_types < between_seeds / 4
