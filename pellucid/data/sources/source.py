"""Where the text of a run comes from: tokenizer, rows to learn from, rows to be judged by, and the limit.

stories:easy, stories:full    stories by a grammar, made without end; their entropy is known
task:copy, task:addition, …   a formal task, made without end; only the answers count
a folder of token files       made by `pellucid data prepare`, with its tokenizer inside
text files, or folders        encoded into the run's own folder, with a tokenizer trained on it if asked
a .jsonl of conversations     written by the chat template of the model to start from; only answers count
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pellucid.data.chat_records import is_chat
from pellucid.data.manifest import NAME, PROGRESS
from pellucid.data.rows import Rows, check_length
from pellucid.data.rows.records import Records
from pellucid.data.rows.windows import Windows
from pellucid.data.shard import Ids
from pellucid.data.sources import generated
from pellucid.data.sources.conversations import asking, conversations
from pellucid.data.sources.encoding import Report, encode
from pellucid.data.sources.settings import DataSettings
from pellucid.data.tokens import TokenFolder, Tokens
from pellucid.errors import ConfigError
from pellucid.names import IGNORE_INDEX
from pellucid.pretrained import Pretrained
from pellucid.text.corpus.bad_files import STOP
from pellucid.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Validation:
    """Everything that was held out, each target once, in batches of one shape: [B T] ids and targets.

    The last row and the last batch are filled up with targets that are not counted.
    """

    row: Callable[[int], tuple[Ids, Ids]]
    """Ids and targets of one row, which may be short."""
    rows: int
    length: int
    batch_size: int
    targets: int
    """How many count, in all."""

    def __len__(self) -> int:
        """How many batches."""
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Ids, Ids]]:
        for first in range(0, self.rows, self.batch_size):
            ids = np.zeros((self.batch_size, self.length), np.int64)
            targets = np.full_like(ids, IGNORE_INDEX)
            for place, row in enumerate(range(first, min(first + self.batch_size, self.rows))):
                some, wanted = self.row(row)
                ids[place, : len(some)], targets[place, : len(wanted)] = some, wanted
            yield ids, targets


@dataclass(frozen=True)
class Source:
    tokenizer: Tokenizer
    train: Rows
    """Endless; a `DataLoader` makes batches of them and remembers where it stands."""
    validation: Validation
    bytes_per_token: float | None
    """Of the held-out text, for each target that counts: nats per token / this / ln 2 = bits per byte."""
    begin: int
    """The token with which a text of the model's own begins."""
    end: int | None
    """The token that ends a document."""
    entropy_floor: float | None
    """The entropy of the validation text in nats per token, which no model can beat, where it is known."""
    bigram_baseline: float | None
    """The loss of a bigram model in nats per token, where the entropy floor is known."""
    description: str
    prompt: str = ""
    """What a text of the model's own goes on from, where it cannot begin by itself: a held-out problem."""
    opening: Callable[[str], tuple[str, list[int]]] | None = None
    """Where a prompt is a question: what is asked, and the ids that ask it."""


def open_source(
    data: DataSettings,
    length: int,
    seed: int,
    cache: Path,
    report: Report = lambda _: None,
    start: Pretrained | None = None,
) -> Source:
    """The source that a recipe names; what has to be made of it is kept in `cache`, and made once. A model to
    `start` from brings its tokenizer."""
    check_length(length)
    own = start.tokenizer if start else None
    first, kind = data.paths[0], kind_of(data)
    if kind == "made":
        if own is not None:
            raise ConfigError(
                f"data.path={first} brings its own words along, which a model that learned others does "
                "not know: give a text to go on learning from, or leave start out."
            )
        return _made(data, length, seed)
    if kind == "conversations":
        return _talked(data, start, length, seed, report)
    if kind == "tokens":
        _need_no_file(data, "holds")
        folder, path = TokenFolder(Path(first)), Path(first)
        if own is not None and not _same(own, folder.tokenizer):
            raise ConfigError(
                f"{path} was made with another tokenizer than that of the model to start from: give the text "
                "itself, or prepare it again with the model's own."
            )
        return _tokens(data, folder, length, seed)
    return _tokens(data, encode(data, cache, report, own), length, seed)


