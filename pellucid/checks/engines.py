"""The fast engine against the specification: equal in float64, and within rounding in every other way of
running it."""

from collections.abc import Callable

import torch

from pellucid.checks.finding import Check, Finding, compared, judged
from pellucid.checks.subject import Subject
from pellucid.explain.compare import BETWEEN_ENGINES
from pellucid.explain.local_replay import Recorded, local_replay
from pellucid.workbench.engines import run

GRADIENT_TOKENS = 8
"""The specification's backward pass keeps every gradient: few tokens are enough for every formula."""
COMPILED_LAYERS = 2
"""The compiler is given the first blocks only; the others are the same code."""


def values(subject: Subject) -> Finding:
    ids, targets = subject.pair
    both = run(subject.module(torch.float64), [ids], [targets], program=subject.program)
    wanted = {name: both.tape[name] for name in both.values}
    return compared(both.values, wanted, BETWEEN_ENGINES, subject.trace(both.tape, ids))


def gradients(subject: Subject) -> Finding:
    ids, targets = (given[:GRADIENT_TOKENS] for given in subject.pair)
    both = run(subject.module(torch.float64), [ids], [targets], backward=True)
    wanted = {name: both.tape[name] for name in both.values if name.startswith("d.")}
    return compared(both.values, wanted, BETWEEN_ENGINES, subject.trace(both.tape, ids))


def replayed(dtype: torch.dtype, path: str) -> Callable[[Subject], Finding]:
    """Each value recomputed in float64 from the run's own inputs to it."""

    def measure(subject: Subject) -> Finding:
        ids, targets = subject.pair
        layers = min(COMPILED_LAYERS, subject.config.n_layer) if path == "compiled" else None
        module = subject.module(dtype, layers)
        program = subject.program if layers in (None, subject.config.n_layer) else None
        with torch.no_grad():
            both = run(module, [ids], [targets], path=path, program=program)
        recorded = {name: Recorded(both.values[name], both.types[name]) for name in both.values}
        recorded = {name: value for name, value in recorded.items() if name not in ("mask", "angles")}
        return judged(local_replay(subject.trace(both.tape, ids), recorded))

    return measure


ROUNDING = "(8 + √n) units of Σ|terms|"
CHECKS = (
    Check(
        "specification",
        "the fast engine in float64 gives every value that the specification names",
        f"{BETWEEN_ENGINES:g}",
        values,
    ),
    Check(
        "gradients",
        "and every gradient",
        f"{BETWEEN_ENGINES:g}",
        gradients,
        quick=False,
    ),
    Check(
        "float32",
        "every step in float32 is its inputs' within rounding",
        ROUNDING,
        replayed(torch.float32, "eager"),
    ),
    Check("bfloat16", "so in bfloat16", ROUNDING, replayed(torch.bfloat16, "eager")),
    Check("fused", "so through the fused kernels, in bfloat16", ROUNDING, replayed(torch.bfloat16, "fused")),
    Check(
        "compiled",
        "so compiled, in float32",
        ROUNDING,
        replayed(torch.float32, "compiled"),
        quick=False,
    ),
)
