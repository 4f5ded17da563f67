"""The text of a bill: the built-in texts, a file, or the text itself; as many targets as asked for."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.evaluation.quantization.sample import BUILT_IN, SPAN, TEXTS, count_targets, read_sample
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special
from tests.evaluation.small_models import make_model, make_stories_model, with_bos, write

MODEL = make_model().pretrained


def test_the_built_in_texts_share_the_targets_and_a_short_text_leaves_its_share_to_the_others() -> None:
    sample = read_sample(MODEL, None, 800)
    assert sample.source == BUILT_IN and [one.name for one in sample.documents] == list(TEXTS)
    assert [count_targets(one) for one in sample.documents] == [100] * 8
    whole = read_sample(MODEL, None, 100_000)
    sizes = sorted(map(count_targets, whole.documents))
    most = 8 * sizes[0] + 7
    counts = sorted(map(count_targets, read_sample(MODEL, None, most).documents))
    assert sum(counts) == most and counts[0] == sizes[0] and counts[1:] == [sizes[0] + 1] * 7


def test_the_beginning_of_a_sample_has_the_same_tokens() -> None:
    sample = read_sample(MODEL, None, 800)
    begin = sample.begin(80)
    assert begin.n_targets == 80
    for whole, part in zip(sample.documents, begin.documents, strict=True):
        assert np.array_equal(part.ids, whole.ids[: len(part.ids)])
    assert len(sample.begin(3).documents) == 3


def test_spans_cover_every_target_once_and_none_is_long() -> None:
    sample = read_sample(MODEL, None, 777)
    spans = sample.spans()
    assert sum(span.last - span.first for span in spans) == sample.n_targets
    assert max(span.last - span.first for span in spans) <= SPAN
    assert [span.document.name for span in spans if span.first == 0] == list(TEXTS)


def test_a_file_is_read_up_to_the_targets_asked_for(tmp_path: Path) -> None:
    (path,) = write(tmp_path, a="once upon a time there was a cat " * 50)
    sample = read_sample(MODEL, path, 20)
    assert sample.source == path and sample.n_targets == 20 and len(sample.documents) == 1


def test_a_text_is_read_itself_with_bos_where_the_model_wants_it() -> None:
    text = "A cat sat on the mat."
    ids = MODEL.encode(text)
    (document,) = read_sample(MODEL, text, 1000).documents
    assert document.ids.tolist() == ids and count_targets(document) == len(ids) - 1
    (document,) = read_sample(with_bos(make_model()).pretrained, text, 1000).documents
    assert count_targets(document) == len(ids)


def test_stories_are_a_source() -> None:
    sample = read_sample(make_stories_model().pretrained, "stories:tiny", 50)
    assert sample.n_targets == 50 and sample.source == "stories:tiny"


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_without_a_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="two tokens"):
        read_sample(MODEL, text, 100)


def test_an_empty_file_is_refused_by_its_name(tmp_path: Path) -> None:
    (path,) = write(tmp_path, a="")
    with pytest.raises((UsageError, FileError), match=r"a\.txt"):
        read_sample(MODEL, path, 100)


@pytest.mark.parametrize("name", ["nowhere.txt", "texts/nowhere"])
def test_a_file_that_is_not_there_is_not_taken_for_a_text(name: str) -> None:
    with pytest.raises(FileError, match="does not exist"):
        read_sample(MODEL, name, 100)


def test_texts_that_the_tokenizer_cannot_encode_are_omitted_and_named() -> None:
    letters = train(
        "characters",
        ["".join(text for name, text in TEXTS.items() if name != "German")],
        300,
        Special("<end>", "<end>"),
    )
    sample = read_sample(make_model(letters).pretrained, None, 100)
    assert sample.omitted == ("German",) and len(sample.documents) == len(TEXTS) - 1


def test_a_tokenizer_that_encodes_none_of_the_texts_is_refused_with_what_would_work() -> None:
    letters = train("characters", ["abc"], 300, Special("<end>", "<end>"))
    with pytest.raises(UsageError, match="--on"):
        read_sample(make_model(letters).pretrained, None, 100)
