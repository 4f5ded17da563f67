"""Sources: what is held out is judged once and never learned from, and rows go on where they were."""

import lzma
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError, PellucidError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.generated import stories, tasks
from pellucid.data.loader import DataLoader
from pellucid.data.prepare import prepare
from pellucid.data.rows.mixture import Mixture
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.sources.generated import HELD_OUT, STORIES, spaced_words
from pellucid.data.sources.settings import DataSettings
from pellucid.data.sources.source import Source, open_source
from pellucid.text.corpus import Corpus
from pellucid.text.from_files import from_pretrained
from tests.data.small_corpora import drawn, made_before, text_file, tokenizer_folder

SENTENCE = "The quick brown fox jumps over the lazy dog, and then it sleeps.\n"


def asked(path: str | tuple[str, ...], tokenizer: str = "", vocab_size: int = 0, **more: Any) -> DataSettings:
    return DataSettings(path=path, tokenizer=tokenizer, vocab_size=vocab_size, **{"batch_size": 4} | more)


def opened(folder: Path, data: DataSettings, length: int = 16, seed: int = 0) -> Source:
    return open_source(data, length, seed, folder / "cache")


def judged(source: Source) -> tuple[list[int], int]:
    """Every target that counts, in order, and how many batches there were."""
    batches = list(source.validation)
    assert {batch.ids.shape for batch in batches} <= {
        (source.validation.batch_size, source.validation.length)
    }
    found = np.concatenate([batch.targets.ravel() for batch in batches])
    return found[found != IGNORE_INDEX].tolist(), len(batches)


def letters(path: Path, size: int = 1007) -> str:
    draw = np.random.default_rng(0)
    text = "".join(draw.choice(list("abcdefg \n"), size)) + "z"  # z only where it is held out
    path.write_text(text, "utf-8")
    return text


# ---- one file, by characters: the standard setting


def test_one_file_is_split_by_position_and_all_its_characters_are_tokens(tmp_path: Path) -> None:
    text = letters(tmp_path / "a.txt")
    source = opened(tmp_path, asked(str(tmp_path / "a.txt"), "characters"))
    assert source.tokenizer.vocab_size == len(set(text)) and source.end is None
    cut = int(len(text) * 0.9)
    targets, batches = judged(source)
    assert source.tokenizer.decode(targets) == text[cut + 1 :]  # the first has nothing before it
    assert batches == len(source.validation) == math.ceil(math.ceil((len(text) - cut - 1) / 16) / 4)
    assert source.bytes_per_token == 1.0 and source.begin == source.tokenizer.id_of("\n")
    learned = "".join(source.tokenizer.decode(row) for row in source.train.take(999, slice(0, 99)).ids)
    assert "z" not in learned


def test_each_id_of_the_validation_stands_before_its_target(tmp_path: Path) -> None:
    text = letters(tmp_path / "a.txt")
    source = opened(tmp_path, asked(str(tmp_path / "a.txt"), "characters"))
    batch = next(iter(source.validation))
    ids, targets = batch.ids, batch.targets
    assert source.tokenizer.decode(ids.ravel()) == text[int(len(text) * 0.9) :][: ids.size]
    np.testing.assert_array_equal(ids.ravel()[1:], targets.ravel()[:-1])


# ---- texts with a trained tokenizer


@pytest.mark.parametrize("kind", ["", "bytes", "words"])
def test_every_token_of_the_held_out_text_is_a_target_once(tmp_path: Path, kind: str) -> None:
    text = text_file(tmp_path / "a.txt", 60).read_text("utf-8")
    source = opened(tmp_path, asked(str(tmp_path / "a.txt"), kind))
    held_out = text[int(len(text) * 0.9) :]
    targets, _ = judged(source)
    assert targets == [*source.tokenizer.encode(held_out), source.end]
    assert source.bytes_per_token == len(held_out.encode()) / len(targets)
    assert next(iter(source.validation)).ids[0, 0] == source.begin == source.end


def test_many_documents_are_held_out_whole_and_few_in_part(tmp_path: Path) -> None:
    for name, count in (("few", 3), ("many", 150)):
        (tmp_path / name).mkdir()
        for i in range(count):
            (tmp_path / name / f"{i}.txt").write_text(f"{i}: {SENTENCE}" * 3, "utf-8")
        source = open_source(asked(str(tmp_path / name), "bytes"), 8, 0, tmp_path / f"{name}-cache")
        documents = source.tokenizer.decode(judged(source)[0]).split("<end>")[:-1]
        whole = [f"{i}: {SENTENCE}" * 3 for i in range(count)]
        if name == "many":
            assert 3 < len(documents) < 40 and set(documents) <= set(whole)
        else:
            assert [text[int(len(text) * 0.9) :] for text in whole] == documents


