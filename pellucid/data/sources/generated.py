"""Text that is made while the model learns: stories by a grammar, and formal tasks. It never comes twice.

A piece is one story or one example, as ids and what should follow each of them: <end> and its tokens,
against its tokens and <end>. A row begins with a piece and is filled with further ones; what does not fit is
left out, so every target has all that comes before it. Where a piece may be longer than a row, rows
begin somewhere inside one, so that all of it is seen.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from pellucid.corpora import stories as corpus
from pellucid.corpora import tasks
from pellucid.corpora.stories.levels import grammar
from pellucid.data.permutation import derive_keys
from pellucid.data.rows import Batch, Rows, check_length
from pellucid.data.shard import Ids
from pellucid.errors import ConfigError, did_you_mean
from pellucid.names import IGNORE_INDEX
from pellucid.text.characters import CharacterTokenizer
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.text.words import WordTokenizer

GENERATED = ("stories", "task")
"""Kinds of text that are generated while the model trains, such as `task:copy`."""
END, UNKNOWN = "<end>", "<unk>"
HELD_OUT = 2**63
"""The seed of the stories that are held out, for every run the same; runs have smaller ones."""
STORIES, EXAMPLES = 512, 1024
"""How many are held out."""
SAMPLE = 5000
"""Stories in which the pairs of words are counted."""
COPIES = 10**6
"""Of fewer stories than this, every one comes again and again, and none can be kept from training."""

Piece = tuple[Ids, Ids]
Pieces = Callable[[int], Iterator[Piece]]
"""Endless pieces, from a number on."""


@dataclass(frozen=True)
class Made:
    """What a source of this sort consists of; `text_bytes` are those of the held-out pieces."""

    tokenizer: Tokenizer
    train: "Generated"
    held_out: list[Piece]
    text_bytes: int | None
    floor: float
    fence: float | None
    description: str
    prompt: str = ""
    """A problem that is held out."""


class Generated(Rows):
    """Row n is made of the pieces n · length, n · length + 1, …: more than `length` never fit."""

    def __init__(self, pieces: Pieces, length: int, seed: int, longest: int, name: str) -> None:
        check_length(length)
        self.pieces, self.length, self.seed, self.longest, self.row = pieces, length, seed, longest, 0
        self._name = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")

    def take(self, count: int, local: slice) -> Batch:
        rows = [self._made(row) for row in range(self.row + local.start, self.row + local.stop)]
        self.row += count
        both = np.array(rows, np.int64).reshape(len(rows), 2, self.length)
        return Batch(both[:, 0].copy(), both[:, 1].copy())

    def _made(self, row: int) -> tuple[Ids, Ids]:
        ids, targets, size = list[Ids](), list[Ids](), 0
        for piece, wanted in self.pieces(row * self.length):
            first = 0
            if not size and self.longest > self.length:
                first = derive_keys(self.seed, row, 5, count=1)[0] % len(piece)
            ids.append(piece[first:])
            targets.append(wanted[first:])
            size += len(piece) - first
            if size >= self.length:
                break
        return np.concatenate(ids)[: self.length], np.concatenate(targets)[: self.length]

    def state(self) -> dict[str, int]:
        return {"row": self.row}

    def restore(self, state: dict[str, int]) -> None:
        self.row = state["row"]

    def identity(self) -> dict[str, int]:
        return {"made_of": self._name, "length": self.length, "seed": self.seed}


def packed(pieces: Iterable[Piece], length: int) -> list[Piece]:
    """Rows that hold every piece once, whole where it fits; each row as long as what it holds.

    >>> a, b = np.arange(2), np.arange(3)
    >>> [ids.tolist() for ids, _ in packed([(a, a), (a, a), (b, b)], 4)]
    [[0, 1, 0, 1], [0, 1, 2]]
    """
    rows: list[list[Piece]] = []
    left = 0
    for ids, targets in pieces:
        for start in range(0, len(ids), length):
            part = ids[start : start + length], targets[start : start + length]
            if len(part[0]) > left:
                rows.append([])
                left = length
            rows[-1].append(part)
            left -= len(part[0])
    return [(np.concatenate([i for i, _ in row]), np.concatenate([t for _, t in row])) for row in rows]


# ---- stories

_WORD = r"(?:'s\b|[A-Za-z]+(?:-[A-Za-z]+)*|[^\sA-Za-z])"
_BARE = re.compile(r"['.,!?;:]")
"""What always holds on to the word before."""


def spaced_words(level: str) -> StandardTokenizer:
    """Words and marks, each with the space before it: a text is the text of its tokens, one after the other.

    As many tokens as `words_of` finds. A word stands without its space where a story or a quotation begins,
    which a word in capitals may do, and a few others.

    >>> tokenizer = spaced_words("tiny")
    >>> [tokenizer.token(id) for id in tokenizer.encode("Once there was a hen.")]
    ['Once', ' there', ' was', ' a', ' hen', '.']
    """
    tokens = dict.fromkeys([END, UNKNOWN])
    quoted = _after_a_quote(level)
    for word in corpus.vocabulary(level):
        if word == '"' or word[0].isupper() or word in quoted or _BARE.match(word):
            tokens[word] = None
        if not _BARE.match(word):
            tokens[" " + word] = None
    vocab = {token: id for id, token in enumerate(tokens)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[END], "content": END} | flags],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": " ?" + _WORD},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": UNKNOWN},
    }
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), Special(END, END), "words")


def _after_a_quote(level: str) -> set[str]:
    """Small words with which a quotation goes on, after "she said" for example."""
    texts = (atom.text for _, _, option in grammar(level).options() for atom in option.template.atoms)
    return {word for text in texts for word in re.findall(r'"([a-z-]+)', text)}


@cache
def _known(level: str) -> tuple[StandardTokenizer, tuple[corpus.Story, ...], float]:
    """What does not depend on the run: the tokenizer, what is held out, and the entropy of pairs of words."""
    held_out = tuple(corpus.stories(level, HELD_OUT, count=STORIES))
    return spaced_words(level), held_out, corpus.baselines(corpus.stories(level, 0, count=SAMPLE)).bigram


def stories(level: str, length: int, seed: int) -> Made:
    if level not in corpus.LEVELS:
        raise ConfigError(
            f"stories have no level {level!r}; have {', '.join(corpus.LEVELS)}."
            + did_you_mean(level, corpus.LEVELS)
        )
    tokenizer, held_out, fence = _known(level)
    end, word = tokenizer.id_of(END), re.compile(" ?" + _WORD)
    table = {tokenizer.token(id): id for id in range(tokenizer.vocab_size)}

    def piece(text: str) -> Piece:
        # The tokenizer's ids, many times faster than it has them.
        ids = np.array([end, *(table[token] for token in word.findall(text)), end], np.int64)
        return ids[:-1], ids[1:]

    many = corpus.count_stories(level)
    kept_back = {story.text for story in held_out} if many > COPIES else set()

    def pieces(first: int) -> Iterator[Piece]:
        for story in corpus.stories(level, seed, first, block=4):
            if story.text not in kept_back:
                yield piece(story.text)

    longest, _ = corpus.longest(level)
    limit = corpus.entropy_floor(held_out, [corpus.n_words(story.text) for story in held_out]).nats_per_token
    cut = f"; a story has up to {longest + 1} tokens, and a row {length}: the limit is out of reach"
    description = (
        f"stories, {level}: {many:.3g} different ones, made without end; {STORIES} held out, on which no "
        f"model can do better than {limit:.4f} nats per word (over all stories "
        f"{corpus.entropy(level) / (corpus.mean_words(level) + 1):.4f}), and pairs of words give {fence:.4f}"
        + cut
        * (longest + 1 > length)
    )
    return Made(
        tokenizer,
        Generated(pieces, length, seed, longest + 1, f"stories:{level}"),
        [piece(story.text) for story in held_out],
        sum(len(story.text.encode()) for story in held_out),
        limit,
        fence,
        description,
    )


# ---- formal tasks


def task(kind: str, length: int, seed: int) -> Made:
    """Examples of a task: what counts is the answer and its <end>, of which nothing is left to chance."""
    chosen = tasks.find(kind)()
    words = (END, *chosen.vocabulary)
    listed = WordTokenizer if any(len(token) > 1 for token in chosen.vocabulary) else CharacterTokenizer
    tokenizer = listed(words, Special(END, END))

    def piece(example: tasks.Example) -> Piece:
        prompt, answer = tokenizer.encode(example.prompt), tokenizer.encode(example.answer)
        ids = np.array([0, *prompt, *answer, 0], np.int64)
        targets = ids[1:].copy()
        targets[: len(prompt)] = IGNORE_INDEX
        return ids[:-1], targets

    def pieces(first: int) -> Iterator[Piece]:
        while True:
            yield piece(chosen.example(seed, first))
            first += 1

    longest = chosen.longest + 1
    if longest > length:
        raise ConfigError(
            f"an example of {kind} has up to {longest} tokens, and a row {length}: use "
            f"model.context_length={longest} or more."
        )
    problems = [chosen.example(0, number, "validation") for number in range(EXAMPLES)]
    held_out = [piece(problem) for problem in problems]
    description = (
        f"{kind}: examples made without end, {chosen.held_out:.0%} of all problems held out; only answers "
        "count, and whoever knows how loses nothing"
    )
    train = Generated(pieces, length, seed, longest, f"{chosen!r}")
    return Made(
        tokenizer, train, held_out, None, chosen.answer_entropy, None, description, problems[0].prompt
    )
