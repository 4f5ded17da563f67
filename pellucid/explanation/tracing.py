"""`pellucid.trace`: a run of the specification with every number kept, and its file."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.arguments import (
    check_bool,
    check_float,
    check_function,
    check_int,
    check_one_of,
    check_path,
    check_text,
    check_type,
)
from pellucid.base.dtypes import Array, decode, dtype_code, encode
from pellucid.base.errors import ConfigError, TokenError, UsageError, did_you_mean, show, unknown
from pellucid.base.quantized import QuantizedWeight
from pellucid.config.cost import cost, total
from pellucid.engine.device_memory import check_memory
from pellucid.explanation.trace import Trace
from pellucid.formats.pretrained import LazyWeights
from pellucid.formats.resolve import open_model
from pellucid.model import Model, to_model
from pellucid.parts import find, kinds
from pellucid.parts.optimizers import OptimizerConfig
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, join, train
from pellucid.text.prompts import Prompt, PromptBatch, make_batch

PATHS = ("reference", "eager", "fused", "compiled")
MOST_ROWS = 4
"""Prompts of a batch up to which a position is labelled with the token of each."""


def trace(
    model: "Model | str | os.PathLike[str]",
    /,
    prompt: Prompt | Sequence[Prompt],
    *,
    target: Prompt | Sequence[Prompt] | None = None,
    backward: bool = False,
    path: str = "reference",
    smoothing: float = 0.0,
    update: str | None = None,
    steps: int = 1,
    lr: float | None = None,
    only: str | Sequence[str] = (),
    freeze: str | Sequence[str] = (),
    clip: float | None = None,
    settings: Mapping[str, float] | None = None,
    raw_tokens: bool = False,
    by_head: bool = False,
    make_tape: Callable[[], Tape] = Tape,
    **more_settings: float,
) -> Trace:
    """Runs the specification on a prompt and returns every number, with gradients and updates where asked.

    Several prompts are one batch: shorter ones are padded on the right, and the padding is masked; what a
    table shows at "(padding)" is a result of no prompt. The tokens of `target`, one target for each prompt,
    follow the prompt; the loss is the mean over them, with label `smoothing`, and `backward` appends its
    gradients.

    With `update` (sgd, adamw, …) the model is trained for `steps` updates at the rate `lr` (by default 1),
    and VALUE@k is a value of the forward pass after k of them. `only` and `freeze` are patterns of parameter
    names, `clip` limits the norm of the gradients, and `settings`, or further keywords such as `beta2=0.95`,
    are those of the update rule; their defaults are those of a recipe.

    `path` is the specification, or a path of the fast engine ("eager", "fused", "compiled"), whose own
    numbers then stand on the specification's program. With `raw_tokens`, tokens are labelled as the
    tokenizer's file writes them. With `by_head`, each block's attn_out is the sum of `attn.head_out`, what
    each head adds to the residual stream, over the heads. `make_tape` returns the tape on which the
    specification runs, a new one for each update.

    >>> import pellucid
    >>> run = pellucid.trace("abcd", "A B", target="C", update="sgd", lr=0.5)
    >>> run.tape["probs"][0, 1].round(4), run.tape["probs@1"][0, 1].round(4)
    (array([0.1762, 0.3238, 0.3238, 0.1762]), array([0.0598, 0.3246, 0.5557, 0.0598]))
    >>> pellucid.trace("abcd", ["A B", "C"]).tape["probs"].shape
    (2, 2, 4)
    """
    model = to_model(model)
    check_bool("backward", backward)
    check_bool("raw_tokens", raw_tokens)
    check_bool("by_head", by_head)
    check_one_of("path", path, PATHS)
    check_function("make_tape", make_tape)
    steps = check_int("steps", steps, least=1, most=1000)
    smoothing = check_smoothing(smoothing)
    objective = {"smoothing": smoothing} if smoothing else {}
    if settings is not None:
        check_type("settings", settings, Mapping, "a table of an update rule's settings")
    request = read_update(update, steps, lr, only, freeze, clip, {**(settings or {}), **more_settings})
    batch = make_batch(model, prompt, target)
    _check_memory(model, batch)
    if batch.targets is None and (backward or request or smoothing):
        raise TokenError("a loss needs a target: give the text that should follow.")
    if request and (quantized := _find_quantized(model)):
        raise UsageError(
            f"the weight {quantized} of {model.name} is quantized, and integers have no gradient, so it "
            "cannot be updated: start from a model of floats."
        )
    if request and path != "reference":
        raise UsageError(f"an update is computed by the specification; omit path={path!r}.")
    if backward and path == "compiled":
        raise UsageError('compiled code shows its forward pass alone; gradients are seen with path="eager".')
    dtype, types = "float64", dict[str, str]()
    run_settings: dict[str, Any] = {
        "objective": objective, "padding": batch.padding, "by_head": by_head, "make_tape": make_tape
    }  # fmt: skip
    if path != "reference":
        from pellucid.explanation import engines

        done = engines.run(
            model.module,
            batch.ids,
            batch.targets,
            path=path,
            backward=backward,
            padding=batch.padding,
            smoothing=smoothing,
            by_head=by_head,
        )
        tape, dtype, types = done.to_tape(), model.dtype, dict(done.types)
    elif request:
        optimizer, choice = request
        inputs = (model.config, model.weights, batch.ids, batch.targets)
        tape = join(train(*inputs, optimizer, steps, **(run_settings | choice)))
    else:
        inputs = (model.config, model.weights, batch.ids, batch.targets)
        tape = forward(*inputs, **run_settings)
        if backward:
            tape.backward(tape.ref("loss"))
    tokens = [[model.token(id) for id in row] for row in batch.rows]
    run: dict[str, Any] = {
        "model": model.short_name,
        "tokens": tokens[0] if len(tokens) == 1 else tokens,
        "ids": batch.rows,
        "targets": batch.targets,
        "dtype": dtype,
        "path": path,
    }
    if types:  # the fast engine keeps some values wider than others
        run["types"] = {name: type for name, type in types.items() if name in tape.values}
    return Trace(tape, run, _labels(model, batch, raw_tokens))


def _check_memory(model: "Model", batch: PromptBatch) -> None:
    """Raises a ResourceError where the values of the forward pass alone exceed the free memory: scores and
    patterns grow with the square of the length."""
    length = max(map(len, batch.rows))
    needed = total(cost(model.config, len(batch.rows), length, width=8)).activation_bytes
    check_memory(needed, f"the values of {length:,} tokens", "shorten the prompt", "cpu")


def _find_quantized(model: "Model") -> str | None:
    """Returns the first quantized weight, None where there is none."""
    weights = model.weights
    return next((name for name in weights if isinstance(weights[name], QuantizedWeight)), None)


def _labels(model: "Model", batch: PromptBatch, raw: bool) -> dict[str, list[str]]:
    """Returns the text at each place of the axes t, s and v, and of b where there are several prompts.

    A token has a mark for each space, or is `raw`, as the tokenizer's file writes it; it is a number where it
    has no text. Where the prompts have different tokens at a position, its label lists them.
    """

    def text(id: int) -> str:
        return model.token(id) if raw else model.token_labels[id]

    rows = [[text(id) for id in row] for row in batch.rows]
    labels = {"v": [text(id) for id in range(model.config.vocab_size)] if raw else model.token_labels}
    if len(rows) > 1:
        labels["b"] = [p if isinstance(p, str) else " ".join(map(text, p)) for p in batch.prompts]
    if len(rows) <= MOST_ROWS:
        places = range(max(map(len, rows)))
        columns = (dict.fromkeys(row[t] for row in rows if t < len(row)) for t in places)
        labels["t"] = labels["s"] = ["|".join(column) for column in columns]
    return {axis: labels[axis] for axis in ("b", "t", "s", "v") if axis in labels}


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Returns the trace of a file; the weights that it refers to are read from their model and checked."""
    from pellucid.explanation import trace_file

    return trace_file.read(Path(check_path("path", path)), _rounded_weights)


