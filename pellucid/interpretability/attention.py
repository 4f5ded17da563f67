"""Attention statistics: what the rows of each head's pattern look like, as means over positions.

P = blocks.L.attn.pattern, row t the shares that query t gives to the keys s; n_t is the number of keys that
the mask shows to query t. Position 0, which sees only itself under a causal mask, is not part of the means.
The pattern of a linear attention is its kernel φ(Q) φ(K)ᵀ divided by the sums of its rows; a row without any
mass has an entropy of 0. Tiled attention has no pattern: it never computes a whole row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError, show
from pellucid.base.formatting import pluralize
from pellucid.config import ModelConfig
from pellucid.interpretability.runner import PromptedModel, Runner
from pellucid.report.diagram import Grid
from pellucid.report.items import Entry, View, ViewTable

STATISTICS = {
    "entropy": "−Σ_s P ln P, in nats",
    "entropy fraction": "entropy / ln n_t: 0 for one key, 1 for uniform attention",
    "distance": "Σ_s P |t − s|, in tokens",
    "first": "P[t, 0]: the share of the first token (attention sink)",
    "self": "P[t, t]",
    "previous": "P[t, t−1]",
    "maximum": "max_s P",
}
"""The statistics of a row, with their formulas."""
MAPPED = ("entropy fraction", "first", "self", "previous")
"""Those that are drawn as a map layer × head, all from 0 to 1."""
MAX_PATTERNS = 1 << 26
"""Numbers of patterns that are recorded at once; more are recorded in groups of layers."""


@dataclass(frozen=True)
class AttentionStatistics:
    """The mean of each of `STATISTICS` over `n_positions` rows, [L H]."""

    means: Mapping[str, Array]
    n_positions: int


def find_visible(config: ModelConfig, length: int) -> NDArray[np.bool_]:
    """Returns which keys the mask shows to each query of a prompt of this length, [T T]."""
    positions = np.arange(length)
    mask = config.mask.compute_mask(positions, positions)
    return np.ones((length, length), bool) if mask is None else np.asarray(mask, bool)


def has_pattern(config: ModelConfig) -> bool:
    """Returns whether the attention of a config computes a pattern, which both engines record."""
    return "pattern" in config.attention.values(config)


def check_pattern(config: ModelConfig) -> None:
    """Raises a UsageError where the attention of a config has no pattern."""
    if not has_pattern(config):
        raise UsageError(
            f"attention {config.attention.kind!r} never computes a whole row of its pattern: use a "
            'config with attention "softmax", which gives the same output.'
        )


def check_statistics(config: ModelConfig, prompts: Sequence[Sequence[int]]) -> None:
    """Raises a UsageError where there are no attention statistics: without a pattern, or a second token."""
    check_pattern(config)
    if all(len(ids) < 2 for ids in prompts):
        raise UsageError("attention statistics need a prompt of at least two tokens.")


def compute_row_statistics(pattern: Array, visible: NDArray[np.bool_]) -> dict[str, Array]:
    """Returns each of `STATISTICS` for the rows of a pattern [… T S], [… T]; NaN where it is undefined: the
    fraction where one key is visible, and the token before the first.

    >>> rows = compute_row_statistics(np.array([[1.0, 0.0], [0.25, 0.75]]), np.tri(2, dtype=bool))
    >>> rows["self"], rows["distance"], rows["entropy fraction"].round(4)
    (array([1.  , 0.75]), array([0.  , 0.25]), array([   nan, 0.8113]))
    """
    length = pattern.shape[-1]
    counts = visible.sum(-1).astype(np.float64)
    entropy = -(pattern * np.log(np.where(pattern > 0, pattern, 1.0))).sum(-1)
    distances = np.abs(np.arange(length)[:, None] - np.arange(length))
    previous = np.full(pattern.shape[:-1], np.nan)
    previous[..., 1:] = np.diagonal(pattern, -1, -2, -1)
    return {
        "entropy": entropy,
        "entropy fraction": entropy / np.log(np.where(counts > 1, counts, np.nan)),
        "distance": (pattern * distances).sum(-1),
        "first": pattern[..., 0],
        "self": np.diagonal(pattern, 0, -2, -1).copy(),
        "previous": previous,
        "maximum": pattern.max(-1),
    }


def record_patterns(runner: Runner, ids: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yields each layer with its pattern [H T T], in the memory of some layers at a time."""
    check_pattern(runner.config)
    layers, size = range(runner.config.n_layer), runner.config.n_head * len(ids) ** 2
    at_once = max(1, MAX_PATTERNS // size) if size else 1
    for start in range(0, len(layers), at_once):
        names = {layer: f"blocks.{layer}.attn.pattern" for layer in layers[start : start + at_once]}
        seen = runner.run(list(ids), list(names.values()))
        for layer, name in names.items():
            yield layer, seen[name][0]


def compute_attention_statistics(runner: Runner, prompts: Sequence[Sequence[int]]) -> AttentionStatistics:
    """Returns the means over all positions from 1 on of the prompts; a row counts where it has the statistic.

    The entropy fraction of a window of one key, for example, is NaN.
    """
    config = runner.config
    sums = {name: np.zeros((config.n_layer, config.n_head)) for name in STATISTICS}
    counts = {name: np.zeros((config.n_layer, config.n_head)) for name in STATISTICS}
    n_positions = sum(max(0, len(ids) - 1) for ids in prompts)
    check_statistics(config, prompts)
    for ids in prompts:
        visible = find_visible(config, len(ids))
        for layer, pattern in record_patterns(runner, ids):
            for name, rows in compute_row_statistics(pattern, visible).items():
                sums[name][layer] += np.nansum(rows[:, 1:], -1)
                counts[name][layer] += np.isfinite(rows[:, 1:]).sum(-1)
    with np.errstate(invalid="ignore"):
        means = {name: sums[name] / counts[name] for name in STATISTICS}
    return AttentionStatistics(means, n_positions)


def name_heads(config: ModelConfig) -> tuple[list[str], list[str]]:
    """Returns the labels of the rows and columns of a map of heads: the layers, and the heads of one."""
    return [str(layer) for layer in range(config.n_layer)], [str(head) for head in range(config.n_head)]


def map_heads(title: str, config: ModelConfig, values: Array, is_share: bool = True) -> Grid:
    """Returns a map layer × head of values [L H]; shares are colored from 0 to 1, others around 0."""
    scale: Literal["share", "signed"] = "share" if is_share else "signed"
    return Grid(title, values, *name_heads(config), "layer", "head", scale, decimals=2, is_compact=True)


def map_pattern(prompted: PromptedModel, head: tuple[int, int]) -> Grid:
    """Returns the pattern of a head (layer, head) over the tokens of the prompt; keys that the mask hides are
    masked."""
    layer, number = head
    sizes = {
        "layer": (layer, prompted.runner.config.n_layer),
        "head": (number, prompted.runner.config.n_head),
    }
    for word, (value, size) in sizes.items():
        if not 0 <= value < size:
            raise UsageError(f"{word} must be 0 to {size - 1}; got {show(value)}.")
    name = f"blocks.{layer}.attn.pattern"
    pattern = prompted.runner.run(list(prompted.ids), [name])[name][0, number]
    hidden = ~find_visible(prompted.runner.config, len(prompted.ids))
    labels = prompted.labels
    return Grid(
        f"attention pattern of layer {layer}, head {number}",
        pattern,
        labels,
        labels,
        "query",
        "key",
        masked=hidden.astype(np.float64),
        masked_label="hidden by the mask",
        decimals=2,
        is_compact=len(labels) > 12,
    )


def view_attention(
    prompted: PromptedModel,
    *,
    head: tuple[int, int] | None = None,
    prompts: Sequence[Sequence[int]] = (),
) -> View:
    """Returns the attention statistics of every head on the prompt, or on `prompts` where they are given, and
    the pattern of a chosen head (layer, head) on the prompt."""
    config, texts = prompted.runner.config, [*prompts] or [prompted.ids]
    plots = [] if head is None else [map_pattern(prompted, head)]
    pattern = plots[0].values.tolist() if plots else None
    formula = "P = blocks.L.attn.pattern, n_t: keys visible to query t; means over the positions t ≥ 1\n"
    formula += "\n".join(f"{name} = {definition}" for name, definition in STATISTICS.items())
    title, data = f"Attention of {prompted.name}", {"head": head, "pattern": pattern}
    try:
        check_statistics(config, texts)
    except UsageError as error:  # other views of the same prompt are shown all the same
        return View("attention", title, formula, (), plots, [f"There are no statistics: {error}"], data)
    found = compute_attention_statistics(prompted.runner, texts)
    maps = [map_heads(name, config, found.means[name]) for name in MAPPED]
    rows: list[list[Entry]] = [
        [f"{i}.{j}", *(float(found.means[name][i, j]) for name in STATISTICS)]
        for i in range(config.n_layer)
        for j in range(config.n_head)
    ]
    return View(
        "attention",
        title,
        formula,
        [ViewTable("attention of each head (layer.head)", ["head", *STATISTICS], rows)],
        [*plots, *maps],
        [f"Means over {pluralize(found.n_positions, 'position')}."],
        {
            "n_positions": found.n_positions,
            "means": {name: values.tolist() for name, values in found.means.items()},
            **data,
        },
    )
