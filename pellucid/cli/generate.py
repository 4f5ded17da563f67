"""`pellucid generate`: continue one text or many."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.base.errors import UsageError
from pellucid.cli.options import DecodingOptions, Force, Json, ModelName, ParseSpecial, with_options
from pellucid.cli.sampling_options import GivenSampling
from pellucid.cli.terminal import count_columns, exact_output, note, standard_input

if TYPE_CHECKING:
    from pellucid.generation.prompt_jobs import PromptJob, PromptRecord, ResultFile
    from pellucid.generation.request import Completion
    from pellucid.generation.scheduler import Engine
    from pellucid.generation.settings.keywords import GenerationCall
    from pellucid.model import Model

    Then = Callable[[PromptJob, list[Completion]], None]
    """What is done with a prompt's completions after they are printed."""

MOST_INPUT = 1 << 24
"""Bytes of standard input that are read: more than any context holds."""


@with_options
def generate(
    model: ModelName,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(help="The texts to continue; - for standard input.", metavar="PROMPT..."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            help='Prompts from a JSONL file, or - for standard input. A line is {"prompt": "…"}, if you like '
            'with an "id" and with "sampling" settings of its own; or a text in quotes.',
            metavar="FILE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the results to a JSONL file, each when it comes.", metavar="FILE"
        ),
    ] = None,
    force: Force = False,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="Send the prompt as a user message in the model's chat template; print the answer."
        ),
    ] = False,
    system: Annotated[
        str | None, typer.Option(help="With --chat: a system message before the prompt.", metavar="TEXT")
    ] = None,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Print how each token was chosen, on standard error.")
    ] = False,
    ledger_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="Write the ledger of the text: FILE.json, which `pellucid replay` recomputes, or a page, "
            "FILE.html; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            help="A smaller model with the same tokenizer, which proposes tokens: the same text, sooner.",
            metavar="MODEL",
        ),
    ] = None,
    lookup: Annotated[
        bool, typer.Option("--lookup", help="Propose tokens from what stands in the text already.")
    ] = False,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Tokens that are proposed at a time.", min=1, max=64)
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Generate a text for each value of a setting, with the same seed, and print them side by "
            "side with statistics; several --sweep combine.",
            metavar="KEY=VALUE,…",
        ),
    ] = None,
    *,
    decoding: DecodingOptions,
    parse_special: ParseSpecial = False,
    json: Json = False,
    sampling: GivenSampling,
) -> None:
    """Continue texts: one is printed as it is generated; of several, each when it is complete, in order.

    A pipe or a file gets the text exactly as the model writes it;
    a terminal gets visible escapes in place of control characters.

    A model without a tokenizer continues ids: '[1, 2, 3]'.
    """
    from pellucid.generation.generate import make_engine
    from pellucid.generation.prompt_jobs import ResultFile, make_jobs

    if chat and parse_special:
        raise UsageError("--chat parses the template's special tokens and no others: omit --parse-special.")
    if system is not None and not chat:
        raise UsageError("--system is a message of a conversation: give --chat as well.")
    records = _read_records(prompts or [], file)
    if wants_ledger := ledger or bool(ledger_file):
        _check_ledger_files(ledger, ledger_file or [], records, force)
    results = None if output is None else ResultFile(output, force)
    found = decoding.open(model)
    run = {"cache": decoding.cache, "draft": draft, "lookup": lookup or None, "draft_tokens": draft_tokens}
    if sweep:
        from pellucid.cli.sweep import print_sweep, set_first_values

        sampling = set_first_values(sampling, sweep)
    call = _read_call(found, sampling, parse_special, run)
    jobs = make_jobs(found, records, call, chat=chat, system=system, ledger=wants_ledger)
    if sweep:
        if len(jobs) != 1:
            raise UsageError("--sweep compares the texts of one prompt: give one.")
        if results is not None or wants_ledger:
            raise UsageError(
                "--sweep prints its texts side by side: omit --output and --ledger, or use --json."
            )
        print_sweep(found, jobs[0], sweep, call.engine, json)
        return
    engine = make_engine(found, [job.request for job in jobs], call.engine)

    def show_ledger(job: "PromptJob", completions: "list[Completion]") -> None:
        _show_ledger(found, call, job, completions, ledger, ledger_file or [], force)

    then = show_ledger if wants_ledger else None
    if len(jobs) > 1 or jobs[0].request.sampling.n > 1 or json or results:
        _print_results(engine, jobs, results, json, not chat, then)
    else:
        _print_stream(engine, jobs[0], not chat, then)


