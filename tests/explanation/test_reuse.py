"""A tape that reuses a previous one holds the numbers of a full run, bit for bit."""

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.explanation.reuse import CHUNK, ReusingTape, has_same_bits
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Edits, Tape
from pellucid.reference.training import forward, join, train
from tests.agreement.engines import DIFFERENT
from tests.reference.models import CONFIGS, IDS, TARGETS, weights
from tests.rotation import take_share

Program = Callable[[ModelConfig, Edits, Tape | None], Tape]


def choose_tape(previous: Tape | None, edits: Edits) -> Callable[[], Tape]:
    return partial(Tape, edits=edits) if previous is None else partial(ReusingTape, previous, edits)


def run_forward(config: ModelConfig, edits: Edits, previous: Tape | None) -> Tape:
    make_tape = choose_tape(previous, edits)
    return forward(config, weights(config), IDS, TARGETS, make_tape=make_tape)


def run_backward(config: ModelConfig, edits: Edits, previous: Tape | None) -> Tape:
    tape = run_forward(config, edits, previous)
    tape.backward(tape.ref("loss"))
    return tape


def run_updates(config: ModelConfig, edits: Edits, previous: Tape | None) -> Tape:
    inputs = (config, weights(config), IDS, TARGETS)
    make_tape = choose_tape(previous, edits)
    return join(train(*inputs, "adamw", 2, lr=0.1, clip=0.5, freeze="*embed.weight", make_tape=make_tape))


PROGRAMS: list[Program] = [run_forward, run_backward, run_updates]


def check_same(got: Tape, wanted: Tape) -> None:
    assert list(got.values) == list(wanted.values) and got.steps == wanted.steps
    assert (got.aliases, got.roles, got.about) == (wanted.aliases, wanted.roles, wanted.about)
    for name, value in wanted.values.items():
        assert has_same_bits(got.values[name], value), name


def draw_edit(tape: Tape, draw: random.Random, edits: dict[str, dict[int, float]]) -> None:
    """Gives one more cell a number: often its own, or 0, so that a change does not spread."""
    names = [
        name
        for name, value in tape.values.items()
        if value.dtype.kind == "f" and not name.split("@")[0].endswith((".computed", ".backpropagated"))
    ]
    name = draw.choice(names)
    place = draw.randrange(tape.values[name].size)
    own = float(tape.values[name].flat[place])
    number = draw.choice([own if np.isfinite(own) else 0.0, 0.0, -0.0, draw.gauss(0, 1)])
    edits.setdefault(name, {})[place] = number


def check_edits(config: ModelConfig, program: Program, draw: random.Random, count: int) -> None:
    first = program(config, {}, None)
    tape, edits = first, dict[str, dict[int, float]]()
    for _ in range(count):
        draw_edit(tape, draw, edits)
        tape = program(config, edits, tape)
        check_same(tape, program(config, edits, None))
    undone = program(config, {}, tape)
    check_same(undone, first)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.torture)])
def test_edits_one_after_another_and_undone_equal_full_runs(name: str, program: Program, count: int) -> None:
    check_edits(CONFIGS[name], program, random.Random(f"{name} {program.__name__}"), count)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.torture)])
def test_edits_of_every_choice_equal_full_runs(count: int) -> None:
    for name in take_share(DIFFERENT):
        check_edits(DIFFERENT[name], run_backward, random.Random(name), count)


def runs(config: ModelConfig, edits: Edits, program: Program = run_forward) -> tuple[int, Tape]:
    tape = program(config, edits, program(config, {}, None))
    assert isinstance(tape, ReusingTape)
    return tape.steps_run, tape


def test_nothing_runs_where_nothing_has_changed() -> None:
    for config in CONFIGS.values():
        before = run_backward(config, {}, None)
        tape = run_backward(config, {}, before)
        assert isinstance(tape, ReusingTape) and tape.steps_run == 0
        assert all(value is before.values[name] for name, value in tape.values.items())


def test_only_what_reads_a_change_runs() -> None:
    steps = len(run_forward(CONFIGS["gpt2"], {}, None).steps)
    assert runs(CONFIGS["gpt2"], {"probs": {0: 0.5}})[0] == 1  # the edit itself
    early, late = (runs(CONFIGS["gpt2"], {f"blocks.{i}.mlp.up": {0: 9.0}})[0] for i in (0, 1))
    assert 1 < late < early < steps / 1.2
    # the key of a masked position changes its scores, which the mask then discards
    count, tape = runs(CONFIGS["gpt2"], {"blocks.0.attn.scores": {1: 9.0}})
    assert count == 2 and tape["blocks.0.attn.scores"][0, 0, 0, 1] == 9


def test_an_edit_to_the_same_number_is_one_step() -> None:
    before = run_forward(CONFIGS["llama"], {}, None)
    own = float(before["blocks.1.attn.q"].flat[5])
    count, tape = runs(CONFIGS["llama"], {"blocks.1.attn.q": {5: own}})
    assert count == 1 and "blocks.1.attn.q.computed" in tape
    assert has_same_bits(tape["loss"], before["loss"])


def test_zeros_of_either_sign_are_different_bits_and_nan_is_itself() -> None:
    assert not has_same_bits(np.array([0.0]), np.array([-0.0]))
    assert has_same_bits(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))
    assert not has_same_bits(np.array([1.0]), np.array([1.0], dtype=np.float32))
    assert not has_same_bits(np.array([1.0]), np.array([[1.0]]))
    large = np.zeros(3 * CHUNK)
    for place in (0, CHUNK, 3 * CHUNK - 1):
        other = large.copy()
        other[place] = 1e-300
        assert not has_same_bits(large, other) and has_same_bits(large[::-1], large)
    before = Tape(edits={"y": {0: 0.0}})
    before("y", find_op("absolute"), before.constant("x", [1.0]))
    after = ReusingTape(before, edits={"y": {0: -0.0}})
    after("y", find_op("absolute"), after.constant("x", [1.0]))
    assert np.signbit(after["y"]).all()
