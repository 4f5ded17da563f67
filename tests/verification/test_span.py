"""Spans from recorded values to one value, and the kinds of them; arrays that round every operation give what
PyTorch gives in 16 bits."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Step
from pellucid.reference.training import forward
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.rounding import round_to
from pellucid.verification.span import (
    RoundedArray,
    RoundedProgram,
    compute_in_float32,
    compute_rounded,
    cut_span,
    find_kinds,
    is_one_norm,
    measure_misfit,
    run_span,
)
from tests.reference.models import CONFIGS, IDS, weights

TAPE = forward(CONFIGS["llama"], weights(CONFIGS["llama"]), IDS)
STREAM = {
    TAPE.resolve(name): RecordedValue(TAPE[name], "bfloat16")
    for name in ("embedded", "blocks.0.resid_post", "blocks.1.resid_post", "final_norm.out")
}


def test_a_span_begins_at_recorded_values_and_gives_the_same_value() -> None:
    span = cut_span(TAPE, "blocks.1.resid_post", STREAM)
    assert "blocks.1.attn.q" in span.steps and "blocks.0.attn.q" not in span.values
    values = run_span(span, STREAM)
    assert measure_misfit(values["blocks.1.resid_post"], TAPE["blocks.1.resid_post"]) < (1, 1e-12)
    single = run_span(span, STREAM, compute_in_float32)["blocks.1.resid_post"]
    assert 0 < measure_misfit(single, TAPE["blocks.1.resid_post"])[1] < 1e-4


def test_layers_are_of_one_kind_and_the_first_and_the_last_stand_for_it() -> None:
    kinds = find_kinds(STREAM, TAPE, STREAM)
    assert [
        "blocks.0.resid_post",
        "blocks.1.resid_post",
    ] not in kinds  # one reads embedded, the other a block
    everything = {name: RecordedValue(TAPE[name], "bfloat16") for name in TAPE.steps}
    assert ["blocks.0.attn.q", "blocks.1.attn.q"] in find_kinds(everything, TAPE, everything)


def test_a_norm_is_one_where_nothing_else_is_hidden() -> None:
    assert is_one_norm(cut_span(TAPE, "final_norm.out", STREAM), "final_norm.out")
    assert not is_one_norm(cut_span(TAPE, "blocks.1.resid_post", STREAM), "blocks.1.resid_post")


def test_only_the_parameters_that_are_read_are_rounded() -> None:
    program = RoundedProgram(TAPE, BY_NAME["bfloat16"])
    span = program.cut("final_norm.out", STREAM)
    assert [*program.rounded] == ["final_norm.weight"]
    rounded = round_to(TAPE["final_norm.weight"], BY_NAME["bfloat16"])
    assert np.array_equal(span.values["final_norm.weight"], rounded)


def test_misplaced_infinities_count_before_differences() -> None:
    got, wanted = np.array([1.0, -np.inf, np.nan]), np.array([1.5, 0.0, np.nan])
    assert measure_misfit(got, wanted) == (1, 0.5)


TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def draw(type: str, *shape: int) -> tuple[torch.Tensor, np.ndarray]:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(TYPES[type])
    return made, made.double().numpy()


@pytest.mark.parametrize("type", TYPES)
def test_a_softmax_in_16_bits_is_that_of_torch_bit_for_bit(type: str) -> None:
    x, wide = draw(type, 20, 30)
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    wanted = (powers / powers.sum(-1, keepdim=True)).double().numpy()
    step = Step("p", find_op("softmax"), ("x",), {}, "fwd")
    assert (compute_rounded(step, [wide], BY_NAME[type]) == wanted).mean() > 0.99


@pytest.mark.parametrize("type", TYPES)
def test_a_product_is_rounded_once_or_while_it_is_added_up(type: str) -> None:
    (a, wide_a), (b, wide_b) = draw(type, 10, 160), draw(type, 12, 160)
    step = Step("y", find_op("einsum"), ("a", "b"), {"spec": "tc,oc->to"}, "fwd")
    once = compute_rounded(step, [wide_a, wide_b], BY_NAME[type])
    assert (once == (a.float() @ b.float().T).to(TYPES[type]).double().numpy()).mean() > 0.95
    total = torch.zeros(10, 12, dtype=TYPES[type])
    for start in range(0, 160, 16):
        part = slice(start, start + 16)
        total = (total.float() + a[:, part].float() @ b[:, part].float().T).to(TYPES[type])
    added = compute_rounded(step, [wide_a, wide_b], BY_NAME[type], accumulates=True)
    assert (added == total.double().numpy()).mean() > 0.95
    assert (added == once).mean() < 0.9


def test_reductions_and_rearrangements_keep_the_type() -> None:
    x: Any = RoundedArray(np.arange(48.0).reshape(3, 16), BY_NAME["bfloat16"], accumulates=True)
    assert x.mean(axis=-1).value.tolist() == [7.5, 23.5, 39.5]
    assert x.max(axis=-1).value.tolist() == [15, 31, 47] and x[1].shape == (16,)
    joined: Any = np.concatenate([x, x])
    assert joined.accumulates and np.where(x > 5, x, 0.0).type.name == "bfloat16"
    assert np.cumsum(x, axis=-1).value[0, -1] == 120