def test_a_packed_text_and_a_given_tokenizer_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"the cat sat on a mat " * 200))
    folder = tokenizer_folder(tmp_path / "tokenizer")
    source = opened(tmp_path, asked(str(tmp_path / "a.txt.xz"), str(folder)))
    assert source.tokenizer.vocab_size == from_pretrained(folder).vocab_size


def test_a_text_with_few_pieces_gets_a_smaller_vocabulary_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SENTENCE * 100, "utf-8")
    said: list[str] = []
    data = asked(str(tmp_path / "a.txt"), "bpe", 4000)
    source = open_source(data, 8, 0, tmp_path / "cache", said.append)
    assert 258 < source.tokenizer.vocab_size < 400
    assert any("not 4,000" in line for line in said)


@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_another_text_is_all_validation_and_the_first_all_training(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.txt").write_text("abcd" * 50)
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"xyz!" * 10))
    source = opened(tmp_path, asked(str(tmp_path / "a.txt"), kind, validation=str(tmp_path / "b.txt.xz")))
    whole = kind == "bytes"  # with a token before the first; one text by characters has none
    targets, _ = judged(source)
    assert source.tokenizer.decode(targets) == ("xyz!" * 10 + "<end>" if whole else ("xyz!" * 10)[1:])
    assert source.bytes_per_token == (40 / 41 if whole else 1.0)
    learned = "".join(source.tokenizer.decode(row) for row in source.train.take(50, slice(0, 50)).ids)
    assert set("abcd") <= set(learned) and not set("xyz!") & set(learned)
    assert f"{200 + whole} tokens to train on" in source.description


def test_a_validation_file_inside_the_training_folder_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for name, text in (("a", "abc" * 40), ("b", "xyz" * 40)):
        (tmp_path / "all" / f"{name}.txt").write_text(text)
    both, held_out = str(tmp_path / "all"), str(tmp_path / "all" / "b.txt")
    source = opened(tmp_path, asked(both, "bytes", validation=held_out))
    assert source.tokenizer.decode(judged(source)[0]) == "xyz" * 40 + "<end>"
    assert "121 tokens to train on and 121 held out" in source.description
    with pytest.raises(ConfigError, match="is all of the text"):
        open_source(asked(held_out, "bytes", validation=held_out), 8, 0, tmp_path / "other")


def test_documents_end_where_the_split_says(tmp_path: Path) -> None:
    books = ["one\nbook", "another", "a third"]
    (tmp_path / "a.txt").write_text("\n\x1e\n".join(books) + "\n")
    (tmp_path / "b.txt").write_text("\n\x1e\n".join(books[:2] * 2) + "\n")  # copies are judged as well
    data = asked(
        str(tmp_path / "a.txt"), "bytes", validation=str(tmp_path / "b.txt"), split="separator=U+001E"
    )
    source = opened(tmp_path, data)
    assert source.tokenizer.decode(judged(source)[0]) == "".join(f"{book}<end>" for book in books[:2] * 2)
    assert f"{sum(map(len, books)) + 3} tokens to train on" in source.description
    with pytest.raises(ConfigError, match=r"split.*pages"):
        open_source(asked(str(tmp_path / "a.txt"), split="pages"), 8, 0, tmp_path / "other")


@pytest.mark.parametrize("change", [{"validation": "b.txt"}, {"split": "line"}])
def test_settings_of_a_text_file_are_refused_for_token_files_and_generated_text(
    tmp_path: Path, change: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=f"data.{next(iter(change))}.*stories:easy"):
        opened(tmp_path, asked("stories:easy", **change))  # type: ignore[arg-type]
    folder = made_before(documents=60, validation=0.3)
    with pytest.raises(ConfigError, match=f"data.{next(iter(change))}.*{folder.name}"):
        opened(tmp_path, asked(str(folder), **change))  # type: ignore[arg-type]


