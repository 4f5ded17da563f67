"""A model that gives the same bits twice passes `repeated`; what differs has a name."""

from dataclasses import replace

import pytest
import torch

from pellucid.engine.transformer import Transformer
from pellucid.evaluation.score import Score
from pellucid.model import Model
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.generation.repeated import CHECKS, find_dropout, same_bits
from tests.formats.gguf import random_models

REPEATED: Check = CHECKS[0]


def subject(dtype: str = "float32", **more: object) -> Subject:
    return Subject(Model(random_models.model(random_models.LLAMA | more), dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_healthy_model_repeats_itself_in_any_type(dtype: str) -> None:
    finding = REPEATED.measure(subject(dtype))
    assert finding.verdict == "equal", finding.at
    assert "3 of 3 texts in float32" in finding.measured


def test_a_model_with_dropout_rates_repeats_itself() -> None:
    assert REPEATED.measure(subject(dropout="bernoulli")).verdict == "equal"


@pytest.mark.parametrize("more", [{"mask": "none"}, {"context_length": 1}])
def test_a_model_that_cannot_generate_repeats_its_logits(more: dict[str, object]) -> None:
    finding = REPEATED.measure(subject(**more))
    assert finding.verdict == "equal" and "logits and scores" in finding.measured


def test_heads_that_are_not_aligned_may_round_otherwise_beside_others() -> None:
    """A kernel sums the products of an address that is a multiple of 16 bytes in another order."""
    shape = {"qk_norm": "rms_norm", "positions": "alibi", "n_kv_head": 1, "d_head": 6, "d_model": 16}
    finding = REPEATED.measure(subject(context_length=8, **shape))
    assert finding.verdict == "equal" and "(heads of 6 numbers are not aligned)" in finding.measured


def test_a_part_that_trains_is_named() -> None:
    module = subject().model.module
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
    finding = REPEATED.measure(subject())
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
    finding = REPEATED.measure(subject())
    assert (finding.verdict, finding.at) == ("BUG", "logits")
