"""The trace file: a run as JSON that can be read, replayed and explained by itself.

Small values are in the file; larger ones in its store, a safetensors file beside it whose name holds the
checksum of its content: FILE.trace-0a1b2c3d4e5f.safetensors. The weights of a model in a file of its own are
references: the path, absolute and relative to the trace's folder, the tensor's name, and the checksum of the
numbers. Of a quantized weight the integers, scales and minimums are stored; its numbers are "recomputed" by
the step that dequantizes them.
"""

import contextlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, PellucidError, TapeError
from pellucid.base.files import (
    UNPAIRED,
    Damaged,
    Kind,
    check_output,
    check_suffix,
    make_json_kind,
    need,
    new_file,
    read_bytes,
    read_format,
    read_json,
    validating,
)
from pellucid.base.names import QUANTIZED_PARTS, Name, describe
from pellucid.explanation.reuse import has_same_bits
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.ops import find_op
from pellucid.reference.ops.einsum import einsum, result_shape
from pellucid.reference.ops.indexing import are_cells, put
from pellucid.reference.ops.quantization import dequantize
from pellucid.reference.tape import ANY_AXES, Step, Tape

FORMAT, VERSION = "pellucid-trace", 1
INLINE = 4096
"""Values of up to this many numbers are stored in the JSON itself."""

WeightsOf = Callable[[str, str], Mapping[str, Array]]
"""Opens the model that a trace refers to, with its weights rounded to the dtype of the run."""

_ROLES = ("leaf", "act", "grad", "param", "update")
_PHASES = ("fwd", "bwd", "upd")


