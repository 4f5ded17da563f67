"""Sharing of a model by ranks: each has all of it (ddp), or each has some rows of every parameter (fsdp).

Both are PyTorch's own engines. They average the gradients of the ranks where a step needs their sum, so a
rank's loss is multiplied by `world`; and they exchange gradients once a step, however many micro-batches it
has; only gradients of bfloat16 weights, which are accumulated in float32 masters, are exchanged after each.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from pellucid.base.errors import ConfigError
from pellucid.engine.lora import adapters
from pellucid.training.compiled_loss import Loss
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.objective import Objective


class SingleProcess:
    """One process has the whole model and exchanges nothing."""

    loss_factor = 1
    """By what a rank's loss is multiplied, so that the engine's mean of the gradients is their sum."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        self.objective, self.ranks = objective, ranks

    def wrap_loss(self, loss: Loss, device: torch.device, is_deterministic: bool) -> Loss:
        """Returns the loss whose backward pass leaves the gradients of all ranks; called once it is known
        which parameters are trainable. With `is_deterministic` they are always summed in the same order, so
        that a resumed run has the bits of an uninterrupted one."""
        return loss

    @contextlib.contextmanager
    def sync_grads(self, is_on: bool) -> Iterator[None]:
        """In this block a backward pass exchanges its gradients and those accumulated before, if `is_on`."""
        yield

    @contextlib.contextmanager
    def gather_weights(self) -> Iterator[None]:
        """In this block the model can be called directly, by all ranks at once."""
        yield


class DataParallel(SingleProcess):
    """Every rank has the whole model: torch's DistributedDataParallel."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        super().__init__(objective, ranks)
        self.loss_factor = ranks.world

    def wrap_loss(self, loss: Loss, device: torch.device, is_deterministic: bool) -> Loss:
        from torch.nn.parallel import DistributedDataParallel

        assert isinstance(loss, nn.Module)
        buffers: Any = [name for name, _ in loss.named_buffers()]  # the same everywhere: nothing to send
        loss._ddp_params_and_buffers_to_ignore = buffers
        self.module: Any = DistributedDataParallel(
            loss,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=is_deterministic,  # else buckets are rebuilt after the first step
        )
        wrapped: Loss = self.module
        return wrapped

    @contextlib.contextmanager
    def sync_grads(self, is_on: bool) -> Iterator[None]:
        with contextlib.nullcontext() if is_on else self.module.no_sync():
            yield


class FullySharded(SingleProcess):
    """Every rank has some rows of each parameter and gathers one block at a time: torch's `fully_shard`."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        super().__init__(objective, ranks)
        if adapters(dict(objective.model.named_parameters())):
            raise ConfigError(
                "train.parallel=fsdp shards every parameter over the ranks, and adapters are merged whole: "
                "use train.parallel=ddp."
            )
        self.loss_factor = ranks.world
        mesh = init_device_mesh(objective.model.device.type, (ranks.world,))  # not whatever GPU there is
        for block in objective.model.blocks:
            fully_shard(block, mesh=mesh)
        self.module: Any = fully_shard(objective, mesh=mesh)
        register_fsdp_forward_method(objective, "logits")

    @contextlib.contextmanager
    def sync_grads(self, is_on: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(is_on)
        yield

    @contextlib.contextmanager
    def gather_weights(self) -> Iterator[None]:
        """The weights outside of the blocks are gathered here; those of a block by its own forward pass."""
        self.module.unshard()
        try:
            yield
        finally:
            self.module.reshard()


ENGINES = {"auto": DataParallel, "ddp": DataParallel, "fsdp": FullySharded}


def make_parallel(objective: Objective, parallel: str, ranks: Ranks) -> SingleProcess:
    """Returns the engine that `train.parallel` names, or that of a single process."""
    return (SingleProcess if ranks.is_single_process else ENGINES[parallel])(objective, ranks)
