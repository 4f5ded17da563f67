"""Costs of the matrices: KL(reference ‖ model) where only some of the matrices are quantized.

First all matrices of one kind together (`blocks.*.mlp.up_proj.weight`), then all of one layer (`blocks.3.*`),
then single ones, those first whose kind and layer cost most. A model with only the matrices of layer 12
quantized computes the same as the reference up to layer 12, so each measurement begins there. Of a large
model fewer tokens are read and not every matrix is measured; how many follows from counted operations, never
from a clock, so that each run measures the same.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.engine.transformer import Transformer
from pellucid.evaluation.bootstrap import draw_means
from pellucid.evaluation.quantization.divergence import Floats, compare_logits
from pellucid.evaluation.quantization.sample import BillSample, count_targets
from pellucid.evaluation.result import Estimate
from pellucid.evaluation.windows import WindowRow, make_batches, make_rows, pad_rows

OPERATIONS = 2e12
"""Operations of all measurements together, about: a minute on one core."""
MOST_TOKENS, FEWEST_TOKENS = 192, 64
"""Targets that each measurement reads."""
BATCH = 512
"""Tokens of a forward pass."""
KEPT_TOGETHER = 3
"""The costliest matrices that are kept together, to show what that gives."""
LEVELS = ("kind", "layer", "matrix")
EMBEDDING = -1
"""The place of the embedding, before block 0."""
BLOCKS = "blocks.*."
BLOCK = re.compile(r"blocks\.(\d+)\.")


@dataclass(frozen=True)
class GroupCost:
    """The cost of quantizing some matrices alone."""

    level: str
    """kind, layer or matrix."""
    pattern: str
    """Their names, as `--keep` takes them."""
    n_matrices: int
    bytes: int
    """As quantized."""
    kl: Estimate
    """KL(reference ‖ model with these matrices quantized), nats per token."""


@dataclass(frozen=True)
class KeptCost:
    """What the quantized model costs where some matrices stay as they are."""

    keep: tuple[str, ...]
    kl: Estimate
    bytes: int
    """Of the whole model."""
    bits_per_weight: float


@dataclass(frozen=True)
class QuantizationCosts:
    """The costs of the groups of a model, each level sorted, the costliest first."""

    n_tokens: int
    """Targets that each was measured on."""
    total: Estimate
    """KL with all of them quantized, on the same targets."""
    groups: tuple[GroupCost, ...]
    n_exact: int
    """Matrices that quantization does not change, which cost nothing."""
    n_unmeasured: int
    """Other single matrices that were left out."""
    kept: tuple[KeptCost, ...]

    def of(self, level: str) -> list[GroupCost]:
        return [one for one in self.groups if one.level == level]


@dataclass(frozen=True)
class MatrixGroup:
    """Matrices that are quantized together; `first` is the first block that computes another number, the
    number of blocks where none does, `EMBEDDING` where the embedding differs."""

    level: str
    pattern: str
    names: tuple[str, ...]
    first: int


def list_groups(names: Sequence[str], n_layer: int) -> list[MatrixGroup]:
    """Returns the kinds, the layers and the single matrices of some parameters.

    >>> found = list_groups(["embed.weight", "blocks.0.mlp.up_proj.weight"], 1)
    >>> [(group.level, group.pattern, group.first) for group in found][:2]
    [('kind', 'embed.weight', -1), ('kind', 'blocks.*.mlp.up_proj.weight', 0)]
    """
    kinds, layers = dict[str, list[str]](), dict[str, list[str]]()
    for name in names:
        kinds.setdefault(BLOCK.sub(BLOCKS, name), []).append(name)
        if block := BLOCK.match(name):
            layers.setdefault(f"{block[0]}*", []).append(name)
    groups = (("kind", kinds), ("layer", layers), ("matrix", {name: [name] for name in names}))
    return [
        MatrixGroup(level, pattern, tuple(some), min(_first_block(name, n_layer) for name in some))
        for level, patterns in groups
        for pattern, some in patterns.items()
    ]


def _first_block(name: str, n_layer: int) -> int:
    if block := BLOCK.match(name):
        return int(block[1])
    return n_layer if name.startswith("unembed.") else EMBEDDING


EVERY = MatrixGroup("", "", (), EMBEDDING)
"""No matrix is kept."""


@dataclass(frozen=True)
class StoredSizes:
    """Bytes of a quantized model: of each matrix that is quantized, of the same matrix where it is kept, and
    of all other parameters together."""

    quantized: Mapping[str, int]
    kept: Mapping[str, int]
    others: int
    n_weights: int
    """Numbers of the whole model."""

    def total(self, keep: Collection[str] = ()) -> int:
        """Returns the bytes of the model where some of the matrices are kept."""
        sizes = (self.kept[name] if name in keep else size for name, size in self.quantized.items())
        return self.others + sum(sizes)

    def bits_per_weight(self, keep: Collection[str] = ()) -> float:
        return 8 * self.total(keep) / self.n_weights


@dataclass(frozen=True)
class _Batch:
    """A forward pass of the reference: the arguments that each block was called with, the last hidden states,
    and the logits at the counted targets."""

    ids: Tensor
    places: Tensor
    """[n] the targets among the B · T tokens."""
    order: NDArray[np.int64]
    """[n] their places among all targets of the sample."""
    targets: Tensor
    entries: list[tuple[Any, ...]]
    hidden: Tensor
    logits: Tensor


class CostMeter:
    """Measures KL of groups of a model on the beginnings of a sample; `names` are the matrices that
    quantization changes."""

    def __init__(
        self,
        reference: Transformer,
        quantized: Transformer,
        sample: BillSample,
        names: Sequence[str],
        window: int,
    ) -> None:
        self.reference, self.quantized = reference, quantized
        groups = list_groups(names, reference.config.n_layer)
        self.groups = [group for group in groups if group.level != "matrix"]
        self.matrices = [group for group in groups if group.level == "matrix"]
        self.sample = sample.begin(self._choose_tokens(sample.n_targets))
        rows = make_rows(self.sample.documents, window, window)
        self._batches = [self._record(batch) for batch in make_batches(rows, BATCH)]
        self._measured = dict[frozenset[str], Floats]()

    # ---- what to measure

    def count_operations(self, groups: Iterable[MatrixGroup]) -> int:
        """Returns the operations for one token: those of the matrix products, from the first block on that
        differs."""
        config = self.reference.config
        shapes = config.parameters().items()
        block = sum(math.prod(shape) for name, shape in shapes if name.startswith("blocks.0."))
        unembedding = config.vocab_size * config.d_model
        return sum(2 * ((config.n_layer - max(group.first, 0)) * block + unembedding) for group in groups)

    def _choose_tokens(self, most: int) -> int:
        """Returns how many targets are read, so that all kinds and layers can be measured."""
        affordable = int(OPERATIONS / max(self.count_operations(self.groups), 1))
        return min(most, max(FEWEST_TOKENS, min(MOST_TOKENS, affordable)))

    def choose_matrices(self) -> list[MatrixGroup]:
        """Returns the single matrices to measure: those first whose kind and layer cost most, as many as the
        operations allow, and at least one."""
        means = {group.pattern: float(self.measure(group).mean()) for group in self.groups}

        def predict(group: MatrixGroup) -> float:
            block, kind = BLOCK.match(group.pattern), means[BLOCK.sub(BLOCKS, group.pattern)]
            return kind * (means[f"{block[0]}*"] if block else kind)

        left = OPERATIONS / self.sample.n_targets - self.count_operations(self.groups)
        chosen = list[MatrixGroup]()
        for group in sorted(self.matrices, key=lambda group: (-predict(group), group.pattern)):
            if frozenset(group.names) not in self._measured:
                left -= self.count_operations([group])
            if chosen and left < 0:
                break
            chosen.append(group)
        return chosen

    # ---- measuring

    def measure(self, group: MatrixGroup) -> Floats:
        """Returns KL at each target [N] with only the group's matrices quantized."""
        key = frozenset(group.names)
        if key not in self._measured:
            with borrow(self.reference, self.quantized, group.names):
                self._measured[key] = self._compare(self.reference, group.first)
        return self._measured[key]

    def measure_kept(self, names: Sequence[str]) -> Floats:
        """Returns KL at each target [N] with all matrices quantized but these."""
        with borrow(self.quantized, self.reference, names):
            return self._compare(self.quantized, EMBEDDING)

    def _compare(self, module: Transformer, first: int) -> Floats:
        kl = np.empty(self.sample.n_targets)
        for batch in self._batches:
            logits = self._unembed(module, self._run(module, batch, first), batch.places)
            kl[batch.order] = compare_logits(batch.logits, logits, batch.targets).kl
        return kl

    @torch.no_grad()
    def _run(self, module: Transformer, batch: _Batch, first: int) -> Tensor:
        """Returns the last hidden states of a module that computes as the reference up to block `first`."""
        if first == EMBEDDING:
            return module.hidden_states(batch.ids)
        if first == len(module.blocks):
            return batch.hidden
        hidden, *rest = batch.entries[first]
        for block in module.blocks[first:]:
            hidden = block(hidden, *rest)
        found: Tensor = hidden if module.final_norm is None else module.final_norm(hidden)
        return found

    @torch.no_grad()
    def _record(self, rows: list[WindowRow]) -> _Batch:
        module, entries = self.reference, list[tuple[Any, ...]]()
        ids = torch.as_tensor(pad_rows(rows), device=module.device)
        module.check_ids(ids)
        hooks = [
            block.register_forward_pre_hook(lambda _, given: entries.append(given)) for block in module.blocks
        ]
        try:
            hidden = module.hidden_states(ids)
        finally:
            for hook in hooks:
                hook.remove()
        places = np.concatenate([i * ids.shape[1] + row.context - 1 for i, row in enumerate(rows)])
        starts = np.cumsum([0, *map(count_targets, self.sample.documents)])
        order = [starts[row.number] + np.cumsum(row.document.is_counted)[row.counted] - 1 for row in rows]
        targets = np.concatenate([row.document.ids[1:][row.counted] for row in rows])
        at, wanted = (torch.as_tensor(array, device=module.device) for array in (places, targets))
        logits = self._unembed(module, hidden, at)
        return _Batch(ids, at, np.concatenate(order), wanted, entries, hidden, logits)

    @torch.no_grad()
    def _unembed(self, module: Transformer, hidden: Tensor, places: Tensor) -> Tensor:
        return module.logits(hidden.flatten(0, 1)[places][None])[0]


