"""A single byte that a file calls special is beyond tiktoken, which panics at a byte it does not know."""

import json

from pellucid.text import alphabet
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special


def test_a_special_byte_leaves_the_text_to_the_other_library() -> None:
    vocab = {letter: id for id, letter in enumerate(alphabet.BYTE)}
    tokenizer = StandardTokenizer(json.dumps(byte_level_bpe(vocab, [], ["t"])), Special())
    assert tokenizer.split is None
    assert tokenizer.decode(tokenizer.encode("the cat 12")) == "the cat 12"
