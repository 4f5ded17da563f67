"""Cosines, neighbors, analogies and principal axes on numbers that can be checked by hand."""

import math
from itertools import permutations

import numpy as np
import pytest

from pellucid.base.errors import TokenError, UsageError
from pellucid.interpretability.geometry import (
    compute_cosines,
    compute_random_density,
    find_neighbors,
    find_principal_axes,
    measure_geometry,
    measure_spread,
    normalize_rows,
    sample_cosines,
    solve_analogy,
    summarize_norms,
    view_geometry,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, SpecificationRunner
from pellucid.report.chart import Chart
from tests.agreement.engines import CHOICES, fast
from tests.interpretability.same_data import check_same
from tests.reference.models import weights

CAT, DOG = np.array([0.8, 0.2, 0.1]), np.array([0.7, 0.3, 0.2])
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(40, 6)) + 0.3


def test_the_cosine_of_cat_and_dog() -> None:
    """The text has 0.97, from norms rounded to 0.83 and 0.79."""
    cosine = compute_cosines(CAT[None], DOG[None])[0, 0]
    assert cosine == pytest.approx(0.64 / math.sqrt(0.69 * 0.62))
    assert round(float(cosine), 5) == 0.97850
    assert float(np.linalg.norm(CAT - DOG)) == pytest.approx(math.sqrt(0.03))


def test_one_means_the_same_direction_and_not_the_same_vector() -> None:
    assert compute_cosines(CAT[None], 5 * CAT[None])[0, 0] == pytest.approx(1.0)
    assert compute_cosines(CAT[None], np.zeros((1, 3)))[0, 0] == 0.0


def test_cosine_and_distance_order_unit_vectors_alike() -> None:
    unit = normalize_rows(VECTORS)
    cosines = compute_cosines(VECTORS[:1], VECTORS)[0]
    squares = ((unit - unit[0]) ** 2).sum(1)
    assert squares == pytest.approx(2 - 2 * cosines)
    assert np.argsort(squares).tolist() == np.argsort(-cosines).tolist()


def test_neighbors_equal_a_loop_and_a_long_vector_wins_by_inner_product_alone() -> None:
    expected = sorted(
        range(1, 40), key=lambda i: -float(compute_cosines(VECTORS[:1], VECTORS[i : i + 1])[0, 0])
    )
    found = find_neighbors(VECTORS, VECTORS[0], 5, exclude={0})
    assert [one.token for one in found] == expected[:5]
    rows = np.array([[1.0, 0.0], [0.9, 0.1], [5.0, 5.0]])
    assert find_neighbors(rows, rows[0], 1, exclude={0})[0].token == 1
    assert find_neighbors(rows, rows[0], 1, measure="inner product")[0].token == 2
    assert len(find_neighbors(rows, rows[0], 9, exclude={0})) == 2
    with pytest.raises(UsageError):
        find_neighbors(rows, rows[0], measure="euclid")  # type: ignore[arg-type]


def test_an_analogy_adds_the_difference_and_excludes_its_inputs() -> None:
    """man : woman :: king : queen, with one axis for rank and one for gender."""
    man, woman, king, queen, tree = [1.0, 1, 0], [1.0, -1, 0], [1.0, 1, 3], [1.0, -1, 3], [-1.0, 0, 0]
    rows = np.array([man, woman, king, queen, tree])
    answers = solve_analogy(rows, 0, 1, 2)
    assert [answer.token for answer in answers] == [3, 4]
    unit = normalize_rows(rows)
    assert answers[0].score == pytest.approx(compute_cosines((unit[1] - unit[0] + unit[2])[None], rows)[0, 3])


def test_the_principal_axes_are_those_of_the_singular_values_of_the_rows() -> None:
    found = find_principal_axes(VECTORS)
    _, singular, axes = np.linalg.svd(VECTORS - VECTORS.mean(0))
    assert found.variances == pytest.approx(singular**2 / 39)
    assert np.abs((found.axes * axes).sum(1)) == pytest.approx(np.ones(6))
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.project(VECTORS, 6).var(0, ddof=1) == pytest.approx(found.variances)


