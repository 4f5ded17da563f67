"""Any two choices that go together: both engines on every path, and a checkpointed block, compute the same.

One model of each row of the cover is built, and computed once in each way. A new kind of a choice is here
without being named, because the choices are found by listing the folders.
"""

import numpy as np
import pytest
import torch

from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.verification.mismatch import BETWEEN_ENGINES, find_first_mismatch
from tests.agreement.engines import COVER, FACTORS, FAMILY, Runs, array, recorded, text
from tests.agreement.test_engines import agree


@pytest.fixture(scope="module", params=COVER, ids=text)
def runs(request: pytest.FixtureRequest) -> Runs:
    return Runs.of(request.param)


def test_the_cover_holds_every_kind_of_every_family() -> None:
    for field in FAMILY:
        assert {str(row[field]) for row in COVER} == {str(value) for value in FACTORS[field]}, field


def test_both_engines_agree_on_every_value_and_gradient(runs: Runs) -> None:
    agree(runs)


def test_every_value_has_the_axes_that_the_glossary_says(runs: Runs) -> None:
    ids, _, _, segments = runs.inputs
    sizes = runs.config.sizes(batch=len(ids), length=len(ids[0]))
    weights = {f"{d}{name}" for name in runs.values for d in ("", "d.")}
    for name in set(runs.eager) - weights - {"mask"}:
        entry = describe(name)
        assert entry, name
        shape, wanted = runs.eager[name].shape, tuple(sizes[axis] for axis in entry.axes)
        rows = len(shape) - len(wanted) if segments is not None else 0  # each has positions of its own
        assert shape[rows:] == wanted, name


def test_the_fused_path_gives_the_same_logits_loss_and_gradients(runs: Runs) -> None:
    got = {"logits": runs.logits, **runs.fused}
    assert find_first_mismatch(got, {name: runs.tape[name] for name in got}, BETWEEN_ENGINES) is None
    trained = {f"d.{name}" for name in runs.config.parameters() if f"d.{name}" in runs.tape}
    assert set(runs.fused) - {"loss"} == trained


def test_what_the_fused_path_shows_is_what_the_specification_has(runs: Runs) -> None:
    got = recorded(runs.config, runs.values, *runs.inputs, fused=True)
    got.pop("mask", None)
    assert {"blocks.0.attn.q", "blocks.1.attn.z", "logits", "loss", "d.blocks.0.resid_pre"} <= set(got)
    needs_pairs = runs.config.attention.kind.startswith("linear") and runs.inputs[3] is not None
    if runs.config.score_cap.kind == "none" and not needs_pairs:  # no kernel caps scores, no sum has segments
        assert not [name for name in got if name.endswith((".scores", ".pattern", "lse"))]
    assert find_first_mismatch(got, {name: runs.tape[name] for name in got}, BETWEEN_ENGINES) is None


def test_activation_checkpointing_gives_the_same_loss_and_gradients_bit_for_bit(runs: Runs) -> None:
    runs.model.checkpointing = True
    again = runs.learn()
    runs.model.checkpointing = False
    assert list(again) == list(runs.fused)
    assert [name for name in again if not (again[name] == runs.fused[name]).all()] == []


def test_the_state_has_the_names_shapes_and_numbers_that_went_in(runs: Runs) -> None:
    state = runs.model.state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == runs.config.parameters()
    for back in (runs.model.weights(), {name: array(value) for name, value in state.items()}):
        assert list(back) == list(state)
        assert all(np.array_equal(back[name], value) for name, value in runs.values.items())


def test_an_empty_model_that_is_filled_is_the_model(runs: Runs) -> None:
    empty = Transformer.empty(runs.config, dtype=torch.float64)
    empty.load_state_dict(runs.model.state_dict())
    ids = torch.tensor(runs.inputs[0])
    with torch.no_grad():
        assert torch.equal(empty(ids), runs.model(ids))


def test_a_config_survives_json(runs: Runs) -> None:
    assert ModelConfig.from_json(runs.config.to_json()) == runs.config
