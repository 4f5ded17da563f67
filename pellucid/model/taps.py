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
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pellucid import notebook
from pellucid.arguments import check_bool, check_text
from pellucid.errors import UsageError, did_you_mean, show
from pellucid.format import pluralize

Change = Callable[[Tensor], Tensor]
T = TypeVar("T")


class Wanted:
    """Patterns of names, and what passed them: a pattern that met no name was written wrongly."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(check_text("pattern", pattern) for pattern in patterns)
        self.met, self.passed = set[str](), set[str]()

    def meets(self, name: str) -> bool:
        self.passed.add(name)
        found = [pattern for pattern in self.patterns if fnmatchcase(name, pattern)]
        self.met.update(found)
        return bool(found)

    def check(self) -> None:
        """Every pattern has met a name, if there was anything to meet."""
        for pattern in self.patterns:
            if self.passed and pattern not in self.met:
                hint = did_you_mean(pattern, sorted(self.passed))
                raise UsageError(f"no value called {pattern!r} passed.{hint}")


class Watch:
    """What is done at the taps: first the changes, in the order given, then the recording."""

    def __init__(self) -> None:
        self.changes: list[tuple[Wanted, Change]] = []
        self.recordings: list[Recording] = []
        self.fused = False

    def __call__(self, name: str, value: Tensor) -> Tensor:
        for wanted, change in self.changes:
            if wanted.meets(name):
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


GRADIENT = "d."


class Scope:
    """Taps seen from inside a part of the model: names are written short."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value if _watch is None else _watch(f"{self.prefix}.{name}", value)


class Recording(Mapping[str, Tensor]):
    """The values that passed, of the last forward call; `calls` holds those of each call, in order.

    The gradient of X is called `d.X`, and joins when the backward pass has reached X.
    """

    def __init__(self, patterns: Sequence[str], gradients: bool) -> None:
        given = [check_text("pattern", pattern) for pattern in patterns]
        plain = [pattern for pattern in given if not pattern.startswith(GRADIENT)]
        slopes = [pattern for pattern in given if pattern.startswith(GRADIENT)]
        self.wanted = Wanted(plain if patterns else ["*"])
        self.slopes = Wanted(slopes + [GRADIENT + pattern for pattern in self.wanted.patterns if gradients])
        self.calls: list[dict[str, Tensor]] = []
        self.path = "eager"

    def keep(self, name: str, value: Tensor) -> None:
        if not self.calls:
            self.calls.append({})
        call, slope = self.calls[-1], GRADIENT + name
        if self.wanted.meets(name):
            call[name] = _kept(value)
        if self.slopes.meets(slope) and value.requires_grad:
            value.register_hook(lambda gradient: call.__setitem__(slope, gradient.detach()))

    def check(self) -> None:
        self.wanted.check()
        self.slopes.check()

    def __getitem__(self, name: str) -> Tensor:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __repr__(self) -> str:
        calls = f", of the last of {len(self.calls):,} calls" if len(self.calls) > 1 else ""
        return notebook.summarize("Recording", f"{pluralize(len(self), 'value')}{calls}", self._sizes())

    def _repr_html_(self) -> str:
        return notebook.listing(repr(self), ("value", "shape", "type"), self._sizes())

    def _sizes(self) -> list[tuple[str, str, str]]:
        return [
            (name, str(list(value.shape)), str(value.dtype).removeprefix("torch."))
            for name, value in self.items()
        ]

    def arrays(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The last call's values as the specification's views read them, in float64."""
        return {name: value.double().cpu().numpy() for name, value in self.items()}

    @property
    def _last(self) -> dict[str, Tensor]:
        return self.calls[-1] if self.calls else {}


@contextmanager
def record(*patterns: str, gradients: bool = False, fused: bool = False) -> Iterator[Recording]:
    """Keep the values whose names match a pattern (`*` by default), for each forward call in this block.

    A pattern `d.X` keeps gradients of X; with `gradients`, every pattern keeps them beside its values.
    `fused` leaves the fused kernels in place and records what they do not hide.
    """
    recording = Recording(patterns, check_bool("gradients", gradients))
    recording.path = "fused" if check_bool("fused", fused) else "eager"
    with _watching(fused) as watching, _among(watching.recordings, recording):
        yield recording
    recording.check()


class _Look(Recording):
    """A recording that keeps nothing: what passes is only shown."""

    def __init__(self, look: Callable[[str, Tensor], None]) -> None:
        super().__init__((), gradients=False)
        self.look = look

    def keep(self, name: str, value: Tensor) -> None:
        self.look(name, value)


@contextmanager
def look(at: Callable[[str, Tensor], None], fused: bool = False) -> Iterator[None]:
    """In this block `at(name, value)` sees every value that passes, in the order of computation.

    Nothing is kept, so a whole model can be watched in the memory that running it takes.
    """
    with _watching(fused) as watching, _among(watching.recordings, _Look(at)):
        yield


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
    if _watch is not None:
        raise UsageError("compiled code is watched by itself: leave the record and edit blocks first.")
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
    if not callable(change):
        raise UsageError(f"change must be a function of a tensor, not {show(change)}.")
    if pattern == "probs":
        raise UsageError("nothing is computed from probs, so an edit would do nothing: edit logits.")
    wanted = Wanted([pattern])
    with _watching() as watching, _among(watching.changes, (wanted, change)):
        yield
    wanted.check()


@contextmanager
def _among(things: list[T], one: T) -> Iterator[None]:
    """In this block it is one of them; which one is told by identity, for tensors have no plain equality."""
    things.append(one)
    try:
        yield
    finally:
        things[:] = [thing for thing in things if thing is not one]


@contextmanager
def _watching(fused: bool = False) -> Iterator[Watch]:
    """The one watcher, for as long as anybody needs it; compiled code steps aside for it."""
    global _watch
    if _watch is not None:
        if fused != _watch.fused:
            raise UsageError("a block records either the fused path or the explicit one, not both.")
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
        raise UsageError(
            f"the edit of {name} must give back {tuple(value.shape)} {value.dtype}; it gave {got}."
        )
    return new


def _kept(value: Tensor) -> Tensor:
    """The value for good. What inference mode makes is of no use outside it, so that is copied."""
    if not value.is_inference():
        return value.detach()
    with torch.inference_mode(False):
        return value.clone()
