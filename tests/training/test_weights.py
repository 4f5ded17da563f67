"""What learns is what patterns choose; narrow weights are copies of masters that small steps move."""

import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.training.events import Stepped
from pellucid.training.step import forward_backward
from tests.training.small_runs import MadeUp, make_run

NARROW = ("train.weights=bfloat16", "train.dtype=bfloat16")


def test_only_what_a_pattern_meets_learns() -> None:
    made = make_run('train.only="unembed.*"', "model.unembedding=linear", "optimizer.lr=0.1")
    before = {name: value.detach().clone() for name, value in made.state.weights.named.items()}
    made.step()
    moved = [name for name, value in made.state.weights.named.items() if not torch.equal(value, before[name])]
    assert moved == ["unembed.weight"]
    assert made.state.weights.named["embed.weight"].grad is None


def test_what_is_frozen_stays_and_the_rest_learns() -> None:
    made = make_run('train.freeze=["blocks.0.*", "embed.*"]', "optimizer.lr=0.1")
    before = {name: value.detach().clone() for name, value in made.state.weights.named.items()}
    made.step()
    stayed = {name for name, value in made.state.weights.named.items() if torch.equal(value, before[name])}
    assert stayed == {name for name in before if name.startswith(("blocks.0.", "embed."))}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.only=unembd.weight", "unembd.weight"),
        ('train.freeze="*"', "no parameter to train"),
        ("train.only=3", "train.only must be a text or a list of texts, not 3"),
        ("train.weights=bfloat16", "does not go with train.dtype=float64"),
    ],
)
def test_what_leaves_nothing_to_do_is_refused_in_words(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_run(change)


def test_masters_move_by_steps_that_bfloat16_cannot_hold() -> None:
    """Adam's first step has the size of the rate, here 2⁻¹⁶ of weights of which bfloat16 has every 2⁻⁸th."""
    made = make_run(*NARROW, "optimizer.lr=1e-7", "optimizer.weight_decay=0", "schedule.warmup=0")
    masters = {name: value.detach().clone() for name, value in made.state.weights.named.items()}
    model = {name: value.detach().clone() for name, value in made.state.model.named_parameters()}
    made.step()
    assert all(not torch.equal(value, masters[name]) for name, value in made.state.weights.named.items())
    same = [torch.equal(value, model[name]) for name, value in made.state.model.named_parameters()]
    assert sum(same) > len(same) / 2, "almost no rounded copy has changed"
    for name, value in made.state.model.named_parameters():
        assert torch.equal(value, made.state.weights.named[name].to(torch.bfloat16)), name


def test_narrow_gradients_of_many_parts_are_added_up_in_float32() -> None:
    made = make_run(*NARROW, "train.accumulate=4")
    batch = MadeUp().take(4, slice(0, 4))
    forward_backward(made.state, made.state.prefetcher.to_device(batch))
    grads = {name: value.grad for name, value in made.state.weights.trainable.items()}
    assert {grad.dtype for grad in grads.values() if grad is not None} == {torch.float32}
    exact = make_run("train.dtype=float32", "train.accumulate=4")
    forward_backward(exact.state, exact.state.prefetcher.to_device(batch))
    for name, value in exact.state.weights.trainable.items():
        grad = grads[name]
        assert grad is not None and value.grad is not None
        assert torch.allclose(grad, value.grad, atol=0.03 * float(value.grad.abs().max()) + 1e-3), name


def test_activations_made_again_give_the_same_step() -> None:
    kept, again = (
        make_run("train.activation_checkpointing=false"),
        make_run("train.activation_checkpointing=true"),
    )
    a, b = kept.step(), again.step()
    assert isinstance(a, Stepped) and isinstance(b, Stepped) and a.grad_norm == b.grad_norm
    for name, value in kept.state.weights.named.items():
        assert torch.equal(value, again.state.weights.named[name]), name
