"""A tuned lens diverges less than the plain one, its gradient is the derivative, and its file is strict."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

from pellucid.base.errors import FileError, UsageError
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.interpretability.lens import (
    compute_lens,
    compute_probs,
    list_states,
    list_weights,
    view_lens,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, SpecificationRunner
from pellucid.interpretability.tuned_lens import (
    RIDGES,
    AffineMap,
    LensObjective,
    TunedLens,
    TunedLensFit,
    describe_fit,
    fit_tuned_lens,
    read_tuned_lens,
)
from tests.reference.models import CONFIGS, weights

CONFIG = ModelConfig(vocab_size=8, context_length=24, n_layer=2, n_head=2, d_model=16, norm="layer_norm")
LENGTH = 24


def make_texts(count: int, seed: int) -> list[list[int]]:
    """Texts in which a token is followed by its successor, by its double, or by the token two before it."""
    random = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        text = random.integers(0, 8, 2).tolist()
        while len(text) < LENGTH:
            choices = ((text[-1] + 1) % 8, text[-1] * 2 % 8, text[-2])
            text.append(int(choices[random.choice(3, p=[0.6, 0.3, 0.1])]))
        texts.append(text)
    return texts


@cache
def train() -> EngineRunner:
    """A small model after 60 updates on such texts."""
    torch.manual_seed(0)
    module = Transformer(CONFIG).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    ids = torch.tensor(make_texts(32, seed=1))
    for _ in range(60):
        loss = F.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 1.3
    return EngineRunner(module.double().eval())


@cache
def fit() -> TunedLensFit:
    return fit_tuned_lens(train(), make_texts(12, seed=2), steps=4)


def test_the_tuned_lens_diverges_less_at_every_state_of_a_text_that_it_has_not_seen() -> None:
    runner, states = train(), list_states(CONFIG)
    plain, tuned = [], []
    for text in make_texts(8, seed=3):
        values = runner.run(text, states)
        for translate, found in ((None, plain), (fit().lens.translate, tuned)):
            found.append(compute_lens(values, CONFIG, runner.weights, text, translate=translate).divergence)
    before, after = np.mean(plain, (0, 2)), np.mean(tuned, (0, 2))
    assert (after[:-1] < before[:-1]).all(), (before, after)
    assert after[-1] == before[-1] == 0


def test_no_state_diverges_more_on_the_held_out_positions() -> None:
    found = fit()
    assert (found.fitted, found.held_out) == (231, 57)
    assert [state.name for state in found.states] == list_states(CONFIG)[:-1]
    for state in found.states:
        assert state.tuned < state.plain
    overfitted = fit_tuned_lens(train(), [[1, 2, 3, 4, 5, 6]], steps=3)
    assert all(state.tuned <= state.plain for state in overfitted.states)


def test_the_last_texts_are_not_fitted() -> None:
    """The regression kept is one of the first four texts; the fifth only chose it."""
    texts, state = make_texts(5, seed=4), "blocks.0.resid_post"
    found = fit_tuned_lens(train(), texts, steps=0, states=[state])
    assert (found.fitted, found.held_out) == (4 * LENGTH, LENGTH)
    last = list_states(CONFIG)[-1]
    seen = [train().run(text, [state, last]) for text in texts[:4]]
    h, final = (np.concatenate([values[name][0] for values in seen]) for name in (state, last))
    maps = [LensObjective(CONFIG, {}, h, final, []).regress(ridge) for ridge in RIDGES]
    assert any(np.allclose(one.weight, found.lens.maps[state].weight, rtol=1e-9) for one in maps)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bare"])
def test_the_gradient_is_the_derivative_of_the_divergence(name: str) -> None:
    config, random = CONFIGS[name], np.random.default_rng(0)
    runner = SpecificationRunner(config, weights(config))
    seen = runner.run([1, 3, 1], [*list_states(config), "logits"])
    state, last = seen["blocks.0.resid_post"][0], seen["blocks.1.resid_post"][0]
    own = {name: runner.weights[name] for name in list_weights(config)}
    objective = LensObjective(config, own, state, last, [compute_probs(seen["logits"][0])])
    width = config.d_model
    at, along = (
        AffineMap(scale * random.standard_normal((width, width)), scale * random.standard_normal(width))
        for scale in (0.3, 1.0)
    )
    divergence, grads = objective.differentiate(at)
    assert divergence == pytest.approx(objective.measure(at), rel=1e-12)
    slope = (grads.weight * along.weight).sum() + (grads.bias * along.bias).sum()
    h = 1e-5
    ahead, behind = (
        objective.measure(AffineMap(at.weight + s * along.weight, at.bias + s * along.bias)) for s in (h, -h)
    )
    assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-6)


def test_the_map_of_the_last_state_itself_is_found_by_regression() -> None:
    """Where the last state is an affine map of this one, the regression finds it."""
    random = np.random.default_rng(0)
    state, weight, bias = random.standard_normal((50, 4)), random.standard_normal((4, 4)), np.arange(4.0)
    last = state + state @ weight + bias
    found = LensObjective(CONFIGS["gpt2"], {}, state, last, []).regress(1e-12)
    assert found.weight == pytest.approx(weight, abs=1e-9)
    assert found.bias == pytest.approx(bias, abs=1e-9)


def test_a_file_holds_the_same_lens(tmp_path: Path) -> None:
    path = tmp_path / "lens.safetensors"
    fit().lens.write(path)
    again = read_tuned_lens(path, CONFIG)
    assert again.maps.keys() == fit().lens.maps.keys()
    for name, one in fit().lens.maps.items():
        assert np.array_equal(again.maps[name].weight, one.weight)
        assert np.array_equal(again.maps[name].bias, one.bias)
    with pytest.raises(FileError):
        fit().lens.write(path)
    fit().lens.write(path, force=True)
    with pytest.raises(UsageError):
        fit().lens.write(tmp_path / "lens.json")


NAME, HEAD = "blocks.0.resid_mid", {"format": "pellucid-tuned-lens", "version": "1"}
WHOLE = {f"{NAME}.weight": np.zeros((16, 16)), f"{NAME}.bias": np.zeros(16)}


@pytest.mark.parametrize(
    ("tensors", "head"),
    [
        (WHOLE, {"format": "other", "version": "1"}),
        (WHOLE, HEAD | {"version": "2"}),
        (WHOLE, None),
        ({}, HEAD),
        ({f"{NAME}.weight": np.zeros((16, 16))}, HEAD),
        (WHOLE | {f"{NAME}.bias": np.zeros(15)}, HEAD),
        (WHOLE | {f"{NAME}.bias": np.full(16, np.nan)}, HEAD),
        (WHOLE | {"blocks.9.resid_mid.bias": np.zeros(16)}, HEAD),
        (WHOLE | {f"{NAME}.scale": np.zeros(16)}, HEAD),
    ],
)
def test_a_file_that_is_not_a_lens_of_this_model_is_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], head: dict[str, str] | None
) -> None:
    save_file(tensors, tmp_path / "x.safetensors", head)
    with pytest.raises(FileError):
        read_tuned_lens(tmp_path / "x.safetensors", CONFIG)


def test_a_truncated_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    TunedLens({NAME: AffineMap(np.zeros((16, 16)), np.zeros(16))}).write(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError):
        read_tuned_lens(path, CONFIG)
    with pytest.raises(FileError):
        fit().lens.write(path, force=True)


def test_what_cannot_be_fitted_is_refused() -> None:
    runner = train()
    for texts, states in (([], None), ([[1, 2]], None), ([[1, 2, 3, 4, 5]], ["blocks.1.resid_post"])):
        with pytest.raises(UsageError):
            fit_tuned_lens(runner, texts, states=states)


def test_a_view_has_the_divergences_of_the_fit() -> None:
    text = make_texts(1, seed=4)[0][:5]
    prompted = PromptedModel("small", train(), tuple(text))
    view = describe_fit(view_lens(prompted, translate=fit().lens.translate, position=2), fit())
    plain, tuned = (np.array([row[i] for row in view.tables[1].rows]) for i in (1, 2))
    assert (tuned < plain).all() and "X A + b" in view.formula
    assert view.data["fit"]["held_out"] == fit().held_out


def test_progress_reaches_its_end() -> None:
    seen: list[tuple[int, int]] = []
    fit_tuned_lens(train(), [[1, 2, 3, 4, 5, 6]], steps=2, progress=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1] == 4 * (2 + 3) and seen == sorted(seen)


def test_the_regression_alone_is_a_tuned_lens() -> None:
    found = fit_tuned_lens(train(), make_texts(12, seed=2), steps=0)
    assert all(state.tuned < state.plain and state.steps == 0 for state in found.states)
    for regressed, stepped in zip(found.states, fit().states, strict=True):
        assert stepped.tuned <= regressed.tuned
