"""Attention statistics are those of rows computed by hand, of planted heads, and the same in both engines."""

import math

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.interpretability import attention
from pellucid.interpretability.attention import (
    MAPPED,
    STATISTICS,
    compute_attention_statistics,
    compute_row_statistics,
    find_visible,
    view_attention,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, SpecificationRunner
from tests.agreement.engines import DIFFERENT, IDS
from tests.interpretability.planted import CONFIG, PLANTED, REPEATED, make_runners
from tests.reference.models import weights

SPECIFICATION = PLANTED[0]
WITH_PATTERN = [name for name in DIFFERENT if name != "attention/tiled"]


def test_the_statistics_of_a_row_by_hand() -> None:
    pattern = np.array([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]])
    rows = compute_row_statistics(pattern, np.tri(3, dtype=bool))
    assert rows["entropy"][2] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))
    assert rows["entropy fraction"][2] == pytest.approx(rows["entropy"][2] / math.log(3))
    assert rows["distance"].tolist() == [0, 0.25, 1.25]
    assert rows["first"].tolist() == [1, 0.25, 0.5]
    assert rows["self"].tolist() == [1, 0.75, 0.25]
    assert rows["previous"][1:].tolist() == [0.25, 0.25]
    assert rows["maximum"].tolist() == [1, 0.75, 0.5]
    assert np.isnan(rows["entropy fraction"][0])
    assert np.isnan(rows["previous"][0])


def test_the_statistics_of_abcd_by_hand() -> None:
    """The query of B is (0, 2), and the keys are (1, 0) and (0, 1): B gets e^√2 / (1 + e^√2) of its row."""
    model = pellucid.load("abcd", dtype="float64")
    share = math.exp(math.sqrt(2)) / (1 + math.exp(math.sqrt(2)))
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    wanted = [entropy, entropy / math.log(2), 1 - share, 1 - share, share, 1 - share, share]
    for runner in (SpecificationRunner(model.config, model.weights), EngineRunner(model.module)):
        means = compute_attention_statistics(runner, [[0, 1]]).means
        assert [means[name].item() for name in STATISTICS] == pytest.approx(wanted, abs=1e-10)


def test_planted_heads_have_the_statistics_that_they_were_made_for() -> None:
    for runner in PLANTED:
        means = compute_attention_statistics(runner, [REPEATED]).means
        assert means["previous"][0, 0] == pytest.approx(1, abs=1e-9)
        assert means["distance"][0, 0] == pytest.approx(1, abs=1e-9)
        assert means["entropy"][0, 0] < 1e-9
        for layer in (0, 1):  # without weights, attention is uniform
            assert means["entropy fraction"][layer, 1] == pytest.approx(1)
            assert means["distance"][layer, 1] == pytest.approx(np.mean([t / 2 for t in range(1, 10)]))


@pytest.mark.rotating
@pytest.mark.parametrize("name", WITH_PATTERN)
def test_both_engines_agree(name: str) -> None:
    config = DIFFERENT[name]
    ours, theirs = (
        compute_attention_statistics(runner, IDS).means for runner in make_runners(config, weights(config))
    )
    for kind in STATISTICS:
        assert ours[kind].shape == (config.n_layer, config.n_head)
        assert np.allclose(ours[kind], theirs[kind], rtol=0, atol=1e-10, equal_nan=True)
        assert np.isfinite(ours[kind]).all()


def test_several_prompts_weigh_by_their_positions() -> None:
    one, two = (compute_attention_statistics(SPECIFICATION, [ids]) for ids in (REPEATED, REPEATED[:4]))
    both = compute_attention_statistics(SPECIFICATION, [REPEATED, REPEATED[:4], REPEATED[:1]])
    assert both.n_positions == one.n_positions + two.n_positions == 12
    for name in STATISTICS:
        wanted = (9 * one.means[name] + 3 * two.means[name]) / 12
        assert np.allclose(both.means[name], wanted, rtol=0, atol=1e-12)


def test_layers_are_recorded_in_groups_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compute_attention_statistics(SPECIFICATION, [REPEATED]).means
    monkeypatch.setattr(attention, "MAX_PATTERNS", 1)
    for name, values in compute_attention_statistics(SPECIFICATION, [REPEATED]).means.items():
        assert np.array_equal(values, whole[name])


def test_the_mask_says_what_is_visible() -> None:
    assert np.array_equal(find_visible(CONFIG, 4), np.tri(4, dtype=bool))
    assert find_visible(DIFFERENT["mask/none"], 3).all()
    assert find_visible(DIFFERENT["mask/window"], 5).sum(-1).tolist() == [1, 2, 3, 3, 3]


def test_a_view_has_every_number_and_the_pattern_of_a_chosen_head() -> None:
    prompted = PromptedModel("planted", SPECIFICATION, tuple(REPEATED))
    view = view_attention(prompted, head=(0, 0))
    assert np.shape(view.data["pattern"]) == (10, 10)
    assert view.data["pattern"][5][4] == pytest.approx(1)
    assert len(view.plots) == 1 + len(MAPPED)
    assert [row[0] for row in view.tables[0].rows] == ["0.0", "0.1", "1.0", "1.1"]
    assert view.data["means"].keys() == STATISTICS.keys()
    assert view_attention(prompted, prompts=[[1, 2, 3]]).data["n_positions"] == 2


def test_a_view_says_why_it_has_no_statistics() -> None:
    tiled = DIFFERENT["attention/tiled"]
    without = PromptedModel("tiled", SpecificationRunner(tiled, weights(tiled)), tuple(IDS[0]))
    for prompted in (PromptedModel("planted", SPECIFICATION, (1,)), without):
        view = view_attention(prompted)
        assert not view.tables and "means" not in view.data
        assert len(view.notes) == 1
    assert view_attention(PromptedModel("planted", SPECIFICATION, (1,)), head=(0, 0)).data["pattern"] == [[1]]


def test_what_has_no_statistics_is_refused() -> None:
    tiled = DIFFERENT["attention/tiled"]
    for runner in make_runners(tiled, weights(tiled)):
        with pytest.raises(UsageError, match="softmax"):
            compute_attention_statistics(runner, IDS)
    with pytest.raises(UsageError):
        compute_attention_statistics(SPECIFICATION, [[1]])
    prompted = PromptedModel("planted", SPECIFICATION, tuple(REPEATED))
    for head in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(UsageError):
            view_attention(prompted, head=head)
