"""Head scores find planted heads, are 1 for a pattern that looks there and chance for a uniform one."""

import math
import os

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import TokenError, UsageError
from pellucid.data.generated.stories import stories
from pellucid.interpretability.heads import (
    KINDS,
    ablate_heads,
    compute_nll,
    report_heads,
    score_heads,
    view_heads,
)
from pellucid.interpretability.keyed_text import (
    KeyedText,
    make_repeated_sequences,
    mark_positions,
    read_stories,
)
from pellucid.interpretability.runner import EngineRunner, Patch, PromptedModel, Runner, SpecificationRunner
from pellucid.text.kinds import train
from tests.agreement.engines import COVER, DIFFERENT, IDS, Choice, config_of, text
from tests.interpretability.planted import PLANTED, REPEATED, make_runners
from tests.reference.models import CONFIGS, weights

PLAIN = [PromptedModel("planted", runner, tuple(REPEATED)) for runner in PLANTED]


def make_reader(n_stories: int = 20) -> PromptedModel:
    """A model with random weights that reads stories by bytes of pairs."""
    tokenizer = train("bpe", [one.text for one in stories("tiny", seed=3, count=n_stories)], 300)
    config = pellucid.ModelConfig(
        vocab_size=tokenizer.vocab_size, context_length=80, n_layer=2, n_head=2, d_model=8
    )
    runner = SpecificationRunner(config, weights(config))
    return PromptedModel("reader", runner, tuple(tokenizer.encode(" the ball")), tokenizer.visible, tokenizer)


@pytest.mark.parametrize("prompted", PLAIN, ids=["specification", "engine"])
def test_planted_heads_are_called_by_their_kinds(prompted: PromptedModel) -> None:
    report = report_heads(prompted)
    assert report.scores["previous"].value[0, 0] == pytest.approx(1, abs=1e-9)
    assert report.scores["induction"].value[1, 0] == pytest.approx(1, abs=1e-9)
    labels = {(i, j): report.find_labels(i, j) for i in (0, 1) for j in (0, 1)}
    assert labels == {(0, 0): ["previous"], (0, 1): [], (1, 0): ["induction"], (1, 1): []}


def test_uniform_attention_scores_chance() -> None:
    for kind, score in report_heads(PLAIN[0]).scores.items():
        assert score.value[0, 1] == pytest.approx(score.chance), kind
        assert score.value[1, 1] == pytest.approx(score.chance), kind


def test_chance_is_the_share_of_the_keys_among_the_visible_ones() -> None:
    keys = np.zeros((4, 4), bool)
    keys[3, [0, 1]] = keys[1, 0] = keys[0, 2] = True  # the last is hidden by the mask, and not a query
    score = score_heads(PLANTED[0], [KeyedText((1, 2, 3, 4), {"subject": keys})])["subject"]
    assert score.chance == pytest.approx((2 / 4 + 1 / 2) / 2)
    assert score.n_queries == 2
    assert score.low is None


def test_a_previous_token_head_is_not_called_by_a_kind_that_stands_before() -> None:
    """Where every subject stands right before its verb, head 0.0 scores 1, and so would any such head."""
    text = KeyedText((1, 2, 3), {"subject": np.eye(3, k=-1, dtype=bool), "self": np.eye(3, dtype=bool)})
    beside = KeyedText((1, 2, 3), {"subject": np.eye(3, k=-2, dtype=bool)})
    scores = score_heads(PLANTED[0], [text, text, beside])
    assert scores["subject"].before == pytest.approx(4 / 5)
    assert scores["subject"].value[0, 0] == pytest.approx(4 / 5)
    assert not scores["subject"].is_above.any()
    assert scores["self"].before == 0
    always = score_heads(PLANTED[0], [text, text])["subject"]
    assert always.value[0, 0] == pytest.approx(always.before) == 1
    assert not always.is_above.any()
    assert score_heads(PLANTED[0], [mark_positions(REPEATED)] * 2)["previous"].is_above[0, 0]


def test_a_score_is_the_mean_of_its_shares() -> None:
    text, runner = mark_positions(REPEATED), PLANTED[0]
    pattern = runner.run(REPEATED, ["blocks.1.attn.pattern"])["blocks.1.attn.pattern"][0]
    scores = score_heads(runner, [text])
    assert scores["self"].value[1] == pytest.approx([np.diagonal(each)[1:].mean() for each in pattern])
    assert scores["first"].value[1] == pytest.approx(pattern[:, 1:, 0].mean(-1))


