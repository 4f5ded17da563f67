"""Checks that every weight is what the file holds, by a second reader, and what the fast engine holds.

The names and the order of rows are those of our tables (`interop`), the numbers are read by the libraries of
the formats, `safetensors` and `gguf`. Whether the tables are right, `transformers` and llama.cpp show.
"""

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pellucid.base.dtypes import decode, encode
from pellucid.base.errors import UsageError, quote
from pellucid.base.formatting import pluralize
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.formats.gguf import architectures
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface.families import Link
from pellucid.formats.pretrained import Shape, parameter_count
from pellucid.formats.rope_layout import in_layout
from pellucid.formats.safetensors_file import INDEX, ONE_FILE
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.second_readers import (
    Parts,
    quantize_again,
    read_header,
    read_schemes,
    read_stored,
    split_blocks,
    widen_parts,
)
from pellucid.verification.verdict import Finding, Verdict

MOST_NUMBERS = 200_000_000
"""The numbers that are compared at most; of larger models, every k-th row of each weight."""
MOST_OF_ONE = 4_000_000
"""The numbers of one parameter of a large model's fast engine that are compared at most."""
HELD = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}

Reader = Callable[[str, int], Array]
"""Returns the rows 0, stride, 2 stride, … of one of our weights, as the file holds them."""
PartsReader = Callable[[str, int], Parts]
"""Returns integers, scales and minimums of the same rows, where the file holds these."""


class SecondReader(NamedTuple):
    """A second reader of a file: numbers, and of a file with quantized weights their parts."""

    numbers: Reader
    parts: PartsReader | None = None


