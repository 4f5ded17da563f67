"""The tape: a computation as a list of named steps, with its values kept beside it.

    tape = Tape()
    x = tape.parameter("x", 3.0)
    y = tape("y", power, x, exponent=2)
    tape.backward(y)
    tape["d.x"]          # 6.0

Forward, backward and update append the same kind of step, so whatever reads a tape is written once
for all three. The tape needs no config; the transformer is one of its users, the first lessons others.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.arguments import check_float, check_int, check_text, check_type
from pellucid.base.errors import AddressError, TapeError, UsageError, did_you_mean, show
from pellucid.base.names import Name
from pellucid.reference.op import Array, Attrs, Call, Op, Ref
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.indexing import are_cells, put

Edits = Mapping[str, Mapping[int, float]]
"""Numbers that a reader gave: by name, and by place in storage order."""
ANY_AXES = ("i", "j", "k", "l", "m", "n")
"""The axes of a value without a description."""


@dataclass(frozen=True)
class Step:
    """One line of the program."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    attrs: Attrs
    phase: str

    def run(self, values: Mapping[str, Array]) -> Array:
        """Returns the value of this step, computed from the given values of its inputs."""
        made = self.op.forward(*(values[name] for name in self.inputs), **self.attrs)
        # the order of a sum follows the layout: a replay needs the same one
        return np.asarray(made, order="C")


