"""A slope of 1 names a mistake and one of 0 excludes it, unless chance may give either."""

import numpy as np
import pytest

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.verification.decidable import SpanEvidence

RANDOM = np.random.default_rng(0)
NOISE = 0.01


def evidence(error: Array) -> SpanEvidence:
    exact = np.ones(error.shape)
    healthy = tuple(exact + NOISE * RANDOM.standard_normal(error.shape) for _ in range(2))
    return SpanEvidence("y", Tape(), exact + error, BY_NAME["bfloat16"], {"y": exact}, healthy)


@pytest.mark.parametrize(("rows", "size", "made", "said"), [
    (60, 0.3, 1.0, "named"),  # a third of the noise of a cell
    (60, 0.3, 0.0, "excluded"),
    (60, 0.01, 1.0, "open"),
    (60, 0.01, 0.0, "open"),
    (4, 1.2, 1.0, "open"),  # too few rows for a scatter
    (4, 5.0, 0.0, "excluded"),  # their error is smaller than that
])  # fmt: skip
def test_a_mistake_is_named_excluded_or_open(rows: int, size: float, made: float, said: str) -> None:
    effect = size * NOISE * RANDOM.standard_normal((rows, 200))
    error = made * effect + NOISE * RANDOM.standard_normal((rows, 200))
    assert evidence(error).weigh(1 + effect).said == said


def test_one_large_row_does_not_outweigh_the_others() -> None:
    effect = 0.5 * NOISE * RANDOM.standard_normal((60, 200))
    effect[0] *= 1e4
    error = NOISE * RANDOM.standard_normal((60, 200))
    assert evidence(error + effect).weigh(1 + effect).said == "named"
    error[0] = effect[0]  # as if the mistake had been made in one row
    assert evidence(error).weigh(1 + effect).said != "named"


def test_a_multiple_of_an_effect_is_named_without_its_size() -> None:
    effect = 0.5 * NOISE * RANDOM.standard_normal((60, 200))
    outcome = evidence(4 * effect + NOISE * RANDOM.standard_normal((60, 200))).weigh(1 + effect)
    assert outcome.said == "named" and not outcome.has_size


def test_an_infinite_number_for_a_finite_one_is_a_bug_in_itself() -> None:
    wrong = np.ones((60, 200))
    wrong[3, 4] = -np.inf
    assert evidence(NOISE * RANDOM.standard_normal((60, 200))).weigh(wrong).said == "excluded"