def kind_of(data: DataSettings) -> str:
    """What `data.path` names: made (stories, tasks), conversations, tokens (token files), or text."""
    paths = data.paths
    kinds = {path: _kind(path) for path in paths}
    if len(paths) > 1:
        for path, what in ALONE.items():
            if found := next((one for one, kind in kinds.items() if kind == path), None):
                raise ConfigError(f"data.path={found} is {what}, which cannot be joined with other texts.")
        if len(set(kinds.values())) > 1:
            talk = next(path for path, kind in kinds.items() if kind == "conversations")
            raise ConfigError(
                f"{talk} holds conversations and another path of data.path plain text: a run learns from "
                "one or the other."
            )
    return kinds[paths[0]]


ALONE = {"made": "a text that is made while the model learns", "tokens": "a folder of token files"}


def _kind(path: str) -> str:
    kind, colon, _ = path.partition(":")
    if kind in generated.GENERATED and (colon or kind == "stories") and not Path(path).exists():
        return "made"
    if is_chat(path):
        return "conversations"
    folder = Path(path)
    is_tokens = folder.is_dir() and ((folder / NAME).is_file() or (folder / PROGRESS).is_file())
    return "tokens" if is_tokens else "text"


def _same(a: Tokenizer, b: Tokenizer) -> bool:
    """Whether two tokenizers have the same tokens."""
    return a.vocab_size == b.vocab_size and all(a.token(id) == b.token(id) for id in range(a.vocab_size))


def _need_no_file(data: DataSettings, verb: str) -> None:
    """Settings of a text file, which whatever is none cannot follow."""
    told = {
        "validation": isinstance(data.validation, str),
        "split": data.split != "file",
        "on_bad_file": data.on_bad_file != STOP,
    }
    for key in (key for key, is_told in told.items() if is_told):
        raise ConfigError(
            f"data.{key}={getattr(data, key)!r} does not go with {data.path}, which {verb} documents and "
            f"what it is judged by: leave data.{key} out."
        )


# ---- made while the model learns


def _made(data: DataSettings, length: int, seed: int) -> Source:
    kind, _, name = data.paths[0].partition(":")
    if data.tokenizer not in ("", "words"):
        raise ConfigError(
            f"data.tokenizer={data.tokenizer!r} does not go with {data.path}, which brings its own along: "
            "leave data.tokenizer out."
        )
    _need_no_file(data, "makes")
    if kind == "stories":
        made = generated.stories(name or "easy", length, seed)
    else:
        made = generated.task(name, length, seed)
    rows = generated.packed(made.held_out, length)
    targets = sum(int((wanted != IGNORE_INDEX).sum()) for _, wanted in rows)
    end = made.tokenizer.id_of(generated.END)
    assert end is not None
    return Source(
        made.tokenizer,
        made.train,
        Validation(rows.__getitem__, len(rows), length, data.batch_size, targets),
        made.text_bytes / targets if made.text_bytes else None,
        end,
        end,
        made.floor,
        made.fence,
        made.description,
        made.prompt,
    )


# ---- conversations


