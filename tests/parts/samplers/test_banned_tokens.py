"""Banned tokens: as transformers' bad words of one token."""

from typing import Any

import pytest
import torch
from transformers import NoBadWordsLogitsProcessor

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.banned_tokens import BannedTokens
from tests.parts.samplers.rows import agree, apply, check_twin, kept, many, random_rows

BANNED = (3, 0, 17)


@many
def test_the_scores_are_those_of_transformers(count: int) -> None:
    rows = random_rows(count)
    theirs = NoBadWordsLogitsProcessor([[id] for id in BANNED])
    agree(apply(BannedTokens(BANNED), rows), theirs(torch.zeros(count, 1, dtype=torch.int64), rows))


def test_the_tape_computes_the_same() -> None:
    check_twin(BannedTokens(BANNED), random_rows(30))


def test_the_others_stay_as_they_are() -> None:
    assert kept(apply(BannedTokens((1, 3)), [5.0, 6.0, 7.0, 8.0])) == [0, 2]


@pytest.mark.parametrize("ids", [3, "3", [-1], [1.0], [True], ["1"]])
def test_what_is_not_a_list_of_ids_is_refused(ids: Any) -> None:
    with pytest.raises(ConfigError, match=r"banned_tokens.* must be .*not"):
        BannedTokens(ids)
