"""A sample is a text that the tokenizer encodes, and a proposed prompt its first words."""

import shlex

import pytest

import pellucid
from pellucid.base.errors import UsageError
from pellucid.text.kinds import train
from pellucid.text.sample import SAMPLE, first_words, fit_prompt, make_sample, propose_prompt
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer

ABCD = WordTokenizer(("A", "B", "C", "D"))
TOKENIZERS = {
    "bytes": (train("bpe", ["a b"], 300), SAMPLE),
    "words": (ABCD, "A B C D"),
    "English words": (WordTokenizer(("A", "<unk>", "sea", "the", "man"), unknown="<unk>"), "the A man"),
    "special": (WordTokenizer(("<s>", "B", "</s>", "C"), Special("<s>", "</s>")), "B C"),
    "digits": (CharacterTokenizer(tuple("\n0123456789+=")), "01234567"),
    "one token": (WordTokenizer(("A",)), ""),
    "no text": (WordTokenizer(("<s>", "</s>"), Special("<s>", "</s>")), ""),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_sample_is_encoded_without_an_unknown_or_special_token(kind: str) -> None:
    tokenizer, text = TOKENIZERS[kind]
    assert make_sample(tokenizer) == text
    ids = tokenizer.encode(text)
    assert not {tokenizer.unknown_id, *tokenizer.special_tokens.values()} & set(ids)


@pytest.mark.parametrize(
    ("tokenizer", "context", "prompt"),
    [
        (TOKENIZERS["bytes"][0], 1024, "The harbour lay quiet in"),
        (ABCD, 16, "A B C D"),
        (ABCD, 4, "A B"),
        (ABCD, 1, "A"),
        (TOKENIZERS["no text"][0], 16, ""),
    ],
)
def test_a_proposed_prompt_is_ordinary_and_leaves_room(
    tokenizer: Tokenizer, context: int, prompt: str
) -> None:
    assert propose_prompt(tokenizer, context) == prompt


@pytest.mark.parametrize(
    ("text", "prompt"), [("A B\nC", "A B"), ("-A", ""), ("[1]", ""), ("A\x00", ""), ("E", ""), ("", "")]
)
def test_a_text_that_cannot_be_typed_or_encoded_is_not_proposed(text: str, prompt: str) -> None:
    assert fit_prompt(ABCD, text) == prompt


def test_commands_propose_a_prompt_that_they_accept() -> None:
    """The first two tokens of a vocabulary are often special ones, which no text encodes."""
    tokenizer = WordTokenizer(("<s>", "</s>", "B", "C"), Special("<s>", "</s>"))
    config = pellucid.ModelConfig(vocab_size=4, context_length=8, n_layer=1, n_head=1, d_model=4)
    model = pellucid.Model.from_config(config, tokenizer=tokenizer)
    for ask in (lambda: pellucid.explain(model), lambda: pellucid.compare(model, model)):
        with pytest.raises(UsageError, match="for example: pellucid") as refused:
            ask()
        assert shlex.split(str(refused.value))[-1] == "B C"
    bare = pellucid.Model.from_config(config)
    with pytest.raises(UsageError, match=r"'\[0, 1\]'"):
        pellucid.explain(bare)


@pytest.mark.parametrize(
    ("text", "begins_whole", "words"),
    [
        ("e cat. “Where is it?” she said.\nThe d", False, "“Where is it?” she said."),
        ("?\n\nGREMIO:\nGood morrow, neighbour", False, "GREMIO:"),
        ("rst line\n  the second line goes on an", False, "the second line goes on"),
        ("lf a word and more of th", False, "a word and more of"),
        ("Once there lived a cheerful dog. It w", True, "Once there lived a cheerful"),
        ("吾輩は猫である", False, "吾輩は猫である"),
        ("", False, ""),
    ],
)
def test_a_proposed_prompt_begins_and_ends_with_a_word(text: str, begins_whole: bool, words: str) -> None:
    assert first_words(text, begins_whole) == words
