"""The operations of samplers on rows of logits in torch: the same names and formulas as in `reference/ops/`.

Scores are [B V] in float64, and a number of the formula is a column [B 1], so that rows with different
settings run together. No row's result depends on the others: a sum over one long row may be split over
threads and is not used.
"""

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.parts.samplers import Table
from pellucid.reference.ops.sampling import sort_tokens

BOUNDS = (1e-4, 1e-6)
"""Probabilities above which the first tokens are looked for, before all of a row are sorted."""
COLUMN = 64
"""Numbers of a long row of which the largest is found before a few of all are sorted."""
LOWEST = torch.finfo(torch.float64).min
"""Stands for the maximum where all scores are −∞: −∞ − LOWEST is −∞."""


class Ranking(NamedTuple):
    """The first tokens of a row in order of its keys: the largest first, of equals the smaller id."""

    ids: Table
    probs: Table
    reached: Table
    """The cumulative probabilities."""

    @property
    def before(self) -> Table:
        """The probability of the tokens before each."""
        return np.concatenate(([0.0], self.reached[:-1]))[: len(self.ids)]

    @property
    def total(self) -> float:
        return float(self.reached[-1]) if len(self.reached) else 0.0


def to_array(rows: Tensor) -> Table:
    """Returns rows of numbers for NumPy, without a copy where they lie on the CPU."""
    return (rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows).cpu().numpy()


def rank_first(keys: Table, probs: Table, mass: float, least: int = 1) -> Ranking:
    """Returns the first tokens of a row [V] in order of its keys, in which the probabilities fall: as many as
    reach more than the mass, and at least `least`; or all whose key is above −∞.

    All tokens above a bound come before those below it, and the fewer are sorted the better.
    """
    for bound in BOUNDS:
        (ids,) = np.nonzero(probs > bound)
        if len(ids) >= least:
            ranking = _rank(keys, probs, ids)
            if ranking.total > mass:
                return ranking
    return rank_all(keys, probs)


def rank_all(keys: Table, probs: Table) -> Ranking:
    """Returns all tokens of a row [V] whose key is above −∞, in order of the keys."""
    return _rank(keys, probs, np.nonzero(keys > -np.inf)[0])


def _rank(keys: Table, probs: Table, ids: Table) -> Ranking:
    ids = ids[sort_tokens(keys[ids])]  # the ids ascend, and the sort is stable
    return Ranking(ids, probs[ids], np.cumsum(probs[ids]))


# ---- the operations

ROW_OPERATIONS: dict[str, Callable[..., Tensor]] = {}
"""By the name of the same operation in `reference/ops/`."""


