"""The first number that is none is named with what it was made of, and no weight is changed by it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.engine.taps import current_watcher, edit, record
from pellucid.training import step
from pellucid.training.events import Ended, EndReason, Saved, Skipped, Stepped
from pellucid.training.history.log import read
from pellucid.training.history.nonfinite import NonfiniteLocator, inputs
from pellucid.training.prefetch import DeviceBatch
from pellucid.training.run import MAX_NONFINITE, Run
from pellucid.training.saving import checkpoint
from pellucid.training.state import TrainState
from tests.reference.models import CONFIGS
from tests.training.small_run_folders import trained
from tests.training.small_runs import make_run, recipe

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'


def state(made: Run) -> dict[str, Tensor]:
    """All that an update could change."""
    taken = made.state.snapshot()
    tables = {"weight": taken.weights, "optimizer": taken.optimizer, "trainable": taken.trainable}
    return {f"{kind} {name}": t.clone() for kind, table in tables.items() for name, t in table.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """What an optimizer does not remember yet is as good as zeros."""
    return all(torch.equal(*(t.get(name, torch.zeros_like((a | b)[name])) for t in (a, b))) for name in a | b)


class _Break(torch.autograd.Function):
    """The value itself, and a gradient with one number that is none."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, slope: Tensor) -> Tensor:
        return _one(slope, math.inf)


def _one(x: Tensor, bad: float) -> Tensor:
    return torch.cat([x.new_tensor([bad]), x.flatten()[1:]]).view_as(x)


@contextmanager
def broken(made: Run, where: str, name: str) -> Iterator[None]:
    """In this block an activation, a gradient, a parameter's gradient or the loss is not finite."""
    if where == "loss":
        right = made.state.loss
        made.state.loss = lambda *batch: right(*batch) * math.nan  # type: ignore[assignment]
        yield
        made.state.loss = right
    elif where == "parameter":
        hook = made.state.weights.named[name].register_hook(lambda slope: _one(slope, math.nan))
        yield
        hook.remove()
    else:
        change: Callable[[Tensor], Tensor] = (
            _Break.apply if where == "gradient" else lambda x: _one(x, math.inf)
        )
        with edit(name, change):
            yield


PLACES = [
    ("activation", "blocks.1.mlp.hidden", "blocks.1.mlp.hidden", "computed from act (from"),
    ("activation", "blocks.0.attn.scores", "blocks.0.attn.scores", "computed from q_rot (from"),
    ("activation", "embedded", "embedded", "computed from embed.weight (from"),
    ("gradient", "blocks.1.mlp.hidden", "d.blocks.1.mlp.act", "computed from d.hidden (from"),
    (
        "parameter",
        "blocks.0.mlp.up_proj.weight",
        "d.blocks.0.mlp.up_proj.weight",
        "computed from d.blocks.0.mlp.up",
    ),
    ("loss", "", "loss", "computed from nll (from"),
]


@pytest.mark.parametrize(("where", "name", "found", "words"), PLACES)
@pytest.mark.parametrize(
    "changes", [(), (DROPOUT, "train.accumulate=2", "train.ema=0.9")], ids=["", "dropout"]
)
def test_a_bad_number_is_named_with_its_inputs_and_changes_nothing(
    where: str, name: str, found: str, words: str, changes: tuple[str, ...]
) -> None:
    made = make_run(*changes)
    made.step()
    before = state(made)
    with broken(made, where, name):
        done = made.step()
    assert isinstance(done, Skipped) and same(before, state(made))
    assert done.name == found and words in done.about, done
    assert all(parameter.grad is None for parameter in made.state.weights.named.values())
    assert isinstance(made.step(), Stepped)


def test_an_overflow_is_reported_with_the_sizes_that_made_it() -> None:
    """Two factors of about 1e24 each are still numbers in float32; their product is not."""
    made = make_run("train.dtype=float32")
    with torch.no_grad():
        for name in ("up", "gate"):
            made.state.weights.named[f"blocks.1.mlp.{name}_proj.weight"].mul_(1e24)
    done = made.step()
    assert isinstance(done, Skipped) and done.name == "blocks.1.mlp.hidden"
    own, _, made_of = done.about.partition("; computed from ")
    assert own.endswith("of 240 are infinite")
    assert made_of.startswith("act (from 0 to ") and " and up (from -" in made_of and "e+24)" in made_of


def test_scores_that_are_masked_are_not_taken_for_bad_ones() -> None:
    made = make_run()
    with broken(made, "loss", ""):
        done = made.step()
    assert isinstance(done, Skipped) and done.name == "loss"


def test_the_rng_goes_on_as_if_nothing_had_been_looked_at() -> None:
    """Also where the second look throws more of them than the step did, as explicit attention may."""
    bits = []
    for looked in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not looked:
                patch.setattr(NonfiniteLocator, "locate_nonfinite", lambda *_: None)
            made = make_run(DROPOUT)
            with broken(made, "loss", ""):
                bad = made.state.loss
                made.state.loss = lambda *batch, bad=bad: (  # type: ignore[assignment,misc]
                    bad(*batch) if current_watcher() is None else bad(*batch) + torch.rand(())
                )
                made.step()
            made.step()
            bits.append(state(made))
    assert same(*bits)


