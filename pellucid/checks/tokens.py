"""Checks that a tokenizer decodes what it encodes, and that other programs give the same ids."""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pellucid.checks.check import Check, Subject
from pellucid.errors import TokenError, quote
from pellucid.judge.verdict import Finding, Verdict
from pellucid.text.native import call_native
from pellucid.text.tokenizer import Tokenizer

TEXTS = (
    "It's 12:30, isn't it?  Twenty-three spaces:                       end.\n\n\ttabs\tand\r\nlines",
    "naïve façade Ångström — “quoted” … ½ ² ™ 𝒳 👩‍🚀 العربية 日本語 עברית Ελληνικά कि",
    "def f(x):\n    return x ** 2  # 10_000 == 1e4\n",
    " leading, trailing ",
    "<|im_start|>user\n<s> </s> <|endoftext|> [INST]",
)
"""Frequent sources of errors: spaces, digits, contractions, combined characters, names of special tokens."""
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
    tokenizer = subject.model.pretrained.tokenizer
    if tokenizer is None:
        return Finding(Verdict.SKIPPED, "it has no tokenizer")
    texts = _select_readable(
        tokenizer, (subject.text, *TEXTS[:-1])
    )  # transformers would parse the special tokens
    if not texts:
        return Finding(Verdict.SKIPPED, NONE_READ)
    try:
        theirs = _load_transformers(subject, tokenizer)
    except ImportError:
        return Finding(Verdict.SKIPPED, "transformers is not installed: pip install transformers")
    except Exception as error:  # another library on an untrusted file
        return Finding(Verdict.SKIPPED, f"transformers cannot read this tokenizer: {quote(error)}")
    ours = {text: tokenizer.encode(text) for text in texts}
    equal = f"{sum(map(len, ours.values())):,} equal tokens"
    first = _find_mismatch(ours, lambda text: theirs.encode(text, add_special_tokens=False))
    if first is None:
        return Finding(Verdict.EQUAL, equal)
    measured, message = first
    # The class of transformers for this model type may ignore tokenizer.json; the file itself decides.
    file = subject.model.pretrained.provenance.path / "tokenizer.json"
    if file.is_file() and _find_mismatch(ours, _file_encoder(file)) is None:
        name = type(theirs).__name__
        return Finding(
            Verdict.EQUAL, f"{equal} by tokenizer.json itself; transformers' {name} departs: {measured}"
        )
    return Finding(Verdict.BUG, measured, "tokenizer.encode", message)


def _find_mismatch(
    ours: Mapping[str, list[int]], encode: Callable[[str], list[int]]
) -> tuple[str, str] | None:
    """Returns the first token that another program encodes differently: its place, and the ids from there."""
    for text, ids in ours.items():
        found = encode(text)
        if ids != found:
            differ = (i for i, (a, b) in enumerate(zip(ids, found, strict=False)) if a != b)
            i = next(differ, min(len(ids), len(found)))
            return f"token {i} of {text[:30]!r}…", f"ours {ids[i : i + 5]}, theirs {found[i : i + 5]}"
    return None


def _file_encoder(file: Path) -> Callable[[str], list[int]]:
    """Returns the encoder of the `tokenizers` library, whose format the file has."""
    from tokenizers import Tokenizer as Library

    library = call_native(f"{file} is not a tokenizer", lambda: Library.from_file(str(file)))
    library.no_truncation()
    library.no_padding()
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


def _select_readable(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[str]:
    readable = []
    for text in texts:
        try:
            tokenizer.encode(text)
            readable.append(text)
        except TokenError:
            continue
    return readable


def _load_transformers(subject: Subject, tokenizer: Tokenizer) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = subject.model.pretrained.provenance.path
    if path.is_dir() and (path / "tokenizer_config.json").exists():
        with _quiet():
            return AutoTokenizer.from_pretrained(path)
    # transformers splits the words of a GGUF file differently from llama.cpp; so it gets what we would save.
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_bytes(tokenizer.files()[file.name])
        return PreTrainedTokenizerFast(tokenizer_file=str(file))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warning of transformers about our model type: only the tokenizer is read."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


CHECKS = (
    Check(
        "tokenizer",
        "Decoding the ids of a text returns that text.",
        "character for character",
        measure_round_trip,
    ),
    Check(
        "tokenizer outside",
        "Other programs encode a text to the same ids with its tokenizer file.",
        "id for id",
        measure_same_ids,
    ),
)