def row_operation(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorator: adds a function to the table."""
    ROW_OPERATIONS[function.__name__] = function
    return function


def run_step(name: str, operation: str, *values: Tensor, **numbers: Any) -> Tensor:
    """Computes one step of a sampler; its name is for tapes."""
    return ROW_OPERATIONS[operation](*values, **numbers)


@row_operation
def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


@row_operation
def temper(scores: Tensor, temperature: Tensor) -> Tensor:
    return (scores - scores.amax(-1, keepdim=True).clamp_min(LOWEST)).div_(temperature)


@row_operation
def penalize(scores: Tensor, marked: Tensor, penalty: Tensor) -> Tensor:
    return torch.where(marked.bool(), torch.where(scores > 0, scores / penalty, scores * penalty), scores)


@row_operation
def add(scores: Tensor, bias: Tensor) -> Tensor:
    return scores + bias


@row_operation
def scaled_sum(x: Tensor, update: Tensor, alpha: Tensor) -> Tensor:
    return x + alpha * update


@row_operation
def mask(scores: Tensor, allowed: Tensor) -> Tensor:
    return torch.where(allowed.bool(), scores, -torch.inf)


@row_operation
def keep_at_least(scores: Tensor, x: Tensor, bound: Tensor) -> Tensor:
    if x.device.type == "cpu":  # NumPy compares a long row in a quarter of the time
        return torch.from_numpy(np.where(to_array(x) >= bound.numpy(), to_array(scores), -np.inf))
    return torch.where(x >= bound, scores, -torch.inf)


@row_operation
def keep_below(scores: Tensor, x: Tensor, bound: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return torch.from_numpy(np.where(to_array(x) < bound.numpy(), to_array(scores), -np.inf))
    return torch.where(x < bound, scores, -torch.inf)


@row_operation
def scaled_max(x: Tensor, share: Tensor) -> Tensor:
    return x.amax(-1, keepdim=True) * share


@row_operation
def minimum(x: Tensor, limit: Tensor) -> Tensor:
    return torch.minimum(x, limit)


@row_operation
def entropy(probs: Tensor) -> Tensor:
    terms = torch.where(probs > 0, -probs * probs.log(), 0.0)
    return torch.from_numpy(to_array(terms).sum(-1, keepdims=True)).to(probs.device)


@row_operation
def typicality(probs: Tensor, entropy: Tensor) -> Tensor:
    return -(probs.log() + entropy).abs()


@row_operation
def kth_largest(x: Tensor, k: Tensor) -> Tensor:
    sizes = [min(int(size), x.shape[-1]) for size in k.flatten().tolist()]
    if x.device.type == "cpu":
        largest = [find_kth_largest(row, size) for row, size in zip(to_array(x), sizes, strict=True)]
        return torch.tensor(largest, dtype=x.dtype)[:, None]
    found = torch.empty_like(x[:, :1])
    for size, rows in itertools.groupby(sorted(range(len(sizes)), key=sizes.__getitem__), sizes.__getitem__):
        some = list(rows)
        found[some] = x[some].topk(size, -1).values[:, -1:]
    return found


def find_kth_largest(row: Table, k: int) -> float:
    """Returns the k-th largest number of a row [V]; of a long one, only a few of its numbers are ordered."""
    bound = bound_kth_largest(row, k)
    return select_kth_largest(row if bound is None else row[~(row < bound)], k)


def bound_kth_largest(row: Table, k: int) -> float | None:
    """Returns a number that is at most the k-th largest of a long row [V], and not far below it; None where
    the row is too short.

    The row is cut into columns. The k-th largest of their maxima is such a number, since k columns each have
    one at least as large.
    """
    width = len(row) // COLUMN
    if width < 2 * k:
        return None
    return select_kth_largest(row[: COLUMN * width].reshape(COLUMN, width).max(0), k)


def select_kth_largest(numbers: Table, k: int) -> float:
    """Returns the k-th largest of a few numbers."""
    return float(np.partition(numbers, len(numbers) - k)[len(numbers) - k])


@row_operation
def mass_before(probs: Tensor, keys: Tensor, limit: Tensor) -> Tensor:
    table, order = to_array(probs), to_array(keys)
    before = np.broadcast_to(to_array(limit), table.shape).copy()
    for row, most in enumerate(limit.flatten().tolist()):
        ranking = (
            rank_first(order[row], table[row], most) if keys is probs else rank_all(order[row], table[row])
        )
        before[row, ranking.ids] = np.minimum(ranking.before, most)
    return torch.from_numpy(before).to(probs.device)


# ---- threads


@contextlib.contextmanager
def use_one_thread() -> Iterator[None]:
    """Runs torch's operations of the calling thread without others, where torch has OpenMP.

    The threads of OpenMP spin for a while after their work, on the cores that the compiled decoder's threads
    use. `torch.set_num_threads` would change the number for threads that begin meanwhile; OpenMP's own
    function changes it for the thread that calls it.
    """
    before, set_threads = torch.get_num_threads(), _find_setter()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


@cache
def _find_setter() -> Callable[[int], object]:
    """Returns the function of the OpenMP library that torch is linked with."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        with contextlib.suppress(OSError, AttributeError):
            setter: Callable[[int], object] = ctypes.CDLL(str(path)).omp_set_num_threads
            return setter
    return lambda count: None
