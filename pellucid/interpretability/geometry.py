"""The geometry of the embedding and the unembedding: directions, neighbors, analogies and principal axes.

cos(u, v) = u · v / (‖u‖ ‖v‖)          1: the same direction (not the same vector), −1: the opposite
‖û − v̂‖² = 2 − 2 cos(u, v)             of unit vectors û, v̂: both order neighbors alike
E[cos] = 0, sd[cos] = 1/√C             of two random directions in C dimensions: almost orthogonal
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid.base.arguments import check_int
from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError, unknown
from pellucid.interpretability.runner import PromptedModel, check_tokens
from pellucid.interpretability.search import find_largest
from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.diagram import Grid
from pellucid.report.figure import Plot
from pellucid.report.items import View, ViewTable

FORMULA = """cos(u, v) = u · v / (‖u‖ ‖v‖) of rows of {name};  a : b :: c : argmax_x cos(x, b̂ − â + ĉ)
principal axes: covariance of the rows = Q Λ Qᵀ, coordinates (x − mean) Q"""
MATRICES = ("embed.weight", "unembed.weight")
PAIRS = 20_000
"""Random pairs of tokens whose cosines make the histogram."""
BINS = 60
SHOWN = 10
"""Neighbors, answers and principal axes that are shown."""
MOST = 20
"""Tokens that are looked at, at most."""


def normalize_rows(vectors: Array) -> Array:
    """Returns v / ‖v‖ of each row [.. C]; a row of zeros, which has no direction, stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


def compute_cosines(some: Array, others: Array) -> Array:
    """Returns cos(u_i, v_j), [M N], of rows u [M C] and v [N C]; 0 where one of them is zero.

    >>> compute_cosines(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])).tolist()
    [[1.0, 0.0, -1.0]]
    """
    products, norms = some @ others.T, np.outer(_measure_norms(some), _measure_norms(others))
    return products / np.where(norms > 0, norms, 1.0)


