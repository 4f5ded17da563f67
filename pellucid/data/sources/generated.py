"""Text that is generated during training: stories of a grammar, and formal tasks. It never comes twice.

A piece is one story or one example, as ids and targets: <end> and its tokens, against its tokens and <end>.
A row begins with a piece and is filled with further ones; what does not fit is omitted, so every target has
all that comes before it. Where a piece may be longer than a row, rows begin at a random place of one, so that
all of it is trained on.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pellucid.base.errors import ConfigError, unknown
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.generated import tasks
from pellucid.data.generated.formal_task import TaskExample
from pellucid.data.permutation import derive_keys
from pellucid.data.rows import Batch, Rows, check_length
from pellucid.data.shard import Ids
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer, make_file
from pellucid.text.word_level import CharacterTokenizer, WordTokenizer

if TYPE_CHECKING:
    from pellucid.data.generated.stories import Story

GENERATED = ("stories", "task")
"""Kinds of text that are generated while the model trains, such as `task:copy`."""
END, UNKNOWN = "<end>", "<unk>"
HELD_OUT = 2**63
"""The seed of the held-out stories, the same for every run; runs have smaller seeds."""
STORIES, EXAMPLES = 512, 1024
"""The numbers of held-out stories and of held-out examples of a task."""
SAMPLE = 5000
"""Stories in which bigrams are counted."""
COPIES = 10**6
"""Where there are fewer different stories than this, held-out ones are trained on as well: all repeat."""

Piece = tuple[Ids, Ids]
Pieces = Callable[[int], Iterator[Piece]]
"""Returns endless pieces, from a number on."""


@dataclass(frozen=True)
class GeneratedData:
    """Training rows and held-out pieces; `text_bytes` are those of the held-out pieces."""

    tokenizer: Tokenizer
    train: "GeneratedRows"
    held_out: list[Piece]
    text_bytes: int | None
    entropy_floor: float
    bigram_baseline: float | None
    description: str
    prompt: str = ""
    """A held-out problem."""


class GeneratedRows(Rows):
    """Row n holds the pieces n · length, n · length + 1, …, of which more than `length` never fit. With
    `is_packed`, each piece is a segment."""

    def __init__(
        self, pieces: Pieces, length: int, seed: int, longest: int, name: str, is_packed: bool = False
    ) -> None:
        check_length(length)
        self.pieces, self.length, self.seed, self.longest = pieces, length, seed, longest
        self.is_packed = is_packed
        self._name = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")

    def take(self, count: int, local: slice) -> Batch:
        rows = [self._generate(row) for row in range(self.row + local.start, self.row + local.stop)]
        self.row += count
        ids, targets, segments = np.array(rows, np.int64).reshape(len(rows), 3, self.length).swapaxes(0, 1)
        return Batch(ids.copy(), targets.copy(), segments.copy() if self.is_packed else None)

    def _generate(self, row: int) -> tuple[Ids, Ids, Ids]:
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
        segments = np.repeat(np.arange(len(ids)), [len(piece) for piece in ids])
        here = slice(self.length)
        return np.concatenate(ids)[here], np.concatenate(targets)[here], segments[here]

    def identity(self) -> dict[str, int]:
        return {"made_of": self._name, "length": self.length, "seed": self.seed}


# ---- stories: the grammar is imported where a text is one of its

_WORD = r"(?:'s\b|[A-Za-z]+(?:-[A-Za-z]+)*|[^\sA-Za-z])"
_BARE = re.compile(r"['.,!?;:]")
"""Marks that follow a word without a space."""


def spaced_words(level: str) -> StandardTokenizer:
    """Returns the tokenizer of a level: words and marks, each with the space before it, so that a text is the
    concatenation of its tokens.

    It finds as many tokens as `words_of`. Words that can begin a story or a quotation also have a token
    without the space.

    >>> tokenizer = spaced_words("tiny")
    >>> [tokenizer.token(id) for id in tokenizer.encode("Once there was a hen.")]
    ['Once', ' there', ' was', ' a', ' hen', '.']
    """
    from pellucid.data.generated import stories as corpus

    tokens = dict.fromkeys([END, UNKNOWN])
    quoted = _after_a_quote(level)
    for word in corpus.vocabulary(level):
        if word == '"' or word[0].isupper() or word in quoted or _BARE.match(word):
            tokens[word] = None
        if not _BARE.match(word):
            tokens[" " + word] = None
    vocab = {token: id for id, token in enumerate(tokens)}
    pattern = {"Regex": " ?" + _WORD}
    words = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": UNKNOWN}
    file = make_file(model, vocab, [END], words, {"type": "Fuse"})
    return StandardTokenizer(json.dumps(file, ensure_ascii=False), Special(END, END), "words")


def _after_a_quote(level: str) -> set[str]:
    """Returns the words in lower case that can follow an opening quotation mark."""
    from pellucid.data.generated.stories.levels import grammar

    texts = (atom.text for _, _, option in grammar(level).options() for atom in option.template.atoms)
    return {word for text in texts for word in re.findall(r'"([a-z-]+)', text)}


@cache
def _open_level(level: str) -> tuple[StandardTokenizer, tuple["Story", ...], float]:
    """Returns what does not depend on the run: tokenizer, held-out stories and bigram baseline."""
    from pellucid.data.generated import stories as corpus

    held_out = tuple(corpus.stories(level, HELD_OUT, count=STORIES))
    return spaced_words(level), held_out, corpus.baselines(corpus.stories(level, 0, count=SAMPLE)).bigram


def open_stories(level: str, length: int, seed: int, is_packed: bool = False) -> GeneratedData:
    """Returns the stories of a level of the grammar."""
    from pellucid.data.generated import stories as corpus

    if level not in corpus.LEVELS:
        raise ConfigError(unknown("the level of stories", level, corpus.LEVELS))
    tokenizer, held_out, bigram = _open_level(level)
    end, word = tokenizer.id_of(END), re.compile(" ?" + _WORD)
    table = {tokenizer.token(id): id for id in range(tokenizer.vocab_size)}

    def piece(text: str) -> Piece:
        # The same ids as the tokenizer's, many times faster.
        ids = np.array([end, *(table[token] for token in word.findall(text)), end], np.int64)
        return ids[:-1], ids[1:]

    many = corpus.count_stories(level)
    kept_back = {story.text for story in held_out} if many > COPIES else set()

    def pieces(first: int) -> Iterator[Piece]:
        for story in corpus.stories(level, seed, first, block=4):
            if story.text not in kept_back:
                yield piece(story.text)

    longest, _ = corpus.longest(level)
    floor = corpus.entropy_floor(held_out, [corpus.n_words(story.text) for story in held_out]).nats_per_token
    cut = f"; a story has up to {longest + 1} tokens, and a row {length}: the entropy floor is out of reach"
    description = (
        f"stories, {level}: {many:.3g} different ones, generated without end; {STORIES} held out, with an "
        f"entropy floor of {floor:.4f} nats per word (over all stories "
        f"{corpus.entropy(level) / (corpus.mean_words(level) + 1):.4f}) and a bigram baseline of {bigram:.4f}"
        + cut
        * (longest + 1 > length)
    )
    return GeneratedData(
        tokenizer,
        GeneratedRows(pieces, length, seed, longest + 1, f"stories:{level}", is_packed),
        [piece(story.text) for story in held_out],
        sum(len(story.text.encode()) for story in held_out),
        floor,
        bigram,
        description,
    )


# ---- formal tasks


def open_task(kind: str, length: int, seed: int, is_packed: bool = False) -> GeneratedData:
    """Returns the examples of a task, of which the answer and its <end> count."""
    chosen = tasks.find(kind)()
    words = (END, *chosen.vocabulary)
    listed = WordTokenizer if any(len(token) > 1 for token in chosen.vocabulary) else CharacterTokenizer
    tokenizer = listed(words, Special(END, END))

    def piece(example: TaskExample) -> Piece:
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
        f"{kind}: examples generated without end, {chosen.held_out:.0%} of all problems held out; only "
        f"answers count, with an entropy floor of {chosen.answer_entropy:g}"
    )
    train = GeneratedRows(pieces, length, seed, longest, f"{chosen!r}", is_packed)
    return GeneratedData(
        tokenizer, train, held_out, None, chosen.answer_entropy, None, description, problems[0].prompt
    )
