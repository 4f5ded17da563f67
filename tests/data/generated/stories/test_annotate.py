"""Every pronoun means somebody it may mean, and every verb agrees with its subject."""

import functools

import pytest

from pellucid.data.generated.stories import (
    Annotation,
    Story,
    annotate,
    stories,
    story,
    vocabulary,
    words_of,
)
from pellucid.data.generated.stories.annotate import class_of
from pellucid.data.generated.stories.levels import LEVELS, grammar
from pellucid.data.generated.stories.lexicon import FAMILIES, PAIRS, RELATIVES, names
from tests.data.small_corpora import drawn

# written out here, not taken from the grammar
MALE = {
    "king", "prince", "duke", "emperor", "man", "boy", "shepherd", "wizard", "fox", "lion", "stag", "tiger",
    "rooster", "gander", "ram", "bull", "father", "grandfather", "uncle", "brother",
}  # fmt: skip
FEMALE = {
    "queen", "princess", "duchess", "empress", "woman", "girl", "shepherdess", "witch", "vixen", "lioness",
    "doe", "tigress", "hen", "goose", "ewe", "cow", "mother", "grandmother", "aunt", "sister",
}  # fmt: skip
PLURAL = {
    "marbles", "coins", "beads", "buttons", "shells", "stones", "candles", "cakes", "buns", "boots", "days",
    "puppets", "stilts", "wishes", "mountains", "hills", "birds", "sides", "nights", "others", "matches",
    "tears", "leaves", "hours", "things", "pancakes", "chestnuts", "dumplings", "people",
}  # fmt: skip
GENDERED = {"he": "m", "him": "m", "his": "m", "she": "f", "her": "f", "it": "n", "its": "n"}
GENDERED |= {"they": "p", "them": "p", "their": "p"}
SINGULAR_VERBS, PLURAL_VERBS = {"was", "is", "has"}, {"were", "are", "have"}


@functools.cache
def annotated(level: str) -> list[tuple[Story, list[Annotation]]]:
    return [(one, annotate(one)) for one in drawn(level)[:600]]


def gender(noun: str) -> str:
    given = {name.text: sex for sex, list_ in names(24).items() for name in list_}
    if noun in given:
        return given[noun]
    word = noun.lower()
    return "m" if word in MALE else "f" if word in FEMALE else "p" if word in PLURAL else "n"


def is_plural(words: list[Annotation], subjects: tuple[int, ...]) -> bool:
    one = words[subjects[0]]
    if len(subjects) > 1 or one.word.lower() in {"you", "i", "we", "they", "them", "those"}:
        return True
    if one.kind == "pronoun" and one.antecedents:
        return is_plural(words, one.antecedents)
    return gender(one.word) == "p"


@pytest.mark.parametrize("level", LEVELS)
def test_annotations_stand_word_for_word_beside_the_text(level: str) -> None:
    for one, words in annotated(level):
        assert [word.word for word in words] == words_of(one.text)


@pytest.mark.parametrize("level", LEVELS)
def test_the_antecedent_of_a_pronoun_has_its_gender_and_number(level: str) -> None:
    checked = 0
    for one, words in annotated(level):
        for word in words:
            if word.kind == "pronoun" and word.antecedents and word.word.lower() in GENDERED:
                expected = GENDERED[word.word.lower()]
                found = "p" if len(word.antecedents) > 1 else gender(words[word.antecedents[0]].word)
                assert found == expected, (word, one.text)
                checked += 1
    assert checked > 600


@pytest.mark.parametrize("level", LEVELS)
def test_he_and_she_always_have_an_antecedent(level: str) -> None:
    for one, words in annotated(level):
        for word in words:
            assert word.antecedents or word.word.lower() not in {"he", "she", "him", "her", "his", "they"}, (
                one.text
            )


@pytest.mark.parametrize("level", LEVELS)
def test_a_verb_agrees_with_its_subject(level: str) -> None:
    numbers = set()
    for one, words in annotated(level):
        for word in words:
            if word.kind == "verb" and word.word.lower() in SINGULAR_VERBS | PLURAL_VERBS:
                plural = is_plural(words, word.subjects)
                assert (word.word.lower() in PLURAL_VERBS) == plural, (word, one.text)
                numbers.add(plural)
    assert numbers == {True, False}


def test_some_subjects_are_far_from_their_verbs_across_a_clause_of_another_number() -> None:
    text = "The marbles that his father had given him were gone."
    one = next(s for s in stories("full", 17) if text in s.text)
    words = annotate(one)
    first = next(k for k in range(len(words)) if [w.word for w in words[k : k + 9]] == words_of(text)[:9])
    assert words[first + 8].word == "were" and words[first + 8].subjects == (first + 1,)
    assert words[first + 5].word == "had" and words[first + 5].subjects == (first + 4,)


def test_the_subject_after_a_relative_clause_is_the_noun_before_it() -> None:
    one = next(s for s in stories("full", 19) if ", who loved a good tale, told" in s.text)
    words = annotate(one)
    who = next(k for k in range(len(words)) if words[k].word == "who" and words[k + 1].word == "loved")
    assert words[who].antecedents == (who - 2,) and words[who + 1].subjects == (who,)
    assert next(w for w in words[who:] if w.word == "told").subjects == (who - 2,)


def test_speakers_are_the_antecedents_of_i_and_you() -> None:
    one = next(s for s in stories("full", 18) if '"Why did I not listen?" cried' in s.text)
    words = annotate(one)
    i = next(w for w in words if w.word == "I")
    assert class_of(words[i.antecedents[0]].word) in {"name", "noun"}


def test_each_word_has_a_class() -> None:
    for level in LEVELS:
        marked = {
            words_of(atom.text)[-1]
            for _, _, option in grammar(level).options()
            for atom in option.template.atoms
            if atom.mark and atom.text
        }
        assert [word for word in vocabulary(level) if not class_of(word) and word not in marked] == []


def test_word_families_are_complete_pairs() -> None:
    for man, woman in [*RELATIVES, *(pair for pairs in FAMILIES.values() for pair in pairs)]:
        assert PAIRS[man] == woman and PAIRS[woman] == man
        assert {man, woman} <= set(vocabulary("full"))
    for level in LEVELS:
        known = set(vocabulary(level)) & set(PAIRS)
        assert known == {PAIRS[word] for word in known}


def test_a_pair_word_is_annotated_with_its_other_half() -> None:
    words = annotate(story("tiny", 1, 0))
    assert [(w.word, w.pair) for w in words if w.pair] == [("king", "queen")]
