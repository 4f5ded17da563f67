"""Random walks through a constraint, as the worst model would take them."""

import random
from collections.abc import Callable
from functools import cache

import numpy as np

from pellucid.data.generated.stories import stories
from pellucid.data.sources.generated import spaced_words
from pellucid.generation.constraints.token_mask import Constraint
from pellucid.text import kinds
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer

SPECIAL = Special(bos="<end>", eos="<end>", pad="<pad>")
LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:!?"-+{}[]\\é日'


@cache
def _train(kind: str, size: int) -> Tokenizer:
    texts = [story.text for story in stories("tiny", 0, count=60)]
    return kinds.train(kind, [*texts, '{"name": "Ann", "age": 30}'], size)


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": lambda: _train("bytes", 258),
    "bpe": lambda: _train("bpe", 400),
    "unigram": lambda: _train("unigram", 400),
    "wordpiece": lambda: _train("wordpiece", 200),
    "characters": lambda: CharacterTokenizer(("<end>", "<pad>", *LETTERS), SPECIAL),
    "words": lambda: WordTokenizer(
        ("<end>", "<pad>", "<unk>", "red", "green", "ab", "12", "{}"), SPECIAL, "<unk>"
    ),
    "stories": lambda: spaced_words("tiny"),
}
"""Every kind of tokenizer of ours."""
Prefer = Callable[[random.Random, Constraint, int, list[int], int], int]


def any_token(rng: random.Random, constraint: Constraint, state: int, ids: list[int], remaining: int) -> int:
    return rng.choice(ids)


def farthest_token(
    rng: random.Random, constraint: Constraint, state: int, ids: list[int], remaining: int
) -> int:
    """Returns the token after which most tokens are still needed: the model that never wants to end."""
    going_on = [id for id in ids if id not in constraint.stop_ids]
    needed = {id: constraint.count_needed(constraint.advance(state, id)) for id in going_on[:50]}
    return max(needed, key=needed.__getitem__, default=ids[0])


def walk(constraint: Constraint, limit: int, rng: random.Random, prefer: Prefer = any_token) -> list[int]:
    """Returns tokens of the masks, without a stop token, until the constraint or the limit ends them."""
    state, chosen = constraint.start, list[int]()
    while len(chosen) < limit and not constraint.must_end(state, limit - len(chosen)):
        mask = constraint.compute_mask(state, limit - len(chosen))
        ids = np.flatnonzero(mask).tolist()
        id = prefer(rng, constraint, state, ids, limit - len(chosen))
        assert mask[id]
        state = constraint.advance(state, id)
        if id in constraint.stop_ids:
            break
        chosen.append(id)
    assert constraint.is_complete(state)
    return chosen
