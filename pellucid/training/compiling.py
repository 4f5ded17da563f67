"""Whether the step is compiled: on a GPU, where the run is long enough, or where it is asked for."""

from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.errors import UsageError
from pellucid.model.compiler import lacks_compiler
from pellucid.training.recipe import Recipe

Loss = Callable[[Tensor, Tensor], Tensor]
EARNS_IT = 500
"""Steps from which on compiling, which takes about half a minute, saves more than it costs."""


def chosen(loss: Loss, recipe: Recipe, device: torch.device, sharded: bool) -> tuple[Loss, str]:
    """The loss, compiled or not, and "yes" or why not."""
    wanted = recipe.train.compile
    missing = wanted is not False and lacks_compiler(device)
    if wanted is True and missing:
        raise UsageError(
            "train.compile=true needs a C++ compiler, and there is no g++ or clang++ here: use auto."
        )
    if wanted is True and sharded:
        raise UsageError(
            "train.compile=true does not go with train.parallel=fsdp, which gathers weights on the way: use "
            "auto."
        )
    if wanted is False:
        return loss, "no: not asked for"
    if sharded:
        return loss, "no: its weights are gathered on the way"
    if missing:
        return loss, "no: there is no C++ compiler here"
    if wanted == "auto" and device.type == "cpu":
        return loss, "no: on a CPU it gains little"
    steps = recipe.steps_at(0)  # as it began: more steps do not change how the first ones were made
    if wanted == "auto" and steps < EARNS_IT:
        return loss, f"no: {steps} steps are too few to earn it"
    return torch.compile(loss, fullgraph=True), "yes"
