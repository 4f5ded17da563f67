"""Taps: where the fast engine's named values are recorded and edited while it runs.

    with record("blocks.*.attn.pattern") as seen:
        model(ids)
    seen["blocks.3.attn.pattern"]

    with edit("blocks.3.attn.z", lambda z: z * 0):
        model(ids)

A block watches what runs in its own context (`contextvars`): other threads and other asyncio tasks are
neither recorded, nor edited, nor slowed down. With `model=` it watches that one module alone.

Unwatched, a tap reads one context variable; under `torch.compile` it is not in the graph at all. A watched
forward runs eagerly, on the explicit path, where every value has a name.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pellucid.base.arguments import check_bool, check_function, check_text, check_type
from pellucid.base.errors import ResourceError, UsageError
from pellucid.engine.compiler import COMPILER_IS_OFF, eager_in_this_context
from pellucid.engine.recording import NamePatterns, Recording

Change = Callable[[Tensor], Tensor]


class HasModule(Protocol):
    """Whatever has a `Transformer`, as a `pellucid.Model` has."""

    @property
    def module(self) -> nn.Module: ...


@dataclass(frozen=True, eq=False)
class Edit:
    """Replaces the values whose names match by `change(value)`."""

    patterns: NamePatterns
    change: Change
    model: nn.Module | None
    fused = False

    @property
    def name_patterns(self) -> tuple[str, ...]:
        return self.patterns.patterns

    def apply(self, name: str, value: Tensor) -> Tensor:
        if not self.patterns.match(name):
            return value
        new = self.change(value)
        if not isinstance(new, Tensor) or new.shape != value.shape or new.dtype != value.dtype:
            got = f"{tuple(new.shape)} {new.dtype}" if isinstance(new, Tensor) else type(new).__name__
            raise UsageError(
                f"the edit of {name} must return {tuple(value.shape)} {value.dtype}; it returned {got}."
            )
        return new


class Watcher:
    """What happens to a value at a tap: first the edits, in the order given, then the recordings."""

    def __init__(self, entries: "tuple[Edit | Recording, ...]") -> None:
        self.edits = [entry for entry in entries if isinstance(entry, Edit)]
        self.recordings = [entry for entry in entries if isinstance(entry, Recording)]
        self.fused = all(entry.fused for entry in entries)
        self.asked = _last_parts(pattern for entry in entries for pattern in entry.name_patterns)
        """The last parts of the patterns: `head_out` of `blocks.*.attn.head_out`."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for edit in self.edits:
            value = edit.apply(name, value)
        for recording in self.recordings:
            recording.keep(name, value)
        return value

    def begin_call(self) -> None:
        for recording in self.recordings:
            recording.begin_call()


def _last_parts(patterns: Iterable[str]) -> frozenset[str]:
    return frozenset(pattern.rpartition(".")[2] for pattern in patterns)


class _Open:
    """The open blocks of a context, and the watcher made of those that watch the running module."""

    def __init__(self, entries: "tuple[Edit | Recording, ...]", running: nn.Module | None) -> None:
        self.entries, self.running = entries, running
        self.watcher = self.watcher_of(running)

    def watcher_of(self, model: nn.Module | None) -> Watcher | None:
        entries = tuple(entry for entry in self.entries if entry.model is None or entry.model is model)
        return Watcher(entries) if entries else None


_open: ContextVar[_Open | None] = ContextVar("open", default=None)


class _Tracing(threading.local):
    """The watcher of code being compiled in this thread: the compiler cannot read a context variable, and
    guards what it reads here thread by thread."""

    def __init__(self) -> None:
        self.watcher: Watcher | None = None


_tracing = _Tracing()


def current_watcher(model: nn.Module | None = None) -> Watcher | None:
    """Returns the watcher of this context for `model` (by default the one that runs), None if unwatched."""
    if torch.compiler.is_dynamo_compiling():
        return _tracing.watcher
    blocks = _open.get()
    if blocks is None:
        return None
    return blocks.watcher if model is None else blocks.watcher_of(model)


def begin_call(model: nn.Module) -> Watcher | None:
    """Starts a forward call of this module in the recordings that watch it, and returns their watcher."""
    if torch.compiler.is_dynamo_compiling():
        return _tracing.watcher
    blocks = _open.get()
    if blocks is None:
        return None
    if blocks.running is not model:
        blocks = _Open(blocks.entries, model)
        _open.set(blocks)
    if blocks.watcher is not None:
        blocks.watcher.begin_call()
    return blocks.watcher


def is_explicit(model: nn.Module | None = None) -> bool:
    """Returns whether every named value must exist by itself, rather than inside a fused kernel."""
    watcher = current_watcher(model)
    return watcher is not None and not watcher.fused


def is_requested(name: str) -> bool:
    """Returns whether a block names the last part of this name itself, rather than by `*`: such values are
    computed only where they are asked for."""
    watcher = current_watcher()
    return watcher is not None and name.rpartition(".")[2] in watcher.asked


def tap(name: str, value: Tensor) -> Tensor:
    """Offers a value under its name to the watcher; the computation continues with what is returned."""
    watcher = current_watcher()
    return value if watcher is None else watcher(name, value)