def _why_not_a_store(path: Path) -> str:
    """Returns why a file is not the store of a trace; empty where it is one."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
    except (OSError, SafetensorError):
        return "it is not a safetensors file"
    return "" if metadata.get("format") == FORMAT else "its metadata do not name a trace"


TRACE = make_json_kind("a trace", FORMAT)
STORE = Kind("the store of a trace", _why_not_a_store)
_STORE_NAME = re.compile(r"(?P<trace>.+)\.trace-[0-9a-f]{12}\.safetensors")


def check_trace_output(path: Path, force: bool = False) -> None:
    """Raises unless a trace may be written there; call it before the work."""
    check_output(path, TRACE, force)
    check_suffix(path, ".json", "a trace is a .json file")


def write(trace: Trace, path: Path, model: str | None = None, force: bool = False) -> list[Path]:
    """Writes the file, and its store where one is needed, whole or not at all; returns the paths.

    `force` replaces an existing trace together with its store. `model` is the path of the weights, where they
    are in a file: the trace then refers to them.
    """
    check_trace_output(path, force)
    tape, old = trace.tape, _find_stores(path)
    large = {name: value for name, value in tape.values.items() if value.size > INLINE}
    edited = _find_edited(trace)  # no file has these weights
    referenced = {
        name
        for name in large
        if model and tape.roles[name] == "param" and name not in edited and not name.endswith(QUANTIZED_PARTS)
    }
    dequantized = {name for name in large if _is_recomputed(tape, name)}
    large = {name: value for name, value in large.items() if name not in referenced | dequantized}
    content, store = b"", path
    if large:
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(value) for name, value in large.items()}
        content = save(arrays, {"format": FORMAT})
        import hashlib

        store = path.with_name(f"{path.stem}.trace-{hashlib.sha256(content).hexdigest()[:12]}.safetensors")
    tensors, once = dict[str, Any](), set[str]()
    for name, value in tape.values.items():
        where: dict[str, Any] = {"store": store.name} if name in large else {}
        if name in dequantized:
            where["recomputed"] = True
        if name in referenced and model is not None:
            relative = os.path.relpath(Path(model).resolve(), path.parent.resolve())
            key = {"sha256": compute_checksum(value), "key": name}
            where["ref"] = {"path": model, "relative": Path(relative).as_posix(), **key}
        tensors[name] = make_tensor_entry(trace, name, where)
        _add_long_labels(trace, name, tensors[name], once)
    steps = [
        {
            "i": i,
            "phase": step.phase,
            "op": step.op.name,
            "in": list(step.inputs),
            "out": step.name,
            "attrs": step.attrs,
        }
        for i, step in enumerate(tape.steps.values())
    ]
    head = {"format": FORMAT, "version": VERSION, "run": trace.run, "aliases": tape.aliases}
    is_new = bool(large) and not store.exists()
    try:
        if large:
            with new_file(store, STORE, force=True) as file:
                file.write(content)
        with new_file(path, TRACE, force) as file:
            file.write(_format_json(head, tensors, steps))
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                store.unlink()
        raise
    for other in old - {store}:
        with contextlib.suppress(OSError):
            other.unlink()
    return [path, store] if large else [path]


def _is_recomputed(tape: Tape, name: str) -> bool:
    """Returns whether a value is, bit for bit, what dequantizing gives; an engine may have rounded it."""
    step = tape.steps.get(name)
    return (
        step is not None and step.op is dequantize and has_same_bits(tape.values[name], step.run(tape.values))
    )


def _find_edited(trace: Trace) -> set[str]:
    """Returns the names of which cells were edited, as the record of the run says."""
    edits = trace.run.get("edits")  # of a file from elsewhere it may be anything
    given = [edit.get("at") for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []
    return {at.partition("[")[0] for at in given if isinstance(at, str)}


def _find_stores(path: Path) -> set[Path]:
    """Returns the stores of the trace at this path that no other file beside it refers to."""
    if not os.path.isfile(path) or TRACE.why_not(path):
        return set()
    tensors = read_json(path).get("tensors")
    entries = tensors.values() if isinstance(tensors, dict) else ()
    names = {entry.get("store") for entry in entries if isinstance(entry, dict)}
    mine = {
        path.with_name(name)
        for name in names
        if isinstance(name, str) and (found := _STORE_NAME.fullmatch(name)) and found["trace"] == path.stem
    }
    others = [other for other in path.parent.glob("*.json") if other != path and other.is_file()]
    return {
        store
        for store in mine
        if not _why_not_a_store(store) and not any(_mentions(other, store.name) for other in others)
    }


def _mentions(file: Path, name: str) -> bool:
    """Returns whether a file names another; True where it cannot be read."""
    try:
        return name.encode("utf-8", UNPAIRED) in read_bytes(file)
    except FileError:
        return True


def _format_json(head: dict[str, Any], tensors: dict[str, Any], steps: list[Any]) -> bytes:
    """Returns the JSON with one line per tensor and per step, so that `diff` can compare it."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=lambda number: number.item())

    top = ",\n".join(f"{line(key)}: {line(value)}" for key, value in head.items())
    rows = ",\n".join(f"  {line(name)}: {line(entry)}" for name, entry in tensors.items())
    lines = ",\n".join(f"  {line(step)}" for step in steps)
    text = f'{{{top},\n"tensors": {{\n{rows}\n}},\n"steps": [\n{lines}\n]}}\n'
    return text.encode("utf-8", UNPAIRED)


def compute_checksum(value: Array) -> str:
    """Returns the checksum of the numbers as float64, whatever the type in the file."""
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(value, dtype="<f8").data).hexdigest()


def make_tensor_entry(trace: Trace, name: str, elsewhere: Mapping[str, Any] | None = None) -> dict[str, Any]:
    value, about = trace.value(name), trace.about(name)
    entry: dict[str, Any] = {
        "shape": list(value.shape),
        "axes": list(about.axes),
        "role": trace.tape.roles[name],
    }
    entry |= make_labels_entry(trace, name, about.axes)
    if name in trace.tape.about:
        entry |= {"symbol": about.symbol, "meaning": about.meaning}
    return entry | (dict(elsewhere) if elsewhere else make_values_entry(value))


def make_labels_entry(
    trace: Trace, name: str, axes: Iterable[str], index: Sequence[int | None] = ()
) -> dict[str, Any]:
    """Returns the tokens of the axes on which every index has one, but not a whole large vocabulary."""
    labels = {axis: trace.texts(name, axis, index) for axis in axes if trace.size(name, axis) <= INLINE}
    labels = {axis: texts for axis, texts in labels.items() if texts and None not in texts}
    return {"labels": labels} if labels else {}


