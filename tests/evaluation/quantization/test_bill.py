"""The bill: nothing for an exact model, the same on each run, and what each of its numbers means."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from pellucid.base.quantized import Scheme, quantize
from pellucid.evaluation.quantization import bill
from pellucid.evaluation.quantization.bill import choose_prompts, measure_bill
from tests.evaluation.quantization.small_bills import (
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
    model = make_costly()
    assert make_bill(model) == make_bill(model)


def test_another_seed_changes_intervals_alone() -> None:
    model = make_costly()
    first, other = make_bill(model), make_bill(model, seed=1)
    assert first.total.kl.value == other.total.kl.value and first.total.kl.low != other.total.kl.low


def test_losses_are_those_of_the_models_themselves() -> None:
    model = make_costly()
    found, sample = make_bill(model), make_sample(model)
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
