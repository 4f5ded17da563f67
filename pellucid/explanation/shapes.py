"""The shape of every value of a config, without weights: the specification's program at small sizes.

The program of one block is run once on zeros with few channels, heads and tokens of the vocabulary. Each axis
of a value is named (`names.py`), so its length in the real config follows from its name; every block is
alike.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pellucid.base.arguments import check_int
from pellucid.base.errors import UsageError
from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.config.cost import cost, table, total
from pellucid.explanation.trace import IN_PYTHON, More, Trace, format_tree
from pellucid.reference.op import Shape
from pellucid.reference.training import forward

SIZES = {"c": "d_model", "f": "d_ff", "v": "vocab_size", "h": "n_head", "k": "n_kv_head"}
"""The key of the config that is the length of an axis; the other axes are not shrunk."""
BLOCK = "blocks.0."


@dataclass(frozen=True)
class Shapes:
    """The parameters of a config; its values for a batch of `tokens`, where these are given; else its
    cost."""

    name: str
    config: ModelConfig
    tokens: int | None = None
    batch: int = 1

    def values(self) -> dict[str, Shape]:
        """Returns the shape of every value of the forward pass, by name."""
        return value_shapes(self.config, self.tokens, self.batch) if self.tokens else {}

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the parameters by name, with the values or the cost."""
        if not self.tokens:
            yield f"{self.name}: config-only preset; its parameters:"
            yield from format_tree(self.config.parameters())
            yield ""
            yield from table(self.config)
            return
        yield "parameters:"
        yield from format_tree(self.config.parameters())
        yield "values:"
        yield from format_tree(self.values())

    def to_data(self) -> dict[str, Any]:
        """Returns the shapes, and without tokens the cost, as plain data."""
        data: dict[str, Any] = {"parameters": {name: list(s) for name, s in self.config.parameters().items()}}
        if self.tokens:
            return data | {"values": {name: list(shape) for name, shape in self.values().items()}}
        costs = cost(self.config)
        return data | {"cost": {part: asdict(c) for part, c in (costs | {"total": total(costs)}).items()}}

    def __str__(self) -> str:
        return "\n".join(self.to_lines())


def make_shapes(name: str, config: ModelConfig, tokens: int | None, batch: int | None) -> Shapes:
    """Returns the shapes of a config; raises where the tokens do not fit its context."""
    if tokens is None:
        if batch is not None:
            raise UsageError("batch needs tokens: give the length of a row as well.")
        return Shapes(name, config)
    check_int("tokens", tokens, least=1)
    if tokens > config.context_length:
        raise UsageError(f"{tokens:,} tokens do not fit the context of {config.context_length:,}.")
    return Shapes(name, config, tokens, 1 if batch is None else check_int("batch", batch, least=1))


def value_shapes(config: ModelConfig, tokens: int, batch: int) -> dict[str, Shape]:
    """Returns the shape of every value of the forward pass on ids [batch, tokens]; nothing large is computed.

    >>> from pellucid.config import preset
    >>> value_shapes(preset("gpt2"), tokens=4, batch=2)["blocks.11.attn.pattern"]
    (2, 12, 4, 4)
    """
    small = shrink(config)
    weights = {name: np.zeros(shape) for name, shape in small.parameters().items()}
    with np.errstate(all="ignore"):  # the numbers are not used
        trace = Trace(forward(small, weights, np.zeros((1, tokens), dtype=int)))
    shapes = {
        name: grow(trace, name, config, batch) for name, role in trace.tape.roles.items() if role != "param"
    }
    block = [name for name in shapes if name.startswith(BLOCK)]
    end = list(shapes).index(block[-1]) + 1
    layers = {
        name.replace(BLOCK, f"blocks.{layer}.", 1): shapes[name]
        for layer in range(1, config.n_layer)
        for name in block
    }
    entries = list(shapes.items())
    return dict(entries[:end]) | layers | dict(entries[end:])


def shrink(config: ModelConfig) -> ModelConfig:
    """Returns the same choices with one block, few channels, heads and tokens of the vocabulary."""
    n_head = 2 * min(config.n_head // config.n_kv_head, 2)
    return replace(
        config,
        n_layer=1,
        d_model=n_head * config.d_head,  # without an output projection the heads are the output
        d_ff=2,
        vocab_size=2,
        n_head=n_head,
        n_kv_head=2,
        d_head=config.d_head,
    )


def grow(trace: Trace, name: str, config: ModelConfig, batch: int, tokens: int | None = None) -> Shape:
    """Returns the shape of a value of the small run in the real config, for rows of `tokens` where these are
    given."""
    sizes = {axis: getattr(config, key) for axis, key in SIZES.items()} | {"b": batch}
    if tokens is not None:
        sizes |= {"t": tokens, "s": tokens}
    about, shape = describe(name, trace.tape.about), tuple(trace.value(name).shape)
    if about is None:  # a value without an entry in the glossary has no named axes
        return shape
    return tuple(sizes.get(axis, size) for axis, size in zip(about.axes, shape, strict=True))