def _add_long_labels(trace: Trace, name: str, entry: dict[str, Any], once: set[str]) -> None:
    """Adds the labels of a long axis other than the vocabulary to the first value that has it: to that alone,
    so that the file does not repeat them."""
    for axis in trace.about(name).axes:
        if axis not in ("v", *once) and trace.size(name, axis) > INLINE:
            texts = trace.texts(name, axis)
            if None not in texts:
                entry.setdefault("labels", {})[axis] = texts
                once.add(axis)


def make_values_entry(value: Array) -> dict[str, Any]:
    """Returns the numbers as nested lists; NaN and ±inf, which JSON lacks, are null and listed as special."""
    special = [] if value.dtype.kind in "iu" else np.argwhere(~np.isfinite(value)).tolist()
    plain = value.astype(object)
    for index in special:
        plain[tuple(index)] = None
    entry: dict[str, Any] = {"values": plain.tolist()}
    if special:
        entry["special"] = [[index, str(value[tuple(index)])] for index in special]
    return entry


# ---- reading: a file may be damaged or malicious


def read(path: Path, weights_of: WeightsOf | None = None) -> Trace:
    """Returns the trace of a file; raises a FileError that names the damage.

    `weights_of` opens the model that the trace refers to, where it refers to one.
    """
    data = read_format(path, "trace", FORMAT, VERSION)
    with validating(path):
        need(isinstance(data.get("run"), dict), "'run' is missing or not a dict")
        return _read_trace(data, _ExternalTensors(path, str(data["run"].get("dtype", "float64")), weights_of))


def _read_trace(data: dict[str, Any], elsewhere: "_ExternalTensors") -> Trace:
    kinds = {"run": dict, "tensors": dict, "steps": list}
    for key, kind in kinds.items():
        need(isinstance(data.get(key), kind), f"{key!r} is missing or not a {kind.__name__}")
    run = data["run"]
    dtype = run.get("dtype", "float64") if run.get("path", "reference") == "reference" else "float64"
    need(dtype in ("float64", "float32"), f"its dtype {dtype!r} cannot be replayed by this version")
    tape, labels, recomputed = Tape(np.dtype(dtype)), dict[str, list[str]](), list[str]()
    for name, entry in data["tensors"].items():
        need(isinstance(entry, dict), f"tensor {name!r} is not a table")
        need(entry.get("role") in _ROLES, f"tensor {name!r} has the role {entry.get('role')!r}")
        value = _read_value(name, entry, elsewhere)
        if "recomputed" in entry:
            recomputed.append(name)
        is_kept = value.dtype.kind in "iu" or name in recomputed
        tape.values[name] = value if is_kept else value.astype(tape.dtype)
        tape.roles[name] = entry["role"]
        axes = entry.get("axes")
        need(
            _are_texts(axes) and len(axes) == tape.values[name].ndim == len(set(axes)),
            f"tensor {name!r}: axes {axes!r} do not fit its shape",
        )
        if isinstance(entry.get("symbol"), str):
            meaning = str(entry.get("meaning", ""))
            tape.about[name] = Name(name, tuple(axes), entry["symbol"], meaning, engines="reference")
        elif describe(name, tape.about) is None and tuple(axes) != ANY_AXES[: len(axes)]:
            # a name that the glossary no longer has keeps its axes
            tape.about[name] = Name(name, tuple(axes), name, "", engines="reference")
        need(isinstance(entry.get("labels", {}), dict), f"tensor {name!r}: labels are not a table")
        for axis, texts in entry.get("labels", {}).items():
            need(axis in axes and _are_texts(texts), f"tensor {name!r}: labels of {axis!r} are not texts")
            labels[axis] = max(labels.get(axis, []), texts, key=len)
    for step in data["steps"]:
        _read_step(tape, step)
    for name in recomputed:
        _recompute(tape, name)
    for name, role in tape.roles.items():
        given = role in ("leaf", "param")
        need(given != (name in tape.steps), f"{name!r} has the role {role!r}, which contradicts its steps")
    aliases = data.get("aliases", {})
    need(
        isinstance(aliases, dict)
        and _are_texts(list(aliases.values()))
        and all(target in tape.values and name not in tape.values for name, target in aliases.items()),
        "aliases do not name tensors",
    )
    tape.aliases |= aliases
    return Trace(tape, data["run"], labels)


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(text, str) for text in given)


