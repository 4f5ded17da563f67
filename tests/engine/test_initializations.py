"""Initializations, found in the registry: a seed means one model, and its first loss is ln V."""

import math

import numpy as np
import pytest
import torch

from pellucid.base import registry
from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.engine import initializations
from pellucid.engine.initializations import initialize, writes_to_stream
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.parts.optimizers import TABLES
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
KINDS = registry.kinds(initializations.__name__)
every_kind = pytest.mark.parametrize("kind", KINDS)


def chosen(kind: str, name: str) -> bool:
    """Whether a kind starts this matrix with numbers that no seed changes."""
    if kind == "identity":
        return name not in TABLES
    return kind == "zero_output" and writes_to_stream(name)


def made(kind: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    return initialize(Transformer.empty(CONFIG, dtype=dtype), kind, seed)


@every_kind
def test_a_seed_means_one_model(kind: str) -> None:
    one, same, other = (made(kind, seed).state_dict() for seed in (1, 1, 2))
    for name, value in one.items():
        assert torch.equal(value, same[name])
        assert (value.ndim == 1 or chosen(kind, name)) == torch.equal(value, other[name]), name


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
        elif not chosen(kind, name):
            assert value.std() > 0, name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "identity"])
def test_the_first_loss_is_that_of_knowing_nothing(kind: str) -> None:
    model, rng = made(kind, dtype=torch.float32), torch.Generator().manual_seed(0)
    ids, targets = torch.randint(0, CONFIG.vocab_size, (2, 8, 64), generator=rng)
    with torch.no_grad():
        first = float(loss(model(ids), targets))
    assert first == pytest.approx(math.log(CONFIG.vocab_size), abs=0.6), first


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_choice_can_be_started_in_every_way(name: str) -> None:
    model = Transformer.empty(CHOICES[name])
    for kind in KINDS:
        with torch.no_grad():
            for value in model.parameters():
                value.fill_(torch.nan)
        initialize(model, kind)
        assert all(value.isfinite().all() for value in model.parameters()), kind


def test_a_new_transformer_is_initialized_from_torch_s_generator() -> None:
    torch.manual_seed(5)
    one, other = Transformer(CONFIG).state_dict(), Transformer(CONFIG).state_dict()
    torch.manual_seed(5)
    same = Transformer(CONFIG).state_dict()
    wanted = initialize(Transformer.empty(CONFIG), "gpt2", 5).state_dict()
    for name, value in one.items():
        assert torch.equal(value, same[name]) and torch.equal(value, wanted[name]), name
        assert torch.equal(value, other[name]) == (value.ndim == 1), name


def test_a_plain_torch_loop_over_a_new_transformer_trains() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = torch.randint(0, CONFIG.vocab_size, (4, 17))
    losses = []
    for _ in range(20):
        step = loss(model(ids[:, :-1]), ids[:, 1:])
        optimizer.zero_grad()
        step.backward()
        optimizer.step()
        losses.append(step.item())
    assert losses[0] == pytest.approx(math.log(CONFIG.vocab_size), abs=0.6) and losses[-1] < losses[0] / 2


def test_filling_a_model_draws_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a file must not pay for an initialization, nor move torch's generator."""
    weights, before = made("gpt2").weights(), torch.get_rng_state()
    monkeypatch.setattr("pellucid.engine.transformer.initialize", None)
    Transformer.from_weights(CONFIG, weights)
    Transformer.empty(CONFIG)
    assert torch.equal(torch.get_rng_state(), before)


def test_gpt2_has_the_deviations_of_its_paper() -> None:
    for name, value in made("gpt2").state_dict().items():
        if value.ndim == 2:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            wanted = 0.02 / math.sqrt(2 * CONFIG.n_layer) if writes else 0.02
            assert float(value.std()) == pytest.approx(wanted, rel=0.05), name
            assert float(value.mean()) == pytest.approx(0, abs=4 * wanted / value.numel() ** 0.5), name


