"""The fast engine against the specification: equal in float64, and within rounding in every other way of
running it."""

from collections.abc import Callable

import numpy as np
import torch

from pellucid.checks.finding import Check, Finding, compared, judged
from pellucid.checks.subject import Subject
from pellucid.config import ModelConfig
from pellucid.judge.judge_run import RecordedValue, judge_run
from pellucid.judge.mismatch import BETWEEN_ENGINES
from pellucid.model.compiler import NO_COMPILER, lacks_compiler
from pellucid.reference.op import Array
from pellucid.workbench.engines import Run, run, with_values

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
        if path == "compiled" and lacks_compiler(subject.model.place()):
            return Finding("skipped", NO_COMPILER)
        ids, targets = subject.pair
        layers = min(COMPILED_LAYERS, subject.config.n_layer) if path == "compiled" else None
        module = subject.module(dtype, layers)
        program = subject.program if layers in (None, subject.config.n_layer) else None
        with torch.no_grad():
            both = run(module, [ids], [targets], path=path, program=program)
        return _judged(subject, both)

    return measure


def far(subject: Subject) -> Finding:
    """The same text at the far end of the context: positions that were rounded are off by whole turns there,
    and hardly at all near the beginning."""
    ids, targets = subject.pair
    places = np.arange(subject.config.context_length)[-len(ids) :]
    given = _given(subject.config, places)
    if not given:
        knows = "it knows distances alone" if subject.config.positions.biased() else "it knows no positions"
        return Finding("skipped", f"{knows}, so no place is far")
    module = subject.module(torch.bfloat16)
    program = with_values(subject.program, given)
    with torch.no_grad():
        both = run(module, [ids], [targets], program=program, positions=places)
    return _judged(subject, both)


def _given(config: ModelConfig, places: Array) -> dict[str, Array]:
    """What the specification's run is told about positions, for these."""
    rows, ids = config.positions.rows(places, config.d_model), config.positions.row_ids(places)
    rotation = config.positions.rotation(places, config.d_head)
    told = {"position_rows": rows, "position_ids": ids, "angles": rotation.angles if rotation else None}
    given = {name: value for name, value in told.items() if value is not None}
    seen = config.mask.allowed(places, places)
    if given and seen is not None:
        given["mask"] = seen[None, None].astype(float)
    return given


def _judged(subject: Subject, both: Run) -> Finding:
    made = [name for name in both.values if both.tape.roles.get(name) != "leaf"]  # the rest was handed to it
    recorded = {name: RecordedValue(both.values[name], both.types[name]) for name in made}
    return judged(judge_run(subject.trace(both.tape, subject.pair[0]), recorded))


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
    Check("far positions", "so at the far end of its context", ROUNDING, far),
    Check("fused", "so through the fused kernels, in bfloat16", ROUNDING, replayed(torch.bfloat16, "fused")),
    Check(
        "compiled",
        "so compiled, in float32",
        ROUNDING,
        replayed(torch.float32, "compiled"),
        quick=False,
    ),
)
