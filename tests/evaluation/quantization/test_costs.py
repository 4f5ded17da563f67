"""What matrices cost: measured from the first block that differs, and the same as by whole forward passes."""

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.quantized import Scheme
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.quantization import costs
from pellucid.evaluation.quantization.bill import measure_bill
from pellucid.evaluation.quantization.costs import CostMeter, StoredSizes, list_groups
from pellucid.evaluation.quantization.divergence import compare_logits
from pellucid.model import Model
from pellucid.parts.unembeddings import TiedUnembedding
from tests.evaluation.quantization.small_bills import (
    COSTLY,
    costly_bill,
    floats,
    make_bill,
    make_costly,
    make_sample,
    make_subject,
)
from tests.evaluation.small_models import make_model

TIED: dict[str, Any] = {"unembedding": TiedUnembedding(), "biases": ()}


def make_meter(model: Model, tokens: int = 120, window: int = 16) -> CostMeter:
    subject = make_subject(model, Scheme(4, 32))
    reference, quantized = (
        Transformer.from_weights(model.config, floats(weights))
        for weights in (model.pretrained.weights, subject.weights)
    )
    return CostMeter(reference, quantized, make_sample(model, tokens), list(subject.types), window)


def measure_by_whole_passes(model: Model, meter: CostMeter, names: tuple[str, ...]) -> list[float]:
    """KL of every target, document by document, with new models for each."""
    quantized = make_subject(model, Scheme(4, 32)).weights
    ours = model.pretrained.weights
    mixed = {name: np.asarray((quantized if name in names else ours)[name]) for name in ours}
    modules = [Transformer.from_weights(model.config, weights) for weights in (floats(ours), mixed)]
    found = list[float]()
    with torch.no_grad():
        for document in meter.sample.documents:
            for start in range(0, len(document.ids) - 1, 16):
                ids = torch.as_tensor(document.ids[start : start + 17])
                logits = [module(ids[None, :-1])[0] for module in modules]
                found += compare_logits(logits[0], logits[1], ids[1:]).kl.tolist()
    return found


@pytest.mark.parametrize("tied", [True, False])
def test_a_measurement_from_the_first_changed_block_equals_one_of_the_whole_model(tied: bool) -> None:
    model = make_model(**(TIED if tied else {}))
    meter = make_meter(model)
    assert tied is ("unembed.weight" not in model.config.parameters())
    for group in (*meter.groups, *meter.matrices):
        wanted = measure_by_whole_passes(model, meter, group.names)
        assert np.allclose(meter.measure(group), wanted, rtol=1e-4, atol=1e-9), group.pattern


def test_what_is_kept_is_computed_with_the_weights_of_the_reference() -> None:
    model = make_model()
    meter = make_meter(model)
    every = tuple(group.names[0] for group in meter.matrices)
    assert not meter.measure_kept(every).any()
    wanted = measure_by_whole_passes(model, meter, every[1:])
    assert np.allclose(meter.measure_kept(every[:1]), wanted, rtol=1e-4, atol=1e-9)


def test_weights_are_given_back_after_a_measurement() -> None:
    meter = make_meter(make_model())
    before = {name: value.clone() for name, value in meter.reference.named_parameters()}
    meter.measure(meter.groups[0])
    meter.measure_kept(meter.groups[1].names)
    assert all(torch.equal(before[name], value) for name, value in meter.reference.named_parameters())


def test_kinds_layers_and_matrices_are_the_patterns_of_keep() -> None:
    names = ["embed.weight", "blocks.0.mlp.up_proj.weight", "blocks.1.mlp.up_proj.weight", "unembed.weight"]
    found = [(group.level, group.pattern, group.first, len(group.names)) for group in list_groups(names, 2)]
    assert found == [
        ("kind", "embed.weight", -1, 1),
        ("kind", "blocks.*.mlp.up_proj.weight", 0, 2),
        ("kind", "unembed.weight", 2, 1),
        ("layer", "blocks.0.*", 0, 1),
        ("layer", "blocks.1.*", 1, 1),
        ("matrix", "embed.weight", -1, 1),
        ("matrix", "blocks.0.mlp.up_proj.weight", 0, 1),
        ("matrix", "blocks.1.mlp.up_proj.weight", 1, 1),
        ("matrix", "unembed.weight", 2, 1),
    ]


@pytest.mark.parametrize("bits", [8, 4])
def test_the_matrix_that_was_made_costly_is_the_costliest(bits: int) -> None:
    found = costly_bill(bits).costs
    assert found.of("matrix")[0].pattern == COSTLY
    assert found.of("kind")[0].pattern == "blocks.*.mlp.up_proj.weight"
    assert found.of("layer")[0].pattern == "blocks.1.*"
    best = min(found.kept, key=lambda one: one.kl.value)
    assert any(pattern in (COSTLY, "blocks.1.*", "blocks.*.mlp.up_proj.weight") for pattern in best.keep)
    assert best.kl.value < 0.5 * found.total.value


def test_only_matrices_that_change_are_measured() -> None:
    found = make_bill(make_costly(noise=0)).costs
    assert [one.pattern for one in found.of("matrix")] == [COSTLY]
    assert found.n_exact == len(costly_bill().matrices) - 1 and not found.n_unmeasured
    assert found.of("matrix")[0].kl == found.total
    assert {one.kl.value for one in found.kept} == {0.0}


def test_keeping_gives_the_kl_of_the_bill_with_that_keep() -> None:
    model, kept = make_costly(), costly_bill().costs.kept
    for one in kept:
        bill = measure_bill(make_subject(model, keep=one.keep), make_sample(model), samples=50)
        assert astuple(bill.costs.total) == pytest.approx(astuple(one.kl), rel=1e-9)
        assert bill.bytes == one.bytes
        assert bill.bits_per_weight == one.bits_per_weight


def test_few_operations_measure_fewer_matrices_and_the_same_ones_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_costly(n_layer=4)
    monkeypatch.setattr(costs, "FEWEST_TOKENS", 16)
    groups = make_meter(model)
    monkeypatch.setattr(costs, "OPERATIONS", 40 * groups.count_operations(groups.groups))
    first, again = (make_bill(model).costs for _ in range(2))
    assert first == again and first.n_tokens == 40
    assert first.n_unmeasured > 0 and first.of("matrix")[0].pattern == COSTLY
    assert len(first.of("kind")) == 8 and len(first.of("layer")) == 4


def test_sizes_add_up() -> None:
    sizes = StoredSizes({"a": 10, "b": 20}, {"a": 40, "b": 80}, 7, 40)
    assert (sizes.total(), sizes.total(["b"])) == (37, 97)
    assert sizes.bits_per_weight() == 8 * 37 / 40
