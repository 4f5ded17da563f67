"""A recording: the named values of each forward call, and their gradients."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.base import notebook
from pellucid.base.arguments import check_text
from pellucid.base.errors import UsageError, did_you_mean
from pellucid.base.formatting import pluralize

GRADIENT = "d."


class NamePatterns:
    """Glob patterns over value names. A pattern that no computed name matches was mistyped."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(check_text("pattern", pattern) for pattern in patterns)
        self.used, self.names = set[str](), set[str]()

    def match(self, name: str) -> bool:
        self.names.add(name)
        found = [pattern for pattern in self.patterns if fnmatchcase(name, pattern)]
        self.used.update(found)
        return bool(found)

    def check_used(self) -> None:
        """Raises a UsageError for a pattern that matched no name, if any value was computed at all."""
        for pattern in self.patterns:
            if self.names and pattern not in self.used:
                hint = did_you_mean(pattern, sorted(self.names))
                raise UsageError(f"no value matches {pattern!r}.{hint}")


class Recording(Mapping[str, Tensor]):
    """The recorded values of the last forward call, by name; `calls` holds those of every call, in order.

    The gradient of X is called `d.X` and is added when the backward pass reaches X. `model` is the module
    whose values are recorded, None for those of every module; `path` is "eager" or "fused".
    """

    def __init__(
        self, patterns: Sequence[str], gradients: bool, fused: bool = False, model: Any = None
    ) -> None:
        given = [check_text("pattern", pattern) for pattern in patterns]
        values = [pattern for pattern in given if not pattern.startswith(GRADIENT)]
        grads = [pattern for pattern in given if pattern.startswith(GRADIENT)]
        self.values_wanted = NamePatterns(values if patterns else ["*"])
        self.grads_wanted = NamePatterns(
            grads + [GRADIENT + pattern for pattern in self.values_wanted.patterns if gradients]
        )
        self.calls: list[dict[str, Tensor]] = []
        self.fused, self.model = fused, model

    @property
    def name_patterns(self) -> tuple[str, ...]:
        """The patterns as they were given, of values and of gradients."""
        return (*self.values_wanted.patterns, *self.grads_wanted.patterns)

    @property
    def path(self) -> str:
        return "fused" if self.fused else "eager"

    def begin_call(self) -> None:
        self.calls.append({})

    def keep(self, name: str, value: Tensor) -> None:
        """Stores a value of the running call, and its gradient once there is one."""
        if not self.calls:
            self.begin_call()
        call, grad_name = self.calls[-1], GRADIENT + name
        if self.values_wanted.match(name):
            call[name] = _detach(value)
        if self.grads_wanted.match(grad_name) and value.requires_grad:
            value.register_hook(lambda grad: call.__setitem__(grad_name, grad.detach()))

    def check_used(self) -> None:
        self.values_wanted.check_used()
        self.grads_wanted.check_used()

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
        """Returns the last call's values as float64 arrays, by name."""
        return {name: value.double().cpu().numpy() for name, value in self.items()}

    @property
    def _last(self) -> dict[str, Tensor]:
        return self.calls[-1] if self.calls else {}


def _detach(value: Tensor) -> Tensor:
    """Returns the value without its graph; an inference tensor cannot be used in autograd and is copied."""
    if not value.is_inference():
        return value.detach()
    with torch.inference_mode(False):
        return value.clone()
