"""Sites: a named value or a part of it, one head or one position, that is replaced while a model runs.

blocks.3.attn_out              the whole value
blocks.3.attn_out[t=5]         at position 5
blocks.3.attn.head_out[h=2]    of head 2, at all positions
blocks.3.attn.k[k=0]           of key/value head 0
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import AddressError, UsageError, show
from pellucid.base.names import describe
from pellucid.interpretability.runner import Index, Patch, Runner, Values

DivideBy = Literal["head", "position", "whole"]
PARTS: Mapping[DivideBy, tuple[str, ...]] = {"head": ("h", "k"), "position": ("t", "s"), "whole": ()}
"""The axes along which a value is divided into parts; of queries and keys, `t` comes before `s`."""
_SITE = re.compile(r"\s*+(?P<name>[^\[\]\s]++)\s*+(?:\[(?P<index>[^\[\]]*+)\])?\s*+")
_ENTRY = re.compile(r"\s*+(?P<axis>[a-z]++)\s*+=\s*+(?P<place>\d{1,9})\s*+")


@dataclass(frozen=True)
class Site:
    """The value `name` where each axis letter of `at` has its index; the other axes are whole."""

    name: str
    at: tuple[tuple[str, int], ...] = ()

    @property
    def index(self) -> Index:
        """The index of the part without the batch axis."""
        at = dict(self.at)
        return tuple(at.get(axis, slice(None)) for axis in find_axes(self.name)[1:])

    @property
    def layer(self) -> int | None:
        """The layer of the value; None outside of the blocks."""
        parts = self.name.split(".")
        return int(parts[1]) if parts[0] == "blocks" else None

    def __str__(self) -> str:
        return f"{self.name}[{','.join(f'{axis}={i}' for axis, i in self.at)}]" if self.at else self.name


def read_site(text: str) -> Site:
    """Returns the site that a text names.

    >>> read_site("blocks.3.attn.head_out[h=2]")
    Site(name='blocks.3.attn.head_out', at=(('h', 2),))
    """
    found = _SITE.fullmatch(text)
    entries = [_ENTRY.fullmatch(entry) for entry in (found["index"] or "").split(",")] if found else []
    if not found or (found["index"] is not None and not all(entries)):
        raise AddressError(
            f"{show(text)} is not a named value or a part of one; write NAME, NAME[h=2] or NAME[t=5], as in "
            "blocks.3.attn.head_out[h=2]."
        )
    site = Site(found["name"], tuple((entry["axis"], int(entry["place"])) for entry in entries if entry))
    axes = find_axes(site.name)[1:]
    for axis, _ in site.at:
        if axis not in axes:
            raise AddressError(f"{site.name} has no axis {axis!r}; it has {', '.join(axes)}.")
    return site


def is_replaceable(name: str) -> bool:
    """Returns whether a name is that of a value that each prompt computes and that others are computed
    from."""
    entry = describe(name)
    is_value = entry is not None and entry.engines == "both" and not entry.is_parameter
    return is_value and entry is not None and entry.axes[:1] == ("b",) and name not in ("probs", "mask")


def find_axes(name: str) -> tuple[str, ...]:
    """Returns the axis letters of a value that can be replaced; other names are refused."""
    entry = describe(name)
    if entry is None or not is_replaceable(name):
        raise AddressError(
            f"{name} is not a value that a prompt computes and a run can replace, as blocks.0.resid_pre, "
            "blocks.0.attn.q and logits are."
        )
    return entry.axes


def list_sites(name: str, shape: Iterable[int], part: DivideBy | None = None) -> list[Site]:
    """Returns the parts of a value of this shape, the batch first: its heads, its positions or the whole.

    By default a value is divided by heads where it has any, else by positions.

    >>> [str(site) for site in list_sites("blocks.0.attn_out", (1, 2, 8))]
    ['blocks.0.attn_out[t=0]', 'blocks.0.attn_out[t=1]']
    """
    sizes = dict(zip(find_axes(name), shape, strict=True))
    for kind in [part] if part else list(PARTS):
        letters = [axis for axis in PARTS[kind] if axis in sizes][:1]
        if letters or kind == "whole":
            return [
                Site(name, tuple(zip(letters, places, strict=True)))
                for places in product(*(range(sizes[letter]) for letter in letters))
            ]
    raise UsageError(f"{name} has no axis of {part}s: it cannot be divided by {part}.")


def check_site(runner: Runner, site: Site, length: int) -> None:
    """Raises an AddressError unless the model computes the value, and has this part of it."""
    config = runner.config
    sizes = {"h": config.n_head, "k": config.n_kv_head, "t": length, "s": length}
    if site.layer is not None and not site.layer < config.n_layer:
        raise AddressError(f"{site} is not in this model, which has the layers 0 to {config.n_layer - 1}.")
    for axis, place in site.at:
        if axis in sizes and not place < sizes[axis]:
            raise AddressError(f"{site} does not exist: {axis} goes from 0 to {sizes[axis] - 1}.")


def list_outputs(runner: Runner) -> list[str]:
    """Returns the values that the sub-layers add to the residual stream: each head's, and each MLP's."""
    layers = range(runner.config.n_layer)
    tails = ["attn.head_out"] if runner.config.mlp.is_none else ["attn.head_out", "mlp_out"]
    return [f"blocks.{layer}.{tail}" for layer in layers for tail in tails]


MAX_NUMBERS = 1 << 24
"""Logits and other numbers of one batch; more variants are run in several batches."""
Progress = Callable[[int, int], None]
"""Called with the number of variants that have run, and of all."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """The value that a site gets, broadcast to its part."""

    site: Site
    value: Array | float

    def in_row(self, row: int) -> Patch:
        return Patch(self.site.name, self.value, (row, *self.site.index))


def count_rows(runner: Runner, length: int) -> int:
    """Returns how many variants of a prompt of this length are run at once."""
    config = runner.config
    widest = max(config.vocab_size, config.n_head * max(config.d_model, length), config.d_ff)
    return max(1, MAX_NUMBERS // (length * widest))


def run_variants(
    runner: Runner,
    ids: Sequence[int],
    variants: Sequence[Sequence[Replacement]],
    record: str,
    reduce: Callable[[Array], Array],
    shared: Sequence[Patch] = (),
    progress: Progress = lambda done, total: None,
) -> Array:
    """Returns `reduce` of the value `record` of each variant, [N …]; reduce gets some rows [B …] at a time.

    The patches `shared` apply to every variant, before its own replacements.
    """
    found, at_once = [], count_rows(runner, len(ids))
    for start in range(0, len(variants), at_once):
        some = variants[start : start + at_once]
        patches = [change.in_row(row) for row, changes in enumerate(some) for change in changes]
        batch = np.tile(np.asarray(ids), (len(some), 1))
        seen: Values = runner.run(batch, [record], [*shared, *patches])
        found.append(reduce(seen[record]))
        progress(start + len(some), len(variants))
    return np.concatenate(found)
