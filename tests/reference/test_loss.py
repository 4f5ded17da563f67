"""The loss with all its settings: against PyTorch's cross_entropy, by hand, and along its derivative."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from pellucid.base.errors import TapeError
from pellucid.base.names import describe
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.loss import loss
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, train
from pellucid.verification.mismatch import find_mismatch
from tests.reference.models import CONFIGS, IDS, check_explained, weights

RANDOM = np.random.default_rng(0)
LOGITS = 2 * RANDOM.standard_normal((2, 4, 5))
TARGETS = np.array([[3, -100, 0, 4], [2, 2, -100, 1]])
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 3.0])
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "smoothing": {"smoothing": 0.1},
    "smoothing alone": {"smoothing": 1.0},
    "z": {"z": 0.3},
    "class weights": {"class_weights": WEIGHTS},
    "smoothing and class weights": {"smoothing": 0.2, "class_weights": WEIGHTS},
    "smoothing and z": {"smoothing": 0.2, "z": 1e-4},
    "all": {"smoothing": 0.2, "class_weights": WEIGHTS, "z": 0.3},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def specified(logits: Any = LOGITS, targets: Any = TARGETS, **settings: Any) -> Tape:
    tape = Tape()
    tape.backward(loss(tape, tape.parameter("logits", logits), targets, **settings))
    return tape


def in_pytorch(logits: Array, targets: Array, z: float = 0.0, **settings: Any) -> tuple[float, Array]:
    """Loss and gradient by PyTorch; of the z-loss, which it does not have, by its formula."""
    x = torch.tensor(logits, requires_grad=True)
    y = torch.tensor(targets)
    given = settings.get("class_weights")
    value = cross_entropy(
        x.flatten(0, 1),
        y.flatten(),
        weight=None if given is None else torch.tensor(given),
        label_smoothing=settings.get("smoothing", 0.0),
        ignore_index=-100,
    )
    value = value + z * x.logsumexp(-1)[y != -100].square().mean()
    value.backward()
    assert x.grad is not None
    return float(value.detach()), x.grad.numpy()


@every_setting
def test_loss_and_gradient_equal_pytorch(settings: dict[str, Any]) -> None:
    value, gradient = in_pytorch(LOGITS, TARGETS, **settings)
    tape = specified(**settings)
    assert float(tape["loss"]) == pytest.approx(value, rel=1e-12)
    assert tape["d.logits"] == pytest.approx(gradient, abs=1e-12)


@every_setting
def test_the_gradient_is_the_derivative_of_the_loss(settings: dict[str, Any]) -> None:
    """Along one random direction, with Richardson extrapolation."""
    way = np.random.default_rng(1).standard_normal(LOGITS.shape)
    way /= np.linalg.norm(way)

    def derivative(h: float) -> float:
        up, down = (float(specified(LOGITS + side * way, **settings)["loss"]) for side in (h, -h))
        return (up - down) / (2 * h)

    analytic = float(np.vdot(specified(**settings)["d.logits"], way))
    assert (4 * derivative(2.5e-4) - derivative(5e-4)) / 3 == pytest.approx(analytic, rel=1e-7)


def test_without_settings_the_tape_has_the_three_steps_it_always_had() -> None:
    steps = [name for name, step in specified().steps.items() if step.phase == "fwd"]
    assert steps == ["lse", "nll", "loss"]


@every_setting
def test_every_value_has_a_name_and_every_cell_can_be_explained(settings: dict[str, Any]) -> None:
    tape = specified(LOGITS[:1, :2], TARGETS[:1, :2], **settings)
    for name, value in tape.values.items():
        about = describe(name)
        assert about is not None and len(about.axes) == value.ndim, name
    check_explained(tape)
    for name in tape.steps:
        last = ",".join(str(size - 1) for size in tape[name].shape)
        assert str(derive(Trace(tape), f"{name}[{last}]" if last else name, depth=0))


def test_smoothing_by_hand() -> None:
    """p = (1/2, 1/4, 1/4): the target costs ln 2, all tokens in the mean (ln 2 + 2 ln 4) / 3 = 5/3 ln 2;
    with a tenth of that, (0.9 + 0.1 · 5/3) ln 2 = 0.73936."""
    tape = specified(np.log([[[2.0, 1.0, 1.0]]]), [[0]], smoothing=0.1)
    assert tape["nll"][0, 0] == pytest.approx(math.log(2))
    assert tape["neg_log_probs"][0, 0] == pytest.approx([math.log(2), math.log(4), math.log(4)])
    assert tape["uniform_nll"][0, 0] == pytest.approx(5 / 3 * math.log(2))
    assert tape["smoothed"][0, 0] == tape["loss"] == pytest.approx(0.73936, abs=5e-6)


def test_z_loss_by_hand() -> None:
    """Logits of sums 4 and 1: lse = ln 4 and 0, so half of (ln 4)² = 0.96091, and of that a tenth."""
    logits = np.log([[[2.0, 2.0], [0.5, 0.5], [7.0, 7.0]]])
    tape = specified(logits, [[0, 1, -100]], z=0.1)
    assert tape["z_penalty"][0, :2] == pytest.approx([math.log(4) ** 2, 0])
    assert tape["z_loss"] == pytest.approx(0.096091, abs=5e-7)
    assert tape["loss"] == tape["cross_entropy"] + tape["z_loss"]
    assert not tape["d.logits"][0, 2].any(), "what is not counted is not penalised"


def test_class_weights_change_the_mean_and_not_the_penalty() -> None:
    """Both tokens cost ln 2; with any weights the mean stays ln 2, and lse = ln 2 is squared as it is."""
    tape = specified(np.zeros((1, 2, 2)), [[0, 1]], class_weights=[1.0, 9.0], z=1.0)
    assert tape["weighted_nll"][0] == pytest.approx([math.log(2), 9 * math.log(2)])
    assert tape["cross_entropy"] == pytest.approx(math.log(2))
    assert tape["z_loss"] == pytest.approx(math.log(2) ** 2)


@every_setting
def test_where_no_target_counts_the_loss_is_zero(settings: dict[str, Any]) -> None:
    tape = specified(targets=np.full((2, 4), -100), **settings)
    assert tape["loss"] == 0 and not tape["d.logits"].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_where_no_target_has_weight_the_loss_is_zero(smoothing: float) -> None:
    """PyTorch says nan or infinity here."""
    tape = specified(targets=np.full((2, 4), 2), class_weights=WEIGHTS, smoothing=smoothing)
    assert tape["loss"] == 0 and not tape["d.logits"].any()


def test_a_forward_pass_takes_the_settings_of_its_loss() -> None:
    config = CONFIGS["gpt2"]
    given = forward(config, weights(config), IDS, [[3, -100, 2], [2, 4, 0]], objective=SETTINGS["all"])
    wanted, gradient = in_pytorch(given["logits"], np.array([[3, -100, 2], [2, 4, 0]]), **SETTINGS["all"])
    given.backward(given.ref("loss"))
    assert float(given["loss"]) == pytest.approx(wanted, rel=1e-12)
    assert find_mismatch("d.logits", given["d.logits"], gradient, 1e-12) is None


def test_every_update_of_a_training_follows_the_same_objective() -> None:
    config, targets = CONFIGS["gpt2"], [[3, -100, 2], [2, 4, 0]]
    tapes = train(config, weights(config), IDS, targets, "sgd", 2, objective=SETTINGS["all"], lr=0.1)
    wanted = [in_pytorch(tape["logits"], np.array(targets), **SETTINGS["all"])[0] for tape in tapes]
    assert [float(tape["loss"]) for tape in tapes] == pytest.approx(wanted, rel=1e-12)
    assert wanted[0] > wanted[1] > wanted[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"smoothing": 1.5}, "smoothing .* got 1.5"),
        ({"smoothing": math.nan}, "smoothing .* got nan"),
        ({"z": -1.0}, "z .* got -1"),
        ({"class_weights": np.ones(4)}, r"class_weights must be 5 finite numbers.*; got the shape \(4,\)"),
        ({"class_weights": -WEIGHTS}, r"class_weights .* got the shape \(5,\), from -3"),
        ({"class_weights": []}, r"got the shape \(0,\)\."),
    ],
)
def test_settings_that_make_no_loss_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TapeError, match=message):
        specified(**settings)
