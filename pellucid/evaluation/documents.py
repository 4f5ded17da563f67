"""The documents that a model is evaluated on, as ids of its tokenizer.

    stories:easy, stories:full    held-out stories of the grammar, of which ln P is known exactly
    task:copy, task:addition, …   held-out problems; only the answers count
    a folder of token files       the validation part (all of it where there is none), as training reads it
    text files, or folders        one document per file, or as `split` divides it
    a .jsonl file                 the field "text" of each line; or conversations, of which the answers count

A text begins with the bos token where the model wants one; else its first token is only context. Stories and
tasks begin with the token that begins a text and end with the one that ends it, both as in training, since
ln P is that of a complete text. In token files the same tokens surround each document.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.base.arguments import is_bool
from pellucid.base.errors import ConfigError, PellucidError, TokenError, UsageError, show, unknown
from pellucid.base.formatting import parse_bytes
from pellucid.data import conversation_file
from pellucid.data.generated import stories, tasks
from pellucid.data.shard import Ids
from pellucid.data.sources.conversations import open_chat
from pellucid.data.sources.generated import EXAMPLES, HELD_OUT, STORIES
from pellucid.data.sources.source import (
    CONVERSATIONS,
    GENERATED,
    TEXT,
    TOKENS,
    is_same_tokenizer,
    kind_of_path,
)
from pellucid.data.tokens import TokenFolder
from pellucid.formats.pretrained import Pretrained
from pellucid.text.chat_template import ANSWERS
from pellucid.text.chunking import can_chunk, chunks
from pellucid.text.corpus import Corpus
from pellucid.text.corpus.sources import display_name, is_jsonl
from pellucid.text.tokenizer import Tokenizer

FIRST = 1000
"""Characters of a text from which the extent of its first token is found."""


@dataclass(frozen=True)
class EncodedDocument:
    """The ids x_0 … x_{n−1} of a text; x_0 is only context, and x_1 … x_{n−1} are targets."""

    name: str
    """`valid.txt`, or with a number from 0 where a source has several: `valid.txt#3`, `stories:easy#12`."""
    ids: Ids
    """[n] int64."""
    is_counted: NDArray[np.bool_]
    """[n − 1]: which targets count, all of a text, the answers of a task or conversation."""
    n_bytes: int | None
    """UTF-8 bytes of the text of the counted targets."""
    log_probability: float | None = None
    """ln P of the counted text where its source knows it, a story's exactly, and 0 for an answer that follows
    from its problem."""
    source: str = ""
    """The DATA argument that it comes from."""


class Limit(NamedTuple):
    """At most this many documents, and bytes of text, of each source; None: all."""

    documents: int | None = None
    n_bytes: int | None = None


ALL = Limit()


@dataclass(frozen=True)
class Documents:
    """Iterated, it reads and encodes one document at a time, each time from the beginning."""

    data: tuple[str, ...]
    model: Pretrained
    split: str = "file"
    limit: Limit = ALL

    @property
    def tokenizer(self) -> Tokenizer:
        if self.model.tokenizer is None:
            raise TokenError(
                f"{self.model.name} came without a tokenizer, which encodes the text: save one beside its "
                "weights, as tokenizer.json."
            )
        return self.model.tokenizer

    @property
    def bos(self) -> int | None:
        """The token in front of each text, where the model wants one."""
        return next(iter(self.model.bos_ids), None)

    @property
    def eos(self) -> int | None:
        """The token that ends a text."""
        special = self.tokenizer.special
        return None if special.eos is None else self.tokenizer.id_of(special.eos)

    def __iter__(self) -> Iterator[EncodedDocument]:
        for source in self.data:
            left = self.limit.n_bytes
            for document in islice(READERS[kind_of_path(source)](self, source), self.limit.documents):
                if left is not None and left <= 0:
                    break
                left = None if left is None else left - (document.n_bytes or 0)
                yield document


def read_documents(
    data: str | Sequence[str],
    model: Pretrained,
    *,
    split: str = "file",
    limit: Limit | int | str | None = None,
) -> Documents:
    """Returns the documents of some sources; what cannot be read is refused here, before any is encoded."""
    sources = (data,) if isinstance(data, str) else tuple(map(str, data))
    if not sources:
        raise UsageError("there is no data to evaluate on: name a text, stories:easy or task:NAME.")
    if not isinstance(limit, Limit):
        limit = ALL if limit is None else parse_limit(limit)
    documents = Documents(sources, model, split, limit)
    for source in sources:
        CHECKS[kind_of_path(source)](documents, source)
    return documents


def parse_limit(limit: int | str) -> Limit:
    """Returns the limit that a number of documents or a size of text means.

    >>> parse_limit(100), parse_limit("1.5 MB")
    (Limit(documents=100, n_bytes=None), Limit(documents=None, n_bytes=1500000))
    """
    is_count = isinstance(limit, Integral) and not is_bool(limit)
    text = limit if isinstance(limit, str) else str(limit) if is_count else ""
    n_bytes = parse_bytes(text)
    if n_bytes is None and not re.fullmatch(r"\s*\d{1,15}\s*", text):
        raise UsageError(
            "limit must be a number of documents, such as 100, or a size of text, such as 50kB, not "
            f"{show(limit)}."
        )
    count = int(text) if n_bytes is None else n_bytes
    if count < 1:
        raise UsageError(f"limit must be at least one document or one byte, not {show(limit)}.")
    return Limit(documents=count) if n_bytes is None else Limit(n_bytes=count)


# ---- text


def _open_corpus(documents: Documents, source: str) -> Corpus:
    return Corpus([source], documents.split, unique=False)


def _check_text(documents: Documents, source: str) -> None:
    _ = documents.tokenizer
    _open_corpus(documents, source)


def _read_text(documents: Documents, source: str) -> Iterator[EncodedDocument]:
    corpus = _open_corpus(documents, source)
    file, number, left = "", 0, documents.limit.n_bytes
    for text, path, *_ in corpus.documents():
        number = number + 1 if path == file else 0
        file = path
        if left is not None:
            text = text.encode()[:left].decode(errors="ignore")
            left -= len(text.encode())
        is_whole = documents.split == "file" and not is_jsonl(path)
        name = display_name(path) if is_whole else f"{display_name(path)}#{number}"
        try:
            yield encode_text(documents, text, name, source)
        except TokenError as error:
            raise TokenError(f"{name}: {error}") from None
        if left is not None and left <= 0:
            return


def encode_text(documents: Documents, text: str, name: str, source: str = "") -> EncodedDocument:
    """Returns a text as a document, of which all counts; without a bos token, its first token is context."""
    tokenizer, bos = documents.tokenizer, documents.bos
    parts = chunks(text) if can_chunk(tokenizer) else (text,)
    ids = np.concatenate([tokenizer.encode_array(part).astype(np.int64) for part in parts])
    n_bytes = len(text.encode())
    if bos is not None:
        ids = np.concatenate([[bos], ids])
    elif len(ids):
        n_bytes -= _measure_first(tokenizer, text)
    return EncodedDocument(name, ids, np.ones(max(0, len(ids) - 1), bool), n_bytes, source=source)


def _measure_first(tokenizer: Tokenizer, text: str) -> int:
    """Returns the bytes of a text up to the end of its first token, with white space that is in no token."""
    found = tokenizer.offsets(text[:FIRST])
    if len(found) < 2:  # the first token may be longer, or come later
        found = tokenizer.offsets(text)
    return found[0][1]


# ---- token files


def _check_tokens(documents: Documents, source: str) -> None:
    if not is_same_tokenizer(documents.tokenizer, TokenFolder(Path(source)).tokenizer):
        raise ConfigError(
            f"{source} was made with another tokenizer than that of {documents.model.name}: give the text "
            "itself, or prepare it again with the model's tokenizer."
        )


def _read_tokens(documents: Documents, source: str) -> Iterator[EncodedDocument]:
    folder = TokenFolder(Path(source))
    about, tokens = folder.manifest.tokenizer, folder["validation"]
    if not len(tokens):
        tokens = folder["train"]
    begin = about.end if about.begin is None else about.begin
    for number in range(tokens.documents):
        ids = tokens.document(number).astype(np.int64)
        text = ids[:-1] if len(ids) and ids[-1] == about.end else ids
        n_bytes = len(folder.tokenizer.decode(text[begin is None :].tolist()).encode())
        if begin is not None:
            ids = np.concatenate([[begin], ids])
        is_counted = np.ones(max(0, len(ids) - 1), bool)
        yield EncodedDocument(f"{source}#{number}", ids, is_counted, n_bytes, source=source)


# ---- conversations


def _check_conversations(documents: Documents, source: str) -> None:
    _ = documents.tokenizer
    if documents.model.chat_template is None:
        raise ConfigError(
            f"{documents.model.name} has no chat template, which renders the conversations of {source}: "
            "evaluate a model that has one, such as smollm2, or give plain text."
        )
    open_chat(documents.model).template.close()


def _read_conversations(documents: Documents, source: str) -> Iterator[EncodedDocument]:
    with open_chat(documents.model) as chat:
        for number, (line, messages) in enumerate(conversation_file.read(source)):
            try:
                encoded = chat.encode(messages)
            except PellucidError as error:
                raise type(error)(f"{source}, line {line}: {error}") from None
            n_bytes = sum(len(one["content"].encode()) for one in messages if one["role"] == ANSWERS)
            ids, is_counted = np.array(encoded.ids, np.int64), np.array(encoded.counted, bool)[1:]
            yield EncodedDocument(f"{source}#{number}", ids, is_counted, n_bytes, source=source)


# ---- generated: stories and tasks


def _check_generated(documents: Documents, source: str) -> None:
    _ = documents.tokenizer
    kind, _, name = source.partition(":")
    if kind == "task":
        tasks.find(name)
    elif (name or "easy") not in stories.LEVELS:
        raise ConfigError(unknown("the level of stories", name, stories.LEVELS))


def _read_generated(documents: Documents, source: str) -> Iterator[EncodedDocument]:
    kind, _, name = source.partition(":")
    if kind == "task":
        problem = tasks.find(name)()
        for number in range(EXAMPLES):
            prompt, answer, _ = problem.example(0, number, "validation")
            yield _encode_complete(documents, prompt, answer, source, number, -problem.answer_entropy)
    else:
        level = name or "easy"
        for number, story in enumerate(stories.stories(level, HELD_OUT, count=STORIES)):
            yield _encode_complete(
                documents, "", story.text, f"stories:{level}", number, story.log_probability
            )


def _encode_complete(
    documents: Documents, prompt: str, text: str, source: str, number: int, log_probability: float
) -> EncodedDocument:
    """Returns a complete text, with the tokens that begin and end it; the prompt does not count.

    ln P is that of all of the text and its end, so it is omitted where the model has no such tokens, or
    encodes some of the text as the unknown token.
    """
    tokenizer, begin, end = documents.tokenizer, documents.model.start_id, documents.eos
    name = f"{source}#{number}"
    try:
        before, counted = tokenizer.encode(prompt), tokenizer.encode(text)
    except TokenError as error:
        raise TokenError(
            f"{name} cannot be encoded with the tokenizer of {documents.model.name}: {error}"
        ) from None
    start = [] if begin is None else [begin]
    ids = np.array([*start, *before, *counted, *([] if end is None else [end])], np.int64)
    is_counted = np.arange(1, len(ids)) >= len(start) + len(before)
    n_bytes = len(text.encode())
    if not start and not before:
        n_bytes -= _measure_first(tokenizer, text)
    is_exact = (
        bool(before) or (begin is not None and end is not None)
    ) and tokenizer.unknown_id not in counted
    return EncodedDocument(name, ids, is_counted, n_bytes, log_probability if is_exact else None, source)


READERS: dict[str, Callable[[Documents, str], Iterator[EncodedDocument]]] = {
    TEXT: _read_text,
    TOKENS: _read_tokens,
    CONVERSATIONS: _read_conversations,
    GENERATED: _read_generated,
}
CHECKS: dict[str, Callable[[Documents, str], None]] = {
    TEXT: _check_text,
    TOKENS: _check_tokens,
    CONVERSATIONS: _check_conversations,
    GENERATED: _check_generated,
}
