"""Forced tokens: the first is the one of transformers, and they come in their order."""

import torch
from transformers import ForcedBOSTokenLogitsProcessor

from pellucid.parts.samplers.forced_tokens import ForcedTokens
from tests.parts.samplers.rows import apply, check_twin, kept, many, random_rows


@many
def test_the_first_token_is_the_one_of_transformers(count: int) -> None:
    rows = random_rows(count).nan_to_num(neginf=-50.0)
    theirs = ForcedBOSTokenLogitsProcessor(7)(torch.zeros(count, 1), rows)
    ours = apply(ForcedTokens((7, 3)), rows, new=[])
    assert torch.equal(ours.softmax(-1), theirs.softmax(-1))


def test_the_tape_computes_the_same() -> None:
    check_twin(ForcedTokens((1, 2, 3, 4, 5)), random_rows(30))


def test_each_new_token_has_its_own_and_then_all_are_free() -> None:
    forced = ForcedTokens((2, 0))
    found = [kept(apply(forced, [5.0, 6.0, 7.0], new=new)) for new in ([], [2], [2, 0])]
    assert found == [[2], [0], [0, 1, 2]]
