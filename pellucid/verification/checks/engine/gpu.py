"""Checks the fused step on a GPU: tokens that are read one by one, of one text and of many at once; prompts.

It computes in float32 from the weights as they are held, and rounds keys and values to the type of the cache.
The replay rounds the same recorded keys and values in the same way; each value must then follow from them
within float32 rounding. The kernels one by one, as they are recorded, and as one CUDA graph must have the
same logits, bit for bit.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from pellucid.engine.gpu.decoder import GpuDecoder, find_obstacle
from pellucid.engine.gpu.tiles import KEYS_OF_SPLIT
from pellucid.generation.slots import CacheSlots
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.native import judge_decoded, name_types
from pellucid.verification.checks.engine.observed import ObservedSlots
from pellucid.verification.checks.engine.paths import PathRun, UsedBudget, find_changed
from pellucid.verification.checks.engine.schedule import Schedule
from pellucid.verification.verdict import Finding, Verdict

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


def judge_gpu(run: Callable[[Subject, GpuDecoder, bool], PathRun]) -> Callable[[Subject], Finding]:
    """Returns the measurement of a way in which the fused step runs, in every type: the first failure, else
    how much of the error budget is used."""

    def measure(subject: Subject) -> Finding:
        subject = subject.excerpt
        used = UsedBudget(subject)
        for dtype in TYPES:
            module = subject.module(dtype)
            if (obstacle := find_obstacle(module)) is not None:
                return Finding(Verdict.SKIPPED, f"the fused step does not have {obstacle}")
            name, decoder = name_types(subject, dtype, dtype), GpuDecoder(module, COUNTS[-1])
            with torch.no_grad():
                watched, plain = run(subject, decoder, True), run(subject, decoder, False)
            if (changed := find_changed(module, watched, plain)) is not None:
                message = "the same kernels give other logits one by one than in one graph."
                return replace(changed, measured=f"in {name}: a graph changes the logits", message=message)
            judge = partial(judge_decoded, subject, module, cache_dtype=dtype, rounds_inputs=False)
            if (found := used.judge(name, watched, judge)) is not None:
                return found
        return used.summarize()

    return measure
