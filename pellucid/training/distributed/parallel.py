"""How ranks share a model: each has all of it (ddp), or each has some rows of every parameter (fsdp).

Both are PyTorch's own engines. They take the mean of the ranks' gradients where the loop wants their sum, so
a rank's loss counts `world` times; and they send gradients once a step, however many micro-batches it has;
only gradients of bfloat16 weights, which are added up in float32 masters, are sent after each.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError
from pellucid.model.lora import adapters
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.objective import Objective

Loss = Callable[[Tensor, Tensor], Tensor]


class Alone:
    """One process has the model to itself."""

    factor = 1
    """How often a rank's loss counts, so that the engine's mean of gradients is their sum."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        self.objective, self.ranks = objective, ranks

    def joined(self, loss: Loss, device: torch.device, same_bits: bool) -> Loss:
        """The loss whose backward pass leaves the gradients of all ranks; once it is known what learns. With
        `same_bits` they are always added up in the same order, so that a resumed run has those of another."""
        return loss

    @contextlib.contextmanager
    def sending(self, now: bool) -> Iterator[None]:
        """In this block a backward pass sends its gradients, with those kept before, or keeps them."""
        yield

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """In this block the model can be used as if it were one's own, by all ranks at once."""
        yield


class Replicated(Alone):
    """Every rank has all of it: torch's DistributedDataParallel."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        super().__init__(objective, ranks)
        self.factor = ranks.world

    def joined(self, loss: Loss, device: torch.device, same_bits: bool) -> Loss:
        from torch.nn.parallel import DistributedDataParallel

        assert isinstance(loss, nn.Module)
        tables: Any = [name for name, _ in loss.named_buffers()]  # the same everywhere: nothing to send
        loss._ddp_params_and_buffers_to_ignore = tables
        self.module: Any = DistributedDataParallel(
            loss,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=same_bits,  # else it puts them in another order after the first step
        )
        made: Loss = self.module
        return made

    @contextlib.contextmanager
    def sending(self, now: bool) -> Iterator[None]:
        with contextlib.nullcontext() if now else self.module.no_sync():
            yield


class Sharded(Alone):
    """Every rank has its rows, and gathers a block when its turn comes: torch's `fully_shard`."""

    def __init__(self, objective: Objective, ranks: Ranks) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        super().__init__(objective, ranks)
        if adapters(dict(objective.model.named_parameters())):
            raise ConfigError(
                "train.parallel=fsdp divides every parameter among the ranks, and adapters are merged whole: "
                "use train.parallel=ddp, which divides none."
            )
        self.factor = ranks.world
        mesh = init_device_mesh(objective.model.device.type, (ranks.world,))  # not whatever GPU there is
        for block in objective.model.blocks:
            fully_shard(block, mesh=mesh)
        self.module: Any = fully_shard(objective, mesh=mesh)
        register_fsdp_forward_method(objective, "logits")

    @contextlib.contextmanager
    def sending(self, now: bool) -> Iterator[None]:
        self.module.set_requires_gradient_sync(now)
        yield

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """What lies outside of the blocks is here; a block comes and goes."""
        self.module.unshard()
        try:
            yield
        finally:
            self.module.reshard()


WAYS = {"auto": Replicated, "ddp": Replicated, "fsdp": Sharded}


def shared(objective: Objective, way: str, ranks: Ranks) -> Alone:
    return Alone(objective, ranks) if ranks.alone else WAYS[way](objective, ranks)
