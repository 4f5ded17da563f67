"""Noise is said only where every usual mistake would be seen; otherwise, which value would show it. A slope
of 1 names a mistake and one of 0 excludes it, unless chance may give either."""

import re

import numpy as np
import pytest
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.verification.decidable import SpanEvidence, examine_power
from pellucid.verification.judge_run import judge_run
from pellucid.verification.run_report import RunReport
from pellucid.verification.verdict import Verdict
from tests.explanation import runs_in_torch
from tests.verification.stranger_llama import (
    BUGS,
    EVERYTHING,
    HIDDEN_STATES,
    MODULES,
    PER_OPERATION,
    TYPES,
    Parts,
    Sizes,
    compare_run,
)

NARROW = ("bfloat16", "float16")
HEALTHY_IN_FLOAT32 = {
    "softmax accumulated in type", "norm accumulated in type", "norm in type", "softmax in type",
    "products accumulated in type",
}  # fmt: skip


def values_to_record(report: RunReport) -> list[str]:
    return [name for name, _ in report.undecided]


@pytest.mark.rotating
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("bug", BUGS)
def test_no_bug_is_called_noise_where_only_hidden_states_are_recorded(bug: str, type: str) -> None:
    for gain in (1.0, 0.05):
        done = compare_run(type, BUGS[bug], HIDDEN_STATES, gain=gain)
        assert done.verdict in (Verdict.BUG, Verdict.LOW_PRECISION, Verdict.NO_BUG_SEEN), str(done)


@pytest.mark.parametrize(
    ("bug", "value", "mistake", "types"),
    [
        ("rope counted from one", "blocks.*.attn.q_rot", "RoPE positions counted from 1", TYPES),
        (
            "rope angles in bfloat16",
            "blocks.*.attn.q_rot",
            "low-precision RoPE: angles in bfloat16",
            ["bfloat16"],
        ),
        ("norm in type", "blocks.*.attn_norm.out", "norm in {}", NARROW),
        ("norm accumulated in type", "blocks.*.attn_norm.out", "norm in {}", NARROW),
        ("softmax in type", "blocks.*.attn.pattern", "softmax in {}", NARROW),
        ("softmax accumulated in type", "blocks.*.attn.pattern", "softmax in {}", NARROW),
    ],
)
def test_a_mistake_that_hidden_states_cannot_decide_names_the_value_that_would(
    bug: str, value: str, mistake: str, types: list[str]
) -> None:
    for type in types:
        done = compare_run(type, BUGS[bug], HIDDEN_STATES)
        assert done.verdict is Verdict.NO_BUG_SEEN and done, str(done)
        assert mistake.format(type) in dict(done.undecided)[value], str(done)
        first, *lines = str(done).splitlines()
        assert first.startswith("no bug seen; these mistakes could hide: ") and value in lines[0]
        assert any(line.startswith(f"  {value} would show: ") for line in lines), str(done)
        assert done.to_data()["record"] == values_to_record(done)
        named = compare_run(type, BUGS[bug])  # everything is recorded, the named value among it
        assert named.verdict in (Verdict.BUG, Verdict.LOW_PRECISION), str(named)


def test_an_effect_far_below_the_noise_of_a_cell_is_named_by_its_slope() -> None:
    done = compare_run("bfloat16", BUGS["scale 5 % off"], HIDDEN_STATES)
    assert done.verdict is Verdict.BUG and done.explained_by[0] == "scores 5 % too large", str(done)
    (bug,) = done.bugs
    assert bug.units < bug.allowed and "these are the numbers of scores 5 % too large" in str(bug)


def test_an_error_along_a_mistake_of_another_size_is_a_bug_too() -> None:
    done = compare_run("bfloat16", Parts(scale=lambda head, width: 1.15 * head**-0.5), HIDDEN_STATES)
    assert done.verdict is Verdict.BUG, str(done)
    assert done.explained_by == ("an error like that of scores 5 % too large",)


@pytest.mark.rotating
@pytest.mark.parametrize(
    "keep", [EVERYTHING, MODULES, HIDDEN_STATES], ids=["everything", "modules", "hidden"]
)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("parts", [Parts(), PER_OPERATION], ids=["library", "every operation"])
def test_a_healthy_run_is_never_wrong(type: str, parts: Parts, keep: re.Pattern[str]) -> None:
    for width, length, seed in ((48, 32, 1), (16, 9, 2), (96, 40, 3), (32, 5, 4), (64, 20, 5)):
        sizes = Sizes(width=width, heads=4, key_heads=2, hidden=2 * width)
        done = compare_run(type, parts, keep, sizes, length=length, seed=seed)
        assert done.verdict in (Verdict.NOISE, Verdict.NO_BUG_SEEN), str(done)
        if keep is EVERYTHING and parts != PER_OPERATION:
            assert done.verdict is Verdict.NOISE, str(done)


