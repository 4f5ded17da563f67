"""The baselines of a text are the losses of its own frequencies."""

import math

import numpy as np
import pytest

from pellucid.data.generated import stories
from pellucid.data.sources.generated import HELD_OUT
from pellucid.evaluation import evaluation
from pellucid.evaluation.documents import EncodedDocument, read_documents
from pellucid.evaluation.evaluation import TokenCounts
from tests.evaluation.small_models import make_stories_model


def make_document(ids: list[int], counted: list[bool] | None = None) -> EncodedDocument:
    is_counted = np.array([True] * (len(ids) - 1) if counted is None else counted, bool)
    return EncodedDocument("d", np.array(ids), is_counted, None)


def count(*documents: EncodedDocument, vocab_size: int = 4) -> TokenCounts:
    counts = TokenCounts(vocab_size)
    for document in documents:
        counts.add(document)
    return counts


def test_five_tokens_by_hand() -> None:
    """Targets 1 2 1 1 after 0 1 2 1: p(1) = 3/4, p(2) = 1/4; 1 is followed by 2 and by 1, half each."""
    counts = count(make_document([0, 1, 2, 1, 1]))
    assert counts.uniform == math.log(4)
    assert counts.unigram == pytest.approx(-(3 * math.log(3 / 4) + math.log(1 / 4)) / 4)
    assert counts.bigram == pytest.approx(2 * math.log(2) / 4)


def test_only_counted_targets_count() -> None:
    counts = count(make_document([0, 1, 2, 3, 3], [False, False, True, True]))
    assert counts.unigram == 0 and counts.bigram == 0
    assert str(counts.unigram) == str(counts.bigram) == "0.0", "a zero without a sign"


def test_documents_apart_are_those_together(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    documents = [make_document(random.integers(0, 9, 30).tolist()) for _ in range(8)]
    whole = count(*documents, vocab_size=9)
    apart = TokenCounts(9)
    for document in documents:
        apart.add_counts(count(document, vocab_size=9))
    assert (apart.unigram, apart.bigram) == pytest.approx((whole.unigram, whole.bigram))
    monkeypatch.setattr(evaluation, "MOST_PENDING", 40)
    assert count(*documents, vocab_size=9).bigram == pytest.approx(whole.bigram)


def test_of_stories_they_are_those_that_the_grammar_measures() -> None:
    counts = TokenCounts(10_000)
    texts = set[str]()
    model = make_stories_model()
    for document in read_documents("stories:tiny", model.pretrained, limit=50):
        counts.add(document)
        texts.add(model.tokenizer.decode(document.ids[1:-1].tolist()))
    wanted = stories.baselines(stories.stories("tiny", HELD_OUT, count=50))
    assert len(texts) > 40
    assert counts.bigram == pytest.approx(wanted.bigram, abs=0.05)  # words at a quotation have two tokens
