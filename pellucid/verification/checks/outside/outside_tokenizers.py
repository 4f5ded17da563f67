"""The same tokenizer in other programs: the `tokenizers` library, `transformers` and llama.cpp.

The `tokenizers` library is the authority on a tokenizer.json, llama.cpp on the vocabulary of a GGUF file, and
`transformers` on a folder that has neither. What transformers makes of a GGUF file's vocabulary is not asked:
it splits words by rules of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.base.errors import quote
from pellucid.base.files import temporary_folder
from pellucid.text.rust import call_native
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.gguf_header import read_header
from pellucid.verification.checks.outside.llamacpp_answers import LlamaCppAnswers, ask_llamacpp
from pellucid.verification.checks.outside.transformers_run import hide_warnings
from pellucid.verification.checks.outside.witnesses import EXPORT, SAME_FILE, remember

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
Encode = Callable[[str], list[int] | None]
"""Returns the ids of a text, None where it was not asked about it."""


@dataclass(frozen=True)
class OutsideTokenizer:
    """One program. `encode` gives the ids of ordinary text, `parse` of a text whose special tokens are
    parsed, `begin` of ordinary text with the special tokens that the file puts in front of it."""

    name: str
    source: str
    is_authority: bool
    encode: Encode
    parse: Encode
    begin: Encode
    library: Any = None
    """Its own object: of transformers, the tokenizer with its chat template."""

    @property
    def is_of_the_file(self) -> bool:
        return self.source == SAME_FILE

    @property
    def title(self) -> str:
        return self.name if self.is_of_the_file else f"{self.name} ({self.source})"


@remember
def open_outside(subject: Subject) -> tuple[list[OutsideTokenizer], list[str]]:
    """Returns the programs that can be asked, the authority first, and why others cannot."""
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return [], []
    found: list[OutsideTokenizer] = []
    missing: list[str] = []
    for open_one in (_open_llamacpp, _open_library, _open_transformers):
        try:
            if (one := open_one(subject, tokenizer)) is not None:
                found.append(one)
        except ImportError as error:
            missing.append(f"{error.name} is not installed: pip install {error.name}")
        except _NotAsked as reason:
            missing.append(str(reason))
        except Exception as error:  # another library on an untrusted file
            missing.append(f"{open_one.__name__.removeprefix('_open_')} cannot read it: {quote(error)}")
    return found, missing


class _NotAsked(Exception):
    """The reason why a program cannot be asked."""


def _folder(subject: Subject) -> Path:
    return subject.model.pretrained.provenance.path


def is_gguf(subject: Subject) -> bool:
    return subject.model.pretrained.provenance.format == "gguf" and _folder(subject).is_file()


def _open_llamacpp(subject: Subject, tokenizer: Tokenizer) -> OutsideTokenizer | None:
    if not is_gguf(subject):
        return None
    answers = ask_llamacpp(subject)
    if isinstance(answers, str):
        raise _NotAsked(answers)
    if not answers.texts:
        raise _NotAsked("llama.cpp was given our export of its weights, and not this file")

    def make_encode(answers: LlamaCppAnswers, way: int) -> Encode:
        ids = {text: found[way] for text, found in zip(answers.texts, answers.ids, strict=True)}
        return ids.get

    encode, parse, begin = (make_encode(answers, way) for way in range(3))
    return OutsideTokenizer("llama.cpp", answers.source, answers.is_of_the_file, encode, parse, begin)


def _open_library(subject: Subject, tokenizer: Tokenizer) -> OutsideTokenizer | None:
    from tokenizers import Tokenizer as Library

    file = _folder(subject) / TOKENIZER
    is_file = file.is_file()
    text = file.read_text("utf-8") if is_file else tokenizer.files().get(TOKENIZER, b"").decode()
    if not text:
        return None

    def make(as_text: bool, special: bool = False) -> Encode:
        library = call_native(f"{file} is not a tokenizer", lambda: Library.from_str(text))
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = as_text
        return lambda text: list(library.encode(text, add_special_tokens=special).ids)

    source = SAME_FILE if is_file else EXPORT
    return OutsideTokenizer(
        "the tokenizers library", source, is_file, make(True), make(False), make(True, special=True)
    )


def _open_transformers(subject: Subject, tokenizer: Tokenizer) -> OutsideTokenizer:
    folder = _folder(subject)
    is_file = folder.is_dir() and (folder / SETTINGS).is_file()
    theirs = _load_folder(folder) if is_file else _load_export(subject, tokenizer)
    name = f"transformers ({type(theirs).__name__})"
    return OutsideTokenizer(
        name,
        SAME_FILE if is_file else EXPORT,
        is_file and not (folder / TOKENIZER).is_file(),
        lambda text: None if _has_special(theirs, text) else theirs.encode(text, add_special_tokens=False),
        lambda text: list(theirs.encode(text, add_special_tokens=False)),
        lambda text: None if _has_special(theirs, text) else list(theirs.encode(text)),
        theirs,
    )


def _has_special(theirs: Any, text: str) -> bool:
    """Returns whether a text has the name of a special token, which transformers would parse."""
    return any(token in text for token in theirs.all_special_tokens + list(theirs.get_added_vocab()))


def _load_folder(folder: Path) -> Any:
    from transformers import AutoTokenizer

    with hide_warnings():  # about our model type: only the tokenizer is read
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _load_export(subject: Subject, tokenizer: Tokenizer) -> Any:
    """Returns transformers' tokenizer of what we would save, with the chat template of the file."""
    from transformers import PreTrainedTokenizerFast

    opened, special = subject.model.pretrained, tokenizer.special
    template = opened.chat_template
    if is_gguf(subject):
        template = read_header(opened.provenance.path).scalar("tokenizer.chat_template")
    names = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad}
    with temporary_folder() as folder:
        file = folder / TOKENIZER
        file.write_bytes(tokenizer.files()[TOKENIZER])
        found = PreTrainedTokenizerFast(tokenizer_file=str(file), **{k: v for k, v in names.items() if v})
    found.chat_template = template
    return found
