"""Optimizers of the specification against torch's, and by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.parts.optimizers import (
    Adam,
    AdamL2,
    AdamW,
    AveragingMomentum,
    Momentum,
    MuonConfig,
    OptimizerConfig,
    Sgd,
    is_hidden_matrix,
)
from pellucid.reference.op import Array
from pellucid.reference.ops.arithmetic import power
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape

Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
NAME = "blocks.0.mlp.up_proj.weight"
START = np.random.default_rng(0).normal(size=(3, 4))


def ours(part: OptimizerConfig, count: int, start: Array = START, name: str = NAME) -> list[Array]:
    """The parameter after each update, where the loss is Σ x⁴ / 4 and the gradient x³."""
    at, state, found = start, dict[str, Array](), []
    for k in range(1, count + 1):
        tape = Tape()
        fourth = tape("fourth", power, tape.parameter(name, at), exponent=4)
        letters = "ab"[: start.ndim]
        tape.backward(tape("loss", einsum, fourth, spec=f"{letters}->", scale=0.25))
        update(tape, part, k, state=state)
        at, state = tape[f"{name}@{k}"], dict(tape.values)
        found.append(at)
    return found


def theirs(make: Make, count: int, start: Array = START) -> list[Any]:
    at = torch.tensor(start)
    optimizer, found = make([at]), []
    for _ in range(count):
        at.grad = at**3
        optimizer.step()
        found.append(at.numpy().copy())
    return found


# ---- against torch, and by hand


@pytest.mark.parametrize(
    ("part", "make"),
    [
        (Sgd(lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
        (Momentum(lr=0.02, beta=0.8), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8)),
        # torch's accumulates, at 1 − β of the rate
        (AveragingMomentum(lr=0.1, beta=0.8), lambda p: torch.optim.SGD(p, lr=0.1 * 0.2, momentum=0.8)),
        (
            Adam(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3),
            lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3),
        ),
        (AdamL2(lr=0.1, weight_decay=0.3), lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3)),
        (
            AdamW(lr=0.1, weight_decay=0.3),
            lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.3),
        ),
    ],
    ids=lambda given: getattr(given, "kind", ""),
)
def test_updates_are_torchs(part: OptimizerConfig, make: Make) -> None:
    np.testing.assert_allclose(ours(part, 5), theirs(make, 5), rtol=1e-12)


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        # 2 − 0.1 · 8 = 1.2; 1.2 − 0.1 · 1.728 = 1.0272
        (Sgd(lr=0.1), [1.2, 1.0272]),
        # 2 − 0.1 · 8 = 1.2; then m = 0.5 · 8 + 1.728 = 5.728 and 1.2 − 0.5728 = 0.6272
        (Momentum(lr=0.1, beta=0.5), [1.2, 0.6272]),
        # m = 0.5 · 8 = 4 and 2 − 0.4 = 1.6; then m = 0.5 · 4 + 0.5 · 4.096 = 4.048 and 1.6 − 0.4048 = 1.1952
        (AveragingMomentum(lr=0.1, beta=0.5), [1.6, 1.1952]),
    ],
    ids=lambda given: getattr(given, "kind", ""),
)
def test_two_updates_by_hand(part: OptimizerConfig, wanted: list[float]) -> None:
    assert [float(x[0]) for x in ours(part, 2, np.array([2.0]))] == pytest.approx(wanted)


def test_adam_the_first_step_is_the_rate_by_hand() -> None:
    (got,) = ours(Adam(lr=0.01), 1, np.array([2.0, -5.0]))
    np.testing.assert_allclose(got, [1.99, -4.99], rtol=1e-9)


def test_adam_beta2_rises_while_it_warms_up() -> None:
    part = Adam(beta2=0.999, beta2_start=0.99, beta2_warmup=90)
    assert [part.betas_at(step)[1] for step in (0, 10, 90, 91)] == pytest.approx([0.99, 0.991, 0.999, 0.999])
    assert Adam().betas_at(0) == (0.9, 0.999)


def test_adam_l2_it_is_not_adamw() -> None:
    """Its first step is the rate alone, λθ or not; AdamW takes ηλθ off besides."""
    l2, decayed = (ours(kind(lr=0.1, beta2=0.999, weight_decay=0.3), 1)[0] for kind in (AdamL2, AdamW))
    np.testing.assert_allclose(l2 - decayed, 0.1 * 0.3 * START, atol=1e-4)
    assert np.abs(l2 - decayed).max() > 0.01


def test_adam_l2_a_gain_gets_no_penalty() -> None:
    start = np.array([1.0, 2.0])
    wanted = theirs(lambda p: torch.optim.Adam(p, lr=0.1), 3, start)
    got = ours(AdamL2(lr=0.1, weight_decay=0.3), 3, start, "final_norm.weight")
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_adamw_its_settings_are_gpt_3s() -> None:
    """Brown et al. 2020, appendix B; the rate is that of the smallest model in table 2.1."""
    part = AdamW()
    assert (part.lr, part.beta1, part.beta2, part.eps, part.weight_decay) == (6e-4, 0.9, 0.95, 1e-8, 0.1)


@pytest.mark.parametrize("name", ["embed.weight", "positions.weight", "position_bias.weight"])
def test_adamw_a_table_that_is_looked_up_does_not_decay(name: str) -> None:
    wanted = theirs(lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.0), 3)
    np.testing.assert_allclose(ours(AdamW(lr=0.1, weight_decay=0.3), 3, START, name), wanted, rtol=1e-12)


# ---- muon


def torchs_muon(p: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Muon(p, lr=0.02, weight_decay=0.1, momentum=0.95)


@pytest.mark.parametrize("start", [START, START.T.copy()], ids=["wide", "tall"])
def test_muon_it_is_torchs_in_float64(start: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    wanted = theirs(torchs_muon, 4, start)
    np.testing.assert_allclose(ours(MuonConfig(), 4, start), wanted, rtol=1e-12, atol=1e-13)


def test_muon_it_is_near_torchs_in_bfloat16() -> None:
    """bfloat16 has eight bits, so each of four steps may be a few hundredths of the rate off."""
    wanted = theirs(torchs_muon, 4)
    got = ours(MuonConfig(), 4)
    assert np.abs(np.array(got) - wanted).max() < 4 * 0.02 * 0.05


def test_muon_updates_other_parameters_by_adamw() -> None:
    assert is_hidden_matrix("blocks.11.attn.q_proj.weight", (8, 8))
    for name, shape in (
        ("embed.weight", (9, 8)),
        ("unembed.weight", (9, 8)),
        ("positions.weight", (4, 8)),
        ("blocks.0.attn_norm.weight", (8,)),
        ("blocks.0.mlp.up_proj.bias", (8,)),
    ):
        assert not is_hidden_matrix(name, shape)
    wanted = theirs(lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.3), 3)
    got = ours(MuonConfig(adam_lr=0.1, adam_weight_decay=0.3), 3, START, "unembed.weight")
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


# ---- what cannot train


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("sgd", {"beta": 0.9}, "beta"),
        ("momentum", {"beta": 1.0}, "beta"),  # it would never forget
        ("adam", {"beta1": 1.0}, "adam .*beta1"),
        ("adam", {"eps": 0.0}, "adam .*eps"),
        ("adam", {"beta2_start": 0.9995, "beta2_warmup": 5}, "adam .*beta2_start=0.9995"),
        ("adam", {"beta2_start": 0.99}, "adam .*set both, or neither"),
        ("adam", {"beta2_warmup": 5}, "adam .*set both, or neither"),
        ("adam", {"beta2_warmup": -5}, "adam .*set both, or neither"),
        ("muon", {"steps": 0}, "1 to 99 .*not 0"),
        ("muon", {"adam_beta2": 1.0}, "adam_beta2"),
        ("muon", {"adam_beta2_start": 0.9}, "set both, or neither"),
    ],
)
def test_settings_that_cannot_train_are_refused(kind: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        OptimizerConfig.read({"kind": kind, **settings})
