"""Spans from recorded values to one value, and the kinds of them."""

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.training import forward
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.rounding import round_to
from pellucid.verification.span import (
    RoundedProgram,
    compute_in_float32,
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
