"""The updates against torch's optimizers, clipping, and the tapes of several updates joined."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import AddressError, TapeError
from pellucid.explanation.derive import derive
from pellucid.explanation.formula import build_formula
from pellucid.explanation.trace import Trace
from pellucid.parts.optimizers import AdamL2, AdamW, MuonConfig, decays, is_hidden_matrix
from pellucid.parts.schedules import Cosine
from pellucid.reference.op import Array
from pellucid.reference.ops.arithmetic import add, power
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.optimizers import RULES, update
from pellucid.reference.tape import Tape
from pellucid.reference.training import join, train
from pellucid.verification.mismatch import find_first_mismatch
from tests.reference.models import (
    CONFIGS,
    IDS,
    TARGETS,
    alone,
    backpropagated,
    explained,
    weights,
    wrong_cell,
)

CONFIG = CONFIGS["gpt2"]
Optimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def trained(rule: str, steps: int = 3, **settings: Any) -> list[Tape]:
    return train(CONFIG, weights(CONFIG), IDS, TARGETS, rule, steps, **settings)


def with_torch(tapes: list[Tape], optimizer: Optimizer) -> list[dict[str, Array]]:
    """The parameters after each update, as torch makes them of the tapes' gradients."""
    parameters = {name: torch.tensor(value) for name, value in weights(CONFIG).items()}
    stepper, found = optimizer(list(parameters.values())), []
    for tape in tapes[:-1]:
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(tape[f"d.{name}"])
        stepper.step()
        found.append({name: parameter.numpy().copy() for name, parameter in parameters.items()})
    return found


