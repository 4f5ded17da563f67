"""The bill: nothing for an exact model, the same on each run, and what each of its numbers means."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.evaluation.quantization import bill
from pellucid.evaluation.quantization.bill import choose_prompts, measure_bill, measure_matrix
from tests.evaluation.quantization.small_bills import (
    costly_bill,
    make_bill,
    make_costly,
    make_exact,
    make_sample,
    make_subject,
    small_bill,
)
from tests.evaluation.small_models import make_model


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(8, 32), Scheme(4), Scheme(4, 32)])
def test_the_bill_of_an_exact_model_is_all_zeros(scheme: Scheme) -> None:
    found = make_bill(make_exact(make_model(), scheme), scheme)
    for figures in (found.total, *found.texts):
        assert figures.kl.value == figures.largest_kl == figures.flips.value == figures.n_flips == 0
        assert figures.difference.value == 0 and figures.loss == figures.reference_loss
    assert {one.relative_error for one in found.matrices} == {0.0}
    assert all(text.departs_at is None for text in found.greedy)
    assert not found.costs.groups and not found.costs.kept and found.costs.total.value == 0
    assert found.total.p_value == 1.0


def test_two_runs_are_equal() -> None:
    assert make_bill(make_costly()) == costly_bill()


def test_another_seed_changes_intervals_alone() -> None:
    first, other = costly_bill(), costly_bill(seed=1)
    assert first.total.kl.value == other.total.kl.value and first.total.kl.low != other.total.kl.low


def test_losses_are_those_of_the_models_themselves() -> None:
    model = make_costly()
    found, sample = costly_bill(), make_sample(model)
    quantized = model.replace(
        weights={name: np.asarray(w) for name, w in make_subject(model).weights.items()}
    )
    for one, loss in ((model, found.total.reference_loss), (quantized, found.total.loss)):
        nll = list[float]()
        for document in sample.documents:
            for start in range(0, len(document.ids) - 1, model.config.context_length):
                ids = document.ids[start : start + model.config.context_length + 1].tolist()
                logprobs = torch.log_softmax(one.logits(ids[:-1]).double(), -1)
                nll += (-logprobs[torch.arange(len(ids) - 1), ids[1:]]).tolist()
        assert loss.value == pytest.approx(np.mean(nll), rel=1e-6)
    assert found.total.perplexity == pytest.approx(math.exp(found.total.loss.value))


def test_the_texts_add_up_to_the_whole() -> None:
    found = small_bill()
    n = [one.n_targets for one in found.texts]
    assert sum(n) == found.total.n_targets and sum(one.n_flips for one in found.texts) == found.total.n_flips
    for name in ("kl", "loss", "reference_loss", "flips"):
        parts = [getattr(one, name).value for one in found.texts]
        assert getattr(found.total, name).value == pytest.approx(np.average(parts, weights=n))
    assert found.total.largest_kl == max(one.largest_kl for one in found.texts)
    assert all(one.kl.low is None for one in found.texts), "a bootstrap over few spans is too narrow"


def test_the_difference_is_paired() -> None:
    """Texts that are hard for both models cancel out: its interval is narrower than that of a loss."""
    total = make_bill(make_model(), Scheme(8), tokens=1000).total
    assert total.difference.value == pytest.approx(total.loss.value - total.reference_loss.value)
    width = [one.high - one.low for one in (total.difference, total.loss) if one.high and one.low is not None]
    assert width[0] < 0.1 * width[1]


def test_bytes_are_those_of_the_integers_the_scales_and_what_is_kept() -> None:
    model = make_model()
    keep = ("embed.weight",)
    found = measure_bill(make_subject(model, Scheme(4, 32), keep), make_sample(model, 50), samples=10)
    shapes = model.config.parameters()
    sizes = {
        name: quantize(model.weights[name], Scheme(4, 32)).nbytes
        if len(shape) == 2 and name not in keep
        else 4 * math.prod(shape)
        for name, shape in shapes.items()
    }
    assert found.bytes == sum(sizes.values()) and "embed.weight" not in {one.name for one in found.matrices}
    assert found.n_weights == sum(math.prod(shape) for shape in shapes.values())
    assert found.bits_per_weight == 8 * found.bytes / found.n_weights
    assert found.reference_bytes == 4 * found.n_weights
    assert {one.name: one.bytes for one in found.matrices}.items() <= sizes.items()


def test_prompts_begin_documents_or_else_spans() -> None:
    model = make_model()
    sample = make_sample(model, 800)
    prompts = choose_prompts(sample)
    assert len(prompts) == 5 and len({name for name, _ in prompts}) == 5
    begins = {document.name: document.ids.tolist() for document in sample.documents}
    assert all(ids == begins[name][: len(ids)] for name, ids in prompts)
    alone = dataclasses.replace(sample, documents=sample.documents[:1])
    prompts = choose_prompts(alone)
    assert len(prompts) == 4 and len({tuple(ids) for _, ids in prompts}) == 4


def test_what_takes_long_is_said_before_and_reported_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    make_bill(make_model(), say=said.append)
    assert not said, "a small model takes no time"
    monkeypatch.setattr(bill, "LONG", 0.0)
    seen = list[tuple[str, int, int | None]]()
    make_bill(make_model(), say=said.append, progress=lambda *now: seen.append(now))
    assert len(said) == 1 and "8 kinds" in said[0] and "2 layers" in said[0]
    names = list(dict.fromkeys(what for what, _, _ in seen))
    assert names == [
        "quantizing",
        "predictions",
        "greedy texts",
        "kinds and layers",
        "single matrices",
        "what is kept",
    ]
    for name in names:
        done = [now for what, now, _ in seen if what == name]
        assert done == sorted(done) and all(
            now <= (total or now) for what, now, total in seen if what == name
        )


def test_two_rows_of_eight_bits_by_hand() -> None:
    """Both scales are 127 / 127 = 1, so 63.4 becomes 63 and 0.3 becomes 0; the rest is exact."""
    weight = np.array([[127.0, 63.4], [-127.0, 0.3]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8)
    assert found.largest_error == pytest.approx(0.4, abs=1e-5)
    size = np.sqrt(127.0**2 + 63.4**2 + 127.0**2 + 0.3**2)
    assert found.relative_error == pytest.approx(np.sqrt(0.4**2 + 0.3**2) / size, rel=1e-5)
    assert found.bits_per_weight == 16  # 4 numbers and 2 scales of 2 bytes each


def test_two_rows_of_four_bits_by_hand() -> None:
    """The levels of the first row are 0, 1, …, 15, of the second 0, 2, …, 30: 7.25 becomes 7, 3 becomes 4."""
    weight = np.array([[0.0, 15.0, 7.25, 1.0], [0.0, 30.0, 3.0, 2.0]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(4)), "int4", 12)
    assert found.largest_error == 0.5
    assert found.relative_error == pytest.approx(np.sqrt(0.25**2 + 1) / np.sqrt((weight**2).sum()))


def test_an_exact_matrix_has_no_error() -> None:
    weight = np.array([[127.0, -3.0], [0.0, 0.0]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8)
    assert (found.relative_error, found.largest_error) == (0.0, 0.0)


def test_rows_that_are_measured_apart_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).normal(size=(10, 64)).astype(np.float32)
    quantized = quantize(weight, Scheme(4, 32))
    whole = measure_matrix("w", weight, quantized, "int4", 0)
    monkeypatch.setattr(bill, "ROWS", 128)
    parts = measure_matrix("w", weight, quantized, "int4", 0)
    assert parts.largest_error == whole.largest_error
    assert parts.relative_error == pytest.approx(whole.relative_error, rel=1e-12)
    error = np.linalg.norm(np.asarray(quantized) - weight) / np.linalg.norm(weight)
    assert whole.relative_error == pytest.approx(error, rel=1e-5)


def test_a_matrix_without_scales_has_an_error_and_none_in_scales() -> None:
    weight = np.array([[3.0, 4.0]], np.float32)
    found = measure_matrix("w", weight, np.array([[3.0, 4.5]], np.float32), "Q4_K", 1)
    assert found.relative_error == pytest.approx(0.1) and found.largest_error is None


def test_a_scale_that_was_rounded_to_zero_has_the_smallest_as_its_unit() -> None:
    weight = np.full((1, 2), 2.0**-26, np.float32)
    zeros = QuantizedWeight(np.zeros((1, 2), np.int8), np.zeros((1, 1), np.float16), None, 2, 8)
    found = measure_matrix("w", weight, zeros, "int8", 4)
    assert (found.relative_error, found.largest_error) == (1.0, 0.25)


def test_a_matrix_of_zeros_that_stays_so_has_no_error() -> None:
    weight = np.zeros((2, 2), np.float32)
    assert measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8).relative_error == 0
