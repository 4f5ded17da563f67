"""A probe finds what is in the stream and nothing else, on models whose stream is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.base.errors import TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.data.generated.stories import Annotation, annotate, stories, words_of
from pellucid.data.sources.generated import HELD_OUT
from pellucid.engine.transformer import Transformer
from pellucid.interpretability.probes import (
    LABELS,
    ProbedWords,
    ProbeResult,
    assign_control_labels,
    label_kinds,
    label_next_kinds,
    label_subjects,
    measure_probes,
    record_words,
    view_probes,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, Runner, SpecificationRunner
from pellucid.text.kinds import train
from tests.interpretability.same_data import check_same
from tests.reference.models import weights

TEXTS = [story.text for story in stories("tiny", HELD_OUT, count=40)]
TOKENIZER = train("bpe", TEXTS, 300)
CONFIG = ModelConfig(
    vocab_size=TOKENIZER.vocab_size, context_length=128, n_layer=1, n_head=2, d_model=12, d_ff=12
)


def make_words(signal: float) -> ProbedWords:
    """Returns 20 stories of 30 words; the stream has two labels as directions, and noise of the size 1."""
    random = np.random.default_rng(1)  # of its own: the tests that ran before decide nothing
    labels = random.integers(0, 2, 600)
    x = random.normal(size=(600, 5))
    x[:, 0] += signal * (2 * labels - 1)
    names = [("left", "right")[label] for label in labels]
    words = [str(i) for i in random.integers(0, 200, 600)]
    return ProbedWords(words, np.repeat(np.arange(20), 30), {"side": list(names)}, {"x": x})


def probe(signal: float) -> ProbeResult:
    return measure_probes(make_words(signal), ["side"])[0]


def test_a_planted_direction_is_found_and_is_selective() -> None:
    found = probe(5.0)
    assert found.accuracy.value == 1.0
    assert found.selectivity > 0.3
    assert (found.n_train, found.n_test, found.n_classes) == (390, 210, 2)


def test_noise_is_predicted_as_well_as_by_chance() -> None:
    found = probe(0.0)
    assert found.accuracy.value == pytest.approx(0.5, abs=0.1)
    assert abs(found.accuracy.value - found.majority) < 0.12


def test_a_weak_direction_has_the_accuracy_of_the_normal_distribution() -> None:
    """The sign of a normal variable with mean 1 and sd 1 is right with probability Φ(1) = 0.841."""
    found = probe(1.0)
    assert found.accuracy.low is not None
    assert found.accuracy.high is not None
    assert found.accuracy.low < 0.841 < found.accuracy.high


def test_test_stories_are_not_trained_on_and_an_unseen_label_is_wrong() -> None:
    words = make_words(5.0)
    labels = list(words.labels["side"])
    labels[-30:] = ["up"] * 30
    found = measure_probes(replace(words, labels={"side": labels}), ["side"])[0]
    assert found.accuracy.value == pytest.approx(180 / 210)
    assert found.n_classes == 2


def test_a_word_is_read_at_its_last_token() -> None:
    runner = SpecificationRunner(CONFIG, weights(CONFIG))
    words = record_words(runner, TOKENIZER, "tiny", 2, prefix=[0])
    assert words.words == [*words_of(TEXTS[0]), *words_of(TEXTS[1])]
    assert words.labels["kind"][: len(words_of(TEXTS[0]))] == [
        word.kind for word in annotate(next(stories("tiny", HELD_OUT)))
    ]
    ids, first = [0, *TOKENIZER.encode(TEXTS[0])], words_of(TEXTS[0])[0]
    end = 1 + len(TOKENIZER.encode(first))
    embedded = runner.run(ids, ["blocks.0.resid_pre"])["blocks.0.resid_pre"][0]
    assert np.array_equal(words.streams["blocks.0.resid_pre"][0], embedded[end - 1])


def test_a_story_is_read_as_far_as_it_fits_the_context() -> None:
    short = replace(CONFIG, context_length=10)
    words = record_words(SpecificationRunner(short, weights(short)), TOKENIZER, "tiny", 2)
    assert 2 < len(words.words) < 20


def test_a_token_of_two_words_is_omitted() -> None:
    tokenizer = train("words", TEXTS, 500)
    config = replace(CONFIG, vocab_size=tokenizer.vocab_size)
    words = record_words(SpecificationRunner(config, weights(config)), tokenizer, "tiny", 1)
    assert "." not in words.words
    assert "Once" in words.words


def test_the_view_is_the_same_on_both_engines() -> None:
    values = weights(CONFIG)
    runners: list[Runner] = [
        SpecificationRunner(CONFIG, values),
        EngineRunner(Transformer.from_weights(CONFIG, values, dtype=torch.float64)),
    ]
    seen: list[tuple[int, int]] = []
    views = [
        view_probes(
            PromptedModel("m", runner, (1, 2), TOKENIZER.visible, TOKENIZER),
            level="tiny",
            n_stories=6,
            progress=lambda done, total: seen.append((done, total)),
        )
        for runner in runners
    ]
    check_same(views[0].data, views[1].data)
    assert seen[-1] == (6 + 2 * 3 * 2, 6 + 2 * 3 * 2)
    kinds = [result for result in views[0].data["probes"] if result["label"] == "kind"]
    assert [result["stream"] for result in kinds] == ["blocks.0.resid_pre", "blocks.0.resid_post"]
    assert kinds[0]["accuracy"]["value"] > kinds[0]["majority"]
    assert len(views[0].plots) == len(views[0].tables) == 3


def test_what_cannot_be_probed_is_refused() -> None:
    runner = SpecificationRunner(CONFIG, weights(CONFIG))
    prompted = PromptedModel("m", runner, (1, 2), TOKENIZER.visible, TOKENIZER)
    for options in ({"names": ["colour"]}, {"n_stories": 1}, {"n_stories": 10**9}, {"ridge": 0.0}):
        with pytest.raises(UsageError):
            view_probes(prompted, **options)  # type: ignore[arg-type]
    with pytest.raises(TokenError):
        view_probes(PromptedModel("m", runner, (1, 2)))
    with pytest.raises(UsageError):
        measure_probes(replace(make_words(1.0), story=np.zeros(600, np.int64)), ["side"])


STORY = [
    Annotation("Anna", "name"),
    Annotation("ran", "verb", subjects=(0,)),
    Annotation("and", "conjunction"),
    Annotation("she", "pronoun", antecedents=(0,)),
    Annotation("sang", "verb", subjects=(3,)),
    Annotation("with", "preposition"),
    Annotation("Tom", "name"),
    Annotation(".", "punctuation"),
    Annotation("They", "pronoun", antecedents=(0, 6)),
    Annotation("laughed", "verb", subjects=(0, 6)),
    Annotation("was", "verb", subjects=(11,)),
    Annotation("she", "pronoun", antecedents=(0,)),
    Annotation("Tom", "name"),
    Annotation("slept", "verb", subjects=(12,)),
]


def test_kinds_are_those_of_the_word_and_of_the_next() -> None:
    assert label_kinds(STORY)[:3] == ["name", "verb", "conjunction"]
    assert label_next_kinds(STORY)[:2] == ["verb", "conjunction"]
    assert label_next_kinds(STORY)[-1] is None


def test_a_verb_has_the_pronoun_of_its_subject() -> None:
    """A name has the pronoun that stands for it elsewhere; Tom has none, and one subject comes too late."""
    found = {i: label for i, label in enumerate(label_subjects(STORY)) if label}
    assert found == {1: "she", 4: "she", 9: "they"}


def test_a_noun_with_two_pronouns_has_no_label() -> None:
    words = [*STORY, Annotation("him", "pronoun", antecedents=(0,))]
    assert label_subjects(words)[1] is None


@pytest.mark.parametrize("level", ["tiny", "easy", "full"])
def test_every_story_has_each_label(level: str) -> None:
    for story in stories(level, seed=5, count=10):
        words = annotate(story)
        for name, label in LABELS.items():
            found = label(words)
            assert len(found) == len(words)
            assert any(found), name


def test_a_control_label_belongs_to_a_word_and_has_the_shares_of_the_true_ones() -> None:
    words = [str(i % 500) for i in range(2000)]
    labels = ["a"] * 1500 + ["b"] * 500
    control = assign_control_labels(words, labels, seed=1)
    assert len({(word, label) for word, label in zip(words, control, strict=True)}) == 500
    assert control.count("a") / 2000 == pytest.approx(0.75, abs=0.06)
    assert control == assign_control_labels(words, labels, seed=1)
    assert control != assign_control_labels(words, labels, seed=2)