def test_token_files_are_made_once_and_outlive_the_text(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.txt", 60)
    first = opened(tmp_path, asked(str(path)))
    path.unlink()
    again = opened(tmp_path, asked(str(path)))
    assert judged(first) == judged(again)
    assert first.train.identity() == again.train.identity()
    with pytest.raises(FileError, match=r"data\.validation.*0\.1.*0\.2.*out="):
        opened(tmp_path, asked(str(path), validation=0.2))


def test_an_interrupted_preparation_goes_on(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.txt", 60)
    first = judged(opened(tmp_path, asked(str(path))))
    (tmp_path / "cache" / "source.json").unlink()
    tokens = tmp_path / "cache" / "tokens"
    (tokens / "manifest.json").rename(tokens / "progress.json")
    (tokens / "validation-00000.tokens").unlink()
    assert judged(opened(tmp_path, asked(str(path)))) == first


def test_a_folder_of_token_files_brings_its_tokenizer(tmp_path: Path) -> None:
    folder = made_before(documents=60, validation=0.3)
    source = opened(tmp_path, asked(str(folder)))
    targets, _ = judged(source)
    assert targets.count(source.end or 0) > 3 and "bpe" in source.description
    with pytest.raises(ConfigError, match="made with bpe"):
        opened(tmp_path, asked(str(folder), "characters"))


def test_a_folder_without_a_validation_part_says_how_to_get_one(tmp_path: Path) -> None:
    folder = made_before(documents=60)
    with pytest.raises(ConfigError, match=r"--validation 0\.1.*data\.validation=0"):
        opened(tmp_path, asked(str(folder)))
    assert len(opened(tmp_path, asked(str(folder), validation=0.0)).validation) == 0


# ---- stories and tasks


@pytest.mark.parametrize("level", stories.LEVELS)
def test_a_story_is_the_text_of_its_tokens_one_for_each_word(level: str) -> None:
    tokenizer = spaced_words(level)
    for story in drawn(level)[:400]:
        ids = tokenizer.encode(story.text)
        assert len(ids) == stories.n_words(story.text) and 1 not in ids
        assert tokenizer.decode(ids) == story.text


def test_the_floor_of_stories_is_their_entropy_and_the_bigram_baseline_that_of_pairs(tmp_path: Path) -> None:
    source = opened(tmp_path, asked("stories:easy"), 128)
    assert source.entropy_floor is not None and source.bigram_baseline is not None
    exact = stories.entropy("easy") / (stories.mean_words("easy") + 1)
    assert source.entropy_floor == pytest.approx(exact, abs=0.003)
    assert source.bigram_baseline == pytest.approx(1.51, abs=0.01)


def test_a_model_that_knows_the_grammar_loses_the_floor(tmp_path: Path) -> None:
    """−Σ ln P of the held-out stories, over the targets that count."""
    source = opened(tmp_path, asked("stories:easy"), 128)
    targets, _ = judged(source)
    held_out = source.tokenizer.decode(targets).split("<end>")[:-1]
    nats = -sum(stories.log_probability("easy", text) for text in held_out)
    assert len(held_out) == STORIES
    assert nats / len(targets) == pytest.approx(source.entropy_floor)
    assert source.bytes_per_token == sum(len(text) for text in held_out) / len(targets)


def test_rows_of_stories_begin_with_a_story_and_hold_the_tokenizers_ids(tmp_path: Path) -> None:
    source = opened(tmp_path, asked("stories:easy"), 128, seed=3)
    batch = source.train.take(3, slice(0, 3))
    texts = [source.tokenizer.decode(row).split("<end>") for row in batch.ids]
    assert all(row[0] == "" for row in texts)
    assert texts[0][1] == stories.story("easy", 3, 0).text
    assert texts[1][1] == stories.story("easy", 3, 128).text
    np.testing.assert_array_equal(batch.ids[0, 1:], batch.targets[0, :-1])
    np.testing.assert_array_equal(
        batch.ids[0, 1 : 1 + len(source.tokenizer.encode(texts[0][1]))], source.tokenizer.encode(texts[0][1])
    )


def test_no_story_that_is_held_out_is_learned_from(tmp_path: Path) -> None:
    """With the seed of what is held out, training would meet it all."""
    held_out = {story.text for story in stories.stories("easy", HELD_OUT, count=STORIES)}
    source = opened(tmp_path, asked("stories:easy"), 128, seed=HELD_OUT)
    rows = source.train.take(4, slice(0, 4)).ids
    learned = {text for row in rows for text in source.tokenizer.decode(row).split("<end>")}
    assert not learned & held_out


def test_all_of_a_long_story_is_seen_in_short_rows(tmp_path: Path) -> None:
    source = opened(tmp_path, asked("stories:tiny"), 8)
    texts = " ".join(source.tokenizer.decode(row) for row in source.train.take(600, slice(0, 600)).targets)
    assert set(stories.words_of(texts)) >= set(stories.vocabulary("tiny"))
    assert "<end>Once" in texts and "out of reach" in source.description
    assert len(judged(source)[0]) == source.validation.targets


@pytest.mark.parametrize("kind", tasks.kinds())
def test_of_a_task_only_answers_count(tmp_path: Path, kind: str) -> None:
    source = opened(tmp_path, asked(f"task:{kind}"), 64)
    assert source.entropy_floor == 0 and source.bigram_baseline is None
    task = tasks.find(kind)()
    answers = source.tokenizer.decode(judged(source)[0]).split("<end>")
    first = task.example(0, 0, "validation")
    assert answers[0].strip() == first.answer
    ids = next(iter(source.validation)).ids[0].tolist()
    whole = source.tokenizer.encode(first.prompt) + source.tokenizer.encode(first.answer)
    assert ids[: len(whole) + 1] == [source.begin, *whole]


# ---- rows that go on


@pytest.mark.parametrize("path", ["stories:easy", "task:addition", "text"])
def test_batches_go_on_exactly_where_a_state_was_taken(tmp_path: Path, path: str) -> None:
    data = asked(str(text_file(tmp_path / "a.txt", 40)) if path == "text" else path)
    loader = DataLoader(opened(tmp_path, data, 128).train, 4)
    with loader:
        for _ in range(3):
            next(loader)
        state = loader.state_dict()
        expected = [next(loader) for _ in range(3)]
    again = DataLoader(opened(tmp_path, data, 128).train, 4, prefetch=0)
    again.load_state_dict(state)
    for batch in expected:
        other = next(again)
        np.testing.assert_array_equal(batch.ids, other.ids)
        np.testing.assert_array_equal(batch.targets, other.targets)
    with pytest.raises(ConfigError, match="data loader's state"):
        DataLoader(opened(tmp_path, data, 128, seed=1).train, 4).load_state_dict(state)


def test_another_seed_gives_other_rows_and_holds_out_the_same(tmp_path: Path) -> None:
    one, two = (opened(tmp_path, asked("stories:easy"), 128, seed) for seed in (1, 2))
    assert judged(one) == judged(two)
    rows = [source.train.take(1, slice(0, 1)).ids.tolist() for source in (one, two)]
    assert rows[0] != rows[1]


# ---- what cannot be


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "there is no text in"),
        ("white.txt", b" \n\n ", "nothing but white space"),
        ("one.txt", b"a", r"too short.* 0 .* 17\. Use more text"),
        ("short.txt", b"abc", r"too short.* 3 .* 17.*context_length="),
        ("picture.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not text: byte 8 is 0"),
        ("latin.txt", b"caf\xe9 " * 40, "not UTF-8: byte 3 is 0xe9"),
        ("utf16.txt", "hello".encode("utf-16"), "begins as UTF-16"),
    ],
)
def test_a_text_that_cannot_be_learned_from_is_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PellucidError, match=said) as caught:
        opened(tmp_path, asked(str(tmp_path / name), "bytes"))
    assert "--replace-errors" not in str(caught.value)  # an option of another command


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (asked("nowhere.txt"), "nowhere.txt"),
        (asked("stories:hard"), r"easy.*hard"),
        (asked("task:copi"), r"copi.*copy"),
        (asked("stories:easy", "bpe"), "data.tokenizer"),
        (asked(__file__, "bpee"), r"bpee.*bpe"),
        (asked(__file__, "bpe", 100), "100"),
    ],
)
def test_what_does_not_exist_is_named(tmp_path: Path, data: DataSettings, said: str) -> None:
    with pytest.raises(PellucidError, match=said):
        opened(tmp_path, data)


