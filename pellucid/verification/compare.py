"""`pellucid.compare`: two runs, or the arrays of another program against a model; noise or bug, and where."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pellucid.base.arguments import check_float, check_one_of, check_text, check_type
from pellucid.base.dtypes import FLOAT_NAMES
from pellucid.base.errors import UsageError
from pellucid.base.patterns import matches
from pellucid.config import ModelConfig
from pellucid.explanation.example_command import propose_command
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_trace
from pellucid.formats.quantizing import check_weights
from pellucid.model import Model, load
from pellucid.reference.training import hold_weights
from pellucid.verification.decidable import examine_power
from pellucid.verification.diagnosis import explain_bug
from pellucid.verification.foreign_values import (
    SUFFIXES,
    RecordedValue,
    read_arrays,
    recorded_values,
    widen_arrays,
)
from pellucid.verification.judge_run import judge_run
from pellucid.verification.library_precision import judge_precision
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from pellucid.verification.name_table import map_names, read_table
from pellucid.verification.run_report import ArraysReport, Deviation, RunReport

Side = Model | Trace | Mapping[str, Any] | str | os.PathLike[str]
"""A model or its name, a trace or its file, or arrays by name or their file."""
LAYOUTS = ("halves", "pairs")
PARAMETERS = (".weight", ".bias")
SIZES = {"v": "vocab_size", "c": "d_model", "h": "n_head", "k": "n_kv_head", "d": "d_head", "f": "d_ff"}
"""The key of the config that gives the length of an axis."""


@dataclass(frozen=True)
class _Request:
    """The arguments of `compare` besides the two sides."""

    prompt: str | None
    target: str | None
    weights: str | None
    names: str | None
    dtype: str | None
    layout: str | None
    only: str
    tolerance: float | None


def compare(
    a: Side,
    b: Side,
    prompt: str | None = None,
    *,
    target: str | None = None,
    weights: str | None = None,
    names: str | None = None,
    dtype: str | None = None,
    layout: str | None = None,
    only: str = "*",
    tolerance: float | None = None,
) -> RunReport | ArraysReport:
    """Recomputes each value of `b` from b's own values by a's program, and says whether rounding explains it.

    A side is a model or its name (which reads `prompt`), a trace or its .json file, or the arrays of another
    program: a mapping, a .npz or a .safetensors file. `weights` says how the matrices of a model given by its
    name are held (see `load`). `names` is a table from their names to ours, `dtype` the type in which they
    computed, `layout` the order of the channels of their q and k. `only` is a pattern of names; values within
    `tolerance` (relative to the largest entry) are equal.

    >>> from pellucid import load
    >>> from pellucid.verification.compare import compare
    >>> logits = load("abcd").trace("A B").tape["logits"]
    >>> str(compare("abcd", {"logits": logits}, "A B").verdict)
    'equal'
    >>> report = compare("abcd", {"logits": 1.01 * logits}, "A B")
    >>> bool(report), str(report.verdict), report.bugs[0].name
    (False, 'BUG', 'logits')
    """
    if _is_arrays(a) and not _is_arrays(b):
        a, b = b, a  # arrays are always theirs
    request = _Request(prompt, target, weights, names, dtype, layout, only, tolerance)
    _check_request(a, b, request)
    if _is_arrays(a):
        return _compare_arrays(a, b, request)
    ours, config, note = _run_side(a, request, layout)
    theirs, unmatched = _recorded_side(b, ours, request)
    if not any(matches(name, [only]) for name in theirs):
        raise UsageError(f"only={only!r} matches no value that both have; both have {_list(theirs)}.")
    report = judge_run(ours, theirs, tolerance=tolerance, only=only)
    if _is_model(a) and _is_model(b):  # both were run here, so that each has every name of its program
        extra = [name for name in unmatched if matches(name, [only]) and not name.endswith(PARAMETERS)]
        report = replace(report, values=(*report.values, *map(Deviation.of_unknown, extra)))
        unmatched = [name for name in unmatched if name not in extra]
    report = explain_bug(report, ours, theirs, config)
    report = examine_power(judge_precision(report, ours, theirs), ours, theirs, config)
    return replace(report, not_compared=tuple(unmatched), note=note)


def _is_arrays(side: Side) -> bool:
    if isinstance(side, str | os.PathLike):
        return os.fspath(side).endswith(SUFFIXES)
    return isinstance(side, Mapping)


def _is_trace(side: Side) -> bool:
    return isinstance(side, Trace) or (
        isinstance(side, str | os.PathLike) and os.fspath(side).endswith(".json")
    )


def _is_model(side: Side) -> bool:
    """Returns whether a side is a model, which is run here."""
    return not _is_arrays(side) and not _is_trace(side)


def _check_request(a: Side, b: Side, request: _Request) -> None:
    """Raises where arguments have a wrong type or do not go together, before anything is read."""
    for parameter, side in (("a", a), ("b", b)):
        kinds = (Model, Trace, Mapping, str, os.PathLike)
        check_type(parameter, side, kinds, "a model, a trace, arrays by name or a path")
    check_text("only", request.only)
    for parameter in ("prompt", "target", "names"):
        if (value := getattr(request, parameter)) is not None:
            check_text(parameter, value)
    check_weights(request.weights)
    if request.dtype is not None:
        check_one_of("dtype", request.dtype, FLOAT_NAMES)
    if request.layout is not None:
        check_one_of("layout", request.layout, LAYOUTS)
    if request.tolerance is not None:
        check_float("tolerance", request.tolerance, least=0)
    models = [side for side in (a, b) if _is_model(side)]
    if models and request.prompt is None:
        first = models[0]
        assert not isinstance(first, Trace | Mapping)
        example = propose_command("compare", first, [a, b])
        raise UsageError(f"{first} needs a prompt, for example: {example}")
    if not models and (request.prompt is not None or request.target is not None):
        raise UsageError("traces and arrays hold their own run: omit the prompt and the target.")
    if request.weights is not None and all(isinstance(side, Model) for side in models):
        raise UsageError("weights is for a model that is opened here by its name: omit it (--weights).")
    if request.names and not _is_arrays(b):
        raise UsageError("names is for the arrays of another program (.npz, .safetensors).")
    if request.layout and (not models or models[0] is not a or not _is_arrays(b)):
        raise UsageError("layout is for the arrays of another program, compared with a model.")


def _run_side(side: Side, request: _Request, layout: str | None) -> tuple[Trace, ModelConfig | None, str]:
    """Returns a side's trace, its config, and a note where its channels were reordered to `layout`."""
    if isinstance(side, Trace):
        return _hold_weights(side), None, ""
    assert not isinstance(side, Mapping)
    if not isinstance(side, Model) and _is_trace(side):
        return _hold_weights(read_trace(side)), None, ""
    model = side if isinstance(side, Model) else load(side, weights=request.weights)
    own, note = getattr(model.config.positions, "layout", None), ""
    if layout and own and own != layout:
        note = f"{side} holds its queries and keys in {own}: reordered to {layout}, which changes no score."
        model = model.in_layout(layout)
    trace = model.trace(request.prompt or "", target=request.target, backward=request.target is not None)
    return _hold_weights(trace), model.config, note


