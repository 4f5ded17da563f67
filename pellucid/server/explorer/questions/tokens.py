"""`tokens`: the tokens of a text with their bytes, and how each word was divided into them."""

from dataclasses import asdict
from typing import Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.schema import Length
from pellucid.server.explorer.session import Session
from pellucid.text.token_derivation import WordSplit, WordSplitter, list_tokens, make_splitter

MOST_TOKENS = 2048
"""Tokens that one answer lists."""
MOST_WORDS, MOST_LETTERS = 64, 64
"""Words that are divided, and the letters of a word up to which it is."""
MOST_PIECES = 16_384
"""Pieces that the rows of all words show together."""


def answer(session: Session, text: Annotated[str, Length(4096)]) -> dict[str, Any]:
    """Returns the tokens of a text: id, label, bytes in hexadecimal and byte offsets; and of its first words
    how each was divided. What a long text has beyond that is counted. `gradients` is what gradients of a
    prompt of that many tokens would take, as the question session has it."""
    if session.model is None or session.model.pretrained.tokenizer is None:
        raise UsageError("there is no tokenizer here: open a model that has one.")
    tokenizer = session.model.pretrained.tokenizer
    tokens = list_tokens(tokenizer, text)
    listed = [
        {"id": one.id, "label": one.label, "bytes": one.data.hex(" "), "start": one.start, "end": one.end}
        for one in tokens[:MOST_TOKENS]
    ]
    splitter = make_splitter(tokenizer)
    words = splitter.words(text)
    splits = _split(splitter, words)
    return {
        "kind": tokenizer.kind,
        "characters": len(text),
        "bytes": len(text.encode()),
        "count": len(tokens),
        "tokens": listed,
        "words": splits,
        "omitted": len(words) - len(splits),
        "gradients": session.estimate_gradients(len(tokens)),
    }


def _split(splitter: WordSplitter, words: list[str]) -> list[dict[str, Any]]:
    """Returns how the first words were divided, until their rows show as many pieces as an answer may hold;
    a word of too many letters is named alone."""
    splits, room = list[WordSplit](), MOST_PIECES
    for word in words[:MOST_WORDS]:
        if splitter.split is None or room <= 0:
            break
        if len(word) > MOST_LETTERS:
            splits.append(WordSplit(splitter.show(word)[:MOST_LETTERS] + "…", "too long", [], [], []))
            continue
        splits.append(splitter.split(word))
        room -= len(word) + sum(len(row.get("pieces", "1")) for row in splits[-1].rows)
    return [asdict(split) for split in splits]
