"""`pellucid data`: encodes text into token files, and shows what they hold."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.base.formatting import pluralize
from pellucid.cli.options import Field, OnBadFile, OutputFolder, ReplaceErrors, Sources, bad_file_choice
from pellucid.cli.terminal import note

if TYPE_CHECKING:
    from pellucid.data.prepare import EncodingProgress
    from pellucid.data.tokens import Tokens
    from pellucid.text.tokenizer import Tokenizer

app = typer.Typer(
    name="data", help="Encode text into token files, and show what they hold.", no_args_is_help=True
)

Report = Callable[["EncodingProgress"], None]


@app.command()
def prepare(
    sources: Sources,
    tokenizer: Annotated[
        str, typer.Option(help="The folder of a tokenizer, or a model whose tokenizer is used.")
    ],
    output: OutputFolder,
    split: Annotated[
        str, typer.Option(help="Documents: file, line, paragraph, separator=TEXT or jsonl.", metavar="RULE")
    ] = "file",
    field: Field = "text",
    validation: Annotated[
        float, typer.Option(help="The fraction of documents to hold out for validation.", min=0, max=1)
    ] = 0.0,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that encode; one for each core if omitted.", min=1, max=10**6),
    ] = None,
    keep_duplicates: Annotated[
        bool,
        typer.Option(
            "--keep-duplicates", help="Keep duplicate documents; saves 110 bytes of memory for each document."
        ),
    ] = False,
    on_bad_file: OnBadFile = "stop",
    replace_errors: ReplaceErrors = False,
) -> None:
    """Encode texts into token files; the same command resumes after an interruption."""
    from pellucid.cli.signals import say_when_ended

    again = f"Interrupted. Finished shards are kept in {output}: run the same command again to resume."
    with say_when_ended(lambda: again), _progress() as report:
        from pellucid.data import prepare as library
        from pellucid.formats.resolve import find_tokenizer
        from pellucid.text.corpus import Corpus
        from pellucid.text.corpus.bad_files import list_names

        choice = bad_file_choice(on_bad_file, replace_errors)
        corpus = Corpus(
            sources, split, field, choice, validation, unique=not keep_duplicates, setting="--on-bad-file "
        )
        if workers is not None:
            library.check_workers(workers)
        manifest = library.prepare(corpus, find_tokenizer(tokenizer), output, workers, report)
    for part, entries in manifest.parts.items():
        documents, tokens = manifest.total(part, "documents"), manifest.total(part, "tokens")
        if tokens:
            ratio = manifest.total(part, "text_bytes") / tokens
            print(
                f"{output}: {part}, {pluralize(documents, 'document')}, {pluralize(tokens, 'token')}, "
                f"{ratio:.2f} bytes per token, in {pluralize(len(entries), 'shard')}"
            )
    omitted = corpus.report
    if corpus.skipped:
        print(f"skipped: {pluralize(len(corpus.skipped), 'file')}, {list_names(corpus.skipped)}")
    if omitted.duplicates or omitted.empty:
        print(f"omitted: {pluralize(omitted.duplicates, 'duplicate')}, {omitted.empty:,} empty")
    if omitted.replaced_bytes:
        print(f"replaced: {pluralize(omitted.replaced_bytes, 'byte')} that are not UTF-8")


@app.command()
def show(
    folder: Annotated[
        Path,
        typer.Argument(help="A folder made by `pellucid data prepare`, or stories:easy or stories:full."),
    ],
    samples: Annotated[int, typer.Option(help="Documents to print.", min=0, max=100)] = 3,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and check it.")] = False,
) -> None:
    """Show what token files hold: counts, lengths of documents, frequent tokens, and a few documents.

    Of the built-in stories: their number, their entropy floor, and a few of them.
    """
    from pellucid.data.tokens import TokenFolder

    source, _, level = str(folder).partition(":")
    if source == "stories" and not folder.exists():
        _show_stories(level or "easy", samples)
        return
    opened = TokenFolder(folder)
    tokenizer, about = opened.tokenizer, opened.manifest.tokenizer
    end = "none" if about.end is None else f"{about.end} ({tokenizer.token(about.end)})"
    print(f"tokenizer        {about.kind}, {about.vocab_size:,} tokens, sha256 {about.sha256[:16]}…")
    print(f"end of document  {end}")
    print(f"split by         {opened.manifest.settings.get('split')}")
    for part, entries in opened.manifest.parts.items():
        if len(opened[part]):
            size = sum(entry.text_bytes for entry in entries)
            _show_part(part, size, opened[part], tokenizer, samples)
    if verify:
        opened.verify()
        print("every checksum, id and document end is correct")


def _show_stories(level: str, samples: int) -> None:
    from pellucid.base.errors import ConfigError, unknown
    from pellucid.data.generated.stories import LEVELS
    from pellucid.data.generated.stories.measure import describe_level

    if level not in LEVELS:
        raise ConfigError(unknown("the level of stories", level, LEVELS))
    for line in describe_level(level, samples):
        print(line)


def _show_part(part: str, size: int, tokens: "Tokens", tokenizer: "Tokenizer", samples: int) -> None:
    from pellucid.data.tokens import PERCENTILES, compute_statistics

    figures = compute_statistics(tokens)
    print()
    counts = (tokens.documents, "document"), (len(tokens), "token"), (len(tokens.shards), "shard")
    print(f"{part}: {', '.join(pluralize(*count) for count in counts)}")
    print(f"text                  {pluralize(size, 'byte')}, {size / len(tokens):.2f} bytes per token")
    lengths = "  ".join(f"{p} %: {n:,}" for p, n in zip(PERCENTILES, figures.percentiles, strict=True))
    print(f"tokens per document   {lengths}")
    frequent = "  ".join(f"{tokenizer.decode([id])!r} {share:.1%}" for id, share in figures.frequent)
    sampled = "" if figures.counted == len(tokens) else "  (of a sample)"
    print(f"most frequent         {frequent}{sampled}")
    for i in range(min(samples, tokens.documents)):
        number = i * tokens.documents // samples if samples <= tokens.documents else i
        ids = tokens.document(number)
        text = tokenizer.decode(ids[:40].tolist())
        print(f"document {number:<12,} {len(ids):,} tokens: {text!r}{' …' if len(ids) > 40 else ''}")


@contextmanager
def _progress() -> Iterator[Report]:
    """Yields the report: a progress bar on a terminal, a line every ten seconds otherwise."""
    if sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Report]:
    from pellucid.cli.console import open_bar

    with open_bar("Bar", "Download", "{task.fields[rate]}", "TimeElapsed", "{task.fields[left]}") as bar:
        task = bar.add_task("", total=None, rate="", left="")

        def report(now: "EncodingProgress") -> None:
            bar.update(task, completed=now.bytes, total=now.total, rate=_rate(now), left=_time_left(now))

        yield report


def _lines(every: float = 10.0) -> Report:
    import time

    last = time.monotonic()

    def report(now: "EncodingProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            share = "" if now.total is None else f" of {now.total / 1e6:.0f}"
            words = [
                f"{now.bytes / 1e6:.0f}{share} MB",
                f"{now.tokens:,} tokens",
                _rate(now),
                _time_left(now),
            ]
            note(", ".join(filter(None, words)))

    return report


def _rate(now: "EncodingProgress") -> str:
    return f"{now.rate / 1e6:.1f} MB/s"


def _time_left(now: "EncodingProgress") -> str:
    """Returns the estimated time left; empty where there is no estimate."""
    if now.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(now.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left"