@contextmanager
def borrow(module: Transformer, lender: Transformer, names: Sequence[str]) -> Iterator[None]:
    """In this block some parameters of a module have the values that another one has for them."""
    held = {name: module.get_parameter(name) for name in names}
    own = {name: parameter.data for name, parameter in held.items()}
    try:
        for name, parameter in held.items():
            parameter.data = lender.get_parameter(name).data
        yield
    finally:
        for name, parameter in held.items():
            parameter.data = own[name]


def measure_costs(
    meter: CostMeter,
    sizes: StoredSizes,
    *,
    samples: int,
    seed: int,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> QuantizationCosts:
    """Returns what each group costs, and what keeping the costliest gives. `progress` gets what is measured,
    the tokens that are read, and their total."""
    tokens = meter.sample.n_targets

    def watch(what: str, groups: Sequence[MatrixGroup]) -> Iterator[MatrixGroup]:
        for i, group in enumerate(groups):
            progress(what, i * tokens, len(groups) * tokens)
            yield group
        progress(what, len(groups) * tokens, len(groups) * tokens)

    measured = {group: meter.measure(group) for group in watch("kinds and layers", meter.groups)}
    singles = meter.choose_matrices()
    measured |= {group: meter.measure(group) for group in watch("single matrices", singles)}
    keeping = [EVERY, *list_kept(measured, sizes)]
    kept = {group: meter.measure_kept(group.names) for group in watch("what is kept", keeping)}
    every = np.stack([*measured.values(), *kept.values()])
    estimates, _ = draw_means(every, number_units(meter.sample), samples, seed)
    groups = [
        GroupCost(
            group.level,
            group.pattern,
            len(group.names),
            sum(sizes.quantized[name] for name in group.names),
            estimate,
        )
        for group, estimate in zip(measured, estimates, strict=False)
    ]
    total, *rest = estimates[len(measured) :]
    return QuantizationCosts(
        n_tokens=tokens,
        total=total,
        groups=tuple(sorted(groups, key=lambda one: (LEVELS.index(one.level), -one.kl.value, one.pattern))),
        n_exact=len(sizes.quantized) - len(meter.matrices),
        n_unmeasured=len(meter.matrices) - len(singles),
        kept=tuple(
            KeptCost(
                tuple(group.pattern.split()),
                estimate,
                sizes.total(group.names),
                sizes.bits_per_weight(group.names),
            )
            for group, estimate in zip(keeping[1:], rest, strict=True)
        ),
    )


def list_kept(measured: Mapping[MatrixGroup, Floats], sizes: StoredSizes) -> list[MatrixGroup]:
    """Returns what might be kept: the costliest kind, layer and matrix; then the matrix, and the few
    matrices, that cost most for each byte that keeping them adds. A pattern with spaces is several."""

    def rank(level: str, divide: bool = False) -> list[MatrixGroup]:
        """Returns the groups of a level, the costliest first."""

        def key(group: MatrixGroup) -> tuple[float, str]:
            added = sizes.total(group.names) - sizes.total() if divide else 1
            return -float(measured[group].mean()) / max(added, 1), group.pattern

        return sorted(
            (group for group in measured if group.level == level and measured[group].any()), key=key
        )

    few = rank("matrix", divide=True)[:KEPT_TOGETHER]
    names = tuple(group.names[0] for group in few)
    together = [MatrixGroup("matrix", " ".join(names), names, EMBEDDING)] if few else []
    found = dict[frozenset[str], MatrixGroup]()
    for group in (*(one for level in LEVELS for one in rank(level)[:1]), *few[:1], *together):
        if len(group.names) < len(sizes.quantized):
            found.setdefault(frozenset(group.names), group)
    return list(found.values())


def number_units(sample: BillSample) -> NDArray[np.int64]:
    """Returns the number of the span of each target, [N]."""
    lengths = [span.last - span.first for span in sample.spans()]
    return np.repeat(np.arange(len(lengths)), lengths)