def test_a_shift_of_positions_is_an_open_question_only_where_queries_and_keys_are_hidden() -> None:
    assert compare_run("float32", keep=MODULES).verdict is Verdict.NOISE
    assert values_to_record(compare_run("float32", keep=HIDDEN_STATES)) == ["blocks.*.attn.q_rot"]


def test_hidden_states_in_float32_decide_everything_without_rope() -> None:
    shape = runs_in_torch.config("gpt2", 64, 40, 4)
    weights = runs_in_torch.weights(shape, torch.float32, 0)
    ids = torch.randint(0, shape.vocab_size, (1, 40), generator=torch.Generator().manual_seed(0))
    kept = runs_in_torch.run(shape, weights, ids, ids)
    kept = {name: x for name, x in kept.items() if HIDDEN_STATES.fullmatch(name) or name == "positioned"}
    trace = Trace(forward(shape, runs_in_torch.widened(weights), ids.numpy(), ids.numpy()))
    done = examine_power(judge_run(trace, kept), trace, kept, shape)
    assert done.verdict is Verdict.NOISE, str(done)


def test_a_span_of_many_layers_and_numbers_asks_for_the_hidden_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pellucid.verification.decidable.MAX_NUMBERS", 1000)
    monkeypatch.setattr("pellucid.verification.decidable.MAX_STEPS", 30)
    done = compare_run("bfloat16", keep=re.compile("logits"))
    assert values_to_record(done) == ["blocks.*.resid_post"], str(done)


@pytest.mark.parametrize("type", ["float32", "bfloat16"])
def test_of_a_right_model_recorded_only_at_its_logits_no_bug_is_seen(type: str) -> None:
    done = compare_run(type, keep=re.compile("logits"))
    assert done.verdict is Verdict.NO_BUG_SEEN and done
    first, second, *_ = str(done).splitlines()
    assert first.startswith("no bug seen; these mistakes could hide: ") and "blocks.*.attn.q_rot" in second
    assert "RoPE positions counted from 1" in done.to_data()["undecided"]["blocks.*.attn.q_rot"]


@pytest.mark.parametrize("bug", ["mask without the diagonal", "rope omitted"])
def test_a_gross_error_is_a_bug_in_16_bits_where_only_the_logits_are_recorded(bug: str) -> None:
    """Over many hidden steps Σ|terms| multiplies up, and is not what one step in float32 may be off."""
    assert compare_run("bfloat16", BUGS[bug], re.compile("logits")).verdict is Verdict.BUG


@pytest.mark.parametrize("bug", sorted(HEALTHY_IN_FLOAT32))
def test_float32_arithmetic_is_not_a_lower_precision_of_float32(bug: str) -> None:
    assert compare_run("float32", BUGS[bug]).verdict is Verdict.NOISE


RANDOM = np.random.default_rng(0)
NOISE = 0.01


def evidence(error: Array) -> SpanEvidence:
    exact = np.ones(error.shape)
    healthy = tuple(exact + NOISE * RANDOM.standard_normal(error.shape) for _ in range(2))
    return SpanEvidence("y", Tape(), exact + error, BY_NAME["bfloat16"], {"y": exact}, healthy)


@pytest.mark.parametrize(("rows", "size", "made", "said"), [
    (60, 0.3, 1.0, "named"),  # a third of the noise of a cell
    (60, 0.3, 0.0, "excluded"),
    (60, 0.01, 1.0, "open"),
    (60, 0.01, 0.0, "open"),
    (4, 1.2, 1.0, "open"),  # too few rows for a scatter
    (4, 5.0, 0.0, "excluded"),  # their error is smaller than that
])  # fmt: skip
def test_a_mistake_is_named_excluded_or_open(rows: int, size: float, made: float, said: str) -> None:
    effect = size * NOISE * RANDOM.standard_normal((rows, 200))
    error = made * effect + NOISE * RANDOM.standard_normal((rows, 200))
    assert evidence(error).weigh(1 + effect).said == said


def test_one_large_row_does_not_outweigh_the_others() -> None:
    effect = 0.5 * NOISE * RANDOM.standard_normal((60, 200))
    effect[0] *= 1e4
    error = NOISE * RANDOM.standard_normal((60, 200))
    assert evidence(error + effect).weigh(1 + effect).said == "named"
    error[0] = effect[0]  # as if the mistake had been made in one row
    assert evidence(error).weigh(1 + effect).said != "named"


def test_a_multiple_of_an_effect_is_named_without_its_size() -> None:
    effect = 0.5 * NOISE * RANDOM.standard_normal((60, 200))
    outcome = evidence(4 * effect + NOISE * RANDOM.standard_normal((60, 200))).weigh(1 + effect)
    assert outcome.said == "named" and not outcome.has_size


def test_an_infinite_number_for_a_finite_one_is_a_bug_in_itself() -> None:
    wrong = np.ones((60, 200))
    wrong[3, 4] = -np.inf
    assert evidence(NOISE * RANDOM.standard_normal((60, 200))).weigh(wrong).said == "excluded"
