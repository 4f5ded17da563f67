"""The data of a run: tokenizer, training rows, validation rows, and the entropy floor where it is known.

stories:easy, stories:full    stories of a grammar, generated without end; their entropy is known
task:copy, task:addition, …   a formal task, generated without end; only the answers count
a folder of token files       made by `pellucid data prepare`, with its tokenizer inside
text files, or folders        encoded into the run's own folder, with a tokenizer trained on them if asked
a .jsonl of conversations     rendered by the chat template of the model to start from; only answers count
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.conversation_file import is_chat
from pellucid.data.manifest import NAME, PROGRESS
from pellucid.data.rows import Rows, check_length
from pellucid.data.rows.mixture import Mixture
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.records import Records
from pellucid.data.rows.streams import Streams
from pellucid.data.rows.windows import Windows
from pellucid.data.sources import generated
from pellucid.data.sources.conversations import encode_question, read_conversations
from pellucid.data.sources.encoding import Report, encode
from pellucid.data.sources.settings import DataSettings
from pellucid.data.sources.validation import (
    Row,
    Validation,
    join_validations,
    validate_documents,
    validate_nothing,
    validate_pieces,
    validate_stream,
)
from pellucid.data.tokens import TokenFolder
from pellucid.formats.pretrained import Pretrained
from pellucid.text.corpus.bad_files import STOP
from pellucid.text.tokenizer import Tokenizer

GENERATED, CONVERSATIONS, TOKENS, TEXT = "generated", "conversations", "tokens", "text"
"""What `data.path` may name."""
APART = ("packed", "padded")
"""Kinds of rows in which a document sees only itself."""


@dataclass(frozen=True)
class Source:
    tokenizer: Tokenizer
    train: Rows
    """Endless; a `DataLoader` makes batches of them and keeps the position."""
    validation: Validation
    bytes_per_token: float | None
    """Of the validation text, for each target that counts: nats per token / this / ln 2 = bits per byte."""
    begin: int
    """The token with which a generated text begins."""
    end: int | None
    """The token that ends a document."""
    entropy_floor: float | None
    """The entropy of the validation text in nats per token, which no model can beat, where it is known."""
    bigram_baseline: float | None
    """The loss of a bigram model in nats per token, where the entropy floor is known."""
    description: str
    prompt: str = ""
    """The prompt of samples, where a text cannot begin by itself: a validation problem of a task."""
    opening: Callable[[str], tuple[str, list[int]]] | None = None
    """Where prompts are questions: maps a prompt to the question as shown, and to the ids of the chat prompt.
    """


def open_source(
    data: DataSettings,
    length: int,
    seed: int,
    cache: Path,
    report: Report = lambda _: None,
    start: Pretrained | None = None,
) -> Source:
    """Returns the source that a recipe names; texts are encoded into `cache`, once. A model to `start` from
    brings its tokenizer."""
    check_length(length)
    own = start.tokenizer if start else None
    kind = kind_of(data)
    if kind == GENERATED:
        if own is not None:
            raise ConfigError(
                f"data.path={data.shown_paths} has its own vocabulary, which is not that of the model to "
                "start from: give a text, or omit start."
            )
        return _generate(data, length, seed)
    if kind == CONVERSATIONS:
        return _open_conversations(data, start, length, seed, report)
    if kind == TEXT:
        return _open_tokens(data, encode(data, cache, report, own), length, seed)
    _need_no_file(data)
    folders = [TokenFolder(Path(path)) for path in data.paths]
    for folder in folders:
        if folder.manifest.tokenizer != folders[0].manifest.tokenizer:
            raise ConfigError(
                f"{folder.path} and {folders[0].path} were made with different tokenizers, and a mixture has "
                "one: prepare both with the same."
            )
    if own is not None and not is_same_tokenizer(own, folders[0].tokenizer):
        raise ConfigError(
            f"{folders[0].path} was made with another tokenizer than that of the model to start from: give "
            "the text itself, or prepare it again with the model's tokenizer."
        )
    return _open_tokens(data, folders, length, seed)


def kind_of(data: DataSettings) -> str:
    """Returns what `data.path` names: GENERATED, CONVERSATIONS, TOKENS or TEXT."""
    paths = data.paths
    kinds = {path: kind_of_path(path) for path in paths}
    if len(paths) > 1:
        alone = {GENERATED: "text that is generated during training"}
        if not data.mixture_weights:
            alone[TOKENS] = "a folder of token files"
        for kind, what in alone.items():
            if found := next((path for path in paths if kinds[path] == kind), None):
                raise ConfigError(f"data.path={found} is {what}, which cannot be joined with other texts.")
        if len(set(kinds.values())) > 1:
            (one, other), some = sorted(set(kinds.values()))[:2], {kind: path for path, kind in kinds.items()}
            raise ConfigError(
                f"data.path names {one} ({some[one]}) and {other} ({some[other]}): a run trains on one kind."
            )
        if data.mixture_weights and CONVERSATIONS in kinds.values():
            raise ConfigError(
                f"data.mixture_weights does not go with conversations ({paths[0]}), which come one to a row: "
                "omit it."
            )
    return kinds[paths[0]]


def kind_of_path(path: str) -> str:
    kind, colon, _ = path.partition(":")
    if kind in generated.GENERATED and (colon or kind == "stories") and not Path(path).exists():
        return GENERATED
    if is_chat(path):
        return CONVERSATIONS
    folder = Path(path)
    is_tokens = folder.is_dir() and ((folder / NAME).is_file() or (folder / PROGRESS).is_file())
    return TOKENS if is_tokens else TEXT


def is_same_tokenizer(a: Tokenizer, b: Tokenizer) -> bool:
    """Returns whether two tokenizers have the same tokens."""
    return a.vocab_size == b.vocab_size and all(a.token(id) == b.token(id) for id in range(a.vocab_size))


def _need_no_file(data: DataSettings) -> None:
    """Refuses settings of text files where the data are token files or generated."""
    is_set = {
        "validation": isinstance(data.validation, str),
        "split": data.split != "file",
        "on_bad_file": data.on_bad_file != STOP,
    }
    for key in (key for key, is_given in is_set.items() if is_given):
        raise ConfigError(
            f"data.{key}={getattr(data, key)!r} does not go with {data.shown_paths}, whose documents and "
            f"validation part are fixed: omit data.{key}."
        )


# ---- generated during training


def _generate(data: DataSettings, length: int, seed: int) -> Source:
    kind, _, name = data.paths[0].partition(":")
    if data.tokenizer not in ("", "words"):
        raise ConfigError(
            f"data.tokenizer={data.tokenizer!r} does not go with {data.path}, which has its own: omit "
            "data.tokenizer."
        )
    _need_no_file(data)
    if data.rows not in ("windows", "packed"):
        raise ConfigError(
            f"data.rows={data.rows} does not go with {data.path}, which is generated without end: use "
            "windows or packed."
        )
    is_packed = data.rows == "packed"
    if kind == "stories":
        found = generated.open_stories(name or "easy", length, seed, is_packed)
    else:
        found = generated.open_task(name, length, seed, is_packed)
    validation = validate_pieces(found.held_out, length, data.batch_size, is_packed)
    end = found.tokenizer.id_of(generated.END)
    assert end is not None
    return Source(
        found.tokenizer,
        found.train,
        validation,
        found.text_bytes / validation.targets if found.text_bytes else None,
        end,
        end,
        found.entropy_floor,
        found.bigram_baseline,
        found.description,
        found.prompt,
    )


# ---- conversations


def _open_conversations(
    data: DataSettings, start: Pretrained | None, length: int, seed: int, report: Report
) -> Source:
    if isinstance(data.validation, str):
        raise ConfigError(
            f"data.validation={data.validation!r} does not go with conversations, of which a fraction is "
            "held out: give a fraction, such as 0.1."
        )
    if data.on_bad_file != STOP:
        raise ConfigError(
            f"data.on_bad_file={data.on_bad_file} does not go with conversations, of which a bad line is "
            "named: omit data.on_bad_file."
        )
    if data.rows != "windows":
        raise ConfigError(
            f"data.rows={data.rows} does not go with conversations, which come one to a row: omit data.rows."
        )
    found = read_conversations(data.paths, start, length, data.validation)
    assert start is not None and start.tokenizer is not None
    tokenizer = start.tokenizer
    longest = max((len(ids) for ids, _ in found.held_out), default=1)
    for line in found.describe_losses(length):
        report(line)
    targets = sum(int((targets != IGNORE_INDEX).sum()) for _, targets in found.held_out)
    end = None if tokenizer.special.eos is None else tokenizer.id_of(tokenizer.special.eos)

    def opening(prompt: str) -> tuple[str, list[int]]:
        question = prompt or found.question
        return f"{question} → ", encode_question(start, question)

    return Source(
        tokenizer,
        Records(found.train, length, seed, epochs=data.epochs),
        Validation(lambda i: Row(*found.held_out[i]), len(found.held_out), longest, data.batch_size, targets),
        None,  # tokens that end a message have no text, so bits per byte would compare with nothing
        0 if end is None else end,
        end,
        None,
        None,
        f"{data.shown_paths}: {len(found.train):,} conversations to train on and {len(found.held_out):,} "
        "held out; only what the assistant says counts",
        opening=opening,
    )


# ---- token files


def _open_tokens(data: DataSettings, folders: list[TokenFolder], length: int, seed: int) -> Source:
    folder = folders[0]
    tokenizer, about = folder.tokenizer, folder.manifest.tokenizer
    if data.tokenizer and Path(data.paths[0]) == folder.path and data.tokenizer != about.kind:
        raise ConfigError(
            f"data.tokenizer={data.tokenizer!r}, and the token files of {folder.path} were made with "
            f"{about.kind}, which is inside: omit data.tokenizer."
        )
    begin = about.end if about.begin is None else about.begin
    rows = [_make_rows(data, folder, begin, length, seed) for folder in folders]
    parts = [_validate(data, folder, begin, length) for folder in folders]
    validation = join_validations([part for part, _ in parts])
    newline = (
        tokenizer.encode("\n") if about.kind == "characters" and tokenizer.id_of("\n") is not None else []
    )
    trained = sum(len(folder["train"]) for folder in folders)
    held_out = sum(len(folder["validation"]) for folder in folders) if data.validation else 0
    return Source(
        tokenizer,
        Mixture(rows, data.mixture_weights, seed) if data.mixture_weights else rows[0],
        validation,
        sum(size for _, size in parts) / validation.targets if validation.targets else None,
        begin if begin is not None else (newline or folder["train"].read(0, 1).tolist())[0],
        about.end,
        None,
        None,
        f"{data.shown_paths}: {trained:,} tokens to train on and {held_out:,} held out; {about.kind}, "
        f"{tokenizer.vocab_size:,} tokens",
    )


def _make_rows(data: DataSettings, folder: TokenFolder, begin: int | None, length: int, seed: int) -> Rows:
    train = folder["train"]
    if len(train) < length + 1:
        shorter = f"model.context_length={max(1, (len(train) - 1) // 8)}, or " if len(train) > 1 else ""
        raise ConfigError(
            f"{_name(data, folder)} is too short: it has {len(train)} training tokens, and one row takes "
            f"{length + 1}. Use {shorter}more text."
        )
    match data.rows:
        case "packed":
            return Packed(train, length, seed, begin, data.epochs)
        case "padded":
            return Padded(train, length, seed, begin, folder.manifest.tokenizer.pad or 0, data.epochs)
        case "streams":
            return Streams(train, length, data.epochs)
        case _:
            return Windows(train, length, seed, data.epochs)


def _validate(
    data: DataSettings, folder: TokenFolder, begin: int | None, length: int
) -> tuple[Validation, int]:
    """Returns the validation rows of a folder, and the bytes of text of their targets."""
    tokens, tokenizer = folder["validation"], folder.tokenizer
    if not data.validation:
        return validate_nothing(length, data.batch_size), 0
    if len(tokens) < 1 + (begin is None):
        raise ConfigError(
            f"{_name(data, folder)} has no validation text: its part 'validation' has {len(tokens)} tokens. "
            "Prepare it with --validation 0.1, or use data.validation=0 for none."
        )
    text_bytes = folder.manifest.total("validation", "text_bytes")
    make = validate_documents if data.rows in APART else validate_stream
    validation = make(tokens, begin, length, data.batch_size)
    if begin is None:  # first tokens are only inputs
        firsts = [0] if make is validate_stream else np.unique(tokens.bounds(np.arange(tokens.documents))[0])
        text_bytes -= sum(len(tokenizer.bytes_of(int(tokens.read(at, at + 1)[0]))) for at in map(int, firsts))
    return validation, text_bytes


def _name(data: DataSettings, folder: TokenFolder) -> str:
    return str(folder.path) if str(folder.path) in data.paths else data.shown_paths
