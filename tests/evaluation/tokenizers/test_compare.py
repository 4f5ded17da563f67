"""Tokenizers compared: domains add up, chunks change nothing, and the output layer is costed per byte."""

import json
from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import ConfigError, FileError, TokenError, UsageError
from pellucid.config.cost import cost_of_unembedding
from pellucid.evaluation.tokenizers.compare import TokenizerInput, count_document, count_texts
from pellucid.evaluation.tokenizers.counts import count_tokens
from pellucid.formats.resolve import open_tokenizer
from pellucid.text import chunking
from pellucid.text.kinds import train
from pellucid.text.word_level import CharacterTokenizer
from tests.text.sample_texts import STORY


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    (tmp_path / "story.txt").write_text(STORY[:600], newline="")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("one two", newline="")
    (tmp_path / "more" / "b.jsonl").write_text('{"text": "three"}\n{"text": "four"}\n')
    return [str(tmp_path / "story.txt"), str(tmp_path / "more")]


def test_each_given_text_is_a_domain_and_the_domains_add_up(texts: list[str]) -> None:
    found = count_texts([TokenizerInput("bytes", train("bytes", []))], texts).tokenizers[0]
    assert list(found.domains) == texts
    assert found.domains[texts[1]].documents == 3
    assert found.domains[texts[1]].bytes == len("one two" + "three" + "four")
    assert found.total.bytes == found.total.tokens == len(STORY[:600].encode()) + 16
    assert found.unembedding_flops_per_byte is None


def test_the_output_layer_costs_two_operations_a_weight_and_token(texts: list[str]) -> None:
    tokenizer = train("bpe", [STORY], 300)
    cost = cost_of_unembedding(tokenizer.vocab_size, 16)
    assert (cost.parameters, cost.flops) == (300 * 16, 2 * 300 * 16)
    found = count_texts([TokenizerInput("bpe", tokenizer, cost)], texts).tokenizers[0]
    assert found.unembedding_flops_per_byte == pytest.approx(9600 / found.total.bytes_per_token)


def test_a_document_counted_in_chunks_is_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train("bpe", [STORY], 300)
    whole = count_tokens(tokenizer, STORY)
    monkeypatch.setattr(chunking.chunks, "__defaults__", (50,))
    found = count_document(tokenizer, STORY)
    assert (found.documents, found.tokens, found.bytes) == (1, whole.tokens, whole.bytes)
    assert found.script_tokens == pytest.approx(whole.script_tokens)
    assert found.exact_documents == 1


def test_a_tokenizer_that_refuses_a_character_is_compared_all_the_same(texts: list[str]) -> None:
    characters = CharacterTokenizer(tuple("abcdefghijklmnopqrstuvwxyz "))
    found = count_texts([TokenizerInput("letters", characters)], texts)
    use = found.tokenizers[0]
    assert use.refuses and use.vocab_size == 27 and use.total.lost_bytes > 0
    assert "letters: has no unknown token" in str(found)
    assert use.domains[texts[1]].refused_documents == 0


def test_a_tokenizer_without_an_unknown_token_has_none_and_refuses_documents(texts: list[str]) -> None:
    characters = CharacterTokenizer(tuple("abcdefghijklmnopqrstuvwxyz "))
    names = "letters", "letters and another"
    found = count_texts(
        [TokenizerInput(names[0], characters), TokenizerInput(names[1], characters.with_unknown())], texts
    )
    plain, complete = found.tokenizers
    assert plain.total.unknown == 0 < complete.total.unknown
    assert plain.total.refused_documents == 1 and complete.total.refused_documents == 0
    with pytest.raises(TokenError):
        characters.encode(Path(texts[0]).read_text())
    data = plain.to_data()
    assert (data["unknown_tokens"], data["documents_refused"]) == (0, 1)


def test_generated_stories_are_a_domain() -> None:
    found = count_texts([TokenizerInput("bytes", train("bytes", []))], ["stories:tiny"])
    assert found.tokenizers[0].total.documents == 512
    with pytest.raises(ConfigError):
        count_texts([TokenizerInput("bytes", train("bytes", []))], ["stories:endless"])


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = TokenizerInput("bytes", train("bytes", []))
    for tokenizers, texts in (([], ["stories"]), ([one], []), ([one, one], ["stories"])):
        with pytest.raises(UsageError):
            count_texts(tokenizers, texts)
    with pytest.raises(FileError):
        count_texts([one], [str(tmp_path / "nowhere.txt")])


def test_the_data_is_json_with_a_format_number(texts: list[str]) -> None:
    words = train("words", [STORY], 50)
    data = count_texts([TokenizerInput("words", words)], texts).to_data()
    again = json.loads(json.dumps(data, allow_nan=False))
    assert (again["format"], again["version"]) == ("pellucid-tokenizer-comparison", 1)
    scripts = again["tokenizers"][0]["scripts"].values()
    assert sum(script["bytes"] for script in scripts) == again["tokenizers"][0]["bytes"]


def test_a_file_without_a_decoder_is_compared(texts: list[str], tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"e": 0, "ee": 1}, "merges": [["e", "e"]]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "decoder": None, "model": model}))
    tokenizer = open_tokenizer(path)
    found = count_texts([TokenizerInput("bpe", tokenizer)], texts[1:]).tokenizers[0].total
    assert found.tokens == 2 and found.lost_bytes == found.bytes - 3  # the "e" of "one", the "ee" of "three"


# ---- by their names


TEXT = "A B C D A"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def test_a_model_brings_its_tokenizer_and_its_output_layer(text: Path) -> None:
    abcd, plain = pellucid.compare_tokenizers("abcd", "bytes", on=[text]).tokenizers
    config = pellucid.load("abcd").config
    assert (abcd.total.tokens, abcd.vocab_size) == (5, 4)
    assert abcd.unembedding and abcd.unembedding.parameters == config.vocab_size * config.d_model
    assert plain.unembedding is None and plain.total.tokens == len(TEXT)


def test_a_given_width_costs_every_tokenizer(text: Path, tmp_path: Path) -> None:
    train("characters", [TEXT]).save(tmp_path / "letters")
    found = pellucid.compare_tokenizers(tmp_path / "letters", "abcd", "bytes", on=text, d_model=10)
    parameters = [one.unembedding and one.unembedding.parameters for one in found.tokenizers]
    assert parameters == [10 * one.vocab_size for one in found.tokenizers]


def test_what_is_not_a_tokenizer_is_refused(text: Path) -> None:
    for name in ("gpt2", str(text), "nowhere"):
        with pytest.raises(pellucid.PellucidError):
            pellucid.compare_tokenizers(name, on=[text])
    with pytest.raises(pellucid.PellucidError):
        pellucid.compare_tokenizers("bytes", on=[text], d_model=0)
