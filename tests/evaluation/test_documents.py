"""Documents: what is read, which targets count, and how many bytes they have."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError, PellucidError, TokenError, UsageError
from pellucid.data.generated import stories
from pellucid.data.sources.generated import EXAMPLES, HELD_OUT, STORIES, spaced_words
from pellucid.data.tokens import TokenFolder
from pellucid.evaluation.documents import EncodedDocument, Limit, parse_limit, read_documents
from pellucid.model import Model
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import CharacterTokenizer
from tests.data.small_corpora import prepared, text_file
from tests.evaluation.small_models import bpe, make_model, make_stories_model, with_bos, write

TEXT = "the cat sat on a naïve mat — 42 times, and then it ran far away"


def read(data: str | list[str], model: Model | None = None, **settings: object) -> list[EncodedDocument]:
    model = model or make_model()
    return list(read_documents(data, model.pretrained, **settings))  # type: ignore[arg-type]


def test_a_text_without_bos_counts_all_but_its_first_token(tmp_path: Path) -> None:
    (document,) = read(write(tmp_path, a=TEXT))
    ids = bpe().encode(TEXT)
    assert document.ids.tolist() == ids and document.is_counted.all()
    assert len(document.is_counted) == len(ids) - 1
    assert document.n_bytes == len(TEXT.encode()) - len(bpe().bytes_of(ids[0]))
    assert document.name.endswith("a.txt") and document.log_probability is None


def test_a_model_that_wants_bos_has_it_in_front_and_all_of_the_text_counts(tmp_path: Path) -> None:
    (document,) = read(write(tmp_path, a=TEXT), with_bos(make_model()))
    assert document.ids.tolist() == [bpe().id_of("<end>"), *bpe().encode(TEXT)]
    assert document.n_bytes == len(TEXT.encode())


def test_the_first_token_may_come_late(tmp_path: Path) -> None:
    """A tokenizer of words has no token for the blanks before the first one."""
    model = Model.from_pretrained("abcd")
    (document,) = read(write(tmp_path, a=" " * 1500 + "A B C"), model)
    assert len(document.ids) == 3 and document.n_bytes == len(" B C")


def test_a_folder_has_one_document_per_file_and_split_makes_several(tmp_path: Path) -> None:
    write(tmp_path, a="the cat\n\nsat on", b="a mat and")
    assert [Path(one.name).name for one in read(str(tmp_path))] == ["a.txt", "b.txt"]
    names = [Path(one.name).name for one in read(str(tmp_path), split="paragraph")]
    assert names == ["a.txt#0", "a.txt#1", "b.txt#0"]
    assert [one.source for one in read(str(tmp_path))] == [str(tmp_path)] * 2


def test_copies_count_as_often_as_they_occur(tmp_path: Path) -> None:
    assert len(read(write(tmp_path, a="the cat\nthe cat\n"), split="line")) == 2


def test_lines_of_json_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the cat", "a mat and")), "utf-8")
    assert [one.name.removeprefix(str(tmp_path)) for one in read(str(path))] == ["/a.jsonl#0", "/a.jsonl#1"]
    assert [bpe().decode(one.ids.tolist()) for one in read(str(path))] == ["the cat", "a mat and"]


def test_a_document_can_be_read_as_often_as_wanted(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, a=TEXT), make_model().pretrained)
    first, second = list(documents), list(documents)
    assert [one.ids.tolist() for one in first] == [one.ids.tolist() for one in second]


def test_limits_by_documents_and_by_bytes(tmp_path: Path) -> None:
    paths = write(tmp_path, a="\n".join(["the cat sat"] * 9), b="a mat")
    assert len(read(paths, split="line", limit=4)) == 4 + 1
    cut = read(paths[:1], with_bos(make_model()), limit="30 B")
    assert [one.n_bytes for one in cut] == [30]
    assert [one.n_bytes for one in read(paths[:1], with_bos(make_model()), split="line", limit="30b")] == [
        *(11, 11, 8),
    ]


def test_a_limit_never_ends_inside_a_character(tmp_path: Path) -> None:
    (document,) = read(write(tmp_path, a="——"), with_bos(make_model()), limit="4 B")
    assert bpe().decode(document.ids[1:].tolist()) == "—" and document.n_bytes == 3


@pytest.mark.parametrize("limit", [0, -1, "0kB", "many", "1.5", True, "1e3", ""])
def test_a_limit_that_is_not_one_is_refused(limit: int | str) -> None:
    with pytest.raises(UsageError):
        parse_limit(limit)


def test_sizes_of_a_limit() -> None:
    assert parse_limit("50kB") == Limit(n_bytes=50_000) == parse_limit("50 KB")
    assert parse_limit("2") == parse_limit(2) == Limit(documents=2)


def test_held_out_stories_are_complete_and_have_their_exact_probability() -> None:
    documents, tokenizer = read("stories:tiny", make_stories_model()), spaced_words("tiny")
    assert len(documents) == STORIES
    story = stories.story("tiny", HELD_OUT, 3)
    end, found = tokenizer.id_of("<end>"), documents[3]
    assert found.name == "stories:tiny#3"
    assert found.ids.tolist() == [end, *tokenizer.encode(story.text), end] and found.is_counted.all()
    assert found.log_probability == story.log_probability
    assert found.n_bytes == len(story.text.encode())


def test_stories_are_encoded_with_any_tokenizer_and_without_an_end_their_ln_p_is_omitted() -> None:
    (found,) = read("stories:tiny", limit=1)
    story = stories.story("tiny", HELD_OUT, 0)
    assert bpe().decode(found.ids[1:-1].tolist()) == story.text
    assert found.log_probability == story.log_probability
    letters = CharacterTokenizer(
        tuple(sorted(set("".join(s.text for s in stories.stories("tiny", HELD_OUT, count=STORIES))))),
        Special(),
    )
    (without,) = read("stories:tiny", make_model(letters), limit=1)
    assert without.log_probability is None
    assert letters.decode(without.ids.tolist()) == story.text
    assert without.n_bytes == len(story.text.encode()) - 1


def test_a_story_with_words_that_the_tokenizer_lacks_has_no_exact_probability() -> None:
    model = make_stories_model("tiny")
    found = read("stories:easy", model, limit=5)
    assert all(one.log_probability is None for one in found)
    assert any(model.tokenizer.unknown_id in one.ids for one in found)


def test_of_a_task_the_answer_and_its_end_count() -> None:
    letters = CharacterTokenizer(("<end>", *"0123456789+="), Special("<end>", "<end>"))
    documents = read("task:addition", make_model(letters))
    assert len(documents) == EXAMPLES
    one = documents[0]
    text = letters.decode(one.ids[1:-1].tolist())
    prompt, equals, answer = text.partition("=")
    assert one.ids[0] == one.ids[-1] == 0 and equals
    assert letters.decode(one.ids[1:][one.is_counted][:-1].tolist()) == answer
    assert one.n_bytes == len(answer) and one.log_probability == 0
    assert sum(int(part) for part in prompt.split("+")) == int(answer)


def test_token_files_are_read_as_training_validates_on_them(tmp_path: Path) -> None:
    folder = prepared(tmp_path, documents=30, validation=0.3)
    tokens = TokenFolder(folder)
    model = make_model(tokens.tokenizer)
    documents = read(str(folder), model)
    assert len(documents) == tokens["validation"].documents > 1
    end = tokens.tokenizer.id_of("<end>")
    assert documents[0].ids.tolist() == [end, *tokens["validation"].document(0).tolist()]
    assert sum(one.n_bytes or 0 for one in documents) == tokens.manifest.total("validation", "text_bytes")
    assert documents[0].is_counted.all() and documents[0].ids[-1] == end


def test_token_files_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    folder = prepared(tmp_path, documents=5)
    with pytest.raises(ConfigError, match="another tokenizer"):
        read(str(folder), make_model(bpe(280)))


def test_without_a_validation_part_all_token_files_count(tmp_path: Path) -> None:
    folder = prepared(tmp_path, documents=5)
    assert len(read(str(folder), make_model(TokenFolder(folder).tokenizer))) == 5


def test_what_cannot_be_read_is_refused_before_any_document(tmp_path: Path) -> None:
    model = make_model()
    for data, error in {
        "nowhere.txt": FileError,
        "stories:huge": ConfigError,
        "task:cooking": PellucidError,
    }.items():
        with pytest.raises(error):
            read_documents(data, model.pretrained)
    with pytest.raises(UsageError):
        read_documents([], model.pretrained)
    with pytest.raises(ConfigError):
        read_documents(write(tmp_path, a=TEXT), model.pretrained, split="chapter")
    with pytest.raises(TokenError, match="without a tokenizer"):
        read_documents(write(tmp_path, a=TEXT), model.replace(tokenizer=None).pretrained)


def test_conversations_need_a_chat_template(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"prompt": "who?", "completion": "me"}) + "\n", "utf-8")
    with pytest.raises(ConfigError, match="chat template"):
        read_documents(str(path), make_model().pretrained)


def test_of_a_conversation_what_the_assistant_says_counts(tmp_path: Path) -> None:
    model = make_model()
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"prompt": "the cat", "completion": "sat on"}) + "\n", "utf-8")
    (one,) = list(read_documents(str(path), dataclasses.replace(model.pretrained, chat_template=template)))
    assert bpe().decode(one.ids.tolist()) == "user: the cat<end>assistant: sat on<end>"
    assert bpe().decode(one.ids[1:][one.is_counted].tolist()) == "sat on<end>"
    assert one.n_bytes == len("sat on")


def test_a_character_that_the_tokenizer_lacks_names_the_document(tmp_path: Path) -> None:
    letters = CharacterTokenizer(tuple("abc"), Special())
    with pytest.raises(TokenError, match=r"a\.txt"):
        read(write(tmp_path, a="abx"), make_model(letters))


def test_an_empty_file_a_binary_file_and_a_text_of_one_token(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        read(write(tmp_path, empty=""))
    (tmp_path / "b.txt").write_bytes(bytes(range(256)))
    with pytest.raises(FileError):
        read(str(tmp_path / "b.txt"))
    (one,) = read(write(tmp_path, one="the"))
    assert len(one.ids) == 1 and not len(one.is_counted) and one.n_bytes == 0


def test_long_texts_are_encoded_in_chunks_with_the_same_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = text_file(tmp_path / "long.txt", 50)
    whole = read(str(path))[0].ids
    monkeypatch.setattr("pellucid.text.chunking.chunks.__defaults__", (64,))
    assert np.array_equal(read(str(path))[0].ids, whole)
