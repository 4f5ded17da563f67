"""`pellucid tokenizer`: train one on your text, use it, and see why it cut a word as it did."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.text.tokenizer import Tokenizer

app = typer.Typer(
    name="tokenizer",
    help="Train a tokenizer on your text, use it, and see why it cut a word as it did.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path, typer.Argument(help="A folder with tokenizer.json, or with vocab.bpe and encoder.json.")
]
Text = Annotated[str | None, typer.Argument(help="The text; standard input where there is none.")]
Json = Annotated[bool, typer.Option("--json", help="Plain data.")]


@app.command()
def train(
    sources: Annotated[list[str], typer.Argument(help="Files, folders, patterns, or - for standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    kind: Annotated[str, typer.Option(help="bpe, unigram, wordpiece, words, characters or bytes.")] = "bpe",
    vocab_size: Annotated[int, typer.Option(help="How many tokens at most.", min=1)] = 8192,
    field: Annotated[str, typer.Option(help="Which field of a JSON line is the text.")] = "text",
    replace_errors: Annotated[
        bool, typer.Option("--replace-errors", help="Put U+FFFD for bytes that are no UTF-8, and count them.")
    ] = False,
) -> None:
    """Train a tokenizer; the same text gives the same tokenizer."""
    import time

    from pellucid.text.corpus import Corpus
    from pellucid.text.kinds import train as learn

    errors = "replace" if replace_errors else "strict"
    corpus = Corpus(sources, field=field, errors=errors, unique=False)
    start = time.perf_counter()
    tokenizer = learn(kind, _pieces(corpus), vocab_size, progress=sys.stderr.isatty())
    tokenizer.save(output)
    report = corpus.report
    print(
        f"{output}: {tokenizer.kind} with {tokenizer.vocab_size:,} tokens, from {report.bytes / 1e6:,.1f} MB "
        f"in {time.perf_counter() - start:.1f} s"
    )
    sample = (
        next(_pieces(Corpus(sources, field=field, errors=errors, unique=False)), "")
        if "-" not in sources
        else ""
    )
    if ids := tokenizer.encode(sample):
        print(f"{len(sample.encode()) / len(ids):.2f} bytes per token on the beginning of the text")
    print(f'see how it cuts: pellucid tokenizer explain {output} "some words of yours"')


@app.command()
def encode(
    folder: Folder,
    text: Text = None,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read special tokens in the text as such.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the ids of a text."""
    ids = _open(folder).encode(_given(text), parse_special)
    print(ids if json else " ".join(map(str, ids)))


@app.command()
def decode(
    folder: Folder,
    ids: Annotated[list[int] | None, typer.Argument(help="Ids; standard input where there are none.")] = None,
) -> None:
    """Print the text of some ids."""
    from pellucid.errors import TokenError

    if ids is None:
        words = sys.stdin.read().replace(",", " ").replace("[", " ").replace("]", " ").split()
        if wrong := [word for word in words if not re.fullmatch(r"-?\d{1,20}", word)]:
            raise TokenError(f"{wrong[0][:40]!r} is not an id; ids are whole numbers.")
        ids = [int(word) for word in words]
    print(_open(folder).decode(ids))


@app.command()
def explain(
    folder: Folder,
    text: Text = None,
    words: Annotated[int, typer.Option(help="How many words to take apart.", min=0, max=1_000_000)] = 40,
    json: Json = False,
) -> None:
    """Why a text was cut into these tokens: merge by merge, or all pieces with scores and the best path."""
    from pellucid.explain.tokens import explained

    tokenizer, given = _open(folder), _given(text)
    if json:
        from json import dumps

        print(dumps(_tokens(tokenizer, given), ensure_ascii=False, indent=1))
        return
    for line in explained(tokenizer, given, words):
        print(line)


def _open(folder: Path) -> "Tokenizer":
    from pellucid.text.pretrained import from_pretrained

    return from_pretrained(folder)


def _given(text: str | None) -> str:
    return sys.stdin.read() if text is None else text


def _tokens(tokenizer: "Tokenizer", text: str) -> list[dict[str, Any]]:
    return [
        {"id": id, "token": tokenizer.token(id), "bytes": tokenizer.bytes_of(id).hex(), "at": [start, end]}
        for id, (start, end) in zip(tokenizer.encode(text), tokenizer.offsets(text), strict=True)
    ]


def _pieces(corpus: Any, size: int = 1 << 16) -> Iterator[str]:
    """The corpus in pieces that end with a line: small enough to count in parallel, words left whole."""
    for document in corpus.documents():
        at, text = 0, document.text
        while at < len(text):
            end = text.find("\n", at + size) + 1 or len(text)
            yield text[at:end]
            at = end
