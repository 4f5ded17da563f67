"""Quantized weights and what they cost: `pellucid.quantize`, the quantization bill, and one line about it."""

import dataclasses
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.arguments import check_int, check_one_of, check_path, check_text, to_list
from pellucid.base.dtypes import FLOAT_STORAGE
from pellucid.base.errors import ConfigError, FileError, UsageError, show
from pellucid.base.files import UNPAIRED, check_distinct, check_output
from pellucid.base.formatting import format_bytes, format_number
from pellucid.base.quantized import BLOCK, SCHEMES, Scheme, is_quantizable
from pellucid.formats import model_folder
from pellucid.formats.folder import MODEL_FOLDER, has_file
from pellucid.formats.pretrained import LazyWeights, Pretrained, Weight, as_lazy, parameter_count
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.formats.resolve import open_model
from pellucid.formats.rope_layout import in_layout
from pellucid.model import Model, to_model
from pellucid.parts.positions.rope import Rope

if TYPE_CHECKING:
    from pellucid.evaluation.quantization.bill import BillSubject, Progress, QuantizationBill

ROW = "row"
"""The group that is a whole row: one scale for each output channel."""
FILE, GGUF = "file", "gguf"
GROUPS: dict[int, int | None] = {8: None, 4: BLOCK}
"""The group of each number of bits where none is given."""
TOKENS = 1000
"""Tokens of the sample that a bill is measured on."""
MOST_TOKENS = 100_000
BILL = "bill.json"
"""The name of the bill in the folder of a quantized model."""


def quantize(
    model: "Model | str | os.PathLike[str]",
    /,
    bits: int = 8,
    group: int | str | None = None,
    keep: str | Sequence[str] = (),
) -> Model:
    """Returns the model with the matrices quantized to integers of 8 or 4 bits, weights only.

    `group` inputs of a row share a scale: "row", the default of 8 bits, or a multiple of 32, which is the
    default of 4 bits. `keep` are patterns of parameters that stay as they are. `save` writes the folder.

    >>> import pellucid
    >>> model = pellucid.quantize("abcd", bits=8)
    >>> model.generate("A B", max_new_tokens=2)
    ' B B'
    """
    model = to_model(model)
    return Model(_quantize(model, bits, group, keep), model.device, model.dtype)


def _quantize(model: "Model", bits: Any, group: Any, keep: Any) -> Pretrained:
    scheme = resolve_scheme(model.pretrained, bits, group)
    patterns = [check_text("keep", one) for one in to_list(keep)]
    if types := list_types(model.pretrained):
        raise UsageError(
            f"{model.name} is quantized already ({describe_types(types)}), and quantizing it again would add "
            "to its errors: quantize the float model that it was made from."
        )
    return quantize_pretrained(_as_it_is(model), scheme, patterns)


def make_scheme(bits: Any, group: Any = None) -> Scheme:
    """Returns the scheme that bits and a group mean, for a model of any size."""
    bits = check_int("bits, 8 or 4,", bits)
    if group is None:
        return Scheme(bits, GROUPS.get(bits))
    if isinstance(group, str):
        if group == ROW:
            return Scheme(bits)
        raise UsageError(f"group must be a multiple of {BLOCK}, or {ROW!r}, not {show(group)}.")
    return Scheme(bits, check_int("group", group))


def resolve_scheme(model: Pretrained, bits: Any, group: Any = None) -> Scheme:
    """Returns the scheme that bits and a group mean for a model."""
    scheme = make_scheme(bits, group)
    if group is None or scheme.group is None:
        return scheme
    widest = max(shape[1] for name, shape in model.config.parameters().items() if is_quantizable(name, shape))
    if scheme.group > widest:
        raise UsageError(
            f"a group of {group:,} is longer than a row: the longest of {model.name} has {widest:,} numbers. "
            f"Use group={ROW!r} (--group {ROW}), one scale for each row."
        )
    return scheme


def list_types(model: Pretrained) -> dict[str, str]:
    """Returns the type of each weight that the model holds quantized."""
    return as_lazy(model.weights).types


def list_stored_types(model: Pretrained) -> dict[str, str]:
    """Returns the type of each weight that the model's file has quantized, whether or not it is widened."""
    types = model.provenance.types
    return {name: type for name, type in types.items() if type not in FLOAT_STORAGE}


def _as_it_is(model: "Model") -> Pretrained:
    """Returns the model with what has been trained."""
    return dataclasses.replace(model.pretrained, weights=model.weights)


# ---- the bill