def _rounded_weights(model: str, dtype: str) -> LazyWeights:
    """Returns a model's weights as a run in that type held them."""
    found = open_model(model)

    def read(name: str) -> Array:
        value, type = np.asarray(found.weights[name]), dtype_code(dtype) or "F64"
        return value if type == "F64" else decode(encode(value, type), type)

    return LazyWeights.from_function(found.config.parameters(), read)


def write_trace(model: "Model", trace: Trace, path: str | Path, force: bool = False) -> list[Path]:
    """Writes a trace of this model and returns its files: large values lie beside the .json file, and weights
    that lie in the model's own file are referred to. With `force` it may replace a trace, never another
    file."""
    file = Path(check_path("path", path))
    source = model.pretrained.provenance
    where = str(source.path.resolve()) if source.path.exists() and source.format != "toml" else None
    updated = any("@" in name for name in trace.tape.values)
    if updated or any(model.modified_weight(name) is not None for name in model.config.parameters()):
        where = None  # no file has these weights
    from pellucid.explanation import trace_file

    return trace_file.write(trace, file, where, force)


# ---- the arguments of an update


DEFAULT_RATE = 1.0
"""The learning rate of an update, by default: one step along the gradient itself."""
ARGUMENTS = (
    "target", "backward", "path", "smoothing", "update", "steps", "lr", "only", "freeze", "clip", "settings",
    "raw_tokens", "at", "depth", "top", "lines", "tokens", "batch",
)  # fmt: skip
"""The arguments of `trace` and `explain`, for the hint to a misspelled one."""


