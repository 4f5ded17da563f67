"""What an evaluation says of a model: its figures by hand, against training, and against another model."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.data.generated import stories
from pellucid.data.sources.generated import HELD_OUT
from pellucid.data.sources.validation import validate_documents
from pellucid.data.tokens import TokenFolder
from pellucid.evaluation import evaluation
from pellucid.evaluation.documents import EncodedDocument, Limit, read_documents
from pellucid.evaluation.evaluation import (
    TokenCounts,
    compare_models,
    compute_figures,
    evaluate_model,
    summarize_document,
)
from pellucid.evaluation.loss import compute_loss
from pellucid.evaluation.result import (
    N_SURPRISALS,
    SURPRISAL_WIDTH,
    DocumentSummary,
    EvaluatedModel,
    ModelEvaluation,
)
from pellucid.evaluation.scoring import DocumentScores
from pellucid.model import Model
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import CharacterTokenizer
from tests.data.small_corpora import prepared, text_file
from tests.evaluation.small_models import bpe, make_model, make_stories_model, with_bos, write


def describe(model: Model, name: str = "model") -> EvaluatedModel:
    config = model.config
    return EvaluatedModel(
        name, None, "", 0, config.vocab_size, config.context_length, "float32", "cpu", "", None
    )


def evaluate(
    model: Model,
    data: str | list[str],
    split: str = "file",
    limit: Limit | int | None = None,
    name: str = "model",
) -> ModelEvaluation:
    documents = read_documents(data, model.pretrained, split=split, limit=limit)
    size = model.config.context_length
    return evaluate_model(
        model.module, documents, describe(model, name), window=size, stride=size, samples=100
    )


def test_a_rank_of_0_is_right_and_one_below_5_is_among_the_five_most_likely() -> None:
    ids, rank = np.arange(7), np.array([0, 1, 4, 5, 0, 9], np.int32)
    document = EncodedDocument("a", ids, np.ones(6, bool), 12)
    scores = DocumentScores("a", "", 12, None, ids[1:], np.full(6, 0.5), rank, ids[1:], document)
    assert summarize_document(scores) == DocumentSummary("a", "", 6, 12, 3.0, 2, 4, None)


def test_the_figures_of_a_text_are_those_of_its_scores(tmp_path: Path) -> None:
    model, text = with_bos(make_model()), "the cat sat on a mat"
    found = evaluate(model, write(tmp_path, a=text))
    score = model.score(text)
    total, n = found.total, len(score) - 1
    assert total.n_targets == n and total.n_documents == 1 and total.n_bytes == len(text)
    assert total.loss.value == pytest.approx(-score.total / n, abs=1e-6) and total.loss.low is None
    assert total.perplexity == pytest.approx(score.perplexity, rel=1e-5)
    assert total.bits_per_byte is not None
    assert total.bits_per_byte.value == pytest.approx(-score.total / math.log(2) / len(text), abs=1e-6)
    logits = model.logits(score.ids)[:-1]
    right = sum(int(row.argmax()) == id for row, id in zip(logits, score.ids[1:], strict=True))
    among = sum(id in row.topk(5).indices.tolist() for row, id in zip(logits, score.ids[1:], strict=True))
    assert (total.accuracy.value, total.top5_accuracy.value) == (right / n, among / n)
    bins = [
        min(int(-value / SURPRISAL_WIDTH), N_SURPRISALS - 1) for value in score.logprobs if value is not None
    ]
    assert found.surprisals == tuple(np.bincount(bins, minlength=N_SURPRISALS).tolist())
    assert total.uniform == math.log(model.config.vocab_size)
    assert total.entropy_floor is total.gap is total.fraction_learned is None


def test_figures_by_hand() -> None:
    """Two documents: 4 nats for 2 tokens and 8 bytes, 2 nats for 3 tokens and 2 bytes."""
    documents = [
        DocumentSummary("a", "", 2, 8, 4.0, 1, 2, -3.0),
        DocumentSummary("b", "", 3, 2, 2.0, 3, 3, -2.0),
    ]
    counts = TokenCounts(10, np.array([3, 4]), np.array([2, 2]))  # 0 is followed by 3 and 4, half each
    found = compute_figures("x", documents, counts, samples=50, seed=0)
    assert found.loss.value == 6 / 5 and found.n_targets == 5 and found.n_bytes == 10
    assert found.bits_per_byte is not None
    assert found.bits_per_byte.value == pytest.approx(6 / math.log(2) / 10)
    assert (found.accuracy.value, found.top5_accuracy.value, found.exact_match.value) == (4 / 5, 1, 1 / 2)
    assert found.entropy_floor == 1 and found.gap is not None
    assert found.gap.value == pytest.approx(1 / 5)
    assert found.unigram == pytest.approx(math.log(2))
    assert found.bigram is found.fraction_learned is None  # five targets memorize their pairs
    assert found.loss.low is not None and found.loss.low <= found.loss.value


def test_pairs_are_a_baseline_from_fifty_thousand_targets_on() -> None:
    counts = TokenCounts(10, np.array([3, 4]), np.array([2, 2]))
    for n, bigram in ((49_999, None), (50_000, math.log(2))):
        document = DocumentSummary("a", "", n, n, 0.6 * n, 1, 2, -0.5 * n)
        found = compute_figures("x", [document], counts, samples=9, seed=0)
        assert found.bigram == (bigram and pytest.approx(bigram))
        assert (found.fraction_learned is None) is (bigram is None)
        below = dataclasses.replace(document, log_probability=-0.7 * n)  # a floor above the bigram baseline
        assert compute_figures("x", [below], counts, samples=9, seed=0).fraction_learned is None


def test_sources_are_also_told_apart(tmp_path: Path) -> None:
    text_file(tmp_path / "a.txt", 10)
    text_file(tmp_path / "b.txt", 5, seed=1)
    found = evaluate(make_model(), [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], "line")
    assert [Path(one.source).name for one in found.sources] == ["a.txt", "b.txt"]
    assert [one.n_documents for one in found.sources] == [10, 5] and found.total.n_documents == 15
    sums = sum(one.loss.value * one.n_targets for one in found.sources)
    assert sums / found.total.n_targets == pytest.approx(found.total.loss.value)


def test_positions_add_up_to_all_targets(tmp_path: Path) -> None:
    found = evaluate(make_model(), str(text_file(tmp_path / "a.txt", 30)))
    assert sum(one.n_targets for one in found.positions) == found.total.n_targets
    assert [one.first for one in found.positions] == [1, 2, 4, 8, 16, 32]
    assert [one.last for one in found.positions] == [1, 3, 7, 15, 31, 32]
    contexts = np.arange(found.total.n_targets) % 32 + 1  # one document, in windows of 32 tokens
    for one in found.positions:
        assert one.n_targets == ((one.first <= contexts) & (contexts <= one.last)).sum()
    sums = sum(one.nll for one in found.positions)
    assert sums == pytest.approx(found.total.loss.value * found.total.n_targets)


def test_the_gap_of_stories_is_that_of_the_grammar() -> None:
    model = make_stories_model()
    found = evaluate(model, "stories:tiny", limit=20)
    some = list(stories.stories("tiny", HELD_OUT, count=20))
    lengths = [len(model.tokenizer.encode(story.text)) for story in some]
    wanted = stories.gap(some, lengths, [-one.nll for one in found.documents])
    assert found.total.gap is not None
    assert found.total.gap.value == pytest.approx(wanted.nats)
    assert found.total.entropy_floor == pytest.approx(wanted.floor)
    assert found.n_ends == 20


def test_a_task_has_an_entropy_floor_of_zero() -> None:
    letters = CharacterTokenizer(("<end>", *"abcdefgh>"), Special("<end>", "<end>"))
    found = evaluate(make_model(letters), "task:copy", limit=30).total
    assert found.entropy_floor == 0 and found.gap is not None
    assert found.gap.value == pytest.approx(found.loss.value)
    assert 0 <= found.exact_match.value < 0.1


def test_texts_without_a_target_are_omitted_and_all_of_them_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, one="the", two="the cat sat")
    assert evaluate(make_model(), paths).n_omitted == 1
    with pytest.raises(UsageError, match="two tokens"):
        evaluate(make_model(), paths[:1])
    assert evaluate(with_bos(make_model()), paths[:1]).total.n_targets == 1


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    letters = CharacterTokenizer(("<unk>", *"abc"), Special(), unknown="<unk>")
    assert evaluate(make_model(letters), write(tmp_path, a="abxcyz")).n_unknown == 3


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = str(text_file(tmp_path / "a.txt", 20))
    one = evaluate(make_model(), path, "line")
    found = compare_models(one, one, is_same_tokenizer=True, samples=100, seed=0)
    assert found.difference.value == found.difference.low == found.difference.high == 0
    assert found.p_value == 1 and found.n_better == 0 and found.measure == "loss"


def test_a_model_with_sharper_wrong_predictions_is_worse(tmp_path: Path) -> None:
    path = str(text_file(tmp_path / "a.txt", 20))
    better = evaluate(make_model(), path, "line", name="better")
    flat = make_model()
    wild = flat.replace(weights={name: 3 * array for name, array in flat.weights.items()})
    worse = evaluate(wild, path, "line", name="worse")
    found = compare_models(worse, better, is_same_tokenizer=True, samples=200, seed=0)
    assert found.difference.value == pytest.approx(worse.total.loss.value - better.total.loss.value)
    assert found.difference.low is not None and found.difference.low > 0
    assert found.p_value is not None and found.p_value < 0.05 and found.n_better < 10


def test_models_with_other_tokenizers_are_compared_by_bits_per_byte(tmp_path: Path) -> None:
    path = str(text_file(tmp_path / "a.txt", 12))
    one, other = (evaluate(with_bos(make_model(bpe(size))), path, "line") for size in (300, 280))
    assert one.total.n_targets != other.total.n_targets
    found = compare_models(one, other, is_same_tokenizer=False, samples=100, seed=0)
    assert found.measure == "bits_per_byte"
    assert one.total.bits_per_byte is not None and other.total.bits_per_byte is not None
    wanted = one.total.bits_per_byte.value - other.total.bits_per_byte.value
    assert found.difference.value == pytest.approx(wanted)


def test_without_bytes_other_tokenizers_cannot_be_compared(tmp_path: Path) -> None:
    one = evaluate(make_model(), write(tmp_path, a="the cat sat"))
    bare = dataclasses.replace(
        one, documents=tuple(dataclasses.replace(d, n_bytes=None) for d in one.documents)
    )
    with pytest.raises(UsageError, match="bytes"):
        compare_models(one, bare, is_same_tokenizer=False, samples=10, seed=0)


def test_one_document_has_a_difference_without_a_p_value(tmp_path: Path) -> None:
    one = evaluate(make_model(), write(tmp_path, a="the cat sat"))
    found = compare_models(one, one, is_same_tokenizer=True, samples=10, seed=0)
    assert found.p_value is None and found.difference.low is None


def test_the_loss_on_token_files_is_the_validation_loss_of_training(tmp_path: Path) -> None:
    folder = TokenFolder(prepared(tmp_path, documents=30, validation=0.3))
    model = make_model(folder.tokenizer, context_length=128)
    begin = folder.tokenizer.id_of("<end>")
    batches = (
        (torch.tensor(batch.ids), torch.tensor(batch.targets), torch.tensor(batch.segments))
        for batch in validate_documents(folder["validation"], begin, 128, 4)
    )
    wanted = compute_loss(
        lambda ids, segments: model.module(ids, segments=segments), batches, model.config.vocab_size
    )
    found = evaluate(model, str(folder.path)).total
    assert found.loss.value == pytest.approx(wanted.loss, abs=1e-5)
    assert found.accuracy.value == pytest.approx(wanted.accuracy)


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
