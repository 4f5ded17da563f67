"""Dropout against PyTorch's, with masks that are given, and by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.parts.dropouts import PLACES, Bernoulli
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from tests.reference.models import weights

SIZES = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 4, "d_ff": 6}
IDS, TARGETS = [[1, 3, 0, 2]], [[3, 0, 2, 4]]
SHAPES = {
    "positioned": (1, 4, 4),
    "blocks.0.attn.pattern": (1, 2, 4, 4),
    "blocks.0.attn_out": (1, 4, 4),
    "blocks.0.mlp.hidden": (1, 4, 6),
    "blocks.0.mlp_out": (1, 4, 4),
}


def config_of(**rates: float) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"norm": "none", "dropout": {"kind": "bernoulli", **rates}})


def masks(rate: float = 0.5) -> dict[str, Array]:
    """What PyTorch's dropout makes of ones."""
    torch.manual_seed(0)
    ones = {name: torch.ones(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    return {f"{name}.keep": torch.nn.functional.dropout(one, rate).numpy() for name, one in ones.items()}


def test_what_is_kept_is_one_over_the_share_that_is_kept() -> None:
    """PyTorch's: 0 or 1 / (1 − p), with a mean of 1."""
    torch.manual_seed(0)
    keep = torch.nn.functional.dropout(torch.ones(100_000, dtype=torch.float64), 0.2)
    assert set(keep.tolist()) == {0.0, 1.25}
    assert float(keep.mean()) == pytest.approx(1, abs=0.01)


def test_a_value_dropped_on_the_tape_is_the_one_that_pytorch_drops() -> None:
    config = config_of()
    tape = forward(config, weights(config), IDS, dropout=masks())
    torch.manual_seed(0)
    wanted = torch.nn.functional.dropout(torch.tensor(tape["positioned"]), 0.5)
    assert tape["positioned.dropped"] == pytest.approx(wanted.numpy(), abs=0)
    assert 0 < (wanted == 0).sum() < wanted.numel()


def test_each_place_drops_the_value_that_is_read_after_it() -> None:
    """The model without norms, in a few lines."""
    config = config_of()
    keep, values = masks(), weights(config)
    tape = forward(config, values, IDS, dropout=keep)
    block = {name.removeprefix("blocks.0."): value for name, value in values.items()}
    x = tape["positioned"] * keep["positioned.keep"]
    pattern = tape["blocks.0.attn.pattern"] * keep["blocks.0.attn.pattern.keep"]
    heads = (pattern @ tape["blocks.0.attn.v"]).transpose(0, 2, 1, 3).reshape(1, 4, 4)
    x = x + (heads @ block["attn.o_proj.weight"].T) * keep["blocks.0.attn_out.keep"]
    gate, up = (x @ block[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    hidden = gate / (1 + np.exp(-gate)) * up * keep["blocks.0.mlp.hidden.keep"]
    x = x + (hidden @ block["mlp.down_proj.weight"].T) * keep["blocks.0.mlp_out.keep"]
    assert tape["logits"] == pytest.approx(x @ values["embed.weight"].T, abs=1e-12)


def test_what_is_dropped_gets_no_gradient() -> None:
    config, keep = config_of(), masks()
    tape = forward(config, weights(config), IDS, TARGETS, dropout=keep)
    tape.backward(tape.ref("loss"))
    for name in SHAPES:
        dropped = keep[f"{name}.keep"] == 0
        assert dropped.any() and not tape[f"d.{name}"][dropped].any(), name
        assert tape[f"d.{name}"].any(), name


def test_given_the_draws_of_the_fast_engine_the_specification_has_its_logits() -> None:
    config = config_of()
    model = Transformer.from_weights(config, weights(config), dtype=torch.float64).train()
    torch.manual_seed(0)
    with torch.no_grad(), record() as seen:
        logits = model(torch.tensor(IDS)).numpy()
    thrown = {name: value for name, value in seen.arrays().items() if name.endswith(".keep")}
    assert set(thrown) == {f"{name}.keep" for name in SHAPES}
    assert any((value == 0).any() for value in thrown.values())
    assert forward(config, weights(config), IDS, dropout=thrown)["logits"] == pytest.approx(logits, abs=1e-12)


def test_the_fast_engine_drops_nothing_where_nothing_is_trained() -> None:
    config = config_of()
    model = Transformer.from_weights(config, weights(config), dtype=torch.float64).eval()
    with torch.no_grad():
        logits = model(torch.tensor(IDS)).numpy()
    assert forward(config, weights(config), IDS)["logits"] == pytest.approx(logits, abs=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_unwatched_and_fused_it_drops_at_each_place_alone(place: str) -> None:
    """The mean over many throws is near what nothing dropped gives; a single throw is not."""
    config = config_of(**{other: 0.1 if other == place else 0.0 for other in PLACES})
    model = Transformer.from_weights(config, weights(config, scale=0.2), dtype=torch.float64)
    ids = torch.tensor(IDS)
    torch.manual_seed(0)
    with torch.no_grad():
        whole = model(ids)
        model.train()
        thrown = torch.stack([model(ids) for _ in range(300)])
    spread = thrown.std(0)
    assert float(spread.max()) > 1e-4 * float(whole.abs().max())
    assert bool(((thrown.mean(0) - whole).abs() <= 0.35 * spread + 1e-3).all())


def test_a_place_without_a_rate_is_left_alone() -> None:
    assert Bernoulli(pattern=0.0, hidden=0.0, output=0.25).rates == {"embedding": 0.1, "output": 0.25}
    assert tuple(Bernoulli().rates) == PLACES


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"hidden": 1.0}, "a dropout rate is from 0 to below 1; hidden=1 would keep nothing"),
        ({"embedding": 1.5}, "a dropout rate is from 0 to below 1; embedding=1.5"),
        ({"pattern": -0.1}, "pattern must be a finite number ≥ 0, not -0.1"),
    ],
)
def test_a_rate_that_is_none_is_refused(rates: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(**rates)
