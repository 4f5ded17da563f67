"""Tokenizer, chat template and generation settings beside the weights: read in every spelling, and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError
from pellucid.formats import model_folder
from pellucid.formats.companions import read_companions
from pellucid.formats.huggingface import read, write
from tests.formats.huggingface.models import random_model
from tests.formats.tokenizers import TEMPLATE, bpe_file, vocabulary

TEXT = "the thin thing"
CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def opened(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def saved(folder: Path) -> Path:
    _, writer = random_model("llama", 0)
    return writer(folder)


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    found = read_companions(tmp_path, {})
    assert (found.tokenizer, found.chat_template, found.add_bos, found.generation) == (None, None, False, {})


def test_the_tokenizer_gives_the_ids_of_transformers(tmp_path: Path) -> None:
    tokenizer = read_companions(bpe_file(tmp_path), {}).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode(TEXT) == opened(tmp_path)(TEXT, add_special_tokens=False)["input_ids"]
    assert (tokenizer.special.bos, tokenizer.special.eos, tokenizer.special.pad) == ("<s>", "</s>", "<pad>")


def test_gpt2s_two_files_are_a_tokenizer(tmp_path: Path) -> None:
    vocab, merges = vocabulary()
    (tmp_path / "vocab.json").write_text(json.dumps(vocab | {"<|endoftext|>": len(vocab)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n")
    found = read_companions(tmp_path, {})
    assert found.tokenizer is not None and found.tokenizer.special.eos == "<|endoftext|>"
    assert [found.tokenizer.token(id) for id in found.tokenizer.encode("then")] == ["the", "n"]
    assert not found.add_bos


@pytest.mark.parametrize(
    ("processor", "settings", "adds"),
    [
        (None, {}, False),
        (None, {"add_bos_token": True}, True),
        (None, {"add_bos_token": False}, False),
        (TEMPLATE, {}, True),
        (TEMPLATE, {"add_bos_token": False}, True),  # as transformers 5 has it: the file's template decides
        ({"type": "Sequence", "processors": [TEMPLATE]}, {}, True),
        (TEMPLATE | {"single": TEMPLATE["single"][1:]}, {"add_bos_token": True}, False),  # type: ignore[index]
    ],
)
def test_whether_a_text_begins_with_bos(
    tmp_path: Path, processor: dict[str, Any] | None, settings: dict[str, Any], adds: bool
) -> None:
    folder = bpe_file(tmp_path, processor, **settings)
    assert read_companions(folder, {}).add_bos is adds
    if processor is not None:
        assert (opened(folder)("the")["input_ids"][0] == 259) is adds


@pytest.mark.parametrize("processor", [None, {"type": "ByteLevel", "trim_offsets": False}])
def test_an_export_begins_texts_with_bos_in_transformers_too(
    tmp_path: Path, processor: dict[str, Any] | None
) -> None:
    if processor:
        processor |= {"add_prefix_space": True, "use_regex": True}
    pretrained = read(bpe_file(saved(tmp_path / "a"), processor, add_bos_token=True))
    assert pretrained.add_bos and pretrained.tokenizer is not None
    write(tmp_path / "b", pretrained)
    assert opened(tmp_path / "b")(TEXT)["input_ids"] == [259, *pretrained.tokenizer.encode(TEXT)]
    assert read(tmp_path / "b").add_bos


@pytest.mark.parametrize(
    ("settings", "template"),
    [
        ({"chat_template": CHAT}, CHAT),
        ({"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": CHAT}]}, CHAT),
        ({"chat_template": [{"name": "tool", "template": "x"}]}, None),
        ({}, None),
    ],
)
def test_the_chat_template_is_found_in_the_settings(
    tmp_path: Path, settings: dict[str, Any], template: str | None
) -> None:
    assert read_companions(bpe_file(tmp_path, **settings), {}).chat_template == template


def test_a_template_file_is_preferred_and_both_kinds_of_folder_keep_everything(tmp_path: Path) -> None:
    folder = bpe_file(saved(tmp_path / "a"), TEMPLATE, chat_template="old")
    (folder / "chat_template.jinja").write_text(CHAT)
    (folder / "generation_config.json").write_text(
        '{"eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.9}'
    )
    first = read(folder)
    assert first.chat_template == CHAT
    assert first.generation == {"bos_token_id": 1, "eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.9}
    write(tmp_path / "b", first)
    model_folder.write(tmp_path / "c", first)
    for again in (read(tmp_path / "b"), model_folder.read(tmp_path / "c")):
        assert again.chat_template == CHAT and again.add_bos
        assert again.generation == first.generation
        assert again.tokenizer is not None and first.tokenizer is not None
        assert again.tokenizer.encode(TEXT) == first.tokenizer.encode(TEXT)
        assert again.tokenizer.special == first.tokenizer.special
    theirs = opened(tmp_path / "b")
    said = theirs.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert (theirs.chat_template, said) == (CHAT, "hi")


def test_ids_of_special_tokens_name_those_that_the_settings_leave_out(tmp_path: Path) -> None:
    folder = bpe_file(tmp_path)
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = read_companions(folder, {"bos_token_id": 259, "eos_token_id": [260, 5]}).tokenizer
    assert tokenizer is not None
    assert (tokenizer.special.bos, tokenizer.special.eos, tokenizer.special.pad) == ("<s>", "</s>", None)


def test_generation_settings_have_the_last_word_on_ids(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(
        '{"eos_token_id": 7, "transformers_version": "5", "_from_model_config": true}'
    )
    assert read_companions(tmp_path, {"bos_token_id": 1, "eos_token_id": 2}).generation == {
        "bos_token_id": 1,
        "eos_token_id": 7,
    }


@pytest.mark.parametrize("place", ["vocab", "added"])
def test_an_id_beyond_any_vocabulary_is_refused_before_memory_is_taken_for_it(
    tmp_path: Path, place: str
) -> None:
    table = json.loads((bpe_file(tmp_path) / "tokenizer.json").read_text())
    if place == "vocab":
        table["model"]["vocab"]["t"] = 2**31
    else:
        table["added_tokens"][0]["id"] = 2**31
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(FileError, match="2147483648"):
        read_companions(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is 'x'"),
        ("generation_config.json", "[]", "not a table"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template is 3"),
        ("tokenizer.json", "{}", "not a tokenizer that can be used"),
        (
            "tokenizer.json",
            '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": {}}}',
            "tokenizer",
        ),
    ],
)
def test_damaged_companions_are_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    bpe_file(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=complaint):
        read_companions(tmp_path, {})
