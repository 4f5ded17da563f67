"""Each wrong step of the catalogue is planted in a run, and its number is found under its own name."""

import math
from functools import cache

import numpy as np
import pytest

import pellucid
from pellucid.config import ModelConfig
from pellucid.explanation.rule import Rule, RuleCall, compute
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import mean_squared_error
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.verification.mistakes import SHEET_MISTAKES, Program, find_wrong_rules
from tests.reference.models import CONFIGS, IDS, TARGETS, weights
from tests.verification.mistakes.expression_rules import list_values, make_rule, make_translate

ALIBI = ModelConfig.from_dict(CONFIGS["llama"].to_dict() | {"positions": "alibi"})


@cache
def trace_of(model: str) -> Trace:
    if model in ("example-3", "example-5", "example-6"):
        return pellucid.trace(model, "A B", target="C", update="sgd", lr=0.5)
    if model == "fit":
        tape = Tape()
        predicted = tape.parameter("predicted", [1.0, 3.0])
        target = tape.constant("target", [0.5, 5.0])
        tape.backward(tape("loss", mean_squared_error, predicted, target, samples=2))
        return Trace(tape)
    name, _, rule = model.partition(" ")
    config = ALIBI if name == "alibi" else CONFIGS[name]
    tape = forward(config, weights(config), IDS, TARGETS, objective={"smoothing": 0.2})
    tape.backward(tape.ref("loss"))
    if rule:
        update(tape, rule, lr=0.01, clip=0.1)
    return Trace(tape)


