"""Initialisations, found by listing the folder: a seed means one model, and its first loss is ln V."""

import math

import pytest
import torch

from pellucid import registry
from pellucid.config import ModelConfig
from pellucid.errors import ConfigError
from pellucid.model import initialisations
from pellucid.model.initialisations import initialise
from pellucid.model.loss import loss
from pellucid.model.transformer import Transformer
from tests.agreement.engines import CHOICES, DIFFERENT

CONFIG = ModelConfig.from_dict(
    {
        "vocab_size": 300,
        "context_length": 64,
        "n_layer": 3,
        "n_head": 4,
        "d_model": 64,
        "positions": "learned",
        "unembedding": "linear",
        "biases": ["qkv", "output", "mlp", "norm", "unembed"],
    }
)
every_kind = pytest.mark.parametrize("kind", registry.kinds(initialisations.__name__))


def made(kind: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    return initialise(Transformer.empty(CONFIG, dtype=dtype), kind, seed)


@every_kind
def test_a_seed_means_one_model(kind: str) -> None:
    one, same, other = (made(kind, seed).state_dict() for seed in (1, 1, 2))
    for name, value in one.items():
        assert torch.equal(value, same[name])
        assert value.ndim == 1 or not torch.equal(value, other[name]), name


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_seed_means_the_same_numbers_in_every_type(kind: str, dtype: torch.dtype) -> None:
    exact, rounded = made(kind).state_dict(), made(kind, dtype=dtype).state_dict()
    assert all(torch.equal(value.to(dtype), rounded[name]) for name, value in exact.items())


@every_kind
def test_gains_start_at_one_and_biases_at_zero(kind: str) -> None:
    for name, value in made(kind).state_dict().items():
        if name.endswith("bias"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            assert value.std() > 0, name


@every_kind
def test_the_first_loss_is_that_of_knowing_nothing(kind: str) -> None:
    model, dice = made(kind, dtype=torch.float32), torch.Generator().manual_seed(0)
    ids, targets = torch.randint(0, CONFIG.vocab_size, (2, 8, 64), generator=dice)
    with torch.no_grad():
        first = float(loss(model(ids), targets))
    assert first == pytest.approx(math.log(CONFIG.vocab_size), abs=0.6), first


@every_kind
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_choice_can_be_started(kind: str, name: str) -> None:
    model = initialise(Transformer.empty(CHOICES[name]), kind)
    assert all(value.isfinite().all() for value in model.parameters())


def test_gpt2_has_the_deviations_of_its_paper() -> None:
    for name, value in made("gpt2").state_dict().items():
        if value.ndim == 2:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            wanted = 0.02 / math.sqrt(2 * CONFIG.n_layer) if writes else 0.02
            assert float(value.std()) == pytest.approx(wanted, rel=0.05), name
            assert float(value.mean()) == pytest.approx(0, abs=4 * wanted / value.numel() ** 0.5), name


def test_xavier_has_the_limits_of_its_paper() -> None:
    for name, value in made("xavier").state_dict().items():
        if value.ndim == 2 and name not in ("embed.weight", "positions.weight"):
            limit = math.sqrt(6 / sum(value.shape))
            assert float(value.abs().max()) == pytest.approx(limit, rel=0.01) and value.abs().max() <= limit
            assert float(value.std()) == pytest.approx(limit / math.sqrt(3), rel=0.05), name


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no initialisation called 'xaviar'.* Did you mean xavier\?"):
        made("xaviar")
