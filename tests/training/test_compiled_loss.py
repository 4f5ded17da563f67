"""The first compiled step is compared with the eager one, and wrong code is not trained with."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pellucid.engine import compiler
from pellucid.engine.taps import record
from pellucid.training.events import Compared
from pellucid.training.run import Run
from tests.training.small_runs import make_run

DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
real_compile = torch.compile


@pytest.fixture(autouse=True)
def _front_end_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The compiler's front end is enough, and does not write C++."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(real_compile, backend="eager"))
    yield
    torch._dynamo.reset()


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor], is_mended: bool) -> list[str]:
    """Makes compiled code wrong, until it is removed where that mends it; returns a list of the removals."""
    removed: list[str] = []

    class Wrong:
        def __init__(self, right: Any) -> None:
            self.right = right

        def __call__(self, *given: Any) -> Tensor:
            loss: Tensor = self.right(*given)
            return loss if removed and is_mended else change(loss)

    monkeypatch.setattr(torch, "compile", lambda module, **_: Wrong(module))
    monkeypatch.setattr(compiler, "clear_cache", lambda: removed.append("all"))
    return removed


def train(run: Run) -> tuple[dict[str, Tensor], list[Compared]]:
    """Returns the weights after two steps, and the comparisons."""
    events = []
    for event in run.events():
        events.append(event)
        if event.step == 2:
            run.request_stop()
    weights = {name: weight.detach().clone() for name, weight in run.state.weights.named.items()}
    return weights, [event for event in events if isinstance(event, Compared)]


def is_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_first_step_alone_is_compared_and_no_bit_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it, (compared,) = train(make_run("train.compile=true"))
    assert compared.step == 1 and compared.difference < 1e-9 and not compared.about
    monkeypatch.setattr("pellucid.training.compiled_loss.CompiledLoss._compare", lambda self, batch: None)
    without, none = train(make_run("train.compile=true"))
    assert is_same(with_it, without) and none == []


def test_code_that_is_wrong_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = plant(monkeypatch, lambda loss: 1.5 * loss, is_mended=True)
    run = make_run("train.compile=true")
    trained, (compared,) = train(run)
    assert removed == ["all"] and run.state.compiled == "yes"
    assert compared.difference == 0 and "made again" in compared.message
    assert is_same(trained, train(make_run("train.compile=false"))[0])


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "loss": lambda loss: loss + 1e-6,
    "NaN": lambda loss: loss * torch.nan,
    "gradients": lambda loss: 1.5 * loss - 0.5 * loss.detach(),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_code_that_is_wrong_again_does_not_train(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor]
) -> None:
    plant(monkeypatch, change, is_mended=False)
    run = make_run("train.compile=true")
    trained, (compared,) = train(run)
    assert "not compiled" in compared.message and run.state.compiled.startswith("no: ")
    assert is_same(trained, train(make_run("train.compile=false"))[0])


def test_dropout_is_left_out_of_the_comparison_and_draws_what_it_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, lambda loss: loss, is_mended=False)
    trained, (compared,) = train(make_run("train.compile=true", DROPOUT))
    assert compared.difference == 0
    assert is_same(trained, train(make_run("train.compile=false", DROPOUT))[0])


def test_a_watched_step_runs_eagerly_so_the_next_one_is_compared() -> None:
    state = make_run("train.compile=true").state
    batch = state.prefetcher.next()
    assert state.compiled_loss is not None
    with record("logits", model=state.model) as seen:
        state.loss(batch.ids, batch.targets, None)
    assert list(seen) == ["logits"] and not state.compiled_loss.is_compared
    state.loss(batch.ids, batch.targets, None)
    assert state.compiled_loss.is_compared