def read_update(
    update: str | None,
    steps: int,
    lr: float | None,
    only: str | Sequence[str],
    freeze: str | Sequence[str],
    clip: float | None,
    settings: Mapping[str, Any],
) -> tuple[OptimizerConfig, dict[str, Any]] | None:
    """Returns the optimizer, and the other arguments of `reference.optimizers.update`; None without an
    update.

    The settings are the fields of the rule's `OptimizerConfig`, and so are their defaults.
    """
    for name in settings:
        check_text("a name in settings", name)
    patterns = {"only": _check_patterns("only", only), "freeze": _check_patterns("freeze", freeze)}
    if update is None:
        given = {"lr": lr is not None, **patterns, "clip": clip is not None}
        names = [*settings, *(name for name, is_given in given.items() if is_given), *["steps"] * (steps > 1)]
        if wrong := [name for name in settings if name not in _known_settings()]:
            raise UsageError(f"there is no argument {wrong[0]!r}.{did_you_mean(wrong[0], ARGUMENTS)}")
        if names:
            raise UsageError(f"{names[0]!r} belongs to an update: give update='sgd', for example.")
        return None
    kind = check_one_of("update", update, kinds("optimizers"))
    rate = DEFAULT_RATE if lr is None else check_float("lr", lr)
    choice = {"lr": rate, "only": patterns["only"] or ["*"]}
    if patterns["freeze"]:
        choice["freeze"] = patterns["freeze"]
    if clip is not None:
        choice["clip"] = check_float("clip", clip, least=0)
        if not choice["clip"]:
            raise UsageError("clip must be above 0: gradients are scaled down to that norm.")
    return _make_optimizer(kind, settings), choice


def _known_settings() -> set[str]:
    parts = (find("optimizers", kind) for kind in kinds("optimizers"))
    return {field.name for part in parts for field in dataclasses.fields(part)}


def _make_optimizer(kind: str, settings: Mapping[str, Any]) -> OptimizerConfig:
    part = find("optimizers", kind)
    fields = {field.name: field.type for field in dataclasses.fields(part) if field.name != "lr"}
    values = {}
    for name, value in settings.items():
        if name not in fields:
            if not fields:
                raise UsageError(f"{kind} has no setting but lr; omit {name}.")
            raise UsageError(unknown(f"a setting of {kind}", name, fields))
        number = check_float(name, value)
        values[name] = int(number) if fields[name] is int and number == int(number) else number
    try:
        optimizer = part(**values)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    assert isinstance(optimizer, OptimizerConfig)
    return optimizer


def check_smoothing(value: Any) -> float:
    """Returns a label smoothing: a share from 0 to 1."""
    return check_float("smoothing", value, least=0, most=1)


def _check_patterns(parameter: str, given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UsageError(f"{parameter} must be a pattern or several, not {show(given)}.")
    return [check_text(parameter, pattern) for pattern in given]
