"""An ordinary text for a tokenizer: what is read where none was given, and prompts that can be proposed."""

import re
from collections.abc import Iterator

from pellucid.base.errors import PellucidError
from pellucid.text.tokenizer import Tokenizer

SAMPLE = (
    "The harbour lay quiet in the early morning. A small boat came in from the sea, and an old man tied it "
    "to the wall. He had caught three fish, which he gave to the children who were waiting for him."
)
LISTED = 8
"""Tokens of the vocabulary, at most, of which a text is made where it cannot encode English."""
PROMPT_WORDS = 5
"""Words of a proposed prompt, at most."""
STARTS = (r"[.!?…]['\"”’»)]*\s+(?=\S)", r"\n\s*(?=\S)", r"\s+(?=\S)")
"""Patterns before the beginning of a sentence, of a line and of a word."""


def make_sample(tokenizer: Tokenizer) -> str:
    """Returns a text of two tokens or more that a tokenizer encodes without an unknown one: plain English,
    such words of it as are known, or the first tokens of the vocabulary; "" where there is none.

    >>> from pellucid.text.word_level import WordTokenizer
    >>> make_sample(WordTokenizer(("A", "B", "C", "D"))), make_sample(WordTokenizer(("sea", "A", "the")))
    ('A B C D', 'the A')
    """
    return next((text for text in _list_samples(tokenizer) if _is_ordinary(tokenizer, text, least=2)), "")


def _list_samples(tokenizer: Tokenizer) -> Iterator[str]:
    yield SAMPLE
    yield " ".join(dict.fromkeys(word for word in SAMPLE.split() if _is_ordinary(tokenizer, word)))
    special = {*tokenizer.special_tokens.values(), tokenizer.unknown_id}
    listed = list[int]()
    for id in range(tokenizer.vocab_size):
        text = "" if id in special else tokenizer.decode([id])
        if text.strip() and text.isprintable() and _is_ordinary(tokenizer, text):
            listed.append(id)
        if len(listed) == LISTED:
            break
    yield tokenizer.decode(listed)


def _is_ordinary(tokenizer: Tokenizer, text: str, least: int = 1) -> bool:
    """Returns whether a text has at least `least` tokens, and each is known."""
    try:
        ids = tokenizer.encode(text)
    except PellucidError:
        return False
    return len(ids) >= least and tokenizer.unknown_id not in ids


def propose_prompt(tokenizer: Tokenizer, context_length: int) -> str:
    """Returns a prompt to try a model with: the first words of its sample, with room for what follows.

    >>> from pellucid.text.word_level import WordTokenizer
    >>> propose_prompt(WordTokenizer(("A", "B", "C", "D")), context_length=6)
    'A B C'
    """
    text = first_words(make_sample(tokenizer) + "\n", begins_whole=True)
    return fit_prompt(tokenizer, text, max(1, context_length // 2))


def fit_prompt(tokenizer: Tokenizer, text: str, most: int | None = None) -> str:
    """Returns the first line of a text, of its words as many as have at most `most` tokens; "" where it
    cannot be encoded, or a person cannot type it as one argument of a command."""
    text = next(iter(text.strip().splitlines()), "").strip()
    try:
        while most is not None and len(tokenizer.encode(text)) > most:
            text = text.rpartition(" ")[0]
        return text if text.isprintable() and text[:1] not in "-[" and tokenizer.encode(text) else ""
    except PellucidError:
        return ""


def first_words(text: str, begins_whole: bool) -> str:
    """Returns a few words from the beginning of a sentence, or of a line or a word where none begins.

    The text may begin inside a word, unless it `begins_whole`, and end in one.

    >>> first_words("ul day. She sat in the garden and w", False), first_words("ul day in the w", False)
    ('She sat in the garden', 'day in the')
    """
    found = filter(None, (re.search(start, text) for start in STARTS))
    first = 0 if begins_whole else next((match.end() for match in found), 0)
    line, end, _ = text[first:].partition("\n")
    words = line.split()
    if not end and not line[-1:].isspace() and len(words) > 1:
        del words[-1]
    return " ".join(words[:PROMPT_WORDS])