def _talked(data: DataSettings, start: Pretrained | None, length: int, seed: int, report: Report) -> Source:
    if isinstance(data.validation, str):
        raise ConfigError(
            f"data.validation={data.validation!r} does not go with conversations, of which a share is held "
            "out: give a share, such as 0.1."
        )
    if data.on_bad_file != STOP:
        raise ConfigError(
            f"data.on_bad_file={data.on_bad_file} does not go with conversations, of which a bad line is "
            "named: omit data.on_bad_file."
        )
    made = conversations(data.paths, start, length, data.validation)
    assert start is not None and start.tokenizer is not None
    tokenizer = start.tokenizer
    longest = max((len(ids) for ids, _ in made.held_out), default=1)
    for line in made.about(length):
        report(line)
    counted = [int(id) for _, targets in made.held_out for id in targets if id != IGNORE_INDEX]
    end = None if tokenizer.special.eos is None else tokenizer.id_of(tokenizer.special.eos)

    def opening(prompt: str) -> tuple[str, list[int]]:
        question = prompt or made.question
        return f"{question} → ", asking(start, question)

    return Source(
        tokenizer,
        Records(made.train, length, seed),
        Validation(made.held_out.__getitem__, len(made.held_out), longest, data.batch_size, len(counted)),
        None,  # the ends of turns are no text: bits per byte would compare with nothing
        0 if end is None else end,
        end,
        None,
        None,
        f"{data.shown_paths}: {len(made.train):,} conversations to learn from and "
        f"{len(made.held_out):,} held out; only what the assistant says counts",
        opening=opening,
    )


# ---- token files


def _tokens(data: DataSettings, folder: TokenFolder, length: int, seed: int) -> Source:
    tokenizer, about, path = folder.tokenizer, folder.manifest.tokenizer, data.shown_paths
    if data.tokenizer and Path(path) == folder.path and data.tokenizer != about.kind:
        raise ConfigError(
            f"data.tokenizer={data.tokenizer!r}, and the token files of {path} were made with {about.kind}, "
            "which is inside: leave data.tokenizer out."
        )
    train, held_out = folder["train"], folder["validation"]
    if len(train) < length + 1:
        shorter = f"model.context_length={max(1, (len(train) - 1) // 8)}, or " if len(train) > 1 else ""
        raise ConfigError(
            f"{path} is too short: {len(train)} tokens to learn from, and one row takes {length + 1}. "
            f"Use {shorter}more text."
        )
    begin = about.end if about.begin is None else about.begin
    if data.validation and len(held_out) < 1 + (begin is None):
        raise ConfigError(
            f"{path} has no text to judge by: its part 'validation' has {len(held_out)} tokens. Prepare it "
            "with a share that is held out (--validation 0.1), or use data.validation=0 for none."
        )
    validation, size = _streamed(held_out if data.validation else None, begin, length, data.batch_size)
    text_bytes = folder.manifest.total("validation", "text_bytes")
    if begin is None and validation.targets:  # the first token is only seen
        text_bytes -= len(tokenizer.bytes_of(int(held_out.read(0, 1)[0])))
    newline = tokenizer.encode("\n") if about.kind == "characters" and _knows(tokenizer, "\n") else []
    first = begin if begin is not None else (newline or train.read(0, 1).tolist())[0]
    description = (
        f"{path}: {len(train):,} tokens to learn from and {size:,} held out; {about.kind}, "
        f"{tokenizer.vocab_size:,} tokens"
    )
    return Source(
        tokenizer,
        Windows(train, length, seed),
        validation,
        text_bytes / validation.targets if validation.targets else None,
        first,
        about.end,
        None,
        None,
        description,
    )


def _knows(tokenizer: Tokenizer, text: str) -> bool:
    return tokenizer.id_of(text) is not None


def _streamed(
    tokens: Tokens | None, begin: int | None, length: int, batch_size: int
) -> tuple[Validation, int]:
    """The tokens in order, `length` at a time: each is a target once. Without a token to begin with, the
    first has nothing before it and is only seen."""
    if tokens is None:
        return Validation(lambda _: (np.empty(0), np.empty(0)), 0, length, batch_size, 0), 0
    size, only_seen = len(tokens), begin is None

    def row(i: int) -> tuple[Ids, Ids]:
        first = i * length + only_seen
        last = min(first + length, size)
        targets = tokens.read(first, last).astype(np.int64)
        before = tokens.read(first - 1, first) if first else np.array([begin])
        return np.concatenate([before, targets[:-1]]), targets

    targets = size - only_seen
    return Validation(row, -(-targets // length), length, batch_size, targets), size
