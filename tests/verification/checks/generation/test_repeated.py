"""What differs when it is computed again, or drawn with another seed, has a name."""

from dataclasses import replace

import pytest
import torch

from pellucid.engine.transformer import Transformer
from pellucid.evaluation.score import Score
from pellucid.generation.request import Completion
from pellucid.generation.samplers.drawn_token import draw_uniform
from pellucid.model import Model
from pellucid.verification.checks.generation.repeated import (
    define_numbers,
    find_dropout,
    judge_seeds,
    same_bits,
)
from tests.verification.checks.subjects import make_subject, measure


def test_a_part_that_trains_is_named() -> None:
    module = make_subject().model.module
    assert find_dropout(module) is None
    module.blocks[1].mlp.train()
    finding = find_dropout(module)
    assert finding is not None and finding.at == "dropout (blocks.1.mlp)"


def test_scores_that_change_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = Model.score, list[int]()

    def wrong(self: Model, ids: list[int]) -> Score:
        found = right(self, ids)
        calls.append(1)
        return replace(found, logprobs=[None, *(calls[0] * len(calls) - 9.0 for _ in ids[1:])])

    monkeypatch.setattr(Model, "score", wrong)
    finding = measure("repeated")
    assert (finding.verdict, finding.at) == ("BUG", "score")


def test_bits_are_compared_with_nan() -> None:
    one = torch.tensor([1.0, torch.nan])
    assert same_bits(one, one.clone()) and not same_bits(one, torch.tensor([1.0, 2.0]))
    assert not same_bits(one, torch.tensor([1.0 + 1e-6, torch.nan]))


def test_a_state_that_a_forward_pass_leaves_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = Transformer.logits, list[int]()

    def wrong(self: Transformer, x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return right(self, x) + 1e-4 * (len(calls) == 5)

    monkeypatch.setattr(Transformer, "logits", wrong)
    finding = measure("repeated")
    assert (finding.verdict, finding.at) == ("BUG", "logits")


def test_the_definition_of_u_is_that_of_the_engine() -> None:
    for seed in (0, 11, 2**62 + 3):
        assert define_numbers(seed, 3) == [draw_uniform(seed, 0, step) for step in range(3)]


def test_a_seed_that_was_not_the_one_given_is_named() -> None:
    text = Completion(0, (), "", "length", seed=11)
    assert judge_seeds({-1: text}, {-1: text}, True).verdict == "equal"
    assert judge_seeds({-1: replace(text, seed=7)}, {-1: replace(text, seed=7)}, True).at == "seeds.u[bit=-1]"
