"""The promise of the product: in float64 both engines agree on every value that both of them name."""

import numpy as np
import pytest

from pellucid.engine import attention
from pellucid.explanation.trace import Trace
from pellucid.verification.mismatch import BETWEEN_ENGINES, explain_mismatch, find_first_mismatch
from tests.agreement.engines import (
    CHOICES,
    FACTORS,
    Runs,
    config_of,
    pairwise,
    shared,
)
from tests.reference.models import weights


def agree(runs: Runs) -> None:
    """The same names in both engines, and under each the same numbers, forward and backward."""
    got, tape = dict(runs.eager), runs.dropped_tape
    wanted = shared(tape)
    if "mask" in wanted:  # one for all rows where they do not differ
        got["mask"] = np.broadcast_to(got["mask"], wanted["mask"].shape)
    assert [name for name in got if name not in tape] == []
    assert [name for name in wanted if name not in got] == []
    found = find_first_mismatch(got, {name: tape[name] for name in (*wanted, *got)}, BETWEEN_ENGINES)
    assert not found, explain_mismatch(found, Trace(tape))


def test_a_pairwise_cover_holds_every_pair_that_is_possible() -> None:
    factors = {"a": (1, 2, 3), "b": (1, 2), "c": (1, 2, 3)}
    rows = list(pairwise(factors, lambda row: (row.get("a"), row.get("c")) != (3, 3)))
    pairs = {(x, row[x], y, row[y]) for row in rows for x in factors for y in factors if x < y}
    every = {(x, i, y, j) for x in factors for y in factors if x < y for i in factors[x] for j in factors[y]}
    assert every - pairs == {("a", 3, "c", 3)}
    assert len(rows) < 18


@pytest.mark.parametrize("count", [1, 8])
def test_both_engines_agree_on_a_single_token_and_on_a_full_context(count: int) -> None:
    ids = [[i % 7 for i in range(count)]]
    agree(Runs(CHOICES["positions/rope"], ids, [[3] * count]))


def test_where_no_target_counts_both_losses_are_zero() -> None:
    agree(Runs(CHOICES["positions/learned"], [[1, 2]], [[-100, -100]]))


def test_a_wrong_fast_engine_is_found_at_the_name_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.rotate
    monkeypatch.setattr(
        attention, "rotate", lambda x, rotation: right(x, rotation._replace(sin=-rotation.sin))
    )
    with pytest.raises(AssertionError, match=r"blocks\.0\.attn\.q_rot"):
        agree(Runs(CHOICES["positions/rope"]))


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
    agree(Runs(config, ids, targets, padding, segments, weights(config, seed, scale)))