PLANTS = {
    "scores without 1/√D": ("example-3", "blocks.0.attn.scores", (0, 0, 1, 0)),
    "scores with 1/D": ("example-3", "blocks.0.attn.scores@1", (0, 0, 1, 0)),
    "scores multiplied by √D": ("example-3", "blocks.0.attn.scores", (0, 0, 1, 1)),
    "scores with 1/√C": ("example-6", "blocks.1.attn.scores", (0, 1, 1, 0)),
    "scale omitted": ("example-3", "d.blocks.0.attn.q", (0, 0, 1, 0)),
    "scale squared": ("example-3", "d.blocks.0.attn.k", (0, 0, 0, 0)),
    "divided by the scale": ("example-3", "d.blocks.0.attn.q", (0, 0, 1, 1)),
    "sum instead of mean": ("example-6", "blocks.0.attn_norm.mean", (0, 1, 0)),
    "matrix transposed": ("example-3", "blocks.0.attn.q", (0, 0, 1, 1)),
    "gradient of the matrix transposed": ("example-3", "d.blocks.0.attn.q_proj.weight", (0, 1)),
    "biases omitted": ("example-5", "blocks.0.mlp.up", (0, 1, 0)),
    "first term of the sum missing": ("example-5", "blocks.0.resid_mid", (0, 1, 0)),
    "last term of the sum missing": ("example-5", "blocks.0.resid_mid", (0, 1, 1)),
    "K, Q or V swapped": ("example-3", "blocks.0.attn.scores", (0, 0, 1, 0)),
    "W_Q, W_K or W_V swapped": ("example-3", "blocks.0.attn.k", (0, 0, 0, 0)),
    "last query's row for every query": ("example-3", "d.blocks.0.attn.v", (0, 0, 0, 1)),
    "transpose omitted": ("example-3", "d.blocks.0.attn.k", (0, 0, 0, 0)),
    "no mask": ("example-6", "blocks.0.attn.pattern", (0, 0, 0, 0)),
    "mask one token ahead": ("gpt2", "blocks.0.attn.pattern", (0, 0, 0, 0)),
    "mask after the softmax": ("gpt2", "blocks.0.attn.pattern", (0, 0, 1, 1)),
    "query head h on key/value head h % K": ("llama", "blocks.0.attn.scores", (0, 1, 1, 0)),
    "channels split across heads": ("example-6", "blocks.0.attn.q", (0, 0, 1, 1)),
    "softmax over the queries": ("example-6", "blocks.0.attn.pattern", (0, 0, 1, 0)),
    "softmax gradient without Σ p·dp": ("example-3", "d.blocks.0.attn.masked", (0, 0, 1, 0)),
    "only the diagonal of the softmax's Jacobian": ("example-3", "d.blocks.0.attn.masked", (0, 0, 1, 1)),
    "variance divided by N − 1": ("example-6", "blocks.0.attn_norm.rstd", (0, 1, 0)),
    "eps outside the root": ("gpt2", "blocks.0.attn_norm.rstd", (0, 1, 0)),
    "norm eps": ("gpt2", "blocks.0.attn_norm.rstd", (0, 1, 0)),
    "norm gain read as 1 + γ": ("gpt2", "final_norm.out", (0, 1, 0)),
    "mean not subtracted": ("example-6", "blocks.0.attn_norm.normed", (0, 1, 0)),
    "norm omitted": ("example-6", "blocks.0.attn.q", (0, 0, 1, 0)),
    "activation omitted": ("example-5", "blocks.0.mlp.act", (0, 1, 1)),
    "activation": ("example-5", "blocks.0.mlp.act", (0, 1, 0)),
    "activation's derivative omitted": ("example-5", "d.blocks.0.mlp.up", (0, 1, 1)),
    "activation for its derivative": ("gpt2", "d.blocks.0.mlp.up", (0, 1, 1)),
    "gate and up swapped": ("llama", "blocks.0.mlp.hidden", (0, 1, 1)),
    "1/n of the mean loss omitted": ("gpt2", "d.smoothed", (0, 0)),
    "2 of the squared error omitted": ("fit", "d.predicted", (1,)),
    "label smoothing without its uniform part": ("gpt2", "smoothed", (0, 0)),
    "gradient ascent instead of descent": ("example-3", "unembed.weight@1", (2, 0)),
    "learning rate omitted": ("example-3", "unembed.weight@1", (2, 1)),
    "weight before the update": ("example-3", "logits@1", (0, 1, 2)),
    "bias correction omitted": ("gpt2 adam", "embed.weight@1", (1, 0)),
    "root of Adam omitted": ("gpt2 adam", "embed.weight@1", (1, 1)),
    "weight decay in the gradient": ("gpt2 adamw", "embed.weight.m@1", (1, 0)),
    "momentum accumulated instead of averaged": ("gpt2 adamw", "embed.weight.m@1", (1, 1)),
    "momentum averaged instead of accumulated": ("gpt2 momentum", "embed.weight.m@1", (1, 1)),
    "clipping omitted": ("gpt2 momentum", "embed.weight.m@1", (1, 0)),
    "gradient clipped by its own norm": ("gpt2 momentum", "d.final_norm.weight.clipped", (0,)),
    "RoPE rotated the other way": ("llama", "blocks.0.attn.q_rot", (0, 0, 1, 0)),
    "RoPE layout": ("llama", "blocks.0.attn.q_rot", (0, 0, 1, 1)),
    "degrees for radians": ("llama", "blocks.0.attn.k_rot", (0, 0, 1, 0)),
    "learned positions counted from 1": ("example-6", "position_rows", (0, 3)),
    "position bias omitted": ("alibi", "blocks.0.attn.biased", (0, 0, 1, 0)),
}
"""Each mistake with a model, a step and a cell in which it shows."""


def run_wrongly(trace: Trace, mistake: str, name: str) -> list[Array]:
    """Returns the value of a step with the mistake in it, by each variant."""
    wrong = SHEET_MISTAKES[mistake].wrong
    assert wrong is not None
    return [
        variant.steps[name].run(trace.tape.values | dict(variant.tables))
        for variant in wrong(Program(trace.tape))
        if name in variant.steps
    ]


def find_rules(trace: Trace, name: str, index: Index, rule: Rule | None = None) -> dict[str, Rule]:
    rule = make_rule(trace, name, index) if rule is None else rule
    return find_wrong_rules(trace, trace.tape.steps[name], index, rule, make_translate(trace))