def _read_call(
    model: "Model", sampling: GivenSampling, parse_special: bool, run: dict[str, Any]
) -> "GenerationCall":
    """Returns the settings that the options mean; a preset is printed in full."""
    from pellucid.generation.settings.keywords import GenerationCall, own_settings, read_engine_options
    from pellucid.generation.settings.resolve import describe

    resolved = sampling.resolve(own_settings(model.pretrained), model.pretrained.tokenizer)
    if sampling.preset:
        note(describe(*resolved))
    given = {key: value for key, value in run.items() if value is not None}
    return GenerationCall(*resolved, parse_special, read_engine_options(model, given))


def _check_ledger_files(
    as_table: bool, files: Sequence[Path], records: "list[PromptRecord]", force: bool
) -> None:
    names = [str(record.prompt) for record in records if str(record.prompt).endswith((".json", ".html"))]
    if as_table and len(records) > 1 and names:
        raise UsageError(f"--ledger prints a table; a file is written by --ledger-file {names[0]}.")
    if files and len(records) > 1:
        raise UsageError(f"a ledger file is of one prompt, and there are {len(records)}: use --ledger.")
    for path in files:
        from pellucid.generation.ledger.ledger import Ledger

        Ledger.check_output(path, force)


def _show_ledger(
    model: "Model",
    call: "GenerationCall",
    job: "PromptJob",
    completions: "list[Completion]",
    as_table: bool,
    files: Sequence[Path],
    force: bool,
) -> None:
    """Prints how each token was chosen, and writes it to files."""
    from pellucid.generation.generate import make_ledgers

    (ledger,) = make_ledgers(model, call, [job.request], [completions])
    for path in files:
        ledger.save(path, force)
    if as_table:
        from pellucid.generation.ledger.text import format_ledger

        note("\n".join(format_ledger(ledger, count_columns(40, sys.maxsize, 100))))


def _read_records(prompts: Sequence[str], file: str | None) -> "list[PromptRecord]":
    """Returns the prompts of a command line: its arguments, standard input, or a file of them."""
    from pellucid.generation.prompt_jobs import MOST_BYTES, PromptRecord, read_prompt_file, read_prompt_lines

    if bool(prompts) == (file is not None):
        raise UsageError("give prompts, - for standard input, or --file with a file of them: one of these.")
    if file is not None:
        is_stdin = file == "-"
        return (
            read_prompt_lines(standard_input(MOST_BYTES), "standard input")
            if is_stdin
            else read_prompt_file(Path(file))
        )
    if prompts.count("-") > 1:
        raise UsageError("standard input can be read once: give - for one prompt.")
    return [PromptRecord(standard_input(MOST_INPUT) if prompt == "-" else prompt) for prompt in prompts]


def _print_stream(engine: "Engine", job: "PromptJob", echo: bool, then: "Then | None") -> None:
    """Prints one text as it is generated, after its prompt where that is echoed."""
    from pellucid.generation.prompt_jobs import token_rate

    handle, times, out = engine.add(job.request), list[float](), exact_output()
    tokens = iter(handle)
    first = list(islice(tokens, 1))  # what fails at once is refused before anything is written
    print(job.shown if echo else "", end="", file=out, flush=True)
    try:
        try:
            for token in chain(first, tokens):
                times.append(time.perf_counter())
                print(token.text if job.is_text else f" {token.id}", end="", file=out, flush=True)
        finally:  # what is written stays, also after Ctrl-C, and so does how it was chosen
            print(file=out)
    except KeyboardInterrupt:
        handle.cancel()
        if then:
            then(job, handle.result())
        raise
    if (rate := token_rate(times)) and sys.stderr.isatty():
        note(f"{len(times)} tokens, {rate:.1f} a second")
    if then:
        then(job, handle.result())


def _print_results(
    engine: "Engine",
    jobs: "Sequence[PromptJob]",
    results: "ResultFile | None",
    json: bool,
    echo: bool,
    then: "Then | None",
) -> None:
    """Prints the results of each prompt, in order, or writes them to a file."""
    from pellucid.cli.console import counting_bar
    from pellucid.generation.prompt_jobs import format_line, run_jobs

    out, written = exact_output(), 0

    def write(job: "PromptJob", completion: "Completion", rate: float | None) -> None:
        nonlocal written
        written += 1
        if results is not None:
            results.write(job.to_data(completion, rate))
        elif json:
            print(format_line(job.to_data(completion, rate)), file=out, flush=True)
        else:
            gap = "\n" if written > 1 else ""
            print(f"{gap}{job.shown if echo else ''}{job.text_of(completion)}", file=out, flush=True)

    with results or nullcontext(), counting_bar("prompts", len(jobs)) as pause:
        for job, completions, rate in run_jobs(engine, jobs):
            with pause():
                for completion in completions:
                    write(job, completion, rate)
                if then:
                    then(job, completions)