def test_points_on_a_line_have_one_axis() -> None:
    found = find_principal_axes(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    assert found.axes[0] == pytest.approx([0.6, 0.8])
    assert found.variances == pytest.approx([25.0, 0.0])
    assert found.project(np.array([[6.0, 8.0]]))[0] == pytest.approx([5.0, 0.0])


def test_the_spread_of_all_pairs_equals_a_loop() -> None:
    pairs = [compute_cosines(VECTORS, VECTORS)[i, j] for i, j in permutations(range(40), 2)]
    spread = measure_spread(np.vstack([VECTORS, np.zeros(6)]))
    assert (spread.mean, spread.sd) == pytest.approx((np.mean(pairs), np.std(pairs)))
    assert spread.mean > measure_spread(VECTORS - VECTORS.mean(0)).mean


def test_random_directions_are_almost_orthogonal() -> None:
    width = 256
    rows = RANDOM.normal(size=(1000, width))
    spread = measure_spread(rows)
    assert abs(spread.mean) < 1e-3
    assert spread.sd == pytest.approx(1 / math.sqrt(width), rel=0.02)
    cosines = sample_cosines(rows, 20_000)
    assert cosines.std() == pytest.approx(1 / math.sqrt(width), rel=0.03)
    at = np.linspace(-1, 1, 20_001)[1:-1]
    density = compute_random_density(at, width)
    assert density.sum() * 1e-4 == pytest.approx(1.0)
    assert (density * at**2).sum() * 1e-4 == pytest.approx(1 / width)


def test_a_pair_is_of_two_different_rows() -> None:
    assert sample_cosines(np.eye(3), 500).tolist() == [0.0] * 500
    assert sample_cosines(np.eye(1)).tolist() == []


def test_norms_name_their_tokens() -> None:
    norms = summarize_norms(np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]]))
    assert (norms.smallest, norms.largest) == ((1, 1.0), (0, 5.0))
    assert norms.mean == pytest.approx(8 / 3)


@pytest.mark.parametrize("matrix", ["embed.weight", "unembed.weight"])
@pytest.mark.parametrize("name", ["unembedding/tied", "unembedding/linear"])
def test_the_view_is_the_same_on_both_engines(name: str, matrix: str) -> None:
    config = CHOICES[name]
    runners = SpecificationRunner(config, weights(config)), EngineRunner(fast(config))
    views = [view_geometry(PromptedModel("m", runner, (1, 3, 1, 5)), matrix=matrix) for runner in runners]
    check_same(views[0].data, views[1].data)
    assert views[0].data["tokens"] == [1, 3, 5]
    assert views[0].data["analogy"]["tokens"] == [1, 3, 5]
    assert all(len(row) == len(table.columns) for table in views[0].tables for row in table.rows)
    scatter = next(plot for plot in views[0].plots if isinstance(plot, Chart))
    assert [mark.label for mark in scatter.marks] == ["1", "3", "5"]


def test_what_has_no_geometry_is_refused() -> None:
    config = CHOICES["unembedding/tied"]
    prompted = PromptedModel("m", SpecificationRunner(config, weights(config)), (1,))
    assert view_geometry(prompted).data["tokens"] == [1]
    assert view_geometry(prompted, tokens=[2, 4, 2]).data["tokens"] == [2, 4]
    empty = PromptedModel("m", prompted.runner, ())
    assert view_geometry(empty, analogy=[2, 4, 5]).data["tokens"] == [2, 4, 5]
    with pytest.raises(UsageError):
        view_geometry(empty)
    for options in ({"matrix": "positions.weight"}, {"analogy": (1, 2)}, {"tokens": ()}):
        with pytest.raises(UsageError):
            view_geometry(prompted, **options)  # type: ignore[arg-type]
    for options in ({"analogy": (1, 2, 99)}, {"tokens": [-1]}):
        with pytest.raises(TokenError):
            view_geometry(prompted, **options)  # type: ignore[arg-type]


def test_progress_reaches_its_end() -> None:
    seen = []
    measure_geometry(VECTORS, [1, 2], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]