def test_an_example_longer_than_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"13 tokens.*8.*context_length=13"):
        opened(tmp_path, asked("task:addition"), 8)


# ---- rows and mixtures

LINES = "".join(f"{'abcdefgh'[i % 8] * (1 + i % 9)}\n" for i in range(400))


def lines(folder: Path, name: str = "a.txt", text: str = LINES) -> str:
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


def test_a_recipe_chooses_the_rows(tmp_path: Path) -> None:
    path = lines(tmp_path)
    for rows, kind in {"windows": Windows, "packed": Packed, "padded": Padded, "streams": Streams}.items():
        source = opened(tmp_path, asked(path, "bytes", split="line", rows=rows))
        batch = source.train.take(4, slice(0, 4))
        assert type(source.train) is kind and (batch.segments is not None) == (rows == "packed")


@pytest.mark.parametrize("tokenizer", ["bytes", "characters"])
def test_documents_are_validated_apart_and_every_token_once(tmp_path: Path, tokenizer: str) -> None:
    data = asked(lines(tmp_path), tokenizer, split="line", validation=0.3)
    windows, *others = (
        opened(tmp_path, replace(data, rows=rows)) for rows in ("windows", "packed", "padded")
    )
    for apart in others:
        assert sorted(judged(apart)[0]) == sorted(judged(windows)[0])
        assert apart.bytes_per_token == windows.bytes_per_token
        check_apart(apart)