@pytest.mark.parametrize("mistake", PLANTS)
def test_a_planted_wrong_step_is_found_under_its_name(mistake: str) -> None:
    model, name, index = PLANTS[mistake]
    trace = trace_of(model)
    name = trace.tape.resolve(name)
    values, right = list_values(trace), float(trace.value(name)[index])
    rules = [
        rule for found, rule in find_rules(trace, name, index).items() if found.partition(": ")[0] == mistake
    ]
    answers = [float(wrong[index]) for wrong in run_wrongly(trace, mistake, name)]
    assert answers
    assert any(abs(answer - right) > 1e-9 for answer in answers)
    for answer in answers:
        if answer != right:
            assert any(math.isclose(compute(rule, values), answer, rel_tol=1e-9) for rule in rules)


def test_every_wrong_program_is_planted() -> None:
    assert set(PLANTS) == {name for name, entry in SHEET_MISTAKES.items() if entry.wrong}


# ---- numbers by hand


def test_the_wrong_numbers_of_example_3_are_those_of_a_calculator() -> None:
    trace = trace_of("example-3")
    values = list_values(trace)

    def wrong(name: str, index: Index, mistake: str) -> float:
        return compute(find_rules(trace, name, index)[mistake], values)

    assert wrong("blocks.0.attn.scores", (0, 0, 1, 1), "scores without 1/√D") == 2.0
    assert wrong("blocks.0.attn.scores", (0, 0, 1, 1), "scores with 1/D") == 1.0
    # K_B · K_A / √2 = ((−2)·3 + 2·(−1)) / √2
    swapped = wrong("blocks.0.attn.scores", (0, 0, 1, 0), "K, Q or V swapped: K for Q")
    assert math.isclose(swapped, -8 / math.sqrt(2))
    # Q_B with W_Qᵀ: (−1, 0) · (−1, −1)
    assert wrong("blocks.0.attn.q", (0, 0, 1, 1), "matrix transposed") == 1.0


def test_the_wrong_numbers_of_examples_5_and_6_read_the_values_that_they_name() -> None:
    five, six = trace_of("example-5"), trace_of("example-6")

    def wrong(trace: Trace, name: str, index: Index, mistake: str) -> float:
        return compute(find_rules(trace, name, index)[mistake], list_values(trace))

    x, w = six.value("positioned"), six.value("blocks.0.attn.q_proj.weight")
    assert math.isclose(wrong(six, "blocks.0.attn.q", (0, 0, 1, 1), "norm omitted"), x[0, 1] @ w[1])
    rstd = six.value("blocks.0.attn_norm.rstd")
    normed = wrong(six, "blocks.0.attn_norm.normed", (0, 1, 2), "mean not subtracted")
    assert math.isclose(normed, x[0, 1, 2] * rstd[0, 1, 0])
    # X̄ = X − mean: the sum of its squares over N − 1 = 3
    centered = x[0, 1] - x[0, 1].mean()
    eps = six.tape.steps["blocks.0.attn_norm.rstd"].attrs["eps"]
    by_three = wrong(six, "blocks.0.attn_norm.rstd", (0, 1, 0), "variance divided by N − 1")
    assert math.isclose(by_three, 1 / math.sqrt((centered**2).sum() / 3 + eps))
    u, down = five.value("blocks.0.mlp.up"), five.tape.steps["blocks.0.mlp_out"]
    weight, bias = (five.value(name) for name in down.inputs[1:])
    assert math.isclose(
        wrong(five, "blocks.0.mlp_out", (0, 1, 0), "activation omitted"), u[0, 1] @ weight[0] + bias[0]
    )
    assert (
        wrong(five, "d.blocks.0.mlp.up", (0, 1, 1), "activation's derivative omitted")
        == five.value("d.blocks.0.mlp.act")[0, 1, 1]
    )
    z, before = five.value("blocks.0.resid_post@1"), five.value("unembed.weight")
    assert math.isclose(wrong(five, "logits@1", (0, 1, 2), "weight before the update"), z[0, 1] @ before[2])


