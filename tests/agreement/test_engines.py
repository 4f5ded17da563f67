"""The promise of the product: in float64 both engines agree on every value that both of them name."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.engine import attention
from pellucid.engine.transformer import Transformer
from pellucid.explanation import engines
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.verification.mismatch import BETWEEN_ENGINES, explain_mismatch, find_first_mismatch
from tests.agreement.engines import (
    CHOICES,
    COVER,
    DIFFERENT,
    FACTORS,
    FAMILY,
    IDS,
    PADDINGS,
    SEGMENTS,
    TARGETS,
    Choice,
    config_of,
    fast,
    gradients,
    pairwise,
    recorded,
    run,
    shared,
    specified,
    text,
)
from tests.reference.models import quantized_weights, weights

every_pair = pytest.mark.parametrize("choice", COVER, ids=text)


def agree(config: ModelConfig, values: dict[str, Array], *given: Any) -> None:
    """The same names in both engines, and under each the same numbers, forward and backward."""
    got = recorded(config, values, *given)
    kept = {name: value for name, value in got.items() if name.endswith(".keep")}
    assert bool(kept) is bool(config.dropout.rates)
    tape = specified(config, values, *given, dropout=kept)
    wanted = shared(tape)
    if "mask" in wanted:  # one for all rows where they do not differ
        got["mask"] = np.broadcast_to(got["mask"], wanted["mask"].shape)
    assert [name for name in got if name not in tape] == []
    assert [name for name in wanted if name not in got] == []
    found = find_first_mismatch(got, {name: tape[name] for name in (*wanted, *got)}, BETWEEN_ENGINES)
    assert not found, explain_mismatch(found, Trace(tape))


def test_the_cover_holds_every_kind_of_every_family() -> None:
    for field in FAMILY:
        assert {str(row[field]) for row in COVER} == {str(value) for value in FACTORS[field]}, field


def test_a_pairwise_cover_holds_every_pair_that_is_possible() -> None:
    factors = {"a": (1, 2, 3), "b": (1, 2), "c": (1, 2, 3)}
    rows = list(pairwise(factors, lambda row: (row.get("a"), row.get("c")) != (3, 3)))
    pairs = {(x, row[x], y, row[y]) for row in rows for x in factors for y in factors if x < y}
    every = {(x, i, y, j) for x in factors for y in factors if x < y for i in factors[x] for j in factors[y]}
    assert every - pairs == {("a", 3, "c", 3)}
    assert len(rows) < 18


@every_pair
def test_both_engines_agree_on_every_value_and_gradient(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    agree(config, weights(config), IDS, TARGETS, PADDINGS[choice["padding"]], SEGMENTS[choice["segments"]])


@every_pair
def test_the_fused_path_gives_the_same_logits_loss_and_gradients(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    model = fast(config)
    padding, segments = PADDINGS[choice["padding"]], SEGMENTS[choice["segments"]]
    value = run(model, IDS, TARGETS, padding, segments)
    value.backward()
    tape = specified(config, weights(config), IDS, TARGETS, padding, segments)
    with torch.no_grad():
        real = None if padding is None else torch.tensor(padding)
        packed = None if segments is None else torch.tensor(segments)
        logits = model(torch.tensor(IDS), padding=real, segments=packed).numpy()
    got = {"logits": logits, "loss": value.detach().numpy(), **gradients(model)}
    assert find_first_mismatch(got, {name: tape[name] for name in got}, BETWEEN_ENGINES) is None
    assert set(gradients(model)) == {f"d.{name}" for name in config.parameters() if f"d.{name}" in tape}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_the_fused_path_shows_is_what_the_specification_has(name: str) -> None:
    config = CHOICES[name]
    given = (config, weights(config), IDS, TARGETS, None)
    tape, got = specified(*given), recorded(*given, fused=True)
    got.pop("mask", None)
    assert {"blocks.0.attn.q", "blocks.1.attn.z", "logits", "loss", "d.blocks.0.resid_pre"} <= set(got)
    if config.score_cap.kind == "none":  # no kernel caps scores
        assert not [name for name in got if name.endswith((".scores", ".pattern", "lse"))]
    assert find_first_mismatch(got, {name: tape[name] for name in got}, BETWEEN_ENGINES) is None


@pytest.mark.parametrize("count", [1, 8])
def test_both_engines_agree_on_a_single_token_and_on_a_full_context(count: int) -> None:
    config = CHOICES["positions/rope"]
    ids = [[i % 7 for i in range(count)]]
    agree(config, weights(config), ids, [[3] * count], None)


def test_where_no_target_counts_both_losses_are_zero() -> None:
    config = CHOICES["positions/learned"]
    agree(config, weights(config), [[1, 2]], [[-100, -100]], None)


def test_a_wrong_fast_engine_is_found_at_the_name_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.rotate
    monkeypatch.setattr(
        attention, "rotate", lambda x, rotation: right(x, rotation._replace(sin=-rotation.sin))
    )
    config = CHOICES["positions/rope"]
    with pytest.raises(AssertionError, match=r"blocks\.0\.attn\.q_rot"):
        agree(config, weights(config), IDS, TARGETS, None)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1000))
def test_both_engines_agree_on_any_choices_at_any_sizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    config = None
    while config is None:
        choice = {key: values[random.integers(len(values))] for key, values in FACTORS.items()}
        head = int(random.integers(1, 6))
        sizes = {
            "vocab_size": int(random.integers(1, 40)),
            "context_length": int(random.integers(1, 20)),
            "n_layer": int(random.integers(1, 4)),
            "n_head": head,
            "d_model": head * int(random.integers(1, 9)),
            "d_ff": int(random.integers(1, 30)),
        }
        choice["d_head"] = choice["d_head"] and int(random.integers(1, 9))
        config = config_of(choice, sizes)
        if config and "layer_norm" in (config.norm.kind, config.embed_norm.kind, config.qk_norm.kind):
            # of two channels it keeps a sign, and its gradient is the rounding of what cancels
            config = config if min(config.d_model, config.d_head) > 2 else None
    shape = (int(random.integers(1, 4)), int(random.integers(1, config.context_length + 1)))
    ids, targets = random.integers(0, config.vocab_size, (2, *shape))
    targets[random.random(shape) < 0.2] = -100
    padding = None if choice["padding"] == "none" else random.random(shape) < 0.7
    scale = config.d_model**-0.5  # larger and without norms, rounding alone grows beyond any tolerance
    segments = None if choice["segments"] == "none" else random.integers(0, 2, shape)
    agree(config, weights(config, seed, scale), ids, targets, padding, segments)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("name", DIFFERENT)
def test_both_engines_agree_on_quantized_weights(name: str, scheme: str) -> None:
    """Values, the dequantized weights among them, and the gradients of what is not quantized."""
    config = DIFFERENT[name]
    module = Transformer.from_weights(config, quantized_weights(config, scheme), dtype=torch.float64).eval()
    both = engines.run(module, IDS, TARGETS, backward=any(True for _ in module.parameters()))
    assert "blocks.0.attn.q_proj.weight" in both.values and "embed.weight" in both.values
    wanted = {name: both.tape[name] for name in both.values}
    found = find_first_mismatch(both.values, wanted, BETWEEN_ENGINES)
    assert not found, explain_mismatch(found, Trace(both.tape))
