"""What lesson 16 says in words about its runs."""

import numpy as np
import pytest

import pellucid
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.c_examples import l16_batch

RUNS = l16_batch.run()


def updates(run: str) -> int:
    return int(RUNS[run].value("updates"))


def losses(trace: Trace, most: int) -> list[float]:
    return [float(trace.value(f"loss@{k}")) for k in range(most + 1)]


def test_the_gradient_of_the_batch_is_the_mean_of_the_prompts_gradients() -> None:
    batch = RUNS["batch"].value("d.unembed.weight")
    alone = [
        pellucid.trace("example-3", prompt, target=target, backward=True).value("d.unembed.weight")
        for prompt, target in zip(l16_batch.PROMPTS, l16_batch.TARGETS, strict=True)
    ]
    assert batch == pytest.approx(np.mean(alone, axis=0))


def test_the_prompts_agree_on_one_weight_and_not_on_the_other() -> None:
    batch = RUNS["batch"]
    parts = batch.value("blocks.0.attn_out")[:, 1] * batch.value("d.logits")[:, 1, 2, None]
    assert parts[0, 0] > 0 and parts[1, 0] == 0 and parts[2, 0] > 0
    assert parts[0, 1] < 0 < parts[1, 1] and parts[2, 1] < 0 < parts[:, 1].sum()


def test_all_prompts_are_right_after_6_updates_and_the_loss_falls_on() -> None:
    assert updates("batch") == 6
    found = losses(RUNS["batch"], l16_batch.UPDATES)
    assert found == sorted(found, reverse=True)


def test_one_at_a_time_undoes_the_last_update_unless_the_steps_are_small() -> None:
    single = RUNS["single"]
    before, own, next = (float(single.value(f"nll@{k}")[0, 1]) for k in range(3))
    assert own < before < next
    assert updates("single") > 3 * updates("batch") >= updates("gentle") > 0


def test_a_sum_is_slower_than_the_mean_and_too_large_a_rate_never_arrives() -> None:
    summed, batch = losses(RUNS["summed"], 5), losses(RUNS["batch"], 5)
    assert summed[1] < batch[1] and summed[5] > summed[4]
    assert updates("batch") < updates("summed") < updates("slow")
    assert updates("fast") == -1


def test_nearly_equal_logits_have_nearly_equal_shares() -> None:
    original = RUNS["original"]
    assert np.ptp(original.value("logits")[1, 1]) == pytest.approx(0.01)
    assert original.value("probs")[1, 1] == pytest.approx([0.25188, 0.24937, 0.24937, 0.24937], abs=5e-6)


def test_a_b_is_right_by_the_smallest_margin() -> None:
    ordered = np.sort(RUNS["batch"].value("probs@6")[:, 1], axis=-1)
    margins = ordered[:, -1] - ordered[:, -2]
    assert margins.argmin() == 0