def _measure_norms(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


class Neighbor(NamedTuple):
    token: int
    score: float


def find_neighbors(
    vectors: Array,
    query: Array,
    count: int = SHOWN,
    *,
    measure: Literal["cosine", "inner product"] = "cosine",
    exclude: Collection[int] = (),
) -> list[Neighbor]:
    """Returns the rows of vectors [V C] nearest to the query [C], by cosine or by inner product."""
    if measure not in ("cosine", "inner product"):
        raise UsageError(unknown("a measure of neighbors", measure, ("cosine", "inner product")))
    scores = compute_cosines(vectors, query[None])[:, 0] if measure == "cosine" else vectors @ query
    scores[list(exclude)] = -np.inf
    best = find_largest(scores, min(count, len(vectors) - len(set(exclude))))
    return [Neighbor(int(token), float(scores[token])) for token in best]


def solve_analogy(vectors: Array, a: int, b: int, c: int, count: int = SHOWN) -> list[Neighbor]:
    """Returns the answers to a : b :: c : ?, the tokens x with the largest cos(x, b̂ − â + ĉ) (3CosAdd).

    a, b and c themselves are excluded, as is usual: without that, the answer is often b or c.
    """
    first, second, third = normalize_rows(vectors[[a, b, c]])
    return find_neighbors(vectors, second - first + third, count, exclude={a, b, c})


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """The principal components of rows: their mean [C], the axes [C C] as rows, the largest variance first,
    each with its largest entry positive, and the variances [C]."""

    mean: Array
    axes: Array
    variances: Array

    @property
    def shares(self) -> Array:
        """The share of the variance along each axis, [C]."""
        total = self.variances.sum()
        return self.variances / total if total > 0 else self.variances

    def project(self, vectors: Array, count: int = 2) -> Array:
        """Returns the coordinates (x − mean) Q of rows along the first axes, [N count]."""
        return (vectors - self.mean) @ self.axes[:count].T


def find_principal_axes(vectors: Array) -> PrincipalAxes:
    """Returns the principal components of rows [V C]: Q Λ Qᵀ = (X − mean)ᵀ (X − mean) / (V − 1).

    They come from a singular value decomposition of this symmetric matrix [C C], whose singular values are
    the variances; that of the rows [V C] has the same axes and takes many times longer, unless they are few.
    """
    mean, (rows, width) = vectors.mean(0), vectors.shape
    centered = vectors - mean
    if rows < width:
        _, sizes, axes = np.linalg.svd(centered)
        variances = np.pad(sizes**2 / max(rows - 1, 1), (0, width - rows))
    else:
        _, variances, axes = np.linalg.svd(centered.T @ centered / max(rows - 1, 1))
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    return PrincipalAxes(mean, axes * signs[:, None], variances)


@dataclass(frozen=True)
class CosineSpread:
    """The mean and the standard deviation of the cosines of all pairs of two different rows."""

    mean: float
    sd: float


def measure_spread(vectors: Array) -> CosineSpread:
    """Returns the mean and the standard deviation of cos(v_i, v_j) over all i ≠ j, exactly.

    Σ_ij cos = ‖Σ v̂_i‖² and Σ_ij cos² = ‖Σ v̂_i v̂_iᵀ‖²_F, less the n ones of i = j; rows of zeros do not
    count, and fewer than two rows have 0 and 0. The mean is the anisotropy: 0 where the directions are spread
    evenly.
    """
    unit = normalize_rows(vectors)
    unit = unit[unit.any(1)]
    n = len(unit)
    if n < 2:
        return CosineSpread(0.0, 0.0)
    mean = float((unit.sum(0) ** 2).sum() - n) / (n * (n - 1))
    square = float(((unit.T @ unit) ** 2).sum() - n) / (n * (n - 1))
    return CosineSpread(mean, math.sqrt(max(square - mean**2, 0.0)))


def sample_cosines(vectors: Array, n_pairs: int = PAIRS, seed: int = 0) -> Array:
    """Returns the cosines of random pairs of two different rows, [n_pairs]."""
    random, size = np.random.default_rng(seed), len(vectors)
    if size < 2:
        return np.zeros(0)
    one = random.integers(0, size, n_pairs)
    other = (one + random.integers(1, size, n_pairs)) % size
    norms = _measure_norms(vectors)
    products = np.einsum("ij,ij->i", vectors[one], vectors[other])
    scale = norms[one] * norms[other]
    return np.asarray(products / np.where(scale > 0, scale, 1.0))


def compute_random_density(cosines: Array, width: int) -> Array:
    """Returns the density of the cosine of two random directions in C = `width` > 1 dimensions.

    (1 − x²)^((C − 3) / 2) / B(½, (C − 1) / 2), with mean 0 and variance 1/C.
    """
    log_beta = math.lgamma(0.5) + math.lgamma((width - 1) / 2) - math.lgamma(width / 2)
    return np.asarray(np.exp((width - 3) / 2 * np.log1p(-(cosines**2)) - log_beta))


@dataclass(frozen=True)
class NormSummary:
    """The norms of the rows of a matrix, with the tokens of the smallest and the largest."""

    mean: float
    sd: float
    smallest: Neighbor
    largest: Neighbor


def summarize_norms(vectors: Array) -> NormSummary:
    norms = _measure_norms(vectors)
    ends = int(norms.argmin()), int(norms.argmax())
    small, large = (Neighbor(end, float(norms[end])) for end in ends)
    return NormSummary(float(norms.mean()), float(norms.std()), small, large)


@dataclass(frozen=True, eq=False)
class TokenGeometry:
    """Where some tokens are among the rows of a matrix [V C], and how all of its rows lie."""

    tokens: list[int]
    cosines: Array
    """[n n], of the tokens with each other."""
    neighbors: list[list[Neighbor]]
    """Of each token by cosine, itself excluded."""
    products: list[list[Neighbor]]
    """Of each token by inner product, itself included."""
    axes: PrincipalAxes
    coordinates: Array
    """[n 2], of the tokens along the first two principal axes."""
    spreads: dict[str, CosineSpread]
    """Of all rows, of all rows less their mean, and of random directions."""
    norms: NormSummary


def measure_geometry(
    vectors: Array,
    tokens: Sequence[int],
    count: int = SHOWN,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TokenGeometry:
    """Returns the geometry of a matrix around some tokens, each with `count` neighbors."""
    tokens, total = list(tokens), len(tokens) + 3
    rows, axes = vectors[tokens], find_principal_axes(vectors)
    progress(1, total)
    spreads = {"as stored": measure_spread(vectors)}
    progress(2, total)
    spreads["mean subtracted"] = measure_spread(vectors - axes.mean)
    spreads["random directions"] = CosineSpread(0.0, 1 / math.sqrt(vectors.shape[1]))
    progress(3, total)
    neighbors, products = [], []
    for done, id in enumerate(tokens, 4):
        neighbors.append(find_neighbors(vectors, vectors[id], count, exclude={id}))
        products.append(find_neighbors(vectors, vectors[id], count, measure="inner product"))
        progress(done, total)
    norms, cosines, coordinates = summarize_norms(vectors), compute_cosines(rows, rows), axes.project(rows)
    return TokenGeometry(tokens, cosines, neighbors, products, axes, coordinates, spreads, norms)


def view_geometry(
    prompted: PromptedModel,
    *,
    tokens: Sequence[int] | None = None,
    matrix: str = "embed.weight",
    analogy: Sequence[int] | None = None,
    count: int = 5,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> View:
    """Returns the geometry of a matrix [V C] around some tokens, by default those of the prompt, each once.

    `analogy` are the tokens a, b, c of a : b :: c : ?; three tokens ask for it too. Without a prompt and
    tokens, those of the analogy are looked at.
    """
    vectors = _find_matrix(prompted, matrix)
    tokens = list(dict.fromkeys(prompted.ids or analogy or () if tokens is None else tokens))[:MOST]
    if analogy is None and len(tokens) == 3:
        analogy = tokens
    check_tokens(prompted.runner.config, (*tokens, *(analogy or ())))
    if not tokens:
        raise UsageError("a geometry is about tokens: give a prompt, or tokens.")
    if analogy is not None and len(analogy) != 3:
        raise UsageError(f"an analogy has three tokens, a, b and c; got {len(analogy)}.")
    count = check_int("count", count, least=1)
    found = measure_geometry(vectors, tokens, count, progress)
    show = prompted.show_token
    tables = list(_make_tables(found, show))
    data = _list_data(found)
    if analogy is not None:
        a, b, c = analogy
        answers = solve_analogy(vectors, a, b, c, count)
        question = f"{show(a)} : {show(b)} :: {show(c)} : ?"
        rows = [(show(token), score) for token, score in answers]
        tables.insert(0, ViewTable(question, ("token x", "cos(x, b̂ − â + ĉ)"), rows))
        data["analogy"] = {"tokens": list(analogy), "answers": _list_neighbors(answers)}
    labels = [show(id) for id in tokens]
    plots: list[Plot] = [
        Grid("cosine", found.cosines, labels, labels, scale="signed", decimals=2, is_compact=len(labels) > 8)
    ]
    if vectors.shape[1] > 1:
        plots.append(_draw_scatter(found.coordinates, labels, found.axes.shares))
    if vectors.shape[1] > 1 and len(vectors) >= BINS:
        plots.append(_draw_cosines(vectors, found.axes.mean, seed))
    title = f"{prompted.name}: geometry of {matrix} [{len(vectors):,} × {vectors.shape[1]:,}]"
    return View("geometry", title, FORMULA.format(name=matrix), tables, plots, (), {"matrix": matrix} | data)


def _make_tables(found: TokenGeometry, show: Callable[[int], str]) -> Iterator[ViewTable]:
    for by, neighbors in (
        ("cosine", found.neighbors),
        ("inner product, which prefers long vectors", found.products),
    ):
        rows = [
            (show(id), *(f"{show(token)} {score:.3f}" for token, score in near))
            for id, near in zip(found.tokens, neighbors, strict=True)
        ]
        ranks = [str(rank + 1) for rank in range(len(neighbors[0]))]
        yield ViewTable(f"nearest tokens by {by}", ("token", *ranks), rows)
    yield ViewTable(
        "cosines of all pairs of tokens",
        ("rows", "mean (anisotropy)", "sd"),
        [(name, spread.mean, spread.sd) for name, spread in found.spreads.items()],
    )
    norms = found.norms
    ends = (end for one in (norms.smallest, norms.largest) for end in (one.score, show(one.token)))
    columns = ("mean", "sd", "smallest", "of", "largest", "of")
    yield ViewTable("norms of the rows", columns, [(norms.mean, norms.sd, *ends)])
    shares = found.axes.shares[:SHOWN]
    yield ViewTable(
        "principal axes",
        ("axis", "share of the variance", "cumulative"),
        [(i + 1, float(share), float(shares[: i + 1].sum())) for i, share in enumerate(shares)],
    )


def _list_data(found: TokenGeometry) -> dict[str, Any]:
    return {
        "tokens": found.tokens,
        "cosines": found.cosines.tolist(),
        "neighbors": [_list_neighbors(near) for near in found.neighbors],
        "inner_product_neighbors": [_list_neighbors(near) for near in found.products],
        "cosine_spread": {name: asdict(spread) for name, spread in found.spreads.items()},
        "norms": {
            "mean": found.norms.mean,
            "sd": found.norms.sd,
            "smallest": found.norms.smallest._asdict(),
            "largest": found.norms.largest._asdict(),
        },
        "variances": found.axes.variances.tolist(),
        "coordinates": found.coordinates.tolist(),
    }


def _list_neighbors(neighbors: Sequence[Neighbor]) -> list[dict[str, float]]:
    return [one._asdict() for one in neighbors]


def _find_matrix(prompted: PromptedModel, matrix: str) -> Array:
    """Returns the rows of the matrix; a tied unembedding is the embedding."""
    if matrix not in MATRICES:
        raise UsageError(unknown("a matrix of token vectors", matrix, MATRICES))
    runner = prompted.runner
    return runner.weights[runner.config.unembedding.weight if matrix == "unembed.weight" else matrix]


def _draw_scatter(places: Array, labels: Sequence[str], shares: Array) -> Chart:
    x, y = (_find_axis(f"axis {i + 1}, {100 * shares[i]:.1f} %", places[:, i]) for i in range(2))
    marks = [PointLabel(float(a), float(b), label) for (a, b), label in zip(places, labels, strict=True)]
    return Chart("first two principal axes", x, y, (), marks)


def _find_axis(name: str, values: Array) -> Axis:
    """Returns an axis with a margin around the values."""
    low, high = float(values.min()), float(values.max())
    margin = 0.12 * (high - low) or max(abs(high), 1.0)
    return Axis(name, low - margin, high + margin)


def _draw_cosines(vectors: Array, mean: Array, seed: int) -> Chart:
    """Returns the density of the cosines of random pairs, beside that of random directions."""
    found = {
        "as stored": sample_cosines(vectors, seed=seed),
        "mean subtracted": sample_cosines(vectors - mean, seed=seed),
    }
    both = np.concatenate(list(found.values()))
    spread = 4 / math.sqrt(vectors.shape[1])
    low, high = max(min(both.min(initial=0.0), -spread), -1.0), min(max(both.max(initial=0.0), spread), 1.0)
    edges = np.linspace(low, high, BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    curves = {
        name: np.histogram(cosines, edges)[0] / (max(len(cosines), 1) * (edges[1] - edges[0]))
        for name, cosines in found.items()
    }
    curves["random directions"] = compute_random_density(middles, vectors.shape[1])
    series = [
        Series(LegendKey(name, i, i), middles, density) for i, (name, density) in enumerate(curves.items())
    ]
    top = float(max(density.max() for density in curves.values()))
    return Chart("cosines of random pairs", Axis("cosine", low, high), Axis("density", 0, 1.05 * top), series)
