"""Checks that a tokenizer decodes what it encodes, and that other programs give the same ids: the
`tokenizers` library, `transformers` and llama.cpp.

The `tokenizers` library is the authority on a tokenizer.json, llama.cpp on the vocabulary of a GGUF file, and
`transformers` on a folder that has neither. What transformers makes of a GGUF file's vocabulary is not asked:
it splits words by rules of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.base.errors import TokenError, quote
from pellucid.base.files import temporary_folder
from pellucid.text.rust import call_native
from pellucid.text.tokenizer import Tokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.files.second_readers import read_header
from pellucid.verification.checks.outside.llamacpp_answers import LlamaCppAnswers, ask_llamacpp
from pellucid.verification.checks.outside.transformers_run import hide_warnings
from pellucid.verification.checks.outside.witnesses import (
    EXPORT,
    SAME_FILE,
    TEXTS,
    Departure,
    Witness,
    join,
    judge_departure,
    remember,
    sample_texts,
)
from pellucid.verification.verdict import Finding, Verdict

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


NONE_READ = "its tokenizer cannot encode any of the sample texts"


def measure_round_trip(subject: Subject) -> Finding:
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    readable, exact = _select_readable(tokenizer, (subject.text, *TEXTS)), 0
    if not readable:
        return Finding(Verdict.SKIPPED, NONE_READ)
    name = getattr(tokenizer, "unknown", None)
    unknown = None if name is None else tokenizer.id_of(name)
    texts = [text for text in readable if unknown is None or unknown not in tokenizer.encode(text)]
    if not texts:
        return Finding(Verdict.SKIPPED, f"each sample text has words that its tokenizer encodes as {name}")
    for text in texts:
        back = tokenizer.decode(tokenizer.encode(text))
        if back != text and tokenizer.encode(back) != tokenizer.encode(text):
            return Finding(Verdict.BUG, "the text changed", "tokenizer.decode", f"{text!r}\n{back!r}")
        exact += back == text
    verdict = Verdict.EQUAL if exact == len(texts) else Verdict.NOISE
    return Finding(verdict, f"{exact} of {len(texts)} texts return character for character")


def measure_same_ids(subject: Subject) -> Finding:
    """Compares the ids of texts, ordinary and with their special tokens parsed, with those of each program;
    who departs is judged by the others."""
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    texts = _select_readable(tokenizer, sample_texts(subject))
    if not texts:
        return Finding(Verdict.SKIPPED, NONE_READ)
    programs, missing = open_outside(subject)
    if not programs:
        return Finding(Verdict.SKIPPED, "; ".join(missing))
    departures = {program.title: _find_departure(tokenizer, texts, program) for program in programs}
    count = sum(len(tokenizer.encode(text)) for text in texts)
    agreeing = [title for title, departure in departures.items() if departure is None]
    equal = f"{count:,} equal tokens by {join(agreeing)}" if agreeing else ""
    departing = next((program for program in programs if departures[program.title]), None)
    if departing is None:
        return Finding(Verdict.EQUAL, "; ".join([equal, *missing]))
    found = departures[departing.title]
    assert found is not None
    departure, ask = found
    if agreeing and programs[0].is_authority and programs[0] is not departing:
        return Finding(Verdict.EQUAL, f"{equal}; {departing.title} departs: {departure.measured}")
    heard = [program for program in programs if _is_heard(program, departing)]
    others = [Witness(program.title, ask(program), "was not asked") for program in heard]
    others += [Witness(reason, None) for reason in missing]
    return judge_departure(departing.title, departure, departing.is_authority, others, backing=())


def _is_heard(other: OutsideTokenizer, departing: OutsideTokenizer) -> bool:
    """Returns whether a program is independent of another that departs: the reader of our export is not."""
    return other is not departing and (other.is_of_the_file or not departing.is_of_the_file)


Ask = Callable[[OutsideTokenizer], bool | None]
"""Returns whether another program encodes as we do the text at which the first departs."""


def _find_departure(
    tokenizer: Tokenizer, texts: Sequence[str], program: OutsideTokenizer
) -> tuple[Departure, Ask] | None:
    """Returns the first token that another program encodes differently, and how to ask a third one."""
    for way, parse in (("encode", False), ("parse", True)):
        for text in texts:
            ids, found = tokenizer.encode(text, parse), getattr(program, way)(text)
            if found is None or ids == found:
                continue
            differ = (i for i, (a, b) in enumerate(zip(ids, found, strict=False)) if a != b)
            i = next(differ, min(len(ids), len(found)))
            message = f"of {text!r}, from token {i}: ours {ids[i : i + 5]}, {program.name} {found[i : i + 5]}"
            at = f"tokenizer.encode{'(parse_special)' if parse else ''}"
            departure = Departure(at, message, f"token {i} of {text[:30]!r}…")
            return departure, partial(_agrees, way, text, ids)
    return None


def _agrees(way: str, text: str, ids: list[int], program: OutsideTokenizer) -> bool | None:
    found = getattr(program, way)(text)
    return None if found is None else found == ids


def _select_readable(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    readable = []
    for text in texts:
        try:
            tokenizer.encode(text)
            readable.append(text)
        except TokenError:
            continue
    return readable