class Tape:
    """Values by name, the steps that computed them, and aliases: further names of a value.

    >>> from pellucid import Tape, ops
    >>> tape = Tape()
    >>> x = tape.parameter("x", [1.0, 2.0])
    >>> tape.backward(tape("loss", ops.einsum, x, x, spec="i,i->"))
    >>> tape["loss"], tape["d.x"]
    (array(5.), array([2., 4.]))
    """

    def __init__(self, dtype: Any = np.float64, edits: Edits | None = None) -> None:
        """With `edits`, an edited step is recorded as two: NAME.computed (what the formula gave) and NAME
        (with the given cells)."""
        self.dtype = _check_float_type(dtype)
        self.edits = {} if edits is None else _check_edits(edits)
        self.updates = 0
        """How many updates came before. A value is edited by its name after `training.join`, NAME@k."""
        self.values: dict[str, Array] = {}
        self.steps: dict[str, Step] = {}
        self.aliases: dict[str, str] = {}
        self.roles: dict[str, str] = {}
        self.about: dict[str, Name] = {}
        self.phase = "fwd"

    # ---- adding values

    def parameter(self, name: str, value: Any) -> Ref:
        """Adds a leaf that gets a gradient. Before the first update, an edit of it is a changed leaf."""
        array = _to_array(value, self.dtype)
        return self._leaf(name, array if self.updates else self._edit(name, array), "param")

    def integer_parameter(self, name: str, value: Array) -> Ref:
        """Adds a parameter of integers, which keep their dtype and get no gradient."""
        if check_text("name", name) in self.edits:
            raise TapeError(f"{name!r} holds the integers of a quantized weight: edit the weight instead.")
        return self._leaf(name, _to_array(value), "param")

    def constant(self, name: str, value: Any) -> Ref:
        """Adds a leaf without a gradient: ids, masks, tables, samples. Integers keep their dtype."""
        array = _to_array(value)
        kept = array if array.dtype.kind in "iu" else _to_array(array, self.dtype)
        return self._leaf(name, self._edit(name, kept), "leaf")

    def __call__(self, name: str, op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        """Runs the operation and keeps its value under the name, as one step; as two where it is edited."""
        check_type("op", op, Op, "an operation", "`pellucid.ops` has them.")
        given = self.edits.get(self.joined_name(check_text("name", name)))
        if not given:
            return self._append(name, op, inputs, attrs)
        computed = self._append(computed_name(name), op, inputs, attrs)
        return self._append(name, put, (computed,), _put_attrs(given))

    def _append(self, name: str, op: Op, inputs: Sequence[Ref], attrs: Attrs) -> Ref:
        names = tuple(_check_ref("an input", ref).name for ref in inputs)
        self._must_be_new(name)
        step = Step(name, op, names, attrs, self.phase)
        for read in names:
            if read not in self.values:
                raise TapeError(f"step {name!r} reads {read!r}, which is not on this tape.")
        try:
            value = self._run(step)
        except (ValueError, IndexError, TypeError, KeyError) as error:
            shapes = ", ".join(f"{read} {self.values[read].shape}" for read in names)
            raise TapeError(f"step {name!r} ({op.name}) cannot read {shapes}: {error}.") from error
        return self._keep(name, value, step)

    def alias(self, name: str, ref: Ref) -> Ref:
        """Adds another name for a value; it is not a step."""
        self._must_be_new(name)
        self.aliases[name] = _check_ref("ref", ref).name
        return ref

    def scope(self, prefix: str) -> "TapeScope":
        """Returns this tape under a prefix: all names get it."""
        return TapeScope(self, prefix)

    def describe(self, ref: Ref, axes: str = "", symbol: str = "", meaning: str = "") -> Ref:
        """Gives a value its own glossary entry, for views to print."""
        _check_ref("ref", ref)
        for parameter, text in (("axes", axes), ("symbol", symbol), ("meaning", meaning)):
            check_text(parameter, text)
        letters = tuple(axes.split()) or ANY_AXES[: len(ref.shape)]
        self.about[ref.name] = Name(ref.name, letters, symbol or ref.name, meaning, engines="reference")
        return ref

    def joined_name(self, name: str) -> str:
        """Returns the name of a step's value once the tapes of several updates are joined: NAME@k."""
        return f"{name}@{self.updates}" if self.updates and "@" not in name else name

    def _edit(self, name: str, value: Array) -> Array:
        """Returns a leaf with the cells that are given: no step computes it."""
        if check_text("name", name) not in self.edits:
            return value
        if value.dtype.kind != "f":
            raise TapeError(f"{name!r} holds whole numbers, which select rows: give other ids instead.")
        given, edited = self.edits[name], self._copy(value)
        if not are_cells(value.shape, **_put_attrs(given)):
            raise TapeError(f"{name!r} has {value.size} cells, which {dict(given)} do not fit.")
        edited.reshape(-1)[list(given)] = list(given.values())
        return edited

    def _copy(self, value: Array) -> Array:
        return value.copy()

    def _run(self, step: Step) -> Array:
        return step.run(self.values)

    def _leaf(self, name: str, value: Array, role: str) -> Ref:
        self._must_be_new(name)
        self.values[name], self.roles[name] = value, role
        return Ref(name, value.shape)

    def _keep(self, name: str, value: Array, step: Step) -> Ref:
        self.values[name], self.steps[name] = value, step
        self.roles[name] = {"fwd": "act", "bwd": "grad", "upd": "update"}[step.phase]
        return Ref(name, value.shape)

    def _must_be_new(self, name: str) -> None:
        if check_text("name", name) in self.values or name in self.aliases:
            raise TapeError(f"{name!r} is already on this tape; a name stands for one value.")

    # ---- looking values up

    def resolve(self, name: str) -> str:
        """Returns the name of the value behind a name: an alias's target, also for its gradient; X@0 is X."""
        if check_text("name", name) not in self.values:
            name = name.removesuffix("@0")
        while name in self.aliases:
            name = self.aliases[name]
        if name not in self.values and name.startswith("d."):
            of = self.resolve(name.removeprefix("d."))
            if f"d.{of}" != name:
                return self.resolve(f"d.{of}")
        return name

    def __contains__(self, name: str) -> bool:
        return self.resolve(name) in self.values

    def __getitem__(self, name: str | Ref) -> Array:
        return self.values[self.ref(name.name if isinstance(name, Ref) else name).name]

    def ref(self, name: str) -> Ref:
        """Returns the reference to a value on the tape."""
        found = self.resolve(name)
        if found not in self.values:
            raise AddressError(
                f"this tape has no value {name!r}.{did_you_mean(name, [*self.values, *self.aliases], 3)}"
            )
        return Ref(found, self.values[found].shape)

    def parameters(self) -> Iterator[Ref]:
        """Yields the leaves that get a gradient."""
        names = (name for name, role in self.roles.items() if role == "param")
        return (self.ref(name) for name in names if self.values[name].dtype.kind == "f")

    def rerun(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Returns every value of the same program where some values, leaves or not, are replaced."""
        values = self.values | dict(check_type("given", given, Mapping, "arrays by name"))
        for name, step in self.steps.items():
            if name not in given:
                values[name] = step.run(values)
        return values

    # ---- gradients

    def backward(self, loss: Ref) -> None:
        """Appends the steps of every gradient: d.X is the gradient of X, d.X.via.Y its part through Y.

        A value with one user gets its gradient in one step; with several, one step for each and their
        sum. Where the local derivative is 1, the gradient is an alias.
        """
        if _check_ref("loss", loss).shape != ():
            raise TapeError(f"backward starts from a scalar; {loss.name!r} has shape {loss.shape}.")
        plan = list(self._plan(loss))
        users = Counter(x.name for x, _, _ in plan)
        readers = Counter((x.name, y.name) for x, y, _ in plan)
        seen: Counter[tuple[str, str]] = Counter()
        parts: dict[str, list[Ref]] = defaultdict(list)
        self.phase = "bwd"
        self.constant(f"d.{loss.name}", 1.0)
        for x, y, how in plan:
            name = f"d.{x.name}"
            if users[x.name] > 1:
                name += f".via.{y.name}"
                if readers[x.name, y.name] > 1:
                    name += f".{seen[x.name, y.name]}"
                    seen[x.name, y.name] += 1
            if isinstance(how, Call):
                inputs = (self.ref(ref.name) for ref in how.inputs)
                part = self(name, how.op, *inputs, **how.attrs)
            else:
                part = self.alias(name, self.ref(how.name))
            if part.shape != x.shape:
                raise TapeError(
                    f"{x.name!r} {x.shape} broadcasts in {y.name!r}, whose operation does not sum the "
                    f"gradient over the broadcast axes: give it the shape {part.shape} first."
                )
            parts[x.name].append(part)
            if 1 < users[x.name] == len(parts[x.name]):
                self(f"d.{x.name}", add, *parts[x.name])
        self.phase = "fwd"

    def _plan(self, loss: Ref) -> Iterator[tuple[Ref, Ref, Call | Ref]]:
        """Yields (input, user, the step of its gradient through that user), from the loss backwards."""
        forward = [step for step in self.steps.values() if step.phase == "fwd"]
        moves = {ref.name for ref in self.parameters()}
        for step in forward:
            if moves.intersection(step.inputs):
                moves.add(step.name)
        if loss.name not in moves:
            raise TapeError(f"{loss.name!r} depends on no parameter, so there is no gradient.")
        reached = {loss.name}
        for step in reversed(forward):
            if step.name not in reached:
                continue
            if step.op.back is None:
                raise TapeError(f"operation {step.op.name!r} of {step.name!r} has no gradient.")
            y = self.ref(step.name)
            inputs = [self.ref(name) for name in step.inputs]
            gradients = list(step.op.back(y, Ref(f"d.{y.name}", y.shape), *inputs, **step.attrs))
            if lost := moves.intersection(step.inputs) - {x.name for x, _ in gradients}:
                raise TapeError(
                    f"operation {step.op.name!r} of {step.name!r} has no gradient for {min(lost)!r}."
                )
            for x, how in gradients:
                if how is not None and x.name in moves:
                    reached.add(x.name)
                    yield x, y, how


def computed_name(name: str) -> str:
    """Returns the name of what an edited step computed. For a gradient it is d.X.backpropagated, because
    d.X.computed is the gradient of X.computed."""
    return f"{name}.{'backpropagated' if name.startswith('d.') else 'computed'}"


def _check_ref(parameter: str, value: Any) -> Ref:
    return check_type(parameter, value, Ref, "a value of a tape", '`tape.ref("NAME")` returns one.')


def _check_float_type(dtype: Any) -> Any:
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(dtype, str | type | np.dtype) and np.dtype(dtype).kind == "f":
            return dtype
    raise UsageError(f"dtype must be a float type of NumPy, not {show(dtype)}.")


def _check_edits(edits: Any) -> Edits:
    """Returns edits whose cells are whole numbers and whose values are numbers."""
    example = '{"NAME": {0: 1.5}}'
    for name, cells in check_type("edits", edits, Mapping, f"a table such as {example}").items():
        given = f"edits[{check_text('a name in edits', name)!r}]"
        for place, number in check_type(given, cells, Mapping, "a number for each cell").items():
            check_int(f"a cell of {given}", place, least=0)
            check_float(f"{given}[{place}]", number)
    return edits  # type: ignore[no-any-return]


def _to_array(value: Any, dtype: Any = None) -> Array:
    """Returns numbers as an array in storage order."""
    try:
        array = np.asarray(value, order="C")
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, or a tensor with a gradient
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"value must be a number or an array of numbers, not {show(value)}.")
    return array if dtype is None else array.astype(dtype, copy=False)


def _put_attrs(given: Mapping[int, float]) -> Attrs:
    places = sorted(given)
    return {"places": places, "numbers": [float(given[place]) for place in places]}


class TapeScope:
    """A tape under a prefix: `scope("q")` is `tape("blocks.0.attn.q")`."""

    def __init__(self, tape: Tape, prefix: str) -> None:
        self.tape, self.prefix = tape, prefix

    def __call__(self, name: str, op: Op, *inputs: Ref, **attrs: Any) -> Ref:
        return self.tape(f"{self.prefix}.{name}", op, *inputs, **attrs)

    def constant(self, name: str, value: Any) -> Ref:
        return self.tape.constant(f"{self.prefix}.{name}", value)

    def alias(self, name: str, ref: Ref) -> Ref:
        return self.tape.alias(f"{self.prefix}.{name}", ref)

    def ref(self, name: str) -> Ref:
        return self.tape.ref(f"{self.prefix}.{name}")

    def __contains__(self, name: str) -> bool:
        return f"{self.prefix}.{name}" in self.tape

    def scope(self, prefix: str) -> "TapeScope":
        return TapeScope(self.tape, f"{self.prefix}.{prefix}")
