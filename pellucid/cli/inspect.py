"""`pellucid inspect`: the convention card of a model, and what a wrong convention would cost."""

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import Json, ModelName

if TYPE_CHECKING:
    from pellucid.cards.probe import AlternativeLoss


def inspect(
    model: ModelName,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure what a wrong choice would do to the loss.")
    ] = False,
    text: Annotated[str | None, typer.Option(help="The text that the probe reads.")] = None,
    json: Json = False,
) -> None:
    """Print every convention of a model that does not follow from its shapes, and why it matters."""
    from dataclasses import asdict
    from pathlib import PurePath

    from pellucid.cards.attention_distance import table
    from pellucid.cards.conventions import card, lines
    from pellucid.cards.probe import case_of, check_probe, probe_model
    from pellucid.cards.probe import lines as measured
    from pellucid.errors import UsageError
    from pellucid.workbench import is_config_only, open_model, read_config

    if text is not None and not probe:
        raise UsageError("--text is what the probe reads: give --probe with it.")
    if is_config_only(model):
        if probe:
            raise UsageError(f"{model} is a config-only preset: without weights there is no loss to measure.")
        found, why, shown = None, "", card(model, read_config(model))
    else:
        found = open_model(model)
        why = check_probe(found, text) if probe else ""
        is_told = found.own_name in ("", found.short_name, PurePath(model).stem)
        shown = card(found.name if is_told else f"{found.name}: {found.own_name}", found.config, found)
    if not json:
        print(*lines(shown, width=_width()), sep="\n", flush=True)
    done = probe_model(found, text, _count_alternatives()) if found and probe and not why else None
    if json:
        from json import dumps

        about = asdict(shown) | (
            {"probe": done.as_data()} if done else {"probe": None, "why": why} if why else {}
        )
        print(dumps(about, ensure_ascii=False, indent=1))
    elif why:
        print("", f"nothing is probed: {why}", sep="\n")
    elif found and done:
        print("", *measured(done, width=_width()), sep="\n")
        if found.config.attention.form == "linear":
            case = case_of(found, text)
            print("", *table(found.config, case.weights, [list(case.ids)]), sep="\n")


def _count_alternatives() -> Callable[["AlternativeLoss"], None]:
    """Returns a callback that shows on a terminal how many alternatives are measured."""
    from pellucid.cards.probe import ALTERNATIVES

    counter = itertools.count(1)

    def report(_: "AlternativeLoss") -> None:
        count = next(counter)
        if sys.stderr.isatty():
            words = f"{count} of {len(ALTERNATIVES)} " if count < len(ALTERNATIVES) else ""
            print(f"\r{words}", end="", file=sys.stderr, flush=True)

    return report


def _width() -> int:
    """Returns the width of the terminal, from 80 to 110 columns."""
    import shutil

    return min(max(shutil.get_terminal_size((110, 24)).columns, 80), 110)
