"""Answers of llama.cpp about a model: next tokens, tokenization and chat prompts, asked for once."""

import contextlib
import importlib.util
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pellucid.base.errors import PellucidError, TokenError, quote
from pellucid.base.files import temporary_folder
from pellucid.base.worker import Worker
from pellucid.formats import gguf
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.file_weights import list_changed
from pellucid.verification.checks.files.second_readers import read_header, write_excerpt
from pellucid.verification.checks.outside.witnesses import (
    CONVERSATION,
    EXPORT,
    SAME_FILE,
    remember,
    sample_texts,
)

MODULE = "pellucid.verification.checks.outside.llamacpp_process"
TOKENS = 64
"""How many tokens are read; more of a small model with a window, so that they pass it."""


@dataclass(frozen=True)
class LlamaCppAnswers:
    """`ids` has the ids of each text of `texts`: as ordinary text, with its special tokens parsed, and as
    ordinary text after the special tokens that the file puts in front. `prompts` has the conversation as its
    template writes it, without and with the generation prompt, or None."""

    source: str
    """"from the same file" or "from our export"."""
    read: list[int]
    layers: int
    is_exact: bool
    """Whether its numbers are float32. Where they are not, it rounds activations to 16 or to 8 bits."""
    predictions: list[list[tuple[int, float]]]
    texts: tuple[str, ...]
    ids: list[list[list[int]]]
    prompts: list[str | None]

    @property
    def is_of_the_file(self) -> bool:
        return self.source == SAME_FILE


@remember
def ask_llamacpp(subject: Subject) -> LlamaCppAnswers | str:
    """Returns its answers, or the reason why there are none."""
    count = min(subject.config.context_length - 1, max(TOKENS, subject.length))  # room for the next token
    ids = subject.make_ids(count)
    if not ids:
        return "its context has no room for another token"
    if (tokenizer := subject.model.pretrained.tokenizer) is None:
        return "it has no tokenizer, and llama.cpp needs one"
    if importlib.util.find_spec("xllamacpp") is None:
        return "llama.cpp is not installed: pip install xllamacpp"
    path = subject.model.pretrained.provenance.path
    is_own = not list_changed(subject) and not subject.requantized
    is_file = path.suffix == ".gguf" and path.is_file() and is_own
    try:
        with temporary_folder() as folder:
            given = _make_file(subject, folder) if is_file else _export(subject, folder)
            texts = sample_texts(subject) if is_file else ()
            conversations = [[list(CONVERSATION), asking] for asking in (False, True)] if is_file else []
            request = {"ids": ids, "letter": _letter(tokenizer), "texts": texts}
            found = run_process(given.path, request | {"conversations": conversations})
    except PellucidError as error:
        return str(error)
    except Exception as error:  # another program on an untrusted file
        return f"llama.cpp cannot read this model: {quote(error)}"
    predictions = [[(int(id), float(p)) for id, p in best] for best in found["predictions"]]
    source = SAME_FILE if is_file else EXPORT
    return LlamaCppAnswers(
        source, ids, given.layers, given.is_exact, predictions, texts, found["ids"], found["prompts"]
    )


class GivenFile(NamedTuple):
    """The file that llama.cpp reads, how many blocks it has, and whether its numbers are float32."""

    path: Path
    layers: int
    is_exact: bool


def _make_file(subject: Subject, folder: Path) -> GivenFile:
    """Returns the file itself, where it is small and float32; else its first blocks, as float32, where the
    `gguf` package can dequantize them."""
    opened = subject.model.pretrained
    is_exact = set(opened.provenance.types.values()) == {"F32"}
    if (is_exact and not subject.is_large) or importlib.util.find_spec("gguf") is None:
        return GivenFile(opened.provenance.path, subject.config.n_layer, is_exact)
    excerpt = folder / "excerpt.gguf"
    write_excerpt(read_header(opened.provenance.path), excerpt, subject.layers, vocabulary=True, widen=True)
    return GivenFile(excerpt, subject.layers, True)


def _export(subject: Subject, folder: Path) -> GivenFile:
    """Returns our export of the model, or of its first blocks."""
    path, config = folder / "model.gguf", subject.with_layers(subject.layers)
    weights = subject.float_weights(config)
    gguf.write(path, replace(subject.model.replace().pretrained, config=config, weights=weights), "F32")
    return GivenFile(path, subject.layers, True)


def run_process(path: Path, request: dict[str, Any]) -> Any:
    """Returns what the process of llama.cpp answers to one request."""
    whole = request | {"path": str(path.absolute()), "threads": torch.get_num_threads()}
    with Worker("-m", MODULE, stderr=subprocess.PIPE) as worker:
        output, errors = worker.process.communicate(json.dumps(whole).encode())
    if code := worker.process.returncode:
        said = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(said or f"it ended with {code}")
    return json.loads(output.splitlines()[-1])


def _letter(tokenizer: Tokenizer) -> list[int]:
    """Returns the id of the letter a, where the tokenizer has it."""
    with contextlib.suppress(TokenError):
        return tokenizer.encode("a")[-1:]
    return []