RATE = 0.1
AGAINST_TORCH: list[tuple[str, dict[str, Any], Optimizer]] = [
    ("sgd", {}, lambda p: torch.optim.SGD(p, lr=RATE)),
    ("momentum", {"beta": 0.8}, lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.8)),
    # averaging shortens the accumulated gradient by 1 − β
    ("averaging_momentum", {"beta": 0.8}, lambda p: torch.optim.SGD(p, lr=RATE * 0.2, momentum=0.8)),
    ("adamw", {}, lambda p: torch.optim.AdamW(p, lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)),
    (
        "adamw",
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
        lambda p: torch.optim.AdamW(p, lr=RATE, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
    ),
    ("adamw", {"weight_decay": 0.0, "betas": (0.9, 0.999)}, lambda p: torch.optim.Adam(p, lr=RATE)),
    ("adam", {}, lambda p: torch.optim.Adam(p, lr=RATE)),
    (
        "adam_l2",
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
        lambda p: torch.optim.Adam(p, lr=RATE, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
    ),
]
MATRICES = "blocks.*_proj.weight"
"""What Muon can move."""
ONLY = {"muon": {"only": MATRICES}}


@pytest.mark.parametrize(("rule", "settings", "optimizer"), AGAINST_TORCH)
def test_three_updates_equal_torchs(rule: str, settings: dict[str, Any], optimizer: Optimizer) -> None:
    tapes = trained(rule, lr=RATE, **settings)
    for k, wanted in enumerate(with_torch(tapes, optimizer), start=1):
        got = {name: tapes[k - 1][f"{name}@{k}"] for name in wanted}
        assert find_first_mismatch(got, wanted, 1e-12) is None
        assert find_first_mismatch({name: tapes[k][name] for name in wanted}, wanted, 1e-12) is None


def test_every_rule_is_compared_with_torch() -> None:
    assert {rule for rule, _, _ in AGAINST_TORCH} | {"muon"} == set(RULES)


@pytest.mark.parametrize(
    "settings", [MuonConfig(lr=RATE), MuonConfig(lr=RATE, beta=0.8, weight_decay=0.3, steps=3)]
)
def test_three_updates_of_muon_equal_torchs_in_float64(
    settings: MuonConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's iterates in bfloat16; here it is made to keep its numbers as they are."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    tapes = train(CONFIG, weights(CONFIG), IDS, TARGETS, settings, 3, only=MATRICES)
    start = {name: value for name, value in weights(CONFIG).items() if is_hidden_matrix(name, value.shape)}
    parameters = {name: torch.tensor(value) for name, value in start.items()}
    theirs = torch.optim.Muon(
        list(parameters.values()),
        lr=RATE,
        weight_decay=settings.weight_decay,
        momentum=settings.beta,
        ns_steps=settings.steps,
    )
    for k, tape in enumerate(tapes[:-1], start=1):
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(tape[f"d.{name}"])
        theirs.step()
        got = {name: tape[f"{name}@{k}"] for name in parameters}
        wanted = {name: parameter.numpy() for name, parameter in parameters.items()}
        assert find_first_mismatch(got, wanted, 1e-12) is None


@pytest.mark.parametrize("rule", RULES)
def test_a_small_enough_update_lowers_the_loss(rule: str) -> None:
    losses = [float(tape["loss"]) for tape in trained(rule, lr=1e-3, **ONLY.get(rule, {}))]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


@pytest.mark.parametrize("rule", RULES)
def test_each_cell_of_an_update_can_be_computed_and_explained_by_itself(rule: str) -> None:
    config = CONFIGS["bare"]
    tape = train(config, weights(config), IDS, TARGETS, rule, 2, lr=RATE, **ONLY.get(rule, {}))[1]
    assert wrong_cell(tape, alone, "upd") is None
    assert wrong_cell(tape, explained(top=2), "upd") is None


# ---- by hand


def tape_with_gradients(**given: Any) -> Tape:
    """A loss whose gradient is each parameter itself: half the sum of their squares."""
    tape = Tape()
    halves = []
    for name, value in given.items():
        square = tape(f"{name}²", power, tape.parameter(name, value), exponent=2)
        letters = "abc"[: len(square.shape)]
        halves.append(tape(f"half {name}", einsum, square, spec=f"{letters}->", scale=0.5))
    tape.backward(tape("loss", add, *halves))
    return tape


def test_the_first_adam_step_is_the_rate_whatever_the_gradients_size() -> None:
    tape = tape_with_gradients(x=[1e-6, -3.0, 500.0])
    update(tape, "adamw", lr=0.01, eps=1e-30, weight_decay=0.0)
    np.testing.assert_allclose(tape["x"] - tape["x@1"], [0.01, -0.01, 0.01], rtol=1e-9)


def test_decay_shrinks_the_weight_by_itself() -> None:
    tape = tape_with_gradients(x=[2.0])
    update(tape, "adamw", lr=0.1, eps=1e-30, weight_decay=0.5)
    assert tape["x@1"] == pytest.approx([2 - 0.1 - 0.1 * 0.5 * 2], rel=1e-14)


def test_adams_moments_are_running_means() -> None:
    tape = tape_with_gradients(x=[3.0])
    state = {"x.m@4": np.array([1.0]), "x.v@4": np.array([2.0])}
    update(tape, "adamw", 5, lr=0.1, betas=(0.9, 0.99), weight_decay=0.0, state=state)
    assert tape["x.m@5"] == pytest.approx(0.9 * 1 + 0.1 * 3)
    assert tape["x.v@5"] == pytest.approx(0.99 * 2 + 0.01 * 9)
    mean, square = 1.2 / (1 - 0.9**5), 2.07 / (1 - 0.99**5)
    assert tape["x@5"] == pytest.approx(3 - 0.1 * mean / (math.sqrt(square) + 1e-8), rel=1e-14)


def test_the_two_forms_of_momentum_differ_by_one_minus_beta() -> None:
    accumulated, averaged = tape_with_gradients(x=[3.0]), tape_with_gradients(x=[3.0])
    update(accumulated, "momentum", lr=0.1, beta=0.9)
    update(averaged, "averaging_momentum", lr=0.1, beta=0.9)
    assert accumulated["x@1"] == pytest.approx([3 - 0.1 * 3])
    assert averaged["x@1"] == pytest.approx([3 - 0.1 * 0.1 * 3])
    assert accumulated["x.m@1"] == 3
    assert averaged["x.m@1"] == pytest.approx([0.3])


@pytest.mark.parametrize(
    ("rule", "step"), [("adam", 0.0258461), ("adam_l2", 0.0281257), ("adamw", 0.0258461 + 0.1 * 0.5 * 2)]
)
def test_no_decay_l2_and_decay_are_three_different_updates(rule: str, step: float) -> None:
    """θ = g = 2, second update, both moments 1 before it. Without decay m = 1.1 and v = 1.003, and
    m̂ = 5.789474, √v̂ = √501.7509 = 22.39980. L2 with λ = 0.5 makes g = 3: m = 1.2, v = 1.008, m̂ = 6.315789
    and √v̂ = √504.2521 = 22.45556. Decay leaves the moments alone and takes ηλθ off by itself."""
    tape = tape_with_gradients(x=[2.0])
    state = {"x.m@1": np.array([1.0]), "x.v@1": np.array([1.0])}
    decay = {} if rule == "adam" else {"weight_decay": 0.5}
    update(tape, rule, 2, lr=0.1, betas=(0.9, 0.999), state=state, **decay)
    assert tape["x"] - tape["x@2"] == pytest.approx([step], abs=1e-7)


@pytest.mark.parametrize("rule", ["momentum", "averaging_momentum", "adam", "adam_l2", "adamw"])
def test_moments_start_from_nothing(rule: str) -> None:
    tape = tape_with_gradients(x=[3.0])
    update(tape, rule, lr=0.1)
    assert tape["x.m@0"] == 0
    assert tape.roles["x.m@0"] == "leaf"


# ---- muon


def rotated(gradient: Array, **settings: Any) -> Tape:
    """One update of Muon for a matrix whose gradient is itself."""
    tape = tape_with_gradients(x=gradient)
    update(tape, "muon", lr=0.1, weight_decay=0.0, **settings)
    return tape


def test_muon_of_a_diagonal_by_hand() -> None:
    """diag(3, 4) is (0.6, 0.8) at length 1; one step makes of s: 3.4445 s − 4.775 s³ + 2.0315 s⁵."""
    tape = rotated(np.diag([3.0, 4.0]), steps=1)
    np.testing.assert_allclose(tape["x.newton_schulz_0@1"], np.diag([0.6, 0.8]), rtol=1e-15)
    wanted = np.diag([2.0667 - 1.0314 + 0.157969440, 2.7556 - 2.4448 + 0.665681920])
    np.testing.assert_allclose(tape["x.newton_schulz_1@1"], wanted, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(tape["x@1"], np.diag([3.0, 4.0]) - 0.1 * wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (1, 5), (5, 1)])
def test_muon_keeps_the_directions_of_a_gradient_and_makes_them_alike(shape: tuple[int, int]) -> None:
    """The singular vectors stay; the singular values, of whatever size, end between 0.65 and 1.25."""
    gradient = np.random.default_rng(3).normal(size=shape)
    tape = rotated(gradient)
    u, _, v = np.linalg.svd(gradient, full_matrices=False)
    core = u.T @ tape["x.newton_schulz_5@1"] @ v.T
    np.testing.assert_allclose(core, np.diag(np.diag(core)), atol=1e-12)
    assert 0.65 < np.diag(core).min() <= np.diag(core).max() < 1.25
    scale = math.sqrt(max(1, shape[0] / shape[1]))
    np.testing.assert_allclose(tape["x@1"], gradient - 0.1 * scale * tape["x.newton_schulz_5@1"], rtol=1e-12)


def test_muon_of_no_gradient_moves_nothing_but_the_decay() -> None:
    tape = tape_with_gradients(x=np.zeros((2, 3)))
    update(tape, "muon", lr=0.1)
    np.testing.assert_array_equal(tape["x@1"], np.zeros((2, 3)))


def test_muon_refuses_what_is_not_a_matrix() -> None:
    with pytest.raises(TapeError, match=r"'x'.*\(2,\)"):
        update(tape_with_gradients(x=[1.0, 2.0]), "muon", lr=0.1)


def test_every_step_of_muon_tells_its_formula() -> None:
    config = CONFIGS["gpt2"]
    joined = join(train(config, weights(config), IDS, TARGETS, MuonConfig(), 1))
    trace, name = Trace(joined), "blocks.0.mlp.up_proj.weight"
    wanted = {
        "nesterov@1": "u@1[in,out] = (1 - 0.95) · dW_1[in,out] + 0.95 · m@1[in,out]",
        "newton_schulz_0@1": "X_0[in,out] = u@1[in,out] / max(‖u‖, 1e-07)",
        "gram_2@1": "A_2[i,j] = Σ_out X_1[i,out] X_1[j,out]",
        "square_2@1": "cA_2²[i,j] = Σ_k A_2[i,k] A_2[k,j] · 2.0315",
        "polynomial_2@1": "B_2[i,j] = cA_2²[i,j] + -4.775 · A_2[i,j]",
        "newton_schulz_5@1": "X_5[in,out] = BX_5[in,out] + 3.4445 · X_4[in,out]",
    }
    for step, text in wanted.items():
        root = derive(trace, f"{name}.{step}[1,0]", depth=0)
        assert root.step is not None
        assert build_formula(trace, root.step, root.index) == text


# ---- a recipe's optimizer


def test_only_matrices_that_multiply_decay() -> None:
    """Tables are looked up, gains and biases are no matrices; the unembedding multiplies."""
    for name in ("gpt2", "llama", "guide"):
        for parameter, shape in CONFIGS[name].parameters().items():
            wanted = "_proj.weight" in parameter or parameter == "unembed.weight"
            assert decays(parameter, shape) is wanted, parameter
    assert not decays("position_bias.weight", (32, 4))


@pytest.mark.parametrize("optimizer", [AdamW(weight_decay=0.5), AdamL2(weight_decay=0.5)])
def test_a_recipes_optimizer_decays_only_those(optimizer: AdamW | AdamL2) -> None:
    tape, plain = backpropagated(CONFIG), backpropagated(CONFIG)
    update(tape, optimizer)
    update(plain, optimizer.kind, lr=optimizer.lr, betas=(optimizer.beta1, optimizer.beta2), weight_decay=0.0)
    for name, value in weights(CONFIG).items():
        same = np.array_equal(tape[f"{name}.m@1"], plain[f"{name}.m@1"]) and np.array_equal(
            tape[f"{name}@1"], plain[f"{name}@1"]
        )
        assert same is not decays(name, value.shape), name


def test_a_schedule_multiplies_the_rate_of_its_step() -> None:
    cosine = Cosine(warmup=2)
    for k in (1, 2, 3, 4):
        tape = tape_with_gradients(x=[3.0])
        update(tape, "sgd", k, lr=0.1, schedule=lambda step: cosine.factor(step, 4))
        assert tape[f"x@{k}"] == pytest.approx([3 - 0.1 * 3 * (0.5, 1, 1, 0.5)[k - 1]])


def test_beta2_warms_up_in_a_straight_line() -> None:
    optimizer = AdamW(beta2=0.999, beta2_start=0.99, beta2_warmup=9)
    assert [optimizer.betas_at(step)[1] for step in (0, 3, 9, 100)] == pytest.approx(
        [0.99, 0.993, 0.999, 0.999]
    )
    tape = tape_with_gradients(x=[3.0])
    state = {"x.m@3": np.array([1.0]), "x.v@3": np.array([2.0])}
    update(tape, optimizer, 4, state=state)
    assert tape["x.v@4"] == pytest.approx(0.993 * 2 + 0.007 * 9)
    mean, square = (0.9 + 0.3) / (1 - 0.9**4), (0.993 * 2 + 0.007 * 9) / (1 - 0.993**4)
    assert tape["x@4"] == pytest.approx(3 - 6e-4 * mean / math.sqrt(square), rel=1e-9)


# ---- clipping


def test_clipping_shortens_all_gradients_to_the_limit_together() -> None:
    tape = tape_with_gradients(x=[3.0, 0.0], y=4.0)
    update(tape, "sgd", lr=1.0, clip=1.0)
    assert (tape["grad_norm"], tape["clip"]) == (5, 0.2)
    np.testing.assert_allclose(tape["d.x.clipped"], [0.6, 0], rtol=1e-15)
    assert tape["d.y.clipped"] == pytest.approx(0.8)
    np.testing.assert_allclose(tape["x@1"], [2.4, 0], rtol=1e-15)
    assert tape["y@1"] == pytest.approx(3.2)
    assert tape.steps["x@1"].inputs == ("x", "d.x.clipped")


@pytest.mark.parametrize("limit", [5.0, 6.0])
def test_gradients_within_the_limit_are_not_clipped(limit: float) -> None:
    tape = tape_with_gradients(x=[3.0, 0.0], y=4.0)
    update(tape, "sgd", lr=1.0, clip=limit)
    assert tape["clip"] == 1
    np.testing.assert_array_equal(tape["d.x.clipped"], tape["d.x"])
    assert tape["y@1"] == 0


def test_without_a_limit_no_clipping_step_is_taken() -> None:
    tape = tape_with_gradients(x=[3.0])
    update(tape, "sgd", lr=1.0)
    assert "grad_norm" not in tape
    assert "d.x.clipped" not in tape


@pytest.mark.parametrize("limit", [0.05, 0.5])
def test_clipping_agrees_with_torch_and_exactly_with_its_formula(limit: float) -> None:
    tape = backpropagated(CONFIG)
    gradients = {name: tape[f"d.{name}"].copy() for name in CONFIG.parameters()}
    update(tape, "sgd", lr=RATE, clip=limit)
    norm = math.sqrt(math.fsum(float(g) ** 2 for array in gradients.values() for g in array.flat))
    assert norm > limit
    assert tape["grad_norm"] == pytest.approx(norm, rel=1e-14)

    got = {f"d.{name}": tape[f"d.{name}.clipped"] for name in gradients}
    exact = {f"d.{name}": g * (limit / norm) for name, g in gradients.items()}
    assert find_first_mismatch(got, exact, 1e-14) is None

    parameters = [torch.zeros(g.shape, dtype=torch.float64) for g in gradients.values()]
    for parameter, g in zip(parameters, gradients.values(), strict=True):
        parameter.grad = torch.tensor(g)
    torchs_norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    theirs = {
        f"d.{name}": p.grad.numpy()
        for name, p in zip(gradients, parameters, strict=True)
        if p.grad is not None
    }
    assert float(torchs_norm) == pytest.approx(norm, rel=1e-14)
    assert find_first_mismatch(got, theirs, 1e-5) is None
    # torch divides by ‖g‖ + 1e-6
    slack = {name: g * (norm + 1e-6) / norm for name, g in theirs.items()}
    assert find_first_mismatch(got, slack, 1e-13) is None


def test_only_the_chosen_parameters_move_and_count_for_clipping() -> None:
    tape = tape_with_gradients(x=[3.0], y=[4.0])
    updated = update(tape, "sgd", lr=1.0, only="x*", clip=1.0)
    assert [ref.name for ref in updated] == ["x@1"]
    assert tape["grad_norm"] == 3
    assert "y@1" not in tape


# ---- the tapes as one


def test_after_a_joined_update_probs_are_those_of_the_updated_weights() -> None:
    tapes = trained("sgd", steps=2, lr=RATE)
    joined = join(tapes)
    for k, tape in enumerate(tapes):
        np.testing.assert_array_equal(joined[f"probs@{k}"], tape["probs"])
        np.testing.assert_array_equal(joined[f"loss@{k}"], tape["loss"])
    assert joined["probs@0"] is joined["probs"]
    assert not np.array_equal(joined["probs@1"], joined["probs"])
    assert "probs@3" not in joined


def test_a_parameter_after_k_updates_is_the_update_that_made_it() -> None:
    tapes = trained("adamw", steps=2, lr=RATE)
    joined, name = join(tapes), "blocks.0.attn.q_proj.weight"
    assert joined[f"{name}@0"] is joined[name]
    np.testing.assert_array_equal(joined[f"{name}@1"], tapes[0][f"{name}@1"])
    np.testing.assert_array_equal(joined[f"{name}@1"], tapes[1][name])
    np.testing.assert_array_equal(joined[f"{name}@2"], tapes[2][name])
    assert joined.steps[f"{name}@2"].inputs == (f"{name}@1", f"{name}.m@2", f"{name}.v@2")
    assert joined.steps[f"{name}.m@2"].inputs == (f"{name}.m@1", f"d.{name}@1")
    assert f"{name}@1" in joined.steps["blocks.0.attn.q@1"].inputs


def test_gradients_and_aliases_of_a_later_step_have_its_number() -> None:
    tapes = trained("sgd", steps=2, lr=RATE)
    joined = join(tapes)
    np.testing.assert_array_equal(joined["d.embed.weight@1"], tapes[1]["d.embed.weight"])
    assert joined.resolve("blocks.0.resid_pre@1") == "positioned@1"
    np.testing.assert_array_equal(joined["d.blocks.0.resid_pre@1"], tapes[1]["d.positioned"])
    np.testing.assert_array_equal(joined["blocks.1.mlp.hidden@2"], tapes[2]["blocks.1.mlp.act"])


def test_a_joined_tape_runs_again_to_the_same_numbers() -> None:
    joined = join(trained("adamw", steps=2, lr=RATE, clip=0.1))
    again = joined.rerun({})
    for name, value in joined.values.items():
        np.testing.assert_array_equal(again[name], value, err_msg=name)


def test_what_did_not_move_keeps_its_name() -> None:
    tapes = trained("sgd", steps=2, lr=RATE, only="blocks.0.attn.*")
    joined = join(tapes)
    for name in ("embed.weight", "ids", "mask"):
        assert joined.resolve(f"{name}@1") == name
    assert joined.steps["embedded@1"].inputs == ("embed.weight", "ids")
    q = joined.steps["blocks.0.attn.q@1"].inputs
    assert q[1:] == ("blocks.0.attn.q_proj.weight@1", "blocks.0.attn.q_proj.bias@1")


def test_a_parameter_that_an_update_left_in_place_is_still_that_update() -> None:
    config = CONFIGS["bare"]
    joined = join(train(config, weights(config), IDS, TARGETS, "sgd", 1, lr=0.0))
    np.testing.assert_array_equal(joined["embed.weight@1"], joined["embed.weight"])
    assert joined.steps["embedded@1"].inputs == ("embed.weight@1", "ids")


def test_a_tape_alone_is_its_own_join() -> None:
    tape = backpropagated(CONFIG)
    joined = join([tape])
    assert joined.values == tape.values
    assert joined.steps == tape.steps
    assert joined.aliases == tape.aliases


def test_the_glossary_reaches_into_joined_tapes() -> None:
    first, second = tape_with_gradients(x=[1.0]), tape_with_gradients(x=[2.0])
    for tape in (first, second):
        tape.describe(tape.ref("x²"), symbol="S", meaning="a square")
    assert join([first, second]).about["x²@1"].symbol == "S"


# ---- errors


def test_an_unknown_rule_gets_a_hint() -> None:
    with pytest.raises(TapeError, match=r"adaw.*adamw"):
        update(tape_with_gradients(x=1.0), "adaw", lr=0.1)


def test_a_pattern_that_fits_nothing_lists_what_there_is() -> None:
    tape = tape_with_gradients(x=1.0, y=2.0)
    for wrong in ({"only": "z*"}, {"only": ["x", "z*"]}, {"freeze": "z*"}):
        with pytest.raises(TapeError, match=r"'z\*'.* x, y\."):
            update(tape, "sgd", lr=0.1, **wrong)


def test_several_patterns_choose_and_freeze() -> None:
    tape = tape_with_gradients(x=1.0, y=2.0, z=3.0)
    assert [ref.name for ref in update(tape, "sgd", lr=0.1, only=["x", "y"], freeze=["y"])] == ["x@1"]
    with pytest.raises(TapeError, match="freeze"):
        update(tape_with_gradients(x=1.0), "sgd", lr=0.1, freeze="*")


def test_a_parameter_without_a_gradient_is_not_updated() -> None:
    tape = tape_with_gradients(x=1.0)
    tape.parameter("lonely", 2.0)
    assert [ref.name for ref in update(tape, "sgd", lr=0.1)] == ["x@1"]
    with pytest.raises(AddressError):
        tape["lonely@1"]


def test_update_needs_gradients() -> None:
    tape = Tape()
    tape.parameter("x", 1.0)
    with pytest.raises(TapeError, match="no parameter with a gradient"):
        update(tape, "sgd", lr=0.1)
