"""Patching everything recovers everything, patching nothing nothing, and a planted signal is found."""

import math

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import TokenError, UsageError
from pellucid.interpretability.patching import (
    PatchMetric,
    check_lengths,
    patch_activations,
    view_patching,
)
from pellucid.interpretability.runner import EngineRunner, Patch, PromptedModel, SpecificationRunner
from pellucid.interpretability.sites import read_site
from tests.agreement.engines import COVER, IDS, Choice, config_of, text
from tests.interpretability.planted import ANSWER, CLEAN, CORRUPTED, PLANTED, WRONG, make_runners
from tests.reference.models import weights

METRIC = PatchMetric(ANSWER, WRONG)


def test_the_metric_is_a_difference_of_logits_or_a_log_probability() -> None:
    logits = np.log([[[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]])
    assert PatchMetric(0, 2).compute(logits) == pytest.approx([np.log(2)])
    assert PatchMetric(2, 0, position=0).compute(logits) == pytest.approx([np.log(7)])
    assert PatchMetric(1).compute(logits + 3) == pytest.approx([np.log(0.25)])


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_the_whole_input_has_the_effect_1_and_what_both_prompts_share_0(direction: str) -> None:
    for runner in PLANTED:
        found = patch_activations(
            runner, CLEAN, CORRUPTED, METRIC, names=["embedded"], part="whole", direction=direction
        )
        assert found.effects == pytest.approx([1], abs=1e-12)
        found = patch_activations(runner, CLEAN, CORRUPTED, METRIC, names=["embedded"], direction=direction)
        assert found.effects == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-11)  # the first token differs


def test_the_planted_signal_moves_from_token_to_token() -> None:
    """3 is read at position 0, copied to 7 by head 0.0, and found there from the last token by head 1.0."""
    for runner in PLANTED:
        found = patch_activations(runner, CLEAN, CORRUPTED, METRIC)
        carriers = {str(site) for site, e in zip(found.sites, found.effects, strict=True) if e > 0.99}
        assert carriers == {
            "blocks.0.resid_pre[t=0]",
            "blocks.0.attn_out[t=1]",
            "blocks.0.attn.head_out[h=0]",
            "blocks.1.resid_pre[t=1]",
            "blocks.1.attn_out[t=5]",
            "blocks.1.attn.head_out[h=0]",
        }
        assert all(e > 0.99 or abs(e) < 1e-9 for e in found.effects)
        assert found.pair.clean == pytest.approx(4)
        assert found.pair.corrupted == pytest.approx(0)


def test_an_effect_is_that_of_the_patched_run() -> None:
    runner = PLANTED[0]
    for site in ("blocks.1.attn.pattern[h=0]", "blocks.0.attn.q[h=0]", "blocks.1.attn.k[k=0]", "logits[t=5]"):
        given = read_site(site)
        source = runner.run(CLEAN, [given.name])[given.name][(0, *given.index)]
        patched = runner.run(CORRUPTED, ["logits"], [Patch(given.name, source, (0, *given.index))])["logits"]
        found = patch_activations(runner, CLEAN, CORRUPTED, METRIC, names=[given.name])
        effect = dict(zip(map(str, found.sites), found.effects, strict=True))[site]
        wanted = (METRIC.compute(patched)[0] - found.pair.corrupted) / (
            found.pair.clean - found.pair.corrupted
        )
        assert effect == pytest.approx(wanted, abs=1e-12)


def test_keys_and_values_of_abcd_by_hand() -> None:
    """A B and D B: z_B = p x + (1 − p) (0, 1), where x is the first token's value and p the share of its key;
    m = z_0 − z_1. Keys alone change p, values alone x."""
    model = pellucid.load("abcd", dtype="float64")
    shares = {
        key: 1 / (1 + math.exp(math.sqrt(2) - score / math.sqrt(2))) for key, score in (("A", 0), ("D", -2))
    }
    values = {"A": (1, 0), "D": (1, -1)}

    def compute(key: str, value: str) -> float:
        p, (first, second) = shares[key], values[value]
        return p * first - (p * second + 1 - p)

    runners = SpecificationRunner(model.config, model.weights), EngineRunner(model.module)
    for runner in runners:
        names = ["blocks.0.attn.k", "blocks.0.attn.v"]
        found = patch_activations(runner, [0, 1], [3, 1], PatchMetric(0, 1), names=names, part="position")
        assert [str(site) for site in found.sites[::2]] == [f"{name}[s=0]" for name in names]
        base, source = compute("D", "D"), compute("A", "A")
        wanted = [(compute(*patched) - base) / (source - base) for patched in ("AD", "DA")]
        assert found.pair.clean == pytest.approx(source, abs=1e-12)
        assert found.effects[::2] == pytest.approx(wanted, abs=1e-10)
        assert found.effects[1::2] == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER[1::2], ids=text)