def test_an_interval_holds_the_score_and_is_narrow_where_texts_agree() -> None:
    reader = make_reader()
    scores = report_heads(reader, level="tiny", n_stories=8).scores
    for kind, score in scores.items():
        assert score.low is not None and score.high is not None, kind
        assert (score.low <= score.value + 1e-12).all(), kind
        assert (score.value <= score.high + 1e-12).all(), kind
    induction = score_heads(PLANTED[0], make_repeated_sequences(PLANTED[0].config, seed=0))["induction"]
    assert induction.low is not None
    assert induction.low[1, 0] > 1 - 1e-9


def test_a_model_that_reads_stories_has_every_kind_with_its_counts() -> None:
    view = view_heads(make_reader(), level="tiny", n_stories=4)
    assert list(view.data["scores"]) == list(KINDS)
    counts = {kind: score["n_queries"] for kind, score in view.data["scores"].items()}
    assert 0 < counts["antecedent"] < counts["subject"] < counts["previous"]
    assert view.data["scores"]["antecedent"]["n_texts"] == 4
    growth = [row[2] for row in view.tables[1].rows]
    assert growth == sorted(growth, reverse=True)
    assert len(view.plots) == len(KINDS) + 1


def test_a_model_that_cannot_read_stories_says_so() -> None:
    model = pellucid.load("abcd")
    tokenizer = model.tokenizer
    assert tokenizer
    runner = EngineRunner(model.module)
    view = view_heads(PromptedModel("abcd", runner, (0, 1, 2), tokenizer.visible, tokenizer))
    assert list(view.data["scores"]) == ["previous", "first", "self", "induction"]
    assert any("stories" in note for note in view.notes)
    assert any("stories" in note for note in view_heads(PLAIN[0]).notes)


def test_without_a_pattern_heads_are_ablated_alone() -> None:
    config = DIFFERENT["attention/tiled"]
    for runner in make_runners(config, weights(config)):
        view = view_heads(PromptedModel("", runner, tuple(IDS[0])))
        assert not view.data["scores"]
        assert np.shape(view.data["ablation"]["mean"]) == (2, 4)
        assert any("pattern" in note for note in view.notes)


def test_what_cannot_be_reported_is_refused() -> None:
    for settings in ({"level": "hard"}, {"seed": -1}, {"n_stories": -1}, {"texts": [[1]]}):
        with pytest.raises(UsageError):
            report_heads(PLAIN[0], **settings)  # type: ignore[arg-type]
    with pytest.raises(TokenError):
        report_heads(PLAIN[0], texts=[[1] * 33])


@pytest.mark.rotating
@pytest.mark.parametrize("name", [name for name in DIFFERENT if name != "attention/tiled"])
def test_both_engines_agree(name: str) -> None:
    config = DIFFERENT[name]
    runners = make_runners(config, weights(config))
    ours, theirs = (report_heads(PromptedModel("", runner, tuple(IDS[0]))) for runner in runners)
    assert ours.scores.keys() == theirs.scores.keys()
    for kind, score in ours.scores.items():
        assert np.allclose(score.value, theirs.scores[kind].value, rtol=0, atol=1e-10)
        assert score.chance == theirs.scores[kind].chance


def test_progress_reaches_its_end() -> None:
    calls: list[tuple[int, int]] = []
    report_heads(PLAIN[0], progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1]
    assert len({total for _, total in calls}) == 1


def test_a_vocabulary_too_small_to_repeat_has_no_induction() -> None:
    config = CONFIGS["relu"]
    runner = SpecificationRunner(config, weights(config))
    assert "induction" in report_heads(PromptedModel("", runner, (1, 2))).scores
    tiny = pellucid.ModelConfig(vocab_size=1, context_length=4, n_layer=1, n_head=1, d_model=2)
    report = report_heads(PromptedModel("", SpecificationRunner(tiny, weights(tiny)), (0, 0)))
    assert "induction" not in report.scores


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_a_real_model_has_induction_heads_and_one_that_follows_antecedents() -> None:
    model = pellucid.load(os.environ["PELLUCID_SMOLLM2"])
    assert model.tokenizer
    runner = EngineRunner(model.module)
    texts = [
        *read_stories(model.tokenizer, "easy", 4, seed=0),
        *make_repeated_sequences(runner.config, seed=0),
    ]
    scores = score_heads(runner, texts)
    assert scores["induction"].value.max() > 0.8
    assert scores["induction"].value[:10].max() < 0.1  # none in the first third of the layers
    assert scores["antecedent"].value.max() > 5 * scores["antecedent"].chance


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
