"""`pellucid inspect`: the convention card of a model, and what a wrong convention would cost."""

import sys
from typing import Annotated

import typer

from pellucid.cli.options import Json, ModelName, read_text_option
from pellucid.cli.terminal import count_columns, print_json


def inspect(
    model: ModelName,
    probe: Annotated[
        bool, typer.Option("--probe", help="Read a text with each choice changed: does another fit better?")
    ] = False,
    text: Annotated[
        str | None, typer.Option(help="The text that the probe reads, or the file of it: FILE.txt.")
    ] = None,
    json: Json = False,
) -> None:
    """Print every convention of a model that does not follow from its shapes, and why it matters."""
    from dataclasses import asdict
    from pathlib import PurePath

    from pellucid.base.errors import UsageError
    from pellucid.explanation.conventions import card, lines
    from pellucid.formats.resolve import is_config_only, open_model, read_config
    from pellucid.interpretability.attention_distance import table

    if text is not None and not probe:
        raise UsageError("--text is what the probe reads: give --probe with it.")
    read = read_text_option(text)
    if is_config_only(model):
        if probe:
            raise UsageError(f"{model} is a config-only preset: without weights there is no loss to measure.")
        found, shown = None, card(model, read_config(model))
    else:
        found = open_model(model)
        is_told = found.own_name in ("", found.short_name, PurePath(model).stem)
        shown = card(found.name if is_told else f"{found.name}: {found.own_name}", found.config, found)
    why, done = "", None
    if found and probe:
        from pellucid.explanation.probe.probe import check_probe, choose_text, probe_model
        from pellucid.explanation.probe.probe_report import lines as measured

        why = check_probe(found, read)
    width = count_columns(80, 110, 110)
    if not json:
        print(*lines(shown, width=width), sep="\n", flush=True)
    if found and probe and not why:
        done = probe_model(found, read, _report)
        _report("")
    if json:
        about = asdict(shown) | (
            {"probe": done.to_data()} if done else {"probe": None, "why": why} if why else {}
        )
        print_json(about)
    elif why:
        print("", f"nothing is probed: {why}", sep="\n")
    elif found and done:
        print("", *measured(done, width=width), sep="\n")
        if found.config.attention.form == "linear":
            tokenizer = found.need_tokenizer()
            ids = tokenizer.encode(read or choose_text(tokenizer))[: min(64, found.config.context_length)]
            print("", *table(found.config, found.weights, [ids]), sep="\n")
    if done and done.better:
        raise typer.Exit(1)


def _report(label: str) -> None:
    """Shows on a terminal what is read; with an empty label, nothing any more."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{label}", end="", file=sys.stderr, flush=True)