def test_xavier_has_the_limits_of_its_paper() -> None:
    for name, value in made("xavier").state_dict().items():
        if value.ndim == 2 and name not in TABLES:
            limit = math.sqrt(6 / sum(value.shape))
            assert float(value.abs().max()) == pytest.approx(limit, rel=0.01) and value.abs().max() <= limit
            assert float(value.std()) == pytest.approx(limit / math.sqrt(3), rel=0.05), name


def test_scaled_residual_goes_by_inputs_and_depth() -> None:
    for name, value in made("scaled_residual").state_dict().items():
        if value.ndim == 2:
            wanted = 64**-0.5 if name in TABLES else value.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                wanted /= math.sqrt(2 * CONFIG.n_layer)
            assert float(value.std()) == pytest.approx(wanted, rel=0.05), name
            assert float(value.mean()) == pytest.approx(0, abs=4 * wanted / value.numel() ** 0.5), name


def test_small_query_key_is_xavier_s_with_a_tenth_for_queries_and_keys() -> None:
    small, full = (made(kind).state_dict() for kind in ("small_query_key", "xavier"))
    for name, value in small.items():
        share = 0.1 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
        assert torch.equal(value, full[name] * share), name


def test_small_query_key_starts_with_flat_attention() -> None:
    """Each position takes from the t + 1 it sees in nearly equal parts; with Xavier's it does not."""
    ids = torch.randint(0, CONFIG.vocab_size, (2, 16), generator=torch.Generator().manual_seed(0))
    flat = torch.ones(16, 16, dtype=torch.float64).tril() / torch.arange(1, 17)[:, None]
    apart = {}
    for kind in ("small_query_key", "xavier"):
        with torch.no_grad(), record("blocks.*.attn.pattern") as seen:
            made(kind)(ids)
        apart[kind] = max(
            float((pattern / flat.clamp_min(1e-9) - 1).tril().abs().max()) for pattern in seen.values()
        )
    assert apart["small_query_key"] < 0.1 < 1 < apart["xavier"], apart


def test_zero_output_is_gpt2_s_with_zeros_where_the_stream_is_written() -> None:
    zero, full = (made(kind).state_dict() for kind in ("zero_output", "gpt2"))
    for name, value in zero.items():
        writes = name.endswith(("o_proj.weight", "down_proj.weight"))
        assert torch.equal(value, torch.zeros_like(value) if writes else full[name]), name


def test_with_zero_output_the_blocks_start_as_if_they_were_not_there() -> None:
    model = made("zero_output")
    ids = torch.randint(0, CONFIG.vocab_size, (2, 16), generator=torch.Generator().manual_seed(0))
    given = model.state_dict()
    with torch.no_grad():
        stream = given["embed.weight"][ids] + given["positions.weight"][:16]
        normed = torch.nn.functional.rms_norm(stream, (64,), eps=1e-5)
        torch.testing.assert_close(model(ids), normed @ given["unembed.weight"].T, rtol=1e-12, atol=1e-12)


def test_identity_hands_on_what_it_is_given() -> None:
    full, tables = made("identity").state_dict(), made("gpt2").state_dict()
    for name, value in full.items():
        if name == "embed.weight":
            assert torch.equal(value, tables[name])
        elif name == "positions.weight":
            assert float(value.std()) == pytest.approx(0.02, rel=0.05)
        elif value.ndim == 2:
            assert torch.equal(value, torch.from_numpy(np.eye(*value.shape))), name


@pytest.mark.parametrize("kind", ["xavier", "scaled_residual", "small_query_key"])
def test_a_table_of_biases_is_a_table(kind: str) -> None:
    """By its shape it would be √(2 / 324) or 1/√4; a table is 1/√C."""
    draw = registry.function_of(initializations.__name__, kind, "initialization")
    table = draw("position_bias.weight", (320, 4), CONFIG, torch.Generator().manual_seed(0))
    assert float(table.std()) == pytest.approx(64**-0.5, rel=0.06)


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="xaviar"):
        made("xaviar")
