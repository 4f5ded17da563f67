"""Ablating z is ablating what a head adds to the stream; a planted head is missed where it works."""

import math

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.interpretability.heads.heads import ablate_heads, compute_nll
from pellucid.interpretability.runner import Patch, Runner
from tests.agreement.engines import COVER, IDS, Choice, config_of, text
from tests.interpretability.planted import PLANTED, REPEATED, make_runners
from tests.reference.models import weights


def compute_loss(runner: Runner, ids: list[int], patches: list[Patch]) -> float:
    return float(compute_nll(runner.run(ids, ["logits"], patches)["logits"], ids)[0]) / (len(ids) - 1)


def test_the_loss_of_uniform_logits_is_ln_v() -> None:
    assert compute_nll(np.zeros((2, 3, 8)), [1, 2, 3]).tolist() == pytest.approx([2 * math.log(8)] * 2)


def test_without_a_planted_head_the_loss_on_a_repeated_sequence_grows() -> None:
    for runner in PLANTED:
        found = ablate_heads(runner, [REPEATED * 2, (REPEATED * 2)[:16]])
        for growth in (found.zero, found.mean):
            assert growth[0, 0] > 0.05
            assert growth[1, 0] > 0.05
            assert np.abs(growth[:, 1]).max() < 1e-12  # heads that add nothing
        assert found.n_tokens == 34


def test_zeroing_the_induction_head_leaves_uniform_logits() -> None:
    found = ablate_heads(PLANTED[0], [REPEATED])
    assert found.loss + found.zero[1, 0] == pytest.approx(math.log(12), abs=1e-12)


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER[::2], ids=text)
def test_z_is_ablated_as_head_out_would_be_in_both_engines(choice: Choice) -> None:
    config = config_of(choice)
    assert config
    texts = [IDS[0], IDS[1][:3]]
    runners = make_runners(config, weights(config))
    ours, theirs = (ablate_heads(runner, texts) for runner in runners)
    assert np.allclose(ours.zero, theirs.zero, rtol=0, atol=1e-10)
    assert np.allclose(ours.mean, theirs.mean, rtol=0, atol=1e-10)
    name, runner = "blocks.1.attn.head_out", runners[0]
    outputs = np.concatenate([runner.run(ids, [name])[name][0, 2] for ids in texts])
    for value, growth in ((np.zeros(config.d_model), ours.zero), (outputs.mean(0), ours.mean)):
        patch = Patch(name, value, (slice(None), 2))
        losses = [compute_loss(runner, ids, [patch]) * (len(ids) - 1) for ids in texts]
        assert sum(losses) / 6 - ours.loss == pytest.approx(growth[1, 2], abs=1e-10)


def test_progress_counts_every_variant_of_every_text() -> None:
    calls: list[tuple[int, int]] = []
    ablate_heads(PLANTED[0], [REPEATED, REPEATED[:4]], lambda done, total: calls.append((done, total)))
    assert calls[-1] == (18, 18)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_a_text_of_one_token_has_no_loss() -> None:
    with pytest.raises(UsageError):
        ablate_heads(PLANTED[0], [[1]])