def test_all_rows_of_the_pattern_taken_as_equal_is_the_published_slip() -> None:
    """dV_0 = .502 · (−.0749): the last row of the pattern stands in each row, and is used as a column."""
    tape = Tape()
    pattern = tape.parameter("attn.pattern", np.array([[[[0.5, 0.5], [0.498, 0.502]]]]))
    values = tape.parameter("attn.v", np.zeros((1, 1, 2, 2)))
    z = tape("attn.z", einsum, pattern, values, spec="b(kg)ts,bksd->b(kg)td")
    weighted = np.array([[[[0.0, 0.0], [0.025, -0.0749]]]])
    tape.backward(tape("loss", einsum, z, tape.constant("dz", weighted), spec="bhtd,bhtd->"))
    trace = Trace(tape)
    rules = find_rules(trace, "d.attn.v", (0, 0, 0, 1))
    wrong = compute(rules["last query's row for every query: as columns"], list_values(trace))
    assert round(wrong, 4) == -0.0376


# ---- the loss in the form that people know


def test_the_textbook_gradient_of_the_logits_has_its_two_mistakes() -> None:
    trace = trace_of("example-3")
    step = trace.tape.steps["d.logits"]
    p = {v: trace.address("probs", (0, 1, v)) for v in range(4)}
    dnll = trace.address("d.nll", (0, 1))
    at_target: Rule = RuleCall("multiply", (RuleCall("subtract", (p[2], 1.0)), dnll))
    elsewhere: Rule = RuleCall("multiply", (p[0], dnll))
    translate = make_translate(trace)
    found = find_wrong_rules(trace, step, (0, 1, 2), at_target, translate)
    assert found["1 at the target omitted"] == RuleCall("multiply", (p[2], dnll))
    found = find_wrong_rules(trace, step, (0, 1, 0), elsewhere, translate)
    less = RuleCall("subtract", (p[0], 1.0))
    assert found["1 subtracted at every token"] == RuleCall("multiply", (less, dnll))


def test_the_loss_of_another_token_is_named_with_it() -> None:
    trace = trace_of("example-3")
    rule: Rule = RuleCall("negative", (RuleCall("log", (trace.address("probs", (0, 1, 2)),)),))
    found = find_rules(trace, "nll", (0, 1), rule)
    other = found["another token's probability: B"]
    assert math.isclose(compute(other, list_values(trace)), -math.log(trace.value("probs")[0, 1, 1]))


# ---- the seam


def test_a_mistake_that_reads_what_the_sheet_lacks_is_not_offered() -> None:
    trace = trace_of("example-3")
    name, index = "blocks.0.attn.scores", (0, 0, 1, 0)
    found = find_wrong_rules(
        trace, trace.tape.steps[name], index, make_rule(trace, name, index), lambda _: None
    )
    assert set(found) == {"scores without 1/√D", "scores with 1/D", "scores multiplied by √D"}


def test_a_folded_sum_keeps_its_remainder() -> None:
    trace = trace_of("example-3")
    name, index = "blocks.0.attn.scores", (0, 0, 1, 0)
    scale = trace.tape.steps[name].attrs["scale"]
    total = RuleCall("+", ("a", RuleCall("rest", (f"{trace.address(name, index)}~rest",))))
    found = find_rules(trace, name, index, RuleCall("multiply", (total, scale)))
    assert found["scores without 1/√D"] == total
    assert not any(mistake.startswith("K, Q or V") for mistake in found)


def test_the_right_rule_is_never_a_mistake() -> None:
    trace = trace_of("example-5")
    for step in trace.tape.steps.values():
        for index in np.ndindex(trace.value(step.name).shape):
            rule = make_rule(trace, step.name, index)
            assert rule not in find_rules(trace, step.name, index, rule).values()
