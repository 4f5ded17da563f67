"""`pellucid tokenizer`: trains a tokenizer, encodes and decodes text, and explains how words are divided."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from pellucid.base.arguments import LARGEST_VOCABULARY
from pellucid.cli.options import (
    Field,
    Force,
    Json,
    OnBadFile,
    OutputFolder,
    ParseSpecial,
    ReplaceErrors,
    Sources,
    Text,
    TokenizerName,
    bad_file_choice,
)
from pellucid.cli.terminal import count_columns, print_json, print_report

if TYPE_CHECKING:
    from pellucid.text.tokenizer import Tokenizer

app = typer.Typer(
    name="tokenizer",
    help="Train a tokenizer, encode and decode text, and explain how words are divided.",
    no_args_is_help=True,
)


@app.command()
def train(
    sources: Sources,
    output: OutputFolder,
    kind: Annotated[str, typer.Option(help="bpe, unigram, wordpiece, words, characters or bytes.")] = "bpe",
    vocab_size: Annotated[
        int, typer.Option(help="Largest number of tokens.", min=1, max=LARGEST_VOCABULARY)
    ] = 8192,
    field: Field = "text",
    on_bad_file: OnBadFile = "stop",
    replace_errors: ReplaceErrors = False,
    force: Force = False,
) -> None:
    """Train a tokenizer; the same text gives the same tokenizer."""
    import time

    from pellucid.base.files import check_output
    from pellucid.cli.signals import interruptible
    from pellucid.text.corpus import Corpus
    from pellucid.text.corpus.bad_files import list_names
    from pellucid.text.kinds import train as learn
    from pellucid.text.tokenizer import TOKENIZER_FOLDER

    check_output(output, TOKENIZER_FOLDER, force, folder=True)
    choice = bad_file_choice(on_bad_file, replace_errors)
    corpus = Corpus(sources, field=field, on_bad_file=choice, unique=False, setting="--on-bad-file ")
    corpus.check()
    start = time.perf_counter()
    with interruptible():
        tokenizer = learn(kind, _pieces(corpus), vocab_size, progress=sys.stderr.isatty())
    tokenizer.save(output, force)
    report = corpus.report
    print(
        f"{output}: {tokenizer.kind} with {tokenizer.vocab_size:,} tokens, from {report.bytes / 1e6:,.1f} MB "
        f"in {time.perf_counter() - start:.1f} s"
    )
    if corpus.skipped:
        print(f"skipped: {len(corpus.skipped)} bad files, {list_names(corpus.skipped)}")
    if report.replaced_bytes:
        print(f"replaced: {report.replaced_bytes:,} bytes that are not UTF-8")
    sample = next(_pieces(corpus), "") if "-" not in sources else ""
    if ids := tokenizer.encode(sample):
        print(f"{len(sample.encode()) / len(ids):.2f} bytes per token on the beginning of the text")
    print(f'explain it: pellucid tokenizer explain {output} "some words"')


@app.command()
def encode(
    name: TokenizerName,
    text: Text = None,
    parse_special: ParseSpecial = False,
    json: Json = False,
) -> None:
    """Print the ids of a text."""
    ids = _open(name).encode(_read_text(text), parse_special)
    print(ids if json else " ".join(map(str, ids)))


@app.command()
def decode(
    name: TokenizerName,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids; standard input if omitted.")] = None,
) -> None:
    """Print the text of some ids."""
    from pellucid.base.errors import TokenError
    from pellucid.cli.terminal import exact_output, standard_input

    if ids is None:
        words = standard_input().replace(",", " ").replace("[", " ").replace("]", " ").split()
        if wrong := [word for word in words if not re.fullmatch(r"-?\d{1,20}", word)]:
            raise TokenError(f"{wrong[0][:40]!r} is not an id; ids are integers.")
        ids = [int(word) for word in words]
    print(_open(name).decode(ids), file=exact_output())


@app.command()
def explain(
    name: TokenizerName,
    text: Text = None,
    words: Annotated[int, typer.Option(help="Number of words to explain.", min=0, max=1_000_000)] = 40,
    json: Json = False,
) -> None:
    """Explain how a text is divided into tokens: merge by merge, or by the scores of all pieces."""
    from pellucid.text.token_derivation import explain_tokens

    tokenizer, given = _open(name), _read_text(text)
    if json:
        print_json(_tokens(tokenizer, given))
        return
    for line in explain_tokens(tokenizer, given, words):
        print(line)


class TextsAfterOn(TyperCommand):
    """A command whose --on takes all words up to the next option, as `--on TEXT...` says."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        found, is_on = list[str](), False
        for word in args:
            is_option = word.startswith("-") and word != "-"
            found += ["--on", word] if is_on and not is_option and found[-1] != "--on" else [word]
            is_on = word == "--on" if is_option else is_on
        return super().parse_args(ctx, found)


@app.command(cls=TextsAfterOn)
def compare(
    tokenizers: Annotated[
        list[str],
        typer.Argument(
            help="Tokenizer folders, tokenizer.json files, models, or bytes.", metavar="TOKENIZER..."
        ),
    ],
    texts: Annotated[
        list[str],
        typer.Option(
            "--on",
            help="Files, folders, patterns or stories[:LEVEL]: a domain each.",
            metavar="TEXT...",
        ),
    ],
    d_model: Annotated[
        int | None,
        typer.Option(
            help="Channels of the output layer to cost; the model's own if omitted.", min=1, max=1 << 24
        ),
    ] = None,
    field: Field = "text",
    on_bad_file: OnBadFile = "stop",
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Draw it: FILE.html, .svg or .png; repeatable.", metavar="FILE"),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare tokenizers on texts: bytes per token by domain and script, unknown tokens, lost bytes, and the
    cost of the output layer."""
    from pellucid.base.files import check_distinct
    from pellucid.cli.console import byte_bar
    from pellucid.evaluation.tokenizers.compare import compare_tokenizers
    from pellucid.evaluation.tokenizers.report import COMPARISON

    outputs = output or []
    check_distinct(outputs)
    for file in outputs:
        COMPARISON.check(file, force)
    with byte_bar() as progress:
        found = compare_tokenizers(
            *tokenizers, on=texts, d_model=d_model, field=field, on_bad_file=on_bad_file, progress=progress
        )
    for file in outputs:
        found.save(file, force)
    print_report(found.report(), json, count_columns(60, sys.maxsize))
    for file in () if json else outputs:
        print(f"picture: {file}")


def _open(name: str) -> "Tokenizer":
    from pellucid.formats.resolve import open_tokenizer

    return open_tokenizer(name)


def _read_text(text: str | None) -> str:
    from pellucid.cli.terminal import standard_input

    return standard_input() if text is None else text


def _tokens(tokenizer: "Tokenizer", text: str) -> list[dict[str, Any]]:
    return [
        {"id": id, "token": tokenizer.token(id), "bytes": tokenizer.bytes_of(id).hex(), "at": [start, end]}
        for id, (start, end) in zip(tokenizer.encode(text), tokenizer.offsets(text), strict=True)
    ]


def _pieces(corpus: Any, size: int = 1 << 16) -> Iterator[str]:
    """Yields the corpus in pieces that end with a line, small enough to count in parallel."""
    for document in corpus.documents():
        at, text = 0, document.text
        while at < len(text):
            end = text.find("\n", at + size) + 1 or len(text)
            yield text[at:end]
            at = end
