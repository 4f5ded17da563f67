"""Top-p: the smallest set with at least p, as in transformers and by hand."""

import math

import pytest
import torch
from transformers import TopPLogitsWarper

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.top_p import TopP
from tests.parts.samplers.rows import agree, apply, check_twin, kept, logits_of, many, random_rows


@many
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_the_scores_are_those_of_transformers(count: int, p: float) -> None:
    """Where two tokens at the border are equally probable, transformers keeps the one that its sort puts
    first, and we the one with the smaller id."""
    rows = random_rows(count)
    rows = rows + torch.arange(rows.shape[-1]) * -1e-9
    theirs = rows if p == 1 else TopPLogitsWarper(p)(torch.zeros(count, 1), rows)
    agree(apply(TopP(p), rows), theirs)


@pytest.mark.parametrize("p", [0.0, 0.5, 0.9])
def test_the_tape_computes_the_same(p: float) -> None:
    check_twin(TopP(p), random_rows(30))


def test_the_smallest_set_reaches_p() -> None:
    """The example of nucleus sampling that "at most p" gets wrong: it would keep nothing of (0.95, 0.05)."""
    assert kept(apply(TopP(0.9), logits_of(0.95, 0.05))) == [0]
    assert kept(apply(TopP(0.96), logits_of(0.95, 0.05))) == [0, 1]
    assert kept(apply(TopP(0.5), logits_of(0.25, 0.125, 0.5, 0.125))) == [2]
    assert kept(apply(TopP(0.75), logits_of(0.25, 0.125, 0.5, 0.125))) == [0, 2]
    assert kept(apply(TopP(0.76), logits_of(0.25, 0.125, 0.5, 0.125))) == [0, 1, 2]


def test_of_equals_the_smaller_id_is_kept() -> None:
    assert kept(apply(TopP(0.5), [1.0, 1.0, 1.0, 1.0])) == [0, 1]
    assert kept(apply(TopP(0.0), [1.0, 2.0, 2.0])) == [1]


def test_one_token_is_always_kept() -> None:
    assert kept(apply(TopP(0.0), [-math.inf, -math.inf, -3.0])) == [2]
    assert kept(apply(TopP(1e-12), [0.0] * 100_000)) == [0]


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 5.0])
def test_a_large_vocabulary_gives_what_a_whole_sort_gives(spread: float) -> None:
    row = torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * spread
    order = row.softmax(-1).sort(descending=True, stable=True)
    before = order.values.cumsum(-1) - order.values
    for p in (0.3, 0.95):
        wanted = order.indices[before < p - 1e-12].sort().values
        assert abs(len(wanted) - len(found := kept(apply(TopP(p), row)))) <= 1
        assert set(wanted.tolist()) <= set(found)


def test_more_than_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        TopP(1.5)
