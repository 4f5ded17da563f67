"""Conversations to train on: rendered by the model's chat template; only the assistant's tokens count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.errors import ConfigError, PellucidError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data import conversation_file
from pellucid.data.permutation import Permutation
from pellucid.data.shard import Ids
from pellucid.formats.pretrained import Pretrained
from pellucid.text.chat_template import Chat, EncodedChat

Piece = tuple[Ids, Ids]


@dataclass(frozen=True)
class Conversations:
    """Ids and targets of the conversations that fit, and how many were shortened or omitted."""

    train: list[Piece]
    held_out: list[Piece]
    cut: int
    omitted: int
    question: str
    """The first question of the validation part, or the first of all."""

    def describe_losses(self, length: int) -> list[str]:
        """Returns a line for each kind of text that rows of this length lack."""
        lines = []
        if self.cut:
            lines.append(f"{self.cut:,} conversations are longer than a row of {length} tokens: cut there")
        if self.omitted:
            lines.append(f"{self.omitted:,} more have their first answer beyond it: omitted")
        return lines


def read_conversations(
    paths: Sequence[str], start: Pretrained | None, length: int, validation: float
) -> Conversations:
    """Returns all conversations of some files, a fraction of them held out: the same ones for every seed."""
    found, questions = list[Piece](), list[str]()
    cut = omitted = 0
    with open_chat(start) as chat:
        for path, line, messages in _read_records(paths):
            try:
                record = chat.encode(messages)
            except PellucidError as error:
                raise type(error)(f"{path}, line {line}: {error}") from None
            ids, targets = make_targets(record, length)
            if not (targets != IGNORE_INDEX).any():
                omitted += 1
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
        omitted,
        questions[(held_out or train)[0]],
    )


def _read_records(paths: Sequence[str]) -> Iterator[tuple[str, int, conversation_file.Messages]]:
    """Yields each conversation with its file and its line; a file that is named twice is read once."""
    for path in dict.fromkeys(paths):
        for line, messages in conversation_file.read(path):
            yield path, line, messages


def open_chat(start: Pretrained | None) -> Chat:
    """Returns the chat template of a model with its tokenizer, or refuses a model without one."""
    if start is None or start.tokenizer is None or start.chat_template is None:
        which = "a model with new weights" if start is None else start.name
        raise ConfigError(
            f"{which} has no chat template, which renders conversations as text: start from a model that has "
            "one, such as start=smollm2, or give plain text."
        )
    return Chat(start.chat_template, start.tokenizer)


def make_targets(record: EncodedChat, length: int) -> Piece:
    """Returns ids and targets, at most `length` of each; what the assistant does not say is IGNORE_INDEX.

    >>> [part.tolist() for part in make_targets(EncodedChat([5, 6, 7, 8], [False, False, True, True]), 2)]
    [[5, 6], [-100, 7]]
    """
    ids = np.array(record.ids, np.int64)
    targets = np.where(np.array(record.counted, bool), ids, IGNORE_INDEX)
    return ids[:-1][:length], targets[1:][:length]


def encode_question(start: Pretrained, question: str) -> list[int]:
    """Returns the ids of a chat prompt with this question."""
    with open_chat(start) as chat:
        return chat.prompt([{"role": "user", "content": question}])