def _hold_weights(trace: Trace) -> Trace:
    """Returns the trace with quantized weights as plain parameters: the other side may hold others."""
    return replace(trace, tape=hold_weights(trace.tape))


def _recorded_side(b: Side, ours: Trace, request: _Request) -> tuple[dict[str, RecordedValue], list[str]]:
    """Returns the values of b under the names of the specification, and the names without a counterpart."""
    table = read_table(request.names) if request.names is not None else None
    if _is_arrays(b):
        arrays = _read_side(b)
    else:
        theirs, _, _ = _run_side(b, request, _find_layout(ours))
        _check_same_sizes(ours, theirs)
        _check_same_length(ours, theirs)
        arrays = recorded_values(theirs)
    if request.dtype:
        arrays = {
            name: RecordedValue(x.value, request.dtype if x.value.dtype.kind == "f" else x.type)
            for name, x in arrays.items()
        }
    return map_names(arrays, ours, table)


def _read_side(side: Side) -> dict[str, RecordedValue]:
    if isinstance(side, Mapping):
        return widen_arrays(side)
    assert isinstance(side, str | os.PathLike)
    return read_arrays(Path(side))


def _find_layout(trace: Trace) -> str | None:
    """Returns the RoPE layout of a run, None where it has no RoPE."""
    rotations = (step for step in trace.tape.steps.values() if step.op.name == "rotate")
    return next((str(step.attrs.get("layout")) for step in rotations), None)


def _check_same_sizes(ours: Trace, theirs: Trace) -> None:
    """Raises for two models of different sizes: one's program cannot recompute a value of the other."""
    here, there = _model_sizes(ours), _model_sizes(theirs)
    if apart := [key for key in here if there.get(key, here[key]) != here[key]]:
        names = " and ".join(str(side.run.get("model", "a trace")) for side in (ours, theirs))
        raise UsageError(
            f"{names} have different sizes: "
            f"{', '.join(f'{key} is {here[key]:,} and {there[key]:,}' for key in apart)}. "
            "compare judges two runs of the same model; give two with the same sizes."
        )


def _model_sizes(trace: Trace) -> dict[str, int]:
    """Returns the sizes of the model that a trace ran, by the keys of its config."""
    layers = {name.split(".")[1] for name in trace.tape.steps if name.startswith("blocks.")}
    found = {"n_layer": len(layers)}
    for name in ("embedded", "blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.mlp.up", "logits"):
        if name in trace.tape:
            lengths = zip(trace.about(name).axes, trace.value(name).shape, strict=True)
            found |= {SIZES[axis]: length for axis, length in lengths if axis in SIZES}
    return found


def _check_same_length(ours: Trace, theirs: Trace) -> None:
    if "ids" in ours.tape and "ids" in theirs.tape and ours.tape["ids"].shape != theirs.tape["ids"].shape:
        here, there = (side.tape["ids"].shape[-1] for side in (ours, theirs))
        texts = [" ".join(map(str, side.run.get("tokens", []))) for side in (theirs, ours)]
        raise UsageError(
            f"the two did not read the same text, {texts[0]!r} and {texts[1]!r}: "
            f"{there} tokens there, {here} here: another prompt, or a bos?"
        )


def _compare_arrays(a: Side, b: Side, request: _Request) -> ArraysReport:
    """Returns the plain difference of two sets of arrays: no program is known that could recompute them."""
    first, second = (
        {name: x.value for name, x in _read_side(side).items() if matches(name, [request.only])}
        for side in (a, b)
    )
    shared = {name: value for name, value in first.items() if name in second}
    if not shared:
        raise UsageError(f"the two have no name in common: {_list(first, 3)}; {_list(second, 3)}.")
    tolerance = BETWEEN_ENGINES if request.tolerance is None else request.tolerance
    return ArraysReport(len(shared), find_first_mismatch(second, shared, tolerance))


def _list(names: Mapping[str, Any], most: int = 5) -> str:
    return ", ".join([*names][:most]) + (" …" if len(names) > most else "")