def compute_bill(
    model: "Model",
    bits: int | None = None,
    group: int | str | None = None,
    keep: Any = (),
    *,
    weights: str | None = None,
    against: Any = None,
    on: str | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    progress: "Progress" = lambda what, done, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> "QuantizationBill":
    """Returns what quantizing a model costs: bytes, errors, and what its predictions lose on a sample text.

    With `weights="file"` it is the bill of the blocks that the model's own file has. The reference is the
    model in float32, or `against`, its original. `on` is a text, a file or other data; by default eight
    texts of different domains, of which `tokens` are predicted. `say` is called with what takes long.
    """
    from pellucid.evaluation.quantization.bill import measure_bill
    from pellucid.evaluation.quantization.sample import read_sample

    tokens = check_int("tokens", tokens, least=1, most=MOST_TOKENS)
    subject = _make_subject(model, bits, group, keep, weights, against)
    sample = read_sample(model.pretrained, None if on is None else check_text("on", on), tokens)
    return measure_bill(
        subject,
        sample,
        device=model.resolve_device(),
        seed=check_int("seed", seed, least=0),
        progress=progress,
        say=say,
    )


def _make_subject(
    model: "Model", bits: Any, group: Any, keep: Any, weights: Any, against: Any
) -> "BillSubject":
    from pellucid.evaluation.quantization.bill import BillSubject

    quantized = make_quantized(model, bits, group, keep, weights)
    types = list_types(quantized)
    if weights is None:
        scheme = str(resolve_scheme(model.pretrained, bits, group))
    else:
        types = list_stored_types(quantized) | types
        scheme = f"the file's own {describe_types(types)} blocks"
    if against is None:
        reference, name = _as_it_is(model).to_floats().weights, "float32"
        notes = _explain_reference(model.pretrained, weights)
    else:
        original = open_model(check_path("against", against))
        reference, name = _read_reference(model.pretrained, original), f"{original.short_name} in float32"
        notes = []
    patterns = tuple(to_list(keep))
    return BillSubject(quantized, quantized.weights, types, reference, name, scheme, patterns, tuple(notes))


def check_settings(bits: Any, group: Any, keep: Any, weights: Any) -> None:
    """Raises for settings that no model can be quantized with; call it before a model is opened."""
    if weights is None:
        if bits is None:
            raise UsageError("give the bits of a weight, 8 or 4 (--bits 8).")
        make_scheme(bits, group)
        return
    if isinstance(weights, str) and weights in SCHEMES:
        raise UsageError(
            f"weights={weights!r} is for what runs a model: to quantize one, give the bits of a weight "
            f"(--bits {SCHEMES[weights][0]})."
        )
    check_one_of("weights", weights, (FILE,))
    if bits is not None or group is not None or to_list(keep):
        raise UsageError("weights='file' are the blocks of the file as they are: omit bits, group and keep.")


def make_quantized(model: "Model", bits: Any, group: Any, keep: Any, weights: Any) -> Pretrained:
    """Returns the model quantized to some bits, or as its file has it."""
    check_settings(bits, group, keep, weights)
    if weights is None:
        return _quantize(model, bits, group, keep)
    stored = model.pretrained.as_stored()
    if not list_stored_types(stored) and not list_types(stored):
        raise UsageError(
            f"the file of {model.name} has no quantized weights: give the bits of a weight, 8 or 4 (--bits "
            "8)."
        )
    return stored


def _read_reference(model: Pretrained, original: Pretrained) -> Mapping[str, Any]:
    """Returns the float weights of the original of a model, in the layout of its rotary positions."""
    other = original.to_floats()
    shapes, wanted = other.config.parameters(), model.config.parameters()
    if shapes != wanted:
        different = next(one for one in {**shapes, **wanted} if shapes.get(one) != wanted.get(one))
        raise ConfigError(
            f"{other.name} is not the original of {model.name}: {different} is "
            f"{shapes.get(different, 'missing')} there and {wanted.get(different, 'missing')} here."
        )
    positions = model.config.positions
    if isinstance(positions, Rope):
        return in_layout(other.config, other.weights, positions.layout)[1]
    return other.weights


def _explain_reference(model: Pretrained, weights: str | None) -> list[str]:
    """Returns what a bill without the original does not say, where the file is quantized."""
    types = list_stored_types(model)
    if not types:
        return []
    compared = (
        f"The reference is the file's {describe_types(types)} blocks, widened to float32."
        if weights is None
        else "The blocks are compared with their own numbers in float32, so that nothing differs."
    )
    return [
        f"{compared} What that quantization cost cannot be known from the file alone, since its float "
        "original is not in it: --against MODEL compares with the original."
    ]


def describe_types(types: Mapping[str, str]) -> str:
    return " and ".join(sorted(set(types.values())))


# ---- the folder


def check_outputs(source: Pretrained, output: Path | None, plot: Path | None, force: bool) -> None:
    """Raises unless a folder and a plot may be written there; call it before the work."""
    check_distinct([path for path in (output, plot) if path is not None])
    if output is not None:
        check_output(output, MODEL_FOLDER, force, folder=True)
        place = source.provenance.path
        if place.exists() and output.resolve() in (place.resolve(), *place.resolve().parents):
            raise FileError(f"{output}: the model's own weights are read from there. Give another folder.")
    if plot is not None:
        from pellucid.evaluation.quantization import report

        report.BILL.check(plot, force)


def write_quantized(
    folder: str | Path,
    quantized: Pretrained,
    bill: "QuantizationBill | None" = None,
    force: bool = False,
    progress: "Progress" = lambda what, done, total: None,
) -> None:
    """Writes a quantized model as a folder of ours, with its bill, whole or not at all."""
    beside = {}
    if bill is not None:
        beside[BILL] = bill.report().to_json().encode("utf-8", UNPAIRED)
    counted = dataclasses.replace(quantized, weights=_count_reads(as_lazy(quantized.weights), progress))
    model_folder.write(folder, counted, force=force, beside=beside)


def _count_reads(weights: LazyWeights, progress: "Progress") -> LazyWeights:
    """Returns weights that report how many numbers were read of them, each weight once."""
    sizes = {name: math.prod(tensor.shape) for name, tensor in weights.tensors.items()}
    seen, total = set[str](), sum(sizes.values())

    def count(name: str, weight: Weight) -> Weight:
        seen.add(name)
        progress("writing", sum(sizes[one] for one in seen), total)
        return weight

    return LazyWeights({name: tensor.map(partial(count, name)) for name, tensor in weights.tensors.items()})


def describe_written(source: Pretrained, folder: Path) -> list[str]:
    """Returns lines about a quantized model that was written: its bytes beside those of its source, where it
    lies, and a command that runs it."""
    written = open_model(folder)
    count = parameter_count(written.config.parameters())
    before, after = 4 * count, written.provenance.bytes
    own = source.provenance.bytes
    file = f" ({format_bytes(own)} in its file)" if own and own != before else ""
    run = "chat" if written.chat_template is not None else "generate"
    prompt = ' "Once upon a time"' if run == "generate" and written.tokenizer is not None else ""
    return [
        f"{source.name}: {format_bytes(before)} in float32{file} → {format_bytes(after)}, "
        f"{8 * after / count:.2f} bits a weight, as {describe_types(list_types(written))}",
        f"written to {folder}; run it: pellucid {run} {shlex.quote(str(folder))}{prompt}",
    ]


# ---- one line


def describe_cost(model: "Model") -> str:
    """Returns how a model's weights are held, what they were quantized from where that was quantized itself,
    and, where a bill lies beside them, what that costs; "" where they are floats as in their file."""
    pretrained = model.pretrained
    held, stored = list_types(pretrained), list_stored_types(pretrained)
    if not held:
        return f"weights: {model.dtype}, widened from the file's {describe_types(stored)}" if stored else ""
    is_own = held.keys() <= stored.keys() and all(held[name].upper() == stored[name].upper() for name in held)
    size = _count_stored(pretrained) if is_own else _measure_bytes(model)
    bits = 8 * size / parameter_count(pretrained.config.parameters())
    kind = describe_types(held)
    if is_own and pretrained.provenance.format == GGUF:
        kind = f"the file's own {kind} blocks"
    again = f", quantized from the file's {describe_types(stored)}, widened" if stored and not is_own else ""
    return f"weights: {kind}, {bits:.3g} bits a weight{_describe_bill(model) if is_own else again}"


def _count_stored(model: Pretrained) -> int:
    """Returns the bytes of the weights in their file; of a GGUF file without its metadata and tokenizer."""
    from pellucid.formats.gguf.quants import BY_NAME

    if model.provenance.format != GGUF:
        return model.provenance.bytes
    types, shapes = model.provenance.types, model.config.parameters()
    return sum(BY_NAME[types[name]].bytes(math.prod(shape)) for name, shape in shapes.items())


def _measure_bytes(model: "Model") -> int:
    """Returns the bytes of the weights as the module holds them, the bits of integers packed."""
    from pellucid.engine.quantized_tensor import QuantizedTensor

    modules = [part for part in model.module.modules() if isinstance(part, QuantizedTensor)]
    floats = sum(parameter.nbytes for parameter in model.module.parameters())
    return floats + sum(part.to_weight().nbytes for part in modules)


def _describe_bill(model: "Model") -> str:
    """Returns the figures of the bill that lies beside a model; "" where there is none."""
    folder = model.pretrained.provenance.path
    if not has_file(folder, BILL):
        return ""
    from pellucid.evaluation.quantization.report import read_figures

    try:
        reference, kl, flips, tokens = read_figures(folder / BILL).values()
    except FileError:
        return f"; its {BILL} cannot be read"
    return (
        f"; against {reference} KL {format_number(kl, 2)} nats per token and {flips:.1%} top-1 changes "
        f"({tokens:,} tokens)"
    )