def test_both_engines_agree_on_every_name(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    clean, corrupted = IDS
    names = [
        "blocks.*.resid_pre",
        "blocks.*.attn.[qkvz]",
        "blocks.1.attn_out",
        "final_*",
        "logits",
        "embedded",
    ]
    names = (
        names if config.placement.final and not config.norm.is_none else [x for x in names if x != "final_*"]
    )
    metric = PatchMetric(3)
    runners = make_runners(config, weights(config))
    ours, theirs = (
        patch_activations(runner, clean, corrupted, metric, names=[*names, "blocks.*.attn.head_out"])
        for runner in runners
    )
    assert ours.sites == theirs.sites
    scale = max(1, 1 / abs(ours.pair.clean - ours.pair.corrupted)) * max(1, np.abs(ours.effects).max())
    assert np.abs(ours.effects - theirs.effects).max() < 1e-10 * scale
    effects = dict(zip(map(str, ours.sites), ours.effects, strict=True))
    assert effects["logits[t=4]"] == pytest.approx(1, abs=1e-9 * scale)
    assert effects["logits[t=3]"] == pytest.approx(0, abs=1e-9 * scale)
    whole = patch_activations(runners[1], clean, corrupted, metric, names=["embedded"], part="whole")
    assert whole.effects == pytest.approx([1], abs=1e-9 * scale)


def test_maps_have_a_row_for_each_layer_and_a_column_for_each_token_or_head() -> None:
    clean, corrupted = (PromptedModel("planted", PLANTED[0], tuple(ids)) for ids in (CLEAN, CORRUPTED))
    view = view_patching(clean, corrupted=corrupted, answer=ANSWER, wrong=WRONG)
    assert [np.shape(plot.values) for plot in view.plots] == [(2, 6), (2, 6), (2, 2)]
    assert list(view.plots[0].columns) == [str(id) for id in CLEAN]
    assert view.data["effects"]["blocks.1.attn_out[t=5]"] == pytest.approx(1)
    assert view.data["position"] == 5
    assert "3 and 5 at position 0" in view.notes[1]
    sizes = [abs(row[2]) for row in view.tables[1].rows]
    assert sizes == sorted(sizes, reverse=True)
    of_stream = [row for row in view.tables[1].rows if "resid_pre" in row[0]]
    assert len(of_stream) == 8  # of twelve parts in two layers


def test_the_default_answers_are_the_most_likely_tokens() -> None:
    clean, corrupted = (
        PromptedModel("planted", PLANTED[0], tuple(ids)) for ids in (CLEAN, [3, 9, *CLEAN[2:]])
    )
    view = view_patching(clean, corrupted=corrupted)
    assert (view.data["answer"], view.data["wrong"]) == (7, 9)


def test_prompts_of_unequal_length_are_refused_with_the_tokens_that_differ() -> None:
    def show(id: int) -> str:
        return f"·{id}"

    clean, corrupted = (PromptedModel("", PLANTED[0], ids, show) for ids in ((1, 2, 3, 4), (1, 5, 6, 3, 4)))
    check_lengths(clean, clean)
    with pytest.raises(TokenError) as error:
        check_lengths(clean, corrupted)
    first, *lines = str(error.value).splitlines()
    assert "at position 1, the clean one has ·2 for ·5 ·6" in first
    assert [line.split() for line in lines] == [
        ["clean", "·1", "·2", "·3", "·4"],
        ["corrupted", "·1", "·5", "·6", "·3", "·4"],
    ]
    assert lines[0].index("·3") == lines[1].index("·3")
    with pytest.raises(TokenError):
        view_patching(clean, corrupted=corrupted)


def test_what_cannot_be_compared_is_refused() -> None:
    runner = PLANTED[0]
    clean, corrupted = (PromptedModel("planted", runner, tuple(ids)) for ids in (CLEAN, CORRUPTED))
    with pytest.raises(UsageError, match="differs"):
        patch_activations(runner, CLEAN, CLEAN, METRIC)
    for wrong in (
        lambda: view_patching(clean),
        lambda: view_patching(clean, corrupted=corrupted, answer=1, wrong=1),
        lambda: view_patching(clean, corrupted=corrupted, position=6),
        lambda: patch_activations(runner, CLEAN, CORRUPTED, METRIC, names=["blocks.0.attn.p"]),
        lambda: patch_activations(runner, CLEAN, CORRUPTED, METRIC, names=["probs"]),
        lambda: patch_activations(runner, CLEAN, CORRUPTED, METRIC, direction="up"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(TokenError):
        view_patching(clean, corrupted=corrupted, answer=12)