class TapScope:
    """Taps of one part of the model: names are given without their common prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, name: str, value: Tensor) -> Tensor:
        watcher = current_watcher()
        return value if watcher is None else watcher(f"{self.prefix}.{name}", value)


@contextmanager
def record(
    *patterns: str, gradients: bool = False, fused: bool = False, model: "nn.Module | HasModule | None" = None
) -> Iterator[Recording]:
    """Records the values whose names match a pattern (`*` by default), for each forward call in this block.

    A pattern `d.X` records gradients of X; with `gradients`, every pattern records them beside its values.
    `fused` keeps the fused kernels and records what they do not hide. With `model`, a `Transformer` or a
    `pellucid.Model`, only that model's calls are recorded, and others are not slowed down.

    >>> import pellucid
    >>> with pellucid.record("blocks.*.attn.pattern", "logits") as seen:
    ...     logits = pellucid.load("abcd").logits([0, 1])
    >>> list(seen), seen["logits"].shape
    (['blocks.0.attn.pattern', 'logits'], torch.Size([1, 2, 4]))
    """
    fused = check_bool("fused", fused)
    recording = Recording(patterns, check_bool("gradients", gradients), fused, _module(model))
    with _watch(recording):
        yield recording
    recording.check_used()


class _Look(Recording):
    """A recording that stores nothing and hands each value to a function."""

    def __init__(self, function: Callable[[str, Tensor], None], fused: bool, model: Any) -> None:
        super().__init__((), gradients=False, fused=fused, model=model)
        self.function = function

    def keep(self, name: str, value: Tensor) -> None:
        self.function(name, value)


@contextmanager
def look(function: Callable[[str, Tensor], None], fused: bool = False, model: Any = None) -> Iterator[None]:
    """Calls `function(name, value)` in this block for every named value, in the order of computation.

    Nothing is stored, so a whole model can be inspected in the memory that running it takes.
    """
    with _watch(_Look(function, fused, _module(model))):
        yield


@contextmanager
def edit(pattern: str, change: Change, model: "nn.Module | HasModule | None" = None) -> Iterator[None]:
    """Replaces, in this block, every value whose name matches by `change(value)`; gradients follow.

    With `model`, a `Transformer` or a `pellucid.Model`, only that model's values are edited.

    >>> import pellucid
    >>> with pellucid.edit("blocks.0.attn.pattern", lambda pattern: 0 * pattern):
    ...     pellucid.load("abcd").logits([0, 1])[-1]
    tensor([0., 0., 0., 0.])
    """
    check_function("change", change)
    if check_text("pattern", pattern) == "probs":
        raise UsageError("nothing is computed from probs, so an edit has no effect: edit logits.")
    edited = Edit(NamePatterns([pattern]), change, _module(model))
    with _watch(edited):
        yield
    edited.patterns.check_used()


@contextmanager
def _watch(entry: Edit | Recording) -> Iterator[None]:
    """Opens a block in this context; compiled functions called from this context run eagerly in it."""
    blocks = _open.get() or _Open((), None)
    if any(other.fused != entry.fused for other in blocks.entries):
        raise UsageError("a block records either the fused path or the explicit one, not both.")
    _open.set(_Open((*blocks.entries, entry), blocks.running))
    try:
        with eager_in_this_context():
            yield
    finally:
        blocks = _open.get() or _Open((), None)
        left = tuple(other for other in blocks.entries if other is not entry)
        _open.set(_Open(left, blocks.running) if left else None)


@contextmanager
def _suspend_watching() -> Iterator[None]:
    blocks = _open.get()
    _open.set(None)
    try:
        yield
    finally:
        _open.set(blocks)


def recompute_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Returns the contexts of a checkpointed block's forward and of its recomputation, which is unwatched as
    the forward was, also where the backward pass runs inside a `record` block."""
    return nullcontext(), _suspend_watching()


def _module(model: Any) -> nn.Module | None:
    """Returns the module of a `pellucid.Model` or of a compiled or wrapped module, or the module itself."""
    if model is None:
        return None
    for wrapped in ("_orig_mod", "module"):
        model = getattr(model, wrapped, model)
    return check_type("model", model, nn.Module, "a Transformer or a pellucid.Model")


class _Collector(Watcher):
    """A watcher simple enough to be compiled: the values become outputs of the graph."""

    def __init__(self, patterns: Sequence[str] = ("*",)) -> None:
        super().__init__(())
        self.asked = _last_parts(patterns)
        self.values: dict[str, Tensor] = {}

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self.values[name] = value
        return value


def compiled_values(run: Callable[[], Tensor], patterns: Sequence[str] = ("*",)) -> dict[str, Tensor]:
    """Returns the named values of a forward that is compiled together with its taps: all of them, and of
    those that are computed only where they are named, the ones that a pattern names."""
    if _open.get() is not None:
        raise UsageError("compiled code cannot be watched inside a record or edit block: leave it first.")
    _tracing.watcher = collector = _Collector(patterns)

    def collect() -> dict[str, Tensor]:
        run()
        return dict(collector.values)

    try:
        found = torch.compile(collect, fullgraph=True)()
    finally:
        _tracing.watcher = None
    if not found:
        raise ResourceError(f"{COMPILER_IS_OFF}.")
    return found
