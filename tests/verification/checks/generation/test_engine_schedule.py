"""The schedule has every feature for which a model has room, and each does what its name says."""

import itertools

import pytest
import torch

from pellucid.base.errors import PellucidError
from pellucid.generation import slots
from pellucid.generation.scheduler import Engine
from pellucid.model import Model
from pellucid.verification.checks.check import ReducedModel, Subject
from pellucid.verification.checks.generation.engine_schedule import EngineRuns, Lengths
from tests.formats.gguf import random_models

ALL = {
    "one chunk",
    "prefill chunk 2",
    "prefill chunk 3",
    "choices",
    "reused slot",
    "reused prefix",
    "beams",
    "stream",
    "static slots",
    "lookup",
    "draft",
    "prefill chunk 2 of 128 tokens",
    "crop",
    "roll",
}


def runs(**more: object) -> EngineRuns:
    shape = random_models.LLAMA | {"context_length": 160} | more
    return EngineRuns(ReducedModel(Subject(Model(random_models.model(shape)))), torch.float32)


def features(made: EngineRuns) -> set[str]:
    return {one.feature for one in made.run_all(stop=5)}


def test_a_model_with_room_runs_everything() -> None:
    assert features(runs()) == ALL


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"context_length": 64}, {"prefill chunk 2 of 128 tokens"}),
        ({"mask": {"kind": "window", "size": 3}}, {"reused prefix", "lookup", "draft"}),
        ({"attention": "linear_elu", "positions": "none"}, {"reused prefix", "lookup", "draft"}),
        ({"vocab_size": 2}, {"beams"}),
    ],
)
def test_what_a_model_cannot_do_is_not_run(more: dict[str, object], missing: set[str]) -> None:
    assert features(runs(**more)) == ALL - missing


def test_a_context_of_one_token_is_only_cropped() -> None:
    assert features(runs(context_length=1)) == {"crop"}


def test_prompts_fit_and_have_the_chunks_that_they_are_named_after() -> None:
    for context, prefix in itertools.product(range(2, 40), (0, 1, 3)):
        if prefix >= context:
            continue
        found = Lengths.choose(context, prefix)
        border = max(found.chunk, prefix)
        assert max(1, prefix) <= found.one <= border and found.new >= 1
        assert max(found.one, found.two, found.three) + found.new <= context
        assert not found.two or border < found.two <= border + found.chunk
        assert not found.three or found.three == border + 2 * found.chunk
        assert context < 17 + prefix or found.three


def test_a_prefix_is_really_shared_and_proposals_are_accepted_and_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared: list[int] = []
    find = slots.CacheSlots._find_shared

    def watch(self: slots.CacheSlots, prompt: tuple[int, ...]) -> tuple[int, int]:
        shared.append(find(self, prompt)[1])
        return find(self, prompt)

    monkeypatch.setattr(slots.CacheSlots, "_find_shared", watch)
    found = {one.feature: one for one in runs().run_all(stop=5)}
    assert max(shared) == 8
    steps = [step for text in found["lookup"].texts for step in text.speculative]
    assert any(step.accepted for step in steps)
    assert any(step.accepted < len(step.proposed) for step in steps)


def test_an_engine_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "step", lambda self: False)
    with pytest.raises(PellucidError, match="one chunk"):
        list(runs().run_together(stop=5))
