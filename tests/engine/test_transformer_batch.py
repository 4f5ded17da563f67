"""A row is computed as if it were alone: neighbours, places and padding change nothing."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from tests.agreement.engines import CHOICES, DIFFERENT, fast
from tests.reference.models import weights

COUNT, PAD = 5, 6
ROWS = torch.tensor([[1, 3, 1, 5, 0], [0, 2, 4, 4, 1], [5, 5, 0, 1, 2], [2, 2, 2, 0, 3]])
"""Texts that never use the token PAD."""

every_choice = pytest.mark.parametrize("name", DIFFERENT)


def near(got: Tensor, wanted: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=tolerance * max(1.0, float(wanted.abs().max())))


def padded(rows: Tensor, lengths: list[int], left: bool, width: int) -> dict[str, Tensor]:
    """The first tokens of each row among padding, with the arguments that say so."""
    ids, real = torch.full((len(rows), width), PAD), torch.zeros(len(rows), width, dtype=torch.bool)
    positions = torch.zeros(len(rows), width, dtype=torch.int64)
    for row, length in enumerate(lengths):
        at = slice(width - length, width) if left else slice(0, length)
        ids[row, at], real[row, at] = rows[row, :length], True
        positions[row, at] = torch.arange(length)
    return {"ids": ids, "padding": real, "positions": positions}


@every_choice
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_row_in_a_batch_equals_the_row_alone(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model = fast(CHOICES[name], dtype=dtype)
    with torch.no_grad():
        alone = torch.cat([model(row[None]) for row in ROWS])
        for order in ([3, 1, 0, 2], [1, 0, 0, 0, 0, 0, 3]):
            near(model(ROWS[order]), alone[order], tolerance)


@pytest.mark.rotating
@every_choice
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("watched", [False, True], ids=["fused", "explicit"])
def test_padding_changes_nothing(name: str, left: bool, watched: bool) -> None:
    model, lengths = fast(CHOICES[name]), [3, 1, 5, 2]
    with torch.no_grad():
        alone = [model(row[None, :length])[0] for row, length in zip(ROWS, lengths, strict=True)]
        for width in (5, 8):
            given = padded(ROWS, lengths, left, width)
            if watched:
                with record():
                    got = model(**given)
            else:
                got = model(**given)
            assert got.isfinite().all()
            for row, wanted in enumerate(alone):
                near(got[row, given["padding"][row]], wanted)


@pytest.mark.rotating
@every_choice
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("watched", [False, True], ids=["fused", "explicit"])
def test_padding_gets_no_gradient(name: str, left: bool, watched: bool) -> None:
    """Exactly none, and what the others get is what they would get alone."""
    # a tied embedding learns from being a wrong answer, too
    config = dataclasses.replace(CHOICES[name], unembedding="linear")
    values, lengths = weights(config, scale=0.25), [3, 1, 4, 2]
    given = padded(ROWS, lengths, left, 8)
    targets = torch.where(given["padding"], given["ids"].roll(-1, 1).clamp_max(5), IGNORE_INDEX)

    def learned(run: Any) -> Transformer:
        model = Transformer.from_weights(config, values, dtype=torch.float64)
        run(model)
        return model

    def together(model: Transformer) -> None:
        loss(model(**given), targets).backward()

    def watched_together(model: Transformer) -> None:
        with record(gradients=True) as seen:
            together(model)
        assert not [value for value in seen if value.startswith("d.") and seen[value].isnan().any()]
        assert not seen["d.embedded"][~given["padding"]].any()

    def one_by_one(model: Transformer) -> None:
        for row, real in enumerate(given["padding"]):
            logits = model(given["ids"][row, real][None])
            (loss(logits, targets[row, real][None]) * real.sum() / sum(lengths)).backward()

    got, wanted = learned(watched_together if watched else together), learned(one_by_one)
    assert got.embed.weight.grad is not None and not got.embed.weight.grad[PAD].any()
    if "positions.weight" in values:
        rows = got.positions.weight.grad
        assert isinstance(rows, Tensor) and not rows[max(lengths) :].any() and rows[0].any()
    for one, other in zip(got.parameters(), wanted.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        near(one.grad, other.grad)


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_of_padding_alone_is_finite_both_ways(dtype: torch.dtype, watched: bool) -> None:
    model = fast(CHOICES["positions/rope"], dtype=dtype)
    padding = torch.ones_like(ROWS)
    padding[1] = 0

    def run() -> Tensor:
        logits: Tensor = model(ROWS, padding=padding)
        loss(logits, ROWS).backward()
        return logits

    if watched:
        with record(gradients=True) as seen:
            logits = run()
        assert not seen["blocks.0.attn.pattern"][1].any()
    else:
        logits = run()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_position_is_where_a_token_is_said_to_stand() -> None:
    """Shifted all alike, rotary positions do not matter and learned ones do."""
    later = torch.arange(COUNT) + 3
    with torch.no_grad():
        rope, learned = fast(CHOICES["positions/rope"]), fast(CHOICES["positions/learned"])
        near(rope(ROWS, positions=later), rope(ROWS))
        assert not torch.allclose(learned(ROWS, positions=later), learned(ROWS))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(40))
def test_a_row_equals_itself_in_any_batch(seed: int) -> None:
    random = np.random.default_rng(seed)
    name = list(CHOICES)[seed % len(CHOICES)]
    model = fast(CHOICES[name], seed)
    rows = torch.from_numpy(random.integers(0, 6, (32, 8)))
    lengths = random.integers(1, 9, 32).tolist()
    given = padded(rows, lengths, bool(seed % 2), 8)
    with torch.no_grad():
        got = model(**given)
        for row, length in enumerate(lengths):
            near(got[row, given["padding"][row]], model(rows[row, :length][None])[0])
