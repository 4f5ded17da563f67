"""Labels of words in a story that can be read by eye, and random labels that belong to word types."""

import pytest

from pellucid.data.generated.stories import Annotation, annotate, stories
from pellucid.interpretability.probes import (
    LABELS,
    assign_control_labels,
    label_kinds,
    label_next_kinds,
    label_subjects,
)

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
