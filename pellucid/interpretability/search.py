"""Maximum inner product search: the rows of a matrix with the largest inner product with a query, exactly.

    best = argmax_i q · v_i,  i = 0 … V−1        V · C multiply-adds, and V · C numbers read

The most likely next token is one such search: q is the final hidden state, v_i the rows of the unembedding.
Attention is not: it returns Σ_i p_i v_i with p = softmax(q · k_i / √D), a weighted average of all values,
which is the value of the best key only where its weight is 1.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pellucid.base.arguments import check_int
from pellucid.base.dtypes import Array
from pellucid.config.cost import cost_of_unembedding
from pellucid.interpretability.attention import has_pattern, map_heads
from pellucid.interpretability.runner import PromptedModel, Values
from pellucid.report.items import View, ViewTable

FORMULA = """next token: argmax_v h · W_U[v], h = final_norm.out, at the cost of V · C multiply-adds
a head: z = Σ_s P[t, s] V[s], not V[argmax_s P[t, s]]"""
LONG_ROW = 4096
"""Numbers of a row in which a matrix is read the fastest, about."""
ABOVE_ONE = (
    "The share is above 1, which is a measurement error: no search is faster than reading its numbers. The "
    "machine was busy; look again."
)
REPEATS = 7
"""Searches of which the fastest is reported."""


def search_inner_products(vectors: Array, query: Array, count: int = 1) -> tuple[Array, Array]:
    """Returns the rows i of vectors [V C] with the largest query · v_i, and these inner products."""
    scores = vectors @ query
    best = find_largest(scores, count)
    return best, scores[best]


@dataclass(frozen=True)
class SearchCost:
    """What one exact search over V rows of C numbers costs, and what it took.

    `bound_seconds` is the time in which this machine reads as many bytes with the threads that the search
    gets: the faster of the products alone, and of the same numbers in long rows times a vector, which the
    same routine computes. Each reads every number once and does as many multiply-adds.
    """

    n_rows: int
    width: int
    multiply_adds: int
    bytes_read: int
    seconds: float
    bound_seconds: float

    @property
    def share(self) -> float:
        """The share of the bound in the time of the search; above 1 it is a measurement error."""
        return self.bound_seconds / self.seconds


def measure_search(vectors: Array, query: Array) -> SearchCost:
    """Returns the cost of one exact search, with the fastest of several runs in the type of the vectors."""
    n_rows, width = vectors.shape
    flat, query = np.ascontiguousarray(vectors).ravel(), query.astype(vectors.dtype)
    rows = max(1, len(flat) // LONG_ROW)
    long_rows = flat[: len(flat) // rows * rows].reshape(rows, -1)
    factors = np.ones(long_rows.shape[1], vectors.dtype)
    seconds, *bounds = time_in_turn(
        lambda: search_inner_products(vectors, query),
        lambda: vectors @ query,
        lambda: long_rows @ factors,
    )
    multiply_adds = cost_of_unembedding(n_rows, width).flops // 2
    return SearchCost(n_rows, width, multiply_adds, vectors.nbytes, seconds, min(bounds))


def time_in_turn(*calls: Callable[[], object]) -> list[float]:
    """Returns the fastest of several runs of each call; they take turns, so that what else the machine does
    slows all of them alike."""
    best = [math.inf] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class HeadSearch:
    """One head at one query position, beside the search over its keys that it is not.

    `best_key` has the largest weight, and therefore the largest score; `distance` is
    ‖z − v_best‖ / ‖z‖, which is 0 for a true argmax; None where z is 0.
    """

    layer: int
    head: int
    best_key: int
    best_weight: float
    distance: float | None


def compare_heads_with_search(values: Values, position: int = -1) -> list[HeadSearch]:
    """Returns one entry for each head of the recorded layers, from `attn.pattern`, `attn.v` and `attn.z` of
    the first sequence."""
    found = []
    for name in values:
        block, _, last = name.rpartition(".")
        if last != "pattern":
            continue
        pattern = values[name][0, :, position]
        v, z = values[f"{block}.v"][0], values[f"{block}.z"][0, :, position]
        group = len(pattern) // len(v)
        for head, weights in enumerate(pattern):
            best = int(weights.argmax())
            norm = float(np.linalg.norm(z[head]))
            distance = float(np.linalg.norm(z[head] - v[head // group, best]))
            found.append(
                HeadSearch(
                    int(block.split(".")[1]),
                    head,
                    best,
                    float(weights[best]),
                    distance / norm if norm else None,
                )
            )
    return found


def view_search(prompted: PromptedModel, *, count: int = 10) -> View:
    """Returns the next token as a search over the unembedding with its cost, and each head at the last
    position beside the search that it is not."""
    runner, config = prompted.runner, prompted.runner.config
    final = "final_norm.out" if config.placement.final else f"blocks.{config.n_layer - 1}.resid_post"
    names = ("pattern", "v", "z") if has_pattern(config) else ()
    values = runner.run(prompted.ids, [final, *(f"blocks.*.attn.{name}" for name in names)])
    vectors, query = runner.weights[config.unembedding.weight], values[final][0, -1]
    if (bias := runner.weights.get("unembed.bias")) is not None:  # q = (h, 1), v = (W_U, b_U)
        vectors, query = np.column_stack([vectors, bias]), np.append(query, 1.0)
    best, products = search_inner_products(vectors, query, check_int("count", count, least=1))
    cost, heads = measure_search(vectors, query), compare_heads_with_search(values)
    found = list(zip(best.tolist(), products.tolist(), strict=True))
    tokens = ViewTable(
        "the rows of the unembedding with the largest inner product with the final hidden state",
        ("token", "id", "h · W_U"),
        [(prompted.show_token(id), id, product) for id, product in found],
    )
    weights = np.array([head.best_weight for head in heads]).reshape(-1, config.n_head)
    return View(
        "search",
        f"{prompted.name}: search",
        FORMULA,
        [tokens, _make_cost_table(cost), *_make_head_tables(heads, prompted.labels)],
        [map_heads("weight of the best key", config, weights)] if heads else [],
        [ABOVE_ONE] if cost.share > 1 else (),
        {
            "next_token": [{"id": id, "inner_product": product} for id, product in found],
            "cost": asdict(cost),
            "heads": [asdict(head) for head in heads],
        },
    )


def _make_cost_table(cost: SearchCost) -> ViewTable:
    return ViewTable(
        f"an exact search over {cost.n_rows:,} rows of {cost.width:,} numbers",
        ("multiply-adds", "bytes read", "ms", "ms to read as many bytes", "share"),
        [
            (
                cost.multiply_adds,
                cost.bytes_read,
                1e3 * cost.seconds,
                1e3 * cost.bound_seconds,
                cost.share,
            )
        ],
        3,
    )


def _make_head_tables(heads: Sequence[HeadSearch], labels: Sequence[str]) -> list[ViewTable]:
    """Returns a row for each layer; no table where no head has a pattern."""
    rows = []
    for layer in sorted({head.layer for head in heads}):
        here = [head for head in heads if head.layer == layer]
        best = max(here, key=lambda head: head.best_weight)
        weight = float(np.mean([head.best_weight for head in here]))
        distances = [head.distance for head in here if head.distance is not None]
        distance = float(np.mean(distances)) if distances else None
        rows.append((layer, weight, distance, best.head, labels[best.best_key], best.best_weight))
    caption = (
        "heads at the last position: the weight of the key with the largest score, and how far the head's "
        "output is from that key's value"
    )
    columns = ("layer", "mean weight", "mean ‖z − v‖ / ‖z‖", "most certain head", "its key", "its weight")
    return [ViewTable(caption, columns, rows)] if rows else []


def find_largest(scores: Array, count: int) -> Array:
    """Returns the places of the `count` largest scores [V], the largest first, the lower place of equal
    ones; NaN is the smallest.

    >>> find_largest(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    count = min(count, len(scores))
    if count < 1:
        return np.zeros(0, np.int64)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    bound = np.partition(scores, len(scores) - count)[len(scores) - count]
    places = np.flatnonzero(scores >= bound)
    return places[np.argsort(-scores[places], kind="stable")][:count]
