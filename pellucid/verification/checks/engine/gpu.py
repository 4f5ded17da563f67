"""Checks the fused step on a GPU: tokens that are read one by one, of one text and of many at once; prompts.

It computes in float32 from the weights as they are held, and rounds keys and values to the type of the cache.
The replay rounds the same recorded keys and values in the same way; each value must then follow from them
within float32 rounding. The kernels one by one, as they are recorded, and as one CUDA graph must have the
same logits, bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.engine.gpu.tiles import KEYS_OF_SPLIT
from pellucid.generation.slots import CacheSlots
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine.native import judge_decoded, name_types
from pellucid.verification.checks.engine.observed import ObservedSlots
from pellucid.verification.checks.engine.paths import ROUNDING, PathRun, UsedBudget, find_changed
from pellucid.verification.checks.engine.schedule import Schedule
from pellucid.verification.verdict import Finding, Judged, Verdict

TYPES = (torch.float32, torch.bfloat16)
"""Types of the weights, where they are floats, and of the cache."""
COUNTS = (1, 2, 3, 9, 17, 33)
"""Texts that are decoded at once, one step after the other."""
LONG = KEYS_OF_SPLIT + 8
"""Tokens of a text whose keys are cut into parts."""
PROMPTS = (5, 1, 20, 9)
"""Tokens of prompts that are read together, in two calls; they fit one step."""


def run_together(subject: Subject, decoder: GpuDecoder, is_watched: bool) -> PathRun:
    """Decodes different numbers of texts at once: kernels change with the number."""
    capacity = min(len(COUNTS), subject.config.context_length)
    schedule = _make_schedule(subject, decoder, COUNTS[-1], capacity, is_watched)
    for count in COUNTS[:capacity]:
        schedule.read({slot: schedule.draw_ids(1) for slot in range(count)})
    return schedule.result()


def run_long(subject: Subject, decoder: GpuDecoder, is_watched: bool) -> PathRun:
    """Decodes one text, token by token, until its keys are cut into parts; of a large model some tokens."""
    most = subject.length if subject.is_large else LONG
    capacity = min(most, subject.config.context_length)
    schedule = _make_schedule(subject, decoder, 1, capacity, is_watched)
    for id in subject.make_ids(capacity):
        schedule.read({0: [id]})
    return schedule.result()


def run_prompts(subject: Subject, decoder: GpuDecoder, is_watched: bool) -> PathRun:
    """Reads prompts of several texts together, the second half beside tokens that follow the first; those of
    a window's ring, which the module reads, one by one."""
    capacity = min(max(PROMPTS) + 2, subject.config.context_length)
    schedule = _make_schedule(subject, decoder, len(PROMPTS), capacity, is_watched)
    if capacity < 3 or not decoder.packs_prompts(schedule.slots.cache):
        return run_together(subject, decoder, is_watched)
    prompts = {slot: schedule.draw_ids(min(count, capacity - 2)) for slot, count in enumerate(PROMPTS)}
    half = len(PROMPTS) // 2
    schedule.read({slot: prompts[slot] for slot in range(half)})
    decoded = {slot: schedule.draw_ids(1) for slot in range(half)}
    schedule.read(decoded | {slot: prompts[slot] for slot in range(half, len(PROMPTS))})
    schedule.read({slot: schedule.draw_ids(1) for slot in prompts})
    return schedule.result()


def _make_schedule(
    subject: Subject, decoder: GpuDecoder, count: int, capacity: int, is_watched: bool
) -> Schedule:
    make = ObservedSlots if is_watched else CacheSlots
    slots = make(decoder, count, capacity, decoder.cache_dtype, is_static=False)
    return Schedule(subject, slots, capacity)


@dataclass(frozen=True)
class GpuPath:
    """A way in which the fused step runs."""

    name: str
    claim: str
    run: Callable[[Subject, GpuDecoder, bool], PathRun]

    def measure(self, subject: Subject) -> Finding:
        """Judges the path in every type; the first failure, else how much of the error budget is used."""
        subject = subject.excerpt
        used = UsedBudget(subject)
        for dtype in TYPES:
            module = subject.module(dtype)
            if (obstacle := find_obstacle(module)) is not None:
                return Finding(Verdict.SKIPPED, f"the fused step does not have {obstacle}")
            name, decoder = name_types(subject, dtype, dtype), GpuDecoder(module, COUNTS[-1])
            with torch.no_grad():
                watched, plain = self.run(subject, decoder, True), self.run(subject, decoder, False)
            if (changed := find_changed(module, watched, plain)) is not None:
                message = "the same kernels give other logits one by one than in one graph."
                return replace(changed, measured=f"in {name}: a graph changes the logits", message=message)
            if watched.wrong_keys:
                message = "the cache returned other numbers than were computed for this token."
                return Finding(Verdict.BUG, f"in {name}: other bits", watched.wrong_keys, message)
            for texts in watched.texts:
                report = judge_decoded(subject, module, texts, dtype, rounds_inputs=False)
                if not report:
                    found = report.summarize()
                    return replace(found, measured=f"in {name}: {found.measured}")
                used.add(name, report, texts)
        return used.summarize()


PATHS = (
    GpuPath(
        "gpu decoded",
        "Each value of a token that the fused step computes equals its recomputed result, for any number "
        "of texts at once.",
        run_together,
    ),
    GpuPath(
        "gpu prompt",
        "Each value of a prompt that the fused step reads beside other texts equals its recomputed result.",
        run_prompts,
    ),
    GpuPath(
        "gpu long",
        "Each value of a long text that the fused step computes equals its recomputed result.",
        run_long,
    ),
)
CHECKS = tuple(Check(path.name, path.claim, ROUNDING, path.measure, Judged.MACHINE) for path in PATHS)
