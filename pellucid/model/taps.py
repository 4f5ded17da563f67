"""Taps: where the fast engine's named values can be seen, and changed, while it runs.

    with record("blocks.*.attn.pattern") as seen:
        model(ids)
    seen["blocks.3.attn.pattern"]

    with edit("blocks.3.attn.z", lambda z: z * 0):
        model(ids)

When nobody watches, a tap is one comparison with None, and under `torch.compile` not even that: the
comparison is made while tracing. Watching runs eagerly, on the explicit path, where every value has a name;
one watcher at a time in a process, for all of its models.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import AskedWrongly

Change = Callable[[Tensor], Tensor]


class Watch:
    """What is done at the taps: first the changes, in the order given, then the recording."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Change]] = []
        self.recordings: list[Recording] = []
        self.fused = False

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for pattern, change in self.changes:
            if fnmatchcase(name, pattern):
                value = _changed(name, value, change)
        for recording in self.recordings:
            recording.keep(name, value)
        return value

    def begin(self) -> None:
        for recording in self.recordings:
            recording.calls.append({})


_watch: Watch | None = None


def watch() -> Watch | None:
    """Who watches; None where nobody does."""
    return _watch


def explicit() -> bool:
    """Whether every named value must exist by itself, rather than inside a fused kernel."""
    return _watch is not None and not _watch.fused


def tap(name: str, value: Tensor) -> Tensor:
    """A value passes by under its name; what comes back is used from here on."""
    return value if _watch is None else _watch(name, value)


class Scope:
    """Taps seen from inside a part of the model: names are written short."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value if _watch is None else _watch(f"{self.prefix}.{name}", value)


class Recording(Mapping[str, Tensor]):
    """The values that passed, of the last forward call; `calls` holds those of each call, in order.

    With gradients, `d.X` joins when the backward pass has reached X.
    """

    def __init__(self, patterns: Sequence[str], gradients: bool) -> None:
        self.patterns, self.gradients = tuple(patterns) or ("*",), gradients
        self.calls: list[dict[str, Tensor]] = []
        self.path = "eager"

    def keep(self, name: str, value: Tensor) -> None:
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return
        if not self.calls:
            self.calls.append({})
        call = self.calls[-1]
        call[name] = value.detach()
        if self.gradients and value.requires_grad:
            value.register_hook(lambda gradient: call.__setitem__(f"d.{name}", gradient.detach()))

    def __getitem__(self, name: str) -> Tensor:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def arrays(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The last call's values as the specification's views read them, in float64."""
        return {name: value.double().cpu().numpy() for name, value in self.items()}

    @property
    def _last(self) -> dict[str, Tensor]:
        return self.calls[-1] if self.calls else {}


@contextmanager
def record(*patterns: str, gradients: bool = False, fused: bool = False) -> Iterator[Recording]:
    """Keep the values whose names match a pattern (`*` by default), for each forward call in this block.

    `fused` leaves the fused kernels in place and records what they do not hide.
    """
    with _watching(fused) as watching:
        recording = Recording(patterns, gradients)
        recording.path = "fused" if fused else "eager"
        watching.recordings.append(recording)
        try:
            yield recording
        finally:
            watching.recordings.remove(recording)


class _Collect(Watch):
    """A watcher so plain that the compiler can follow it: the values become results of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.fused, self.values = True, dict[str, Tensor]()

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self.values[name] = value
        return value

    def begin(self) -> None:
        pass


def compiled_values(run: Callable[[], Tensor]) -> dict[str, Tensor]:
    """The named values of a forward that is compiled together with its taps."""
    global _watch
    _watch = collect = _Collect()

    def traced() -> dict[str, Tensor]:
        run()
        return dict(collect.values)

    try:
        return torch.compile(traced, fullgraph=True)()
    finally:
        _watch = None


@contextmanager
def edit(pattern: str, change: Change) -> Iterator[None]:
    """In this block, every value whose name matches is replaced by `change(value)`; gradients follow."""
    with _watching() as watching:
        entry = (pattern, change)
        watching.changes.append(entry)
        try:
            yield
        finally:
            watching.changes.remove(entry)


@contextmanager
def _watching(fused: bool = False) -> Iterator[Watch]:
    """The one watcher, for as long as anybody needs it; compiled code steps aside for it."""
    global _watch
    if _watch is not None:
        if fused != _watch.fused:
            raise AskedWrongly("a block records either the fused path or the explicit one, not both.")
        yield _watch
        return
    _watch = Watch()
    _watch.fused = fused
    try:
        with torch.compiler.set_stance("force_eager"):
            yield _watch
    finally:
        _watch = None


def _changed(name: str, value: Tensor, change: Change) -> Tensor:
    new = change(value)
    if not isinstance(new, Tensor) or new.shape != value.shape or new.dtype != value.dtype:
        got = f"{tuple(new.shape)} {new.dtype}" if isinstance(new, Tensor) else type(new).__name__
        raise AskedWrongly(
            f"the edit of {name} must give back {tuple(value.shape)} {value.dtype}; it gave {got}."
        )
    return new