def _read_value(name: str, entry: dict[str, Any], elsewhere: "_ExternalTensors") -> Array:
    shape = entry.get("shape")
    need(
        isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**40 for size in shape),
        f"tensor {name!r} has the shape {shape!r}",
    )
    shape = tuple(entry["shape"])
    if "recomputed" in entry:
        return np.broadcast_to(0.0, shape)  # its step comes later in the file
    if "store" in entry or "ref" in entry:
        where = "store" if "store" in entry else "model"
        value = (
            elsewhere.read_stored(name, entry["store"])
            if where == "store"
            else elsewhere.read_referenced(name, entry["ref"])
        )
        need(value.shape == shape, f"tensor {name!r} has the shape {value.shape} in its {where}, not {shape}")
        return value
    need("values" in entry, f"tensor {name!r} has neither values nor a store that this version can read")
    special = {}
    need(isinstance(entry.get("special", []), list), f"tensor {name!r}: special is not a list")
    for item in entry.get("special", []):
        need(
            isinstance(item, list) and len(item) == 2 and item[1] in ("inf", "-inf", "nan"),
            f"tensor {name!r}: special has {item!r}",
        )
        special[tuple(item[0]) if isinstance(item[0], list) else ()] = float(item[1])
    flat: list[Any] = []
    _flatten(name, entry["values"], shape, (), special, flat)
    whole = bool(flat) and all(type(number) is int for number in flat)
    try:
        return np.array(flat, dtype=np.int64 if whole else np.float64).reshape(shape)
    except OverflowError:
        raise Damaged(f"tensor {name!r} holds a number too large to compute with") from None


def _flatten(
    name: str,
    given: Any,
    shape: tuple[int, ...],
    at: tuple[int, ...],
    special: dict[Any, float],
    into: list[Any],
) -> None:
    if not shape:
        number = special.get(at) if given is None else given
        need(type(number) in (int, float), f"tensor {name!r} has {given!r} at {list(at)}")
        into.append(number)
        return
    need(isinstance(given, list) and len(given) == shape[0], f"tensor {name!r}: values do not fit its shape")
    for i, inner in enumerate(given):
        _flatten(name, inner, shape[1:], (*at, i), special, into)


class _ExternalTensors:
    """The tensors outside the file itself: in its store, and in the models that it refers to."""

    def __init__(self, path: Path, dtype: str, weights_of: WeightsOf | None) -> None:
        self.path, self.dtype, self.weights_of = path, dtype, weights_of
        self.stores: dict[str, dict[str, Array]] = {}
        self.models: dict[str, Mapping[str, Array]] = {}
        self.failures: dict[str, str] = {}

    def read_stored(self, name: str, file: Any) -> Array:
        need(
            isinstance(file, str) and Path(file).name == file and file.endswith(".safetensors"),
            f"tensor {name!r} is stored in {file!r}, which is not a .safetensors file beside the trace",
        )
        if file not in self.stores:
            from safetensors import SafetensorError
            from safetensors.numpy import load

            try:
                self.stores[file] = load((self.path.parent / file).read_bytes())
            except OSError as error:
                raise Damaged(f"its store {file} cannot be read: {error.strerror}") from None
            except SafetensorError as error:
                raise Damaged(f"its store {file} is not a safetensors file: {error}") from None
        need(name in self.stores[file], f"its store {file} has no tensor {name!r}")
        return self.stores[file][name]

    def read_referenced(self, name: str, ref: Any) -> Array:
        need(
            isinstance(ref, dict) and all(isinstance(ref.get(key), str) for key in ("path", "sha256", "key")),
            f"tensor {name!r} refers to {ref!r}",
        )
        need(self.weights_of is not None, f"tensor {name!r} is in {ref['path']}, which is not opened here")
        places = [ref["path"]]
        if isinstance(ref.get("relative"), str):  # first beside the trace, wherever both were moved to
            places.insert(0, os.path.normpath(self.path.parent / ref["relative"]))
        found = [(place, weights) for place in places if (weights := self._open(place)) is not None]
        if not found:
            raise Damaged(f"its weights are in {places[-1]}: {self.failures[places[-1]]}")
        key = ref["key"]
        for _, weights in found:
            value = np.asarray(weights[key], dtype=np.float64) if key in weights else None
            if value is not None and compute_checksum(value) == ref["sha256"]:
                return value
        place, weights = found[0]
        need(key in weights, f"{place} has no weight {key!r}")
        raise Damaged(f"{place} has changed since: {key} holds other numbers")

    def _open(self, model: str) -> Mapping[str, Array] | None:
        """Returns the weights of a model, None where it cannot be opened."""
        if model not in self.models and model not in self.failures:
            assert self.weights_of is not None
            try:
                self.models[model] = self.weights_of(model, self.dtype)
            except PellucidError as error:
                self.failures[model] = str(error).rstrip(".")
        return self.models.get(model)