def check_apart(apart: Source) -> None:
    """Each segment begins with the token of a beginning, and goes on with its own targets."""
    for batch in apart.validation:
        assert batch.segments is not None
        for ids, targets, segments in zip(batch.ids, batch.targets, batch.segments, strict=True):
            for segment in set(segments[targets != IGNORE_INDEX]):
                here = segments == segment
                assert ids[here][0] == apart.begin and (ids[here][1:] == targets[here][:-1]).all()
                assert set(targets[here][:-1]).isdisjoint({IGNORE_INDEX, apart.end})


def test_a_mixture_draws_rows_by_weight_with_one_tokenizer(tmp_path: Path) -> None:
    paths = (lines(tmp_path, "a.txt", "ab " * 2000), lines(tmp_path, "b.txt", "xy " * 500))
    for rows in ("windows", "packed"):
        data = asked(paths, "bytes", mixture_weights=(0.25, 0.75), rows=rows)
        source = opened(tmp_path, data)
        drawn_ids = source.train.take(400, slice(0, 400)).ids
        texts = [source.tokenizer.decode(row.tolist()) for row in drawn_ids]
        assert abs(sum("x" in text for text in texts) / 400 - 0.75) < 0.1
        decoded = source.tokenizer.decode(judged(source)[0])
        assert decoded.count("a") == 200 and decoded.count("x") == 50
        again = opened(tmp_path, data)  # from the token files
        np.testing.assert_array_equal(again.train.take(8, slice(0, 8)).ids, drawn_ids[:8])
    with pytest.raises(FileError, match="mixture"):
        opened(tmp_path, replace(data, mixture_weights=(), rows="windows"))


def test_folders_of_token_files_are_mixed_where_they_have_one_tokenizer(tmp_path: Path) -> None:
    folders = tuple(str(made_before(documents=count, validation=0.3)) for count in (40, 60))
    source = opened(tmp_path, asked(folders, mixture_weights=(1.0, 1.0)))
    assert isinstance(source.train, Mixture)
    other = tokenizer_folder(tmp_path / "other", "bytes")
    prepare(Corpus([lines(tmp_path)], split="line", validation=0.3), other, tmp_path / "c", workers=1)
    with pytest.raises(ConfigError, match="different tokenizers"):
        opened(tmp_path, asked((folders[0], str(tmp_path / "c")), mixture_weights=(1.0, 1.0)))


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        (("a.txt", "b.txt"), {"mixture_weights": (1.0,)}, "1 weight.* 2 texts"),
        (("a.txt", "b.txt"), {"mixture_weights": (0.0, 0.0)}, "mixture_weights"),
        (("a.txt", "b.txt"), {"mixture_weights": (1.0, math.nan)}, "mixture_weights"),
        (("a.txt", "b.txt"), {"mixture_weights": (1e308, 1e308)}, "mixture_weights"),
        (("a.txt", "b.txt"), {"mixture_weights": (1.0, 1.0), "rows": "padded"}, "windows or packed"),
        (("a.txt", "b.txt"), {"mixture_weights": (1.0, 1.0), "validation": "c.txt"}, "data.validation"),
        (("a.txt", "b.txt"), {"mixture_weights": (1.0, 1.0), "epochs": 2}, "data.epochs=2.*steps"),
        (("a.txt", "stories:easy"), {"mixture_weights": (1.0, 1.0)}, "stories:easy"),
        ("stories:easy", {"rows": "padded"}, "windows or packed"),
        ("task:copy", {"rows": "streams"}, "windows or packed"),
    ],
)
def test_rows_that_do_not_go_with_the_data_are_refused(
    tmp_path: Path, path: str | tuple[str, ...], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(tmp_path, asked(path, **more))


def test_generated_text_can_be_packed(tmp_path: Path) -> None:
    plain, apart = (opened(tmp_path, asked("task:copy", rows=rows), 32) for rows in ("windows", "packed"))
    a, b = (source.train.take(4, slice(0, 4)) for source in (plain, apart))
    np.testing.assert_array_equal(a.ids, b.ids)
    assert a.segments is None and b.segments is not None
    np.testing.assert_array_equal(np.diff(b.segments) == 1, b.ids[:, 1:] == apart.end)
    assert [batch.segments is None for batch in plain.validation] == [True] * len(plain.validation)
    assert next(iter(apart.validation)).segments is not None
