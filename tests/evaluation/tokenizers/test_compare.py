"""`pellucid.compare_tokenizers` takes what the commands take, and costs a model's own output layer."""

from pathlib import Path

import pytest

import pellucid
from pellucid.text.kinds import train

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
