"""What a probe predicts of each word of a story, from the story's annotation, and the control task.

kind        the class of the word: noun, verb, pronoun, punctuation …
next kind   the class of the word after it
subject     of a verb whose subject comes before it: the pronoun that the subject has, he, she, it or they
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pellucid.data.generated.stories import Annotation

Words = Sequence[Annotation]
Labels = list[str | None]
"""One for each word; None where a word has no such label."""
PRONOUNS = {
    form: forms[0]
    for forms in (("he", "him", "his"), ("she", "her"), ("it", "its"), ("they", "them", "their"))
    for form in forms
}


def label_kinds(words: Words) -> Labels:
    return [word.kind or None for word in words]


def label_next_kinds(words: Words) -> Labels:
    return [*label_kinds(words)[1:], None]


def label_subjects(words: Words) -> Labels:
    """Returns for each verb the pronoun of its subject; a pair is they.

    A noun or a name has the pronoun that stands for it elsewhere in the story; where none does, or two
    different ones, the verb has no label; nor where the subject comes after it and cannot be known yet.
    """
    known: dict[str, set[str]] = {}
    for word in words:
        if (pronoun := PRONOUNS.get(word.word.lower())) and len(word.antecedents) == 1:
            known.setdefault(words[word.antecedents[0]].word, set()).add(pronoun)

    def find_pronoun(place: int) -> str | None:
        word = words[place].word
        found = {PRONOUNS[word.lower()]} if word.lower() in PRONOUNS else known.get(word, set())
        return next(iter(found)) if len(found) == 1 else None

    labels: Labels = []
    for place, word in enumerate(words):
        is_known = word.kind == "verb" and word.subjects and max(word.subjects) < place
        if not is_known:
            labels.append(None)
        else:
            labels.append("they" if len(word.subjects) > 1 else find_pronoun(word.subjects[0]))
    return labels


LABELS: Mapping[str, Callable[[Words], Labels]] = {
    "kind": label_kinds,
    "next kind": label_next_kinds,
    "subject": label_subjects,
}


def assign_control_labels(words: Sequence[str], labels: Sequence[str], seed: int) -> list[str]:
    """Returns the labels of the control task (Hewitt and Liang 2019, arXiv:1909.03368).

    Each different word gets one label at random, drawn in the shares that the true labels have, and has it
    wherever it occurs. A probe can learn them only by remembering words, so that its accuracy there says how
    much of its accuracy is the probe's own.
    """
    random = np.random.default_rng(seed)
    shares = Counter(labels)
    types = sorted(set(words))
    drawn = random.choice(list(shares), len(types), p=np.array(list(shares.values())) / len(labels))
    of = dict(zip(types, drawn.tolist(), strict=True))
    return [of[word] for word in words]
