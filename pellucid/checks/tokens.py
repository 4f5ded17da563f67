"""The tokenizer: what it reads it can write, and others read it alike."""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.errors import TokenError, quote
from pellucid.text.native import call_native
from pellucid.text.tokenizer import Tokenizer

TEXTS = (
    "It's 12:30, isn't it?  Twenty-three spaces:                       end.\n\n\ttabs\tand\r\nlines",
    "naïve façade Ångström — “quoted” … ½ ² ™ 𝒳 👩‍🚀 العربية 日本語 עברית Ελληνικά कि",
    "def f(x):\n    return x ** 2  # 10_000 == 1e4\n",
    " leading, trailing ",
    "<|im_start|>user\n<s> </s> <|endoftext|> [INST]",
)
"""What tends to go wrong: blanks, digits, contractions, joined characters, names of special tokens."""
NONE_READ = "it reads none of the sample texts"


def round_trip(subject: Subject) -> Finding:
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding("skipped", "it came without a tokenizer")
    readable, read = _readable(tokenizer, (subject.text, *TEXTS)), 0
    if not readable:
        return Finding("skipped", NONE_READ)
    name = getattr(tokenizer, "unknown", None)
    unknown = None if name is None else tokenizer.id_of(name)
    texts = [text for text in readable if unknown is None or unknown not in tokenizer.encode(text)]
    if not texts:
        return Finding("skipped", f"each sample text has words that it does not know, and reads as {name}")
    for text in texts:
        back = tokenizer.decode(tokenizer.encode(text))
        if back != text and tokenizer.encode(back) != tokenizer.encode(text):
            return Finding("BUG", "another text", "tokenizer.decode", f"{text!r}\n{back!r}")
        read += back == text
    verdict = "equal" if read == len(texts) else "noise"
    return Finding(verdict, f"{read} of {len(texts)} texts return letter for letter")


def like_huggingface(subject: Subject) -> Finding:
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding("skipped", "it came without a tokenizer")
    texts = _readable(tokenizer, (subject.text, *TEXTS[:-1]))  # they would parse the special tokens
    if not texts:
        return Finding("skipped", NONE_READ)
    try:
        theirs = _theirs(subject, tokenizer)
    except ImportError:
        return Finding("skipped", "transformers is not installed: pip install transformers")
    except Exception as error:  # another library on somebody's files
        return Finding("skipped", f"transformers cannot read this tokenizer: {quote(error)}")
    ours = {text: tokenizer.encode(text) for text in texts}
    alike = f"{sum(map(len, ours.values())):,} tokens alike"
    departs = _departure(ours, lambda text: theirs.encode(text, add_special_tokens=False))
    if departs is None:
        return Finding("equal", alike)
    measured, story = departs
    # Their class for this type of model may ignore what tokenizer.json says; the file itself decides.
    file = subject.model.pretrained.source.path / "tokenizer.json"
    if file.is_file() and _departure(ours, _as_the_file_says(file)) is None:
        name = type(theirs).__name__
        return Finding("equal", f"{alike} by tokenizer.json itself; transformers' {name} departs: {measured}")
    return Finding("BUG", measured, "tokenizer.encode", story)


def _departure(ours: Mapping[str, list[int]], encode: Callable[[str], list[int]]) -> tuple[str, str] | None:
    """The first token that another program reads otherwise: where it is, and the ids from there on."""
    for text, ids in ours.items():
        found = encode(text)
        if ids != found:
            differ = (i for i, (a, b) in enumerate(zip(ids, found, strict=False)) if a != b)
            i = next(differ, min(len(ids), len(found)))
            return f"token {i} of {text[:30]!r}…", f"ours {ids[i : i + 5]}, theirs {found[i : i + 5]}"
    return None


def _as_the_file_says(file: Path) -> Callable[[str], list[int]]:
    """The `tokenizers` library on the file, which is the format's own program."""
    from tokenizers import Tokenizer as Library

    library = call_native(f"{file} is not a tokenizer", lambda: Library.from_file(str(file)))
    library.no_truncation()
    library.no_padding()
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


def _readable(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[str]:
    readable = []
    for text in texts:
        try:
            tokenizer.encode(text)
            readable.append(text)
        except TokenError:
            continue
    return readable


def _theirs(subject: Subject, tokenizer: Tokenizer) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = subject.model.pretrained.source.path
    if path.is_dir() and (path / "tokenizer_config.json").exists():
        with _quiet():
            return AutoTokenizer.from_pretrained(path)
    # Of a GGUF file they read the words' cuts otherwise than llama.cpp does; so they get what we would save.
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_bytes(tokenizer.files()[file.name])
        return PreTrainedTokenizerFast(tokenizer_file=str(file))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without their remark that they do not know our type of model: only its tokenizer is theirs to read."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


CHECKS = (
    Check("tokenizer", "decoding gives back the text that was encoded", "letter for letter", round_trip),
    Check(
        "tokenizer outside", "other programs read the same ids from its file", "id for id", like_huggingface
    ),
)
