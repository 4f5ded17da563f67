"""How fast this machine is for a run, and with how many threads."""

import os
from collections.abc import Mapping

import torch

from pellucid.config import ModelConfig
from pellucid.training import peak, speed
from pellucid.training.device import resolve_device, resolve_dtype
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.plan import UTILIZATION, Plan
from pellucid.training.recipe import Recipe

TOLERANCE = 1.25
"""A utilization that differs from the assumed one by more than this factor is planned with."""


class Machine:
    """Chooses the number of threads, first by matrix products alone and then by training steps."""

    def __init__(self, recipe: Recipe, device: str, may_choose: bool, seconds: float) -> None:
        self.device, self.seconds, self.message = device, seconds, ""
        self.dtype = resolve_dtype(torch.device(device), recipe.train.dtype, recipe.train.weights)
        threads = recipe.train.threads
        self.counts = [threads] if threads else peak.thread_counts(device)[: None if may_choose else 1]
        self.peaks = {count: self._measure_peak(count) for count in self.counts}
        self._choose(self.peaks)

    def _choose(self, speeds: Mapping[int, float]) -> None:
        self.count = peak.fastest(speeds)
        self.peak = self.peaks[self.count]
        if len(speeds) > 1 or not self.message:
            self.message = peak.describe_threads(speeds, self.count)

    def _measure_peak(self, threads: int) -> float:
        with peak.using_threads(threads):
            return peak.measure_peak(self.device, self.dtype)

    def measure_utilization(self, config: ModelConfig, plan: Plan) -> float | None:
        """Returns the fraction of the peak that training steps of a plan reach.

        None where it is about what was assumed, or where a step would take too long to try. The first call
        also chooses the number of threads.
        """
        keys, speeds = plan.overrides, dict[int, float]()
        for count in self.counts:
            with peak.using_threads(count):
                found = speed.measure_speed(
                    config,
                    keys["data.batch_size"],
                    keys["model.context_length"],
                    self.device,
                    self.dtype,
                    self.peak,
                    self.seconds / len(self.counts),
                )
            if found is None:
                return None
            speeds[count] = found
        self._choose(speeds)
        self.counts = [self.count]
        share = speeds[self.count] / self.peak
        return None if 1 / TOLERANCE <= share / UTILIZATION <= TOLERANCE else share


def hint_threads(recipe: Recipe, ranks: Ranks) -> list[str]:
    """Returns a line where a recipe would train faster with fewer threads.

    The bits of a run follow from their number, so the user chooses it. Measured only on a busy machine.
    """
    device = resolve_device(recipe.train.device)
    if recipe.train.threads or not ranks.alone or peak.load_average() < (os.cpu_count() or 1):
        return []
    machine = Machine(recipe, str(device), True, 0.0)
    remedy = f"train.threads={machine.count} would be faster"
    return list(filter(None, [peak.describe_threads(machine.peaks, machine.count, remedy)]))