def _read_step(tape: Tape, step: Any) -> None:
    need(isinstance(step, dict), "a step is not a table")
    name, inputs, attrs = step.get("out"), step.get("in"), step.get("attrs", {})
    need(isinstance(name, str) and name in tape.values, f"a step makes {name!r}, which is not a tensor")
    need(name not in tape.steps, f"two steps make {name!r}")
    need(step.get("phase") in _PHASES, f"step {name!r} has the phase {step.get('phase')!r}")
    need(_are_texts(inputs), f"step {name!r}: its inputs are not names")
    for read in inputs:
        known = read in tape.steps or (read in tape.values and tape.roles[read] in ("leaf", "param"))
        need(known, f"step {name!r} reads {read!r} before anything makes it")
    need(isinstance(attrs, dict), f"step {name!r}: its attributes are not a table")
    try:
        made = Step(name, find_op(str(step.get("op"))), tuple(inputs), attrs, step["phase"])
    except TapeError as error:
        raise Damaged(f"step {name!r}: {error}".rstrip(".")) from None
    for key, value in attrs.items():
        plain = isinstance(value, str) or (type(value) in (int, float) and abs(value) <= sys.float_info.max)
        need(plain or made.op is put, f"step {name!r} has the attribute {key}={value!r}")
    need(_sizes_hold(tape, made), f"step {name!r} has attributes {attrs} that do not fit its shapes")
    tape.steps[name] = made


def _recompute(tape: Tape, name: str) -> None:
    """Dequantizes a weight whose parts the file holds."""
    step, shape = tape.steps.get(name), tape.values[name].shape
    need(
        step is not None and step.op is dequantize,
        f"tensor {name!r} is recomputed by no step that dequantizes",
    )
    assert step is not None
    need(
        all(tape.roles[read] == "param" for read in step.inputs),
        f"tensor {name!r} is recomputed from values that are not parameters",
    )
    try:
        value = step.run(tape.values)
    except Exception as error:  # untrusted attributes may break an operation in any way
        raise Damaged(f"tensor {name!r} cannot be recomputed: {error}") from None
    need(value.shape == shape, f"tensor {name!r} has the shape {shape}, and its step gives {value.shape}")
    tape.values[name] = value


def _sizes_hold(tape: Tape, step: Step) -> bool:
    """Returns whether the step's sizes are those of its tensors, so that a run allocates no more than they
    do."""
    shapes = [tape.values[name].shape for name in step.inputs]
    if step.op is einsum:
        try:
            return bool(result_shape(shapes, **step.attrs) == tape.values[step.name].shape)
        except (ValueError, TypeError, KeyError, AttributeError):
            return False
    if step.op is put:
        known = set(step.attrs) == {"places", "numbers"} and shapes == [tape.values[step.name].shape]
        return known and are_cells(*shapes, **step.attrs)
    largest = max(itertools.chain(*shapes, tape.values[step.name].shape, [1]))
    return all(
        type(step.attrs.get(key, 0)) is int and 0 <= step.attrs.get(key, 0) <= largest
        for key in step.op.sizes
    )
