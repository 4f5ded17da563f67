"""Conversations to learn from: written by the model's chat template, and only the assistant's words count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.data import chat_records
from pellucid.data.permutation import Permutation
from pellucid.data.shard import Ids
from pellucid.errors import ConfigError, PellucidError
from pellucid.names import IGNORE_INDEX
from pellucid.pretrained import Pretrained
from pellucid.text.chat import Chat, EncodedChat

Piece = tuple[Ids, Ids]


@dataclass(frozen=True)
class Conversations:
    """Ids and targets of each conversation that fits, and of how many something had to be cut off."""

    train: list[Piece]
    held_out: list[Piece]
    cut: int
    left_out: int
    question: str
    """The first question that was held out, or the first of all."""

    def about(self, length: int) -> list[str]:
        """What was lost, for people."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut:,} conversations are longer than a row of {length} tokens: cut there")
        if self.left_out:
            lines.append(f"{self.left_out:,} more have their first answer beyond it: left out")
        return lines


def conversations(
    paths: Sequence[str], start: Pretrained | None, length: int, validation: float
) -> Conversations:
    """All conversations of some files, a share of them held out: the same ones for every seed."""
    found, questions = list[Piece](), list[str]()
    cut = left_out = 0
    with chat_of(start) as chat:
        for path, line, messages in _records(paths):
            try:
                record = chat.encode(messages)
            except PellucidError as error:
                raise type(error)(f"{path}, line {line}: {error}") from None
            ids, targets = piece(record, length)
            if not (targets != IGNORE_INDEX).any():
                left_out += 1
                continue
            cut += len(record.ids) - 1 > length
            found.append((ids, targets))
            said = (message["content"] for message in messages if message["role"] == "user")
            questions.append(next(said, messages[0]["content"]))
    if not found:
        raise ConfigError(
            f"{', '.join(paths)}: there is no conversation with an answer within {length} tokens: use a "
            "larger model.context_length."
        )
    kept = int(np.ceil(len(found) * validation)) if len(found) > 1 else 0
    order = Permutation(len(found), 0, 7)(np.arange(len(found))).tolist()
    held_out, train = sorted(order[:kept]), sorted(order[kept:])
    return Conversations(
        [found[i] for i in train],
        [found[i] for i in held_out],
        cut,
        left_out,
        questions[(held_out or train)[0]],
    )


def _records(paths: Sequence[str]) -> Iterator[tuple[str, int, chat_records.Messages]]:
    """Each conversation with its file and its line; a file that is named twice is read once."""
    for path in dict.fromkeys(paths):
        for line, messages in chat_records.read(path):
            yield path, line, messages


def chat_of(start: Pretrained | None) -> Chat:
    """The chat of a model; one without a template cannot be talked with."""
    if start is None or start.tokenizer is None or start.chat_template is None:
        which = "a model that is trained from nothing has no" if start is None else f"{start.name} has no"
        raise ConfigError(
            f"{which} chat template, by which conversations are written: start from a model that has one, "
            "such as start=smollm2, or give plain text."
        )
    return Chat(start.chat_template, start.tokenizer)


def piece(record: EncodedChat, length: int) -> Piece:
    """Ids and what should follow each, where the assistant says it: at most `length` of them.

    >>> [part.tolist() for part in piece(EncodedChat([5, 6, 7, 8], [False, False, True, True]), 2)]
    [[5, 6], [-100, 7]]
    """
    ids = np.array(record.ids, np.int64)
    targets = np.where(np.array(record.counted, bool), ids, IGNORE_INDEX)
    return ids[:-1][:length], targets[1:][:length]


def asking(start: Pretrained, question: str) -> list[int]:
    """The ids that put a question to the model."""
    with chat_of(start) as chat:
        return chat.prompt([{"role": "user", "content": question}])