def measure_file_weights(subject: Subject) -> Finding:
    """Compares each weight with the numbers that a second reader finds under its name in the file, of a
    quantized one integers, scales and minimums."""
    opened = subject.model.pretrained
    changed = list_changed(subject)
    stride = -(-parameter_count(subject.config.parameters()) // MOST_NUMBERS)
    try:
        read = _open_reader(subject)
        for name, weight in subject.weights.items():
            if name in changed:
                continue
            at, found = _compare_with_file(subject, read, name, weight[::stride], stride)
            if found:
                message = (
                    f"{at} is not what {opened.provenance.path} holds, as a second reader finds: {found}"
                )
                return Finding(Verdict.BUG, found, at, message)
    except _NotRead as reason:
        return Finding(Verdict.SKIPPED, str(reason))
    except Exception as error:  # another library on an untrusted file
        return Finding(Verdict.SKIPPED, f"the second reader cannot read this file: {quote(error)}")
    shares = f", one row in {stride}" if stride > 1 else ""
    since = f"; {pluralize(len(changed), 'weight')} changed since it was read" if changed else ""
    return Finding(
        Verdict.EQUAL,
        f"{len(subject.weights) - len(changed):,} weights{shares}{describe_quantized(subject)}{since}",
    )


def describe_quantized(subject: Subject) -> str:
    """Returns how many weights are quantized, and where: ", 15 of them quantized here"; "" where none is."""
    where = "here" if subject.requantized else "in the file"
    return f", {len(subject.quantized):,} of them quantized {where}" if subject.quantized else ""


def _compare_with_file(
    subject: Subject, read: SecondReader, name: str, weight: Any, stride: int
) -> tuple[str, str]:
    """Returns where some rows of a weight are not what the file holds, and what is there: "" where they
    are."""
    if not isinstance(weight, QuantizedWeight):
        return name, describe_difference(weight, read.numbers(name, stride), stride)
    if name in subject.requantized:
        return compare_parts(name, weight, quantize_again(read.numbers(name, stride), weight), stride)
    if read.parts is None:
        raise _NotRead(f"its second reader does not read the integers of {name}")
    at, found = compare_parts(name, weight, read.parts(name, stride), stride)
    return at, found or describe_difference(np.asarray(weight), read.numbers(name, stride), stride)


def compare_parts(
    name: str, weight: QuantizedWeight, theirs: Mapping[str, Array], stride: int = 1
) -> tuple[str, str]:
    """Returns the part of a weight that is not theirs bit for bit, and what is there: "" where all are."""
    ours = weight.parts()
    for part in ("scales", "minimums", "integers"):
        at = f"{name}.{part}"
        if (part in ours) is not (part in theirs):
            return at, f"there are {part} {'here' if part in ours else 'there'} alone"
        if part in ours and (found := describe_difference(ours[part], theirs[part], stride)):
            return at, found
    return name, ""


class _NotRead(Exception):
    """Why there is no second reader."""


def list_changed(subject: Subject) -> set[str]:
    """Returns the weights that are no longer the file's, because the module was trained or edited."""
    return {name for name in subject.weights if subject.model.modified_weight(name) is not None}


def _open_reader(subject: Subject) -> SecondReader:
    opened = subject.model.pretrained
    path, kind = opened.provenance.path, opened.provenance.format
    if kind == "huggingface":
        numbers = _read_huggingface(path, subject.config)
        return SecondReader(_in_our_layout(subject.config, "halves", numbers))
    if kind == "pellucid" and (path / "config.json").is_file():
        return _read_folder(path, subject.config)
    if kind == "gguf":
        if importlib.util.find_spec("gguf") is None:
            raise _NotRead("the second reader of GGUF is not installed: pip install gguf")
        layout = architectures.find(opened.provenance.architecture).layout
        numbers, parts = _read_gguf(path, subject.config)
        return SecondReader(
            _in_our_layout(subject.config, layout, numbers),
            _parts_in_our_layout(subject.config, layout, parts),
        )
    raise _NotRead("its weights are in no file of safetensors or GGUF")


def _parts_in_our_layout(config: ModelConfig, layout: str, read: PartsReader) -> PartsReader:
    """Returns a reader of a file in one RoPE layout for a model that was converted to the other one: the rows
    of all parts are in the same order."""
    if not isinstance(config.positions, Rope) or config.positions.layout == layout:
        return read
    own = config.positions.layout
    stored = ModelConfig.from_dict(
        config.to_dict() | {"positions": config.positions.to_dict() | {"layout": layout}}
    )

    def read_converted(name: str, stride: int) -> Parts:
        parts = read(name, 1)
        return {kind: in_layout(stored, {name: part}, own)[1][name][::stride] for kind, part in parts.items()}

    return read_converted


def _in_our_layout(config: ModelConfig, layout: str, read: Reader) -> Reader:
    """Returns the same for numbers."""
    converted = _parts_in_our_layout(config, layout, lambda name, stride: {"numbers": read(name, stride)})
    return lambda name, stride: converted(name, stride)["numbers"]


# ---- the second readers


def open_safetensors(folder: Path) -> Callable[[str], Any]:
    """Returns a function from the name of a tensor to the tensor, read by the library of that format."""
    from safetensors import safe_open

    if (folder / ONE_FILE).is_file():
        one: Any = safe_open(folder / ONE_FILE, framework="pt")
        places = dict.fromkeys(one.keys(), ONE_FILE)
    else:
        places = json.loads((folder / INDEX).read_text("utf-8"))["weight_map"]
    files: dict[str, Any] = {name: safe_open(folder / name, framework="pt") for name in set(places.values())}
    return lambda name: files[places[name]].get_tensor(name)


def _read_huggingface(folder: Path, config: ModelConfig) -> Reader:
    family = families.find(json.loads((folder / "config.json").read_text())["model_type"])
    tensors, shapes = open_safetensors(folder), config.parameters()
    links = {name: link for link in family.links(config) for name in link.ours}
    last: dict[str, dict[str, Any]] = {}

    def read(name: str, stride: int) -> Array:
        link = links[name]
        if link.theirs not in last:  # a tensor may hold several weights, one after the other
            last.clear()
            last[link.theirs] = split_rows(_find_tensor(tensors, link.theirs, family.prefix), link, shapes)
        return _to_numpy(last[link.theirs][name][::stride])

    return read


def _find_tensor(tensors: Callable[[str], Any], name: str, prefix: str) -> Any:
    try:
        return tensors(name)
    except KeyError:  # a file of the model without its head has no prefix
        return tensors(name.removeprefix(prefix))


def split_rows(tensor: Any, link: Link, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Returns the weights of ours that one tensor of theirs holds, by name."""
    rows = tensor.t() if link.transposed else tensor
    parts, begin = {}, 0
    by_head = rows.reshape(link.groups, -1, *rows.shape[1:])
    for name in link.ours:
        end = begin + shapes[name][0] // link.groups
        parts[name] = by_head[:, begin:end].reshape(shapes[name])
        begin = end
    return parts


def _read_folder(folder: Path, config: ModelConfig) -> SecondReader:
    tensors, scheme_of, shapes = open_safetensors(folder), read_schemes(folder), config.parameters()

    def read_parts(name: str, stride: int) -> Parts:
        scheme = scheme_of(name)
        if scheme is None:
            raise _NotRead(f"config.json states no scheme for {name}")
        parts = read_stored(tensors, name, scheme["bits"], scheme["minimums"], shapes[name][1])
        return {kind: part[::stride] for kind, part in parts.items()}

    def read_numbers(name: str, stride: int) -> Array:
        if (scheme := scheme_of(name)) is None:
            return _to_numpy(tensors(name)[::stride])
        return widen_parts(read_parts(name, stride), scheme["group"])

    return SecondReader(read_numbers, read_parts)


def _read_gguf(path: Path, config: ModelConfig) -> tuple[Reader, PartsReader]:
    header = read_header(path)
    places = architectures.find(header.architecture).places(config.n_layer)

    def read_numbers(name: str, stride: int) -> Array:
        place = places[name]
        begin, end = place.rows(header.tensors[place.tensor].shape[0])
        if place.of == 1:
            return header.dequantize(place.tensor, stride)
        return header.dequantize(place.tensor)[begin:end:stride]

    def read_parts(name: str, stride: int) -> Parts:
        place = places[name]
        stored = header.tensors[place.tensor]
        begin, end = place.rows(stored.shape[0])
        return split_blocks(header.byte_rows(place.tensor)[begin:end:stride], stored.type)

    return read_numbers, read_parts


def _to_numpy(tensor: Any) -> Array:
    """Returns a tensor as float64 or float32, which hold every number of the narrower types exactly."""
    wide = tensor if tensor.dtype == torch.float64 else tensor.float()
    return np.asarray(wide.contiguous().numpy())


def describe_difference(ours: Array, theirs: Array, stride: int = 1) -> str:
    """Returns where two weights differ, "" where they are equal bit for bit (any NaN equals any other)."""
    if ours.shape != theirs.shape:
        return f"the shape is {ours.shape} here and {theirs.shape} there"
    if ours.dtype != theirs.dtype:
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    bits = np.dtype(f"u{ours.dtype.itemsize}")
    is_other = np.ascontiguousarray(ours).view(bits) != np.ascontiguousarray(theirs).view(bits)
    if not is_other.any():
        return ""
    is_other &= ~(np.isnan(ours) & np.isnan(theirs))
    count = int(is_other.sum())
    if not count:
        return ""
    index = tuple(int(i) for i in np.argwhere(is_other)[0])
    at = ",".join(map(str, (index[0] * stride, *index[1:])))
    differ = f"{count:,} of {ours.size:,} numbers differ"
    return f"[{at}] is {ours[index]!s} here and {theirs[index]!s} there; {differ}"


# ---- the fast engine


def measure_engine_weights(subject: Subject) -> Finding:
    """Compares the parameters of the fast engine with the weights, each rounded once to the type."""
    count, quantized = 0, 0
    for dtype, code in HELD.items():
        module = subject.module(dtype, subject.layers)
        if (wrong := _find_wrong_parts(subject, module)) is not None:
            return wrong
        quantized = len(module.quantized_weights())
        count += quantized
        for name, held in module.named_parameters():
            if name not in subject.weights:
                continue
            if name in subject.quantized:
                message = f"{name} is quantized, and the fast engine holds it as floats"
                return Finding(Verdict.BUG, "not quantized", name, message)
            count += 1
            stride = -(-held.numel() // MOST_OF_ONE)
            rows = subject.weights[name][::stride]
            if found := _differs_from_rounded(rows, held.detach().cpu()[::stride]):
                message = (
                    f"in {code} the fast engine's {name} is not the weight rounded to that type: {found}"
                )
                return Finding(Verdict.BUG, found, name, message)
    some = f", {quantized:,} of them quantized in each" if quantized else ""
    some += f"; a sample of the first {subject.layers} blocks" if subject.is_large else ""
    return Finding(Verdict.EQUAL, f"{count:,} parameters in {', '.join(HELD.values())}{some}")


def _find_wrong_parts(subject: Subject, module: Transformer) -> Finding | None:
    """Returns BUG at a part of a quantized weight that the fast engine does not hold bit for bit, or at a
    weight whose numbers are not scale · integer (+ minimum) in float32, rounded once to the type."""
    code = HELD[module.dtype]
    for name, held in module.quantized_weights().items():
        weight = subject.weights[name]
        assert isinstance(weight, QuantizedWeight)
        at, found = compare_parts(name, held.to_weight(), weight.parts())
        if found:
            message = f"in {code} the fast engine's {at} is not the one that was read: {found}"
            return Finding(Verdict.BUG, found, at, message)
        stride = -(-weight.size // MOST_OF_ONE)
        wanted = widen_parts(weight[::stride].parts(), weight.group)
        if found := _differs_from_rounded(wanted, held.dequantize().detach().cpu()[::stride]):
            message = f"in {code} the fast engine's {name} is not scale · integer (+ minimum): {found}"
            return Finding(Verdict.BUG, found, name, message)
    return None


def _differs_from_rounded(weight: Array, held: torch.Tensor) -> str:
    """Returns where a parameter is not the weight in the parameter's own type."""
    code = HELD.get(held.dtype, "F64")
    try:
        wanted = encode(np.asarray(weight), code)
    except UsageError:  # a number beyond the type's range is infinite there
        return ""
    bits = held.contiguous().view(torch.int16).numpy() if code == "BF16" else held.contiguous().numpy()
    return describe_difference(decode(bits.view(wanted.dtype), code), decode(wanted, code))
