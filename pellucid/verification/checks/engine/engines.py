"""Checks the fast engine against the specification: equal in float64, within rounding in other types."""

from collections.abc import Callable

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.engine.compiler import NO_COMPILER, lacks_compiler
from pellucid.explanation.engines import EnginesRun, run, with_values
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Subject, compare_values
from pellucid.verification.checks.engine.paths import judge_values
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.mismatch import BETWEEN_ENGINES
from pellucid.verification.verdict import Finding, Verdict

FARTHEST = 2**17
"""Positions whose tables a check makes at most: of a longer context, its end is taken to be here."""
GRADIENT_TOKENS = 8
"""The specification's backward pass keeps every gradient; a few tokens exercise every formula."""
COMPILED_LAYERS = 2
"""Only the first blocks are compiled; the others are the same code."""


def measure_values(subject: Subject) -> Finding:
    ids, targets = subject.pair
    both = run(subject.module(torch.float64), [ids], [targets], program=subject.program)
    for name in both.values:
        if name not in both.tape:
            message = f"the fast engine computes {name}, and the specification of this config does not."
            return Finding(Verdict.BUG, "a value of one engine alone", name, message)
    wanted = {name: both.tape[name] for name in both.values}
    return compare_values(both.values, wanted, BETWEEN_ENGINES, subject.trace(both.tape, ids))


def measure_gradients(subject: Subject) -> Finding:
    ids, targets = (given[:GRADIENT_TOKENS] for given in subject.pair)
    both = run(subject.module(torch.float64), [ids], [targets], backward=True)
    wanted = {name: both.tape[name] for name in both.values if name.startswith("d.")}
    return compare_values(both.values, wanted, BETWEEN_ENGINES, subject.trace(both.tape, ids))


def judge_precision(dtype: torch.dtype, path: str) -> Callable[[Subject], Finding]:
    """Returns a measurement that recomputes each value in float64 from the run's own inputs to it."""

    def measure(subject: Subject) -> Finding:
        if path == "compiled" and lacks_compiler(subject.model.resolve_device()):
            return Finding(Verdict.SKIPPED, NO_COMPILER)
        ids, targets = subject.pair
        layers = min(COMPILED_LAYERS, subject.config.n_layer) if path == "compiled" else None
        module = subject.module(dtype, layers)
        program = subject.program if layers in (None, subject.config.n_layer) else None
        with torch.no_grad():
            both = run(module, [ids], [targets], path=path, program=program)
        return _judge_run(subject, both)

    return measure


def judge_far_positions(subject: Subject) -> Finding:
    """Judges the same text at the end of the context: there, rounded positions give RoPE angles that are
    off by radians; at the beginning the error is small."""
    ids, targets = subject.pair
    end = min(subject.config.context_length, FARTHEST)
    places = np.arange(end - len(ids), end)
    given = _position_values(subject.config, places)
    if not given:
        uses = "relative distances only" if subject.config.positions.has_bias else "no positions"
        return Finding(Verdict.SKIPPED, f"it uses {uses}, so no position is far")
    module = subject.module(torch.bfloat16)
    program = with_values(subject.program, given)
    with torch.no_grad():
        both = run(module, [ids], [targets], program=program, positions=places)
    return _judge_run(subject, both)


def _position_values(config: ModelConfig, places: Array) -> dict[str, Array]:
    """Returns the constants that depend on positions, under the names of the specification."""
    rows, ids = config.positions.rows(places, config.d_model), config.positions.row_ids(places)
    rotation = config.positions.rotation(places, config.d_head)
    found = {"position_rows": rows, "position_ids": ids, "angles": rotation.angles if rotation else None}
    given = {name: value for name, value in found.items() if value is not None}
    allowed = config.mask.compute_mask(places, places)
    if given and allowed is not None:
        given["mask"] = allowed[None, None].astype(float)
    return given


def _judge_run(subject: Subject, both: EnginesRun) -> Finding:
    tape = both.hold_weights()
    # leaves and parameters are inputs, not results
    names = [name for name in both.values if tape.roles.get(name) not in ("leaf", "param")]
    recorded = {name: RecordedValue(both.values[name], both.types[name]) for name in names}
    return judge_values(subject.trace(tape, subject.pair[0]), recorded).summarize()
