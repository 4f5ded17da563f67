"""Checks that every bit of a seed counts: texts of seeds that differ in one bit differ, and each is the same
text when it is drawn again."""

import math

import numpy as np
import torch

from pellucid.base.errors import PellucidError
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.reduced import ReducedModel, gives_finite_logits
from pellucid.verification.checks.generation.sampling import NOT_FINITE, count_first, explain_no_room
from pellucid.verification.verdict import Finding, Judged, Verdict

SEED = 11
BITS = (0, 16, 31, 32, 33, 40, 52, 53, 62)
"""Of a seed, each the only one in which a seed differs from `SEED`; beyond 52, a float does not hold it."""
VOCABULARY = 256
CERTAIN = 1e9
"""Equally probable texts of which one is drawn: two are equal by chance no more often than once in these."""
TEMPERATURE = 1e6
"""The largest that may be given: it makes all tokens equally probable."""


def measure_seeds(subject: Subject) -> Finding:
    """Draws a text with each seed, all tokens nearly equally probable, twice."""
    config = subject.config
    if why := explain_no_room(config):
        return Finding(Verdict.SKIPPED, why)
    first = count_first(config)
    size = min(VOCABULARY, config.vocab_size)
    new = min(config.context_length - first, math.ceil(math.log(CERTAIN, max(size, 2))))
    model = ReducedModel(subject, layers=1, vocabulary=size, context=first + new)
    module, prompt = model.module(torch.float32), model.ids(first)
    if not gives_finite_logits(module):
        return Finding(Verdict.SKIPPED, NOT_FINITE)
    sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=new, stop_ids=())
    try:
        texts, again = (draw_texts(module, prompt, sampling) for _ in range(2))
    except PellucidError as error:
        return Finding(Verdict.BUG, "a request failed", "seeds", str(error))
    return judge_seeds(texts, again, size**new >= CERTAIN)


def draw_texts(module: Transformer, prompt: list[int], sampling: Sampling) -> dict[int, Completion]:
    """Returns the text of each seed, by the bit in which it differs from `SEED`; −1 is that seed itself."""
    capacity = len(prompt) + (sampling.max_new_tokens or 0)
    engine, handles = Engine(module, slots=len(BITS) + 1, capacity=capacity), {}
    for bit in (-1, *BITS):
        seeded = sampling.merge({"seed": SEED if bit < 0 else SEED ^ 1 << bit})
        handles[bit] = engine.add(Request(tuple(prompt), seeded, ledger=True), streams=False)
    return {bit: handle.result()[0] for bit, handle in handles.items()}


def judge_seeds(texts: dict[int, Completion], again: dict[int, Completion], is_certain: bool) -> Finding:
    """Returns what is wrong with two draws of each seed; where texts are few, numbers u alone must differ."""
    for bit, text in texts.items():
        seed = SEED if bit < 0 else SEED ^ 1 << bit
        numbers = [entry.u for entry in text.entries]
        if (again[bit].ids, [entry.u for entry in again[bit].entries]) != (text.ids, numbers):
            message = f"the seed {seed} gives {list(text.ids)}, then {list(again[bit].ids)}"
            return Finding(Verdict.BUG, "two texts", f"seeds[{seed}] again", message)
        if text.seed != seed or numbers != define_numbers(seed, len(numbers)):
            message = (
                f"a request with the seed {seed} says that it has used {text.seed}, and draws with u = "
                f"{numbers[:2]}; Philox gives {define_numbers(seed, 2)} for that seed"
            )
            return Finding(Verdict.BUG, "another u", f"seeds.u[bit={bit}]", message)
        if bit >= 0 and is_certain and text.ids == texts[-1].ids:
            message = (
                f"the seeds {SEED} and {seed}, which differ in bit {bit}, give one text: {list(text.ids)}"
            )
            return Finding(Verdict.BUG, "one text", f"seeds[bit={bit}]", message)
    what = "texts" if is_certain else "sequences of u"
    return Finding(Verdict.EQUAL, f"{len(texts)} {what}, {len(BITS)} of which differ in one bit of the seed")


def define_numbers(seed: int, count: int) -> list[float]:
    """Returns the numbers u of the first choice's tokens: the upper 53 bits of Philox4x64-10's first number
    for the key (seed, choice) and the counter of each token."""
    return [
        int(np.random.Philox(key=[seed, 0], counter=[at, 0, 0, 0]).random_raw() >> np.uint64(11)) * 2.0**-53
        for at in range(count)
    ]


CHECKS = (
    Check(
        "seeds",
        "Each bit of a seed changes the text that is drawn, and one seed gives one text.",
        f"a false alarm in {CERTAIN:.0e}",
        measure_seeds,
        Judged.PROGRAM,
    ),
)
