"""A path carries what its sender gives to its receiver alone: known for a planted pair of heads."""

import numpy as np
import pytest

from pellucid.base.errors import AddressError, UsageError
from pellucid.interpretability.patching import Direction, PatchMetric, patch_activations
from pellucid.interpretability.paths import find_stage, patch_paths, view_paths
from pellucid.interpretability.runner import Patch, PromptedModel
from tests.agreement.engines import COVER, IDS, Choice, config_of, text
from tests.interpretability.planted import ANSWER, CLEAN, CORRUPTED, PLANTED, WRONG, make_runners
from tests.reference.models import weights

METRIC = PatchMetric(ANSWER, WRONG)


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_the_planted_path_goes_through_the_keys_alone(direction: Direction) -> None:
    wanted = {"k[k=0]": 1, "q[h=0]": 0, "v[k=0]": 0, "k[k=1]": 0, "head_out[h=0]": 1, "head_out[h=1]": 0}
    for runner in PLANTED:
        for receiver, effect in wanted.items():
            found = patch_paths(
                runner,
                CLEAN,
                CORRUPTED,
                METRIC,
                sender="blocks.0.attn.head_out[h=0]",
                receiver=f"blocks.1.attn.{receiver}",
                direction=direction,
            )
            assert found.senders.effects == pytest.approx([effect], abs=1e-9), receiver


def test_a_head_in_between_does_not_pass_anything_on() -> None:
    """Head 0.0 reaches the logits only through head 1.0, which is held, so that the direct path is empty."""
    for runner in PLANTED:
        found = patch_paths(runner, CLEAN, CORRUPTED, METRIC, receiver="logits").senders
        effects = dict(zip(map(str, found.sites), found.effects, strict=True))
        assert abs(effects["blocks.0.attn.head_out[h=0]"]) < 1e-12
        assert effects["blocks.1.attn.head_out[h=0]"] == pytest.approx(1, abs=1e-12)


def test_the_embedding_reaches_the_queries_and_values_but_not_the_keys() -> None:
    """The keys of head 1.0 read the token before, which only head 0.0 writes; the corrupted token is read by
    head 0.0 as a value."""
    runner = PLANTED[0]
    for receiver, effect in (("blocks.0.attn.v", 1), ("blocks.0.attn.q", 0), ("blocks.1.attn.k", 0)):
        found = patch_paths(
            runner, CLEAN, CORRUPTED, METRIC, sender="embedded[t=0]", receiver=receiver
        ).senders
        assert found.effects == pytest.approx([effect], abs=1e-9), receiver


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER[2::3], ids=text)
def test_both_engines_agree_and_three_runs_by_hand_give_the_same(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    (clean, corrupted), metric = IDS, PatchMetric(3)
    runners = make_runners(config, weights(config))
    mlp = [] if config.mlp.is_none else ["blocks.1.mlp.up"]
    for receiver in ("blocks.1.attn.k", *mlp, "logits"):
        ours, theirs = (
            patch_paths(runner, clean, corrupted, metric, sender="blocks.0.attn.head_out", receiver=receiver)
            for runner in runners
        )
        pair = ours.senders.pair
        scale = max(1, 1 / abs(pair.clean - pair.corrupted)) * max(1, np.abs(ours.senders.effects).max())
        assert np.abs(ours.senders.effects - theirs.senders.effects).max() < 1e-10 * scale
    # the last receiver, the logits, by hand for head 2: its direct path, all later outputs held
    runner = runners[0]
    outputs = ["blocks.*.attn.head_out", *([] if config.mlp.is_none else ["blocks.*.mlp_out"])]
    base, source = (runner.run(ids, outputs) for ids in (corrupted, clean))
    held = [Patch(name, value) for name, value in base.items()]
    name = "blocks.0.attn.head_out"
    one = Patch(name, source[name][0, 2], (0, 2))
    logits = runner.run(corrupted, ["logits"], [*held, one])["logits"]
    by_hand = (metric.compute(logits)[0] - pair.corrupted) / (pair.clean - pair.corrupted)
    assert ours.senders.effects[2] == pytest.approx(by_hand, abs=1e-9 * scale)


def test_all_direct_paths_of_the_stream_into_the_next_block_are_the_stream() -> None:
    """Patching the stream in front of a block into every reader of it is patching the stream."""
    runner = PLANTED[1]
    whole = patch_activations(runner, CLEAN, CORRUPTED, METRIC, names=["blocks.1.resid_pre"])
    path = patch_paths(
        runner, CLEAN, CORRUPTED, METRIC, sender="blocks.1.resid_pre", receiver="blocks.1.resid_pre"
    )
    assert np.allclose(path.senders.effects, whole.effects, rtol=0, atol=1e-12)


def test_stages_order_the_values_of_a_model() -> None:
    order = [
        "embedded",
        "blocks.0.attn.q",
        "blocks.0.mlp.up",
        "blocks.0.resid_post",
        "blocks.1.attn_norm.out",
    ]
    stages = [find_stage(name) for name in (*order, "blocks.1.resid_mid", "final_norm.out")]
    assert stages == sorted(stages)
    assert len(set(stages)) == len(stages)
    assert find_stage("final_norm.out") == find_stage("logits")


def test_a_view_maps_every_sender_into_one_receiver() -> None:
    clean, corrupted = (PromptedModel("planted", PLANTED[0], tuple(ids)) for ids in (CLEAN, CORRUPTED))
    calls: list[tuple[int, int]] = []
    view = view_paths(
        clean,
        corrupted=corrupted,
        answer=ANSWER,
        wrong=WRONG,
        receiver="blocks.1.attn.k[k=0]",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert view.data["effects"].keys() == {f"blocks.0.attn.head_out[h={i}]" for i in (0, 1)}
    assert view.data["receiver"] == "blocks.1.attn.k[k=0]"
    assert [np.shape(plot.values) for plot in view.plots] == [(1, 2)]
    assert calls[-1] == (2, 2)


@pytest.mark.parametrize(
    ("sender", "receiver", "error"),
    [
        ("blocks.1.attn.head_out[h=0]", "blocks.0.attn.q", UsageError),
        ("blocks.1.attn.head_out[h=0]", "blocks.1.attn.q", UsageError),
        ("blocks.0.attn.z", "logits", UsageError),
        ("blocks.0.attn.z[h=0]", "logits", UsageError),
        ("blocks.0.attn.head_out[h=2]", "logits", AddressError),
        ("blocks.0.attn.head_out", "blocks.1.attn.q[h=7]", AddressError),
        ("blocks.0.attn.head_out", "blocks.3.attn.q", AddressError),
        ("blocks.0.attn.head_out", "blocks.1.attn.qq", AddressError),
        ("blocks.0.mlp_out", "logits", UsageError),
    ],
)
def test_what_is_not_a_path_is_refused(sender: str, receiver: str, error: type[Exception]) -> None:
    for runner in PLANTED:
        with pytest.raises(error):
            patch_paths(runner, CLEAN, CORRUPTED, METRIC, sender=sender, receiver=receiver)