def test_the_same_dropout_is_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_run(DROPOUT, "train.dtype=float32")
    masks: list[list[Tensor]] = []
    right = step.forward_backward

    def watched(state: TrainState, batch: DeviceBatch) -> tuple[Tensor, int]:
        with record("*.keep") as seen:
            loss, tokens = right(state, batch)
        masks.append([value.clone() for value in seen.values()])
        return loss * math.nan, tokens

    monkeypatch.setattr(step, "forward_backward", watched)
    made.step()
    first, again = masks
    assert len(first) > 4 and all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_value_of_the_fast_engine_is_made_of_something(name: str) -> None:
    """For each sort of model the specification knows the inputs, of first, inner and last blocks alike."""
    config: ModelConfig = CONFIGS[name]
    known = set(config.parameters())
    for value in ("loss", f"blocks.{config.n_layer - 1}.attn.q", "blocks.0.attn_out"):
        assert list(inputs(config, value, known)), value


def test_a_block_far_inside_is_made_of_its_neighbours() -> None:
    config = recipe("model.n_layer=9").config(7)
    known = {
        f"blocks.{layer}.{value}" for layer in range(9) for value in ("resid_post", "resid_mid", "mlp_out")
    }
    for layer in (3, 8):
        assert list(inputs(config, f"blocks.{layer}.resid_post", known)) == [
            f"blocks.{layer}.resid_mid",
            f"blocks.{layer}.mlp_out",
        ]
    assert set(inputs(config, "blocks.5.resid_mid", known)) == {"blocks.4.resid_post"}


def test_by_policy_the_run_stops_at_once_with_the_weights_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = step.forward_backward
    before: dict[str, Tensor] = {}

    def third(state: TrainState, batch: DeviceBatch) -> tuple[Tensor, int]:
        loss, tokens = right(state, batch)
        if state.meters.step != 2:
            return loss, tokens
        before.update({name: weight.detach().clone() for name, weight in state.weights.named.items()})
        return loss * math.nan, tokens

    monkeypatch.setattr(step, "forward_backward", third)
    events = trained(tmp_path / "a", "train.on_nonfinite=stop", "checkpoint.every=100")
    skipped, saved, ended = events[-3:]
    assert isinstance(skipped, Skipped) and isinstance(saved, Saved) and isinstance(ended, Ended)
    assert ended.reason is EndReason.NONFINITE and "step 3" in ended.detail
    kept = checkpoint.read(tmp_path / "a" / "checkpoints" / "step-0000003").weights
    assert all(torch.equal(kept[name], before[name]) for name in before)
    line = next(line for line in read(tmp_path / "a" / "log.jsonl") if line["kind"] == "skipped")
    assert (line["step"], line["name"]) == (3, "loss") and line["about"].startswith("computed from nll (from")


def test_otherwise_it_goes_on_until_there_are_too_many_in_a_row() -> None:
    made = make_run("steps=30")
    with broken(made, "loss", ""):
        events = list(made.events())
    assert sum(isinstance(event, Skipped) for event in events) == MAX_NONFINITE
    with pytest.raises(ConfigError, match=r"on_nonfinite.*skip, stop.*'stopp'"):
        recipe("train.on_nonfinite=stopp")


@pytest.mark.torture
def test_a_hundred_bad_numbers_at_random_steps_and_places() -> None:
    rng = np.random.default_rng(0)
    made = make_run("steps=1000", DROPOUT, "train.accumulate=2")
    at = set(rng.choice(300, 100, replace=False).tolist())
    for number in range(300):
        before = state(made)
        if number not in at:
            assert isinstance(made.step(), Stepped) and not same(before, state(made))
            continue
        where, name, found, _ = PLACES[rng.integers(len(PLACES))]
        with broken(made, where, name):
            done = made.step()
        assert isinstance(done, Skipped) and same(before, state(made)), number
        assert done.name == found


def test_memory_that_is_too_small_for_a_second_look_leaves_no_gradient_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next step is that of a run that never looked."""
    changes = ("train.weights=bfloat16", "train.dtype=bfloat16", "train.accumulate=2")
    looked, never = make_run(*changes), make_run(*changes)
    for made in (looked, never):
        right = made.state.loss
        made.state.loss = lambda *batch, right=right: right(*batch) * math.nan  # type: ignore[misc]
        if made is looked:
            backward, calls = step.forward_backward, list[int]()

            def full(
                state: TrainState, batch: DeviceBatch, backward: Any = backward, calls: Any = calls
            ) -> tuple[Tensor, int]:
                calls.append(1)
                result: tuple[Tensor, int] = backward(state, batch)
                if len(calls) == 2:
                    weight = next(iter(looked.state.weights.bfloat16.values()))
                    weight.grad = torch.ones_like(weight)
                    raise torch.OutOfMemoryError("full")
                return result

            monkeypatch.setattr(step, "forward_backward", full)
        event = made.step()
        assert isinstance(event, Skipped) and event.name == "loss"
        assert all(
            w.grad is None
            for w in (*made.state.weights.named.values(), *made.state.weights.bfloat16.values())
        )
        made.state.loss = right
        monkeypatch.undo()
    a, b = looked.step(), never.step()
    assert isinstance(a, Stepped) and isinstance(b, Stepped)
    assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm)
