"""`pellucid generate --sweep`: texts of several values of a setting, side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import UsageError
from pellucid.base.formatting import escape_controls
from pellucid.cli.console import counting_bar
from pellucid.cli.sampling_options import GivenSampling
from pellucid.cli.terminal import note

if TYPE_CHECKING:
    from rich.table import Table

    from pellucid.generation.prompt_jobs import PromptJob
    from pellucid.generation.sweep import SweepRow
    from pellucid.model import Model

NARROWEST = 22
"""Columns of a text beside others."""


def set_first_values(sampling: GivenSampling, sweeps: list[str]) -> GivenSampling:
    """Returns the options of a command line with the first value of each sweep: settings that go together
    only with swept ones, such as n with a temperature, are then not refused."""
    from pellucid.generation.sweep import parse_sweep

    first = {name: values[0] for name, values in map(parse_sweep, sweeps)}
    return replace(sampling, settings={**sampling.settings, **first})


def print_sweep(
    model: "Model", job: "PromptJob", sweeps: list[str], engine: Mapping[str, Any], json: bool
) -> None:
    """Generates the texts of a sweep and prints them: side by side, or as JSON."""
    from pellucid.cli.console import Console
    from pellucid.generation.sweep import combine, parse_sweep, run_sweep

    values = dict(map(parse_sweep, sweeps))
    if len(values) < len(sweeps):
        raise UsageError("--sweep has a setting twice: give all its values in one, KEY=VALUE,VALUE.")
    with counting_bar("texts", len(combine(values))) as pause:

        def count() -> None:
            with pause():
                pass

        result = run_sweep(model, job.request, values, engine, before=job.shown, progress=count)
    if json:
        from json import dumps

        print(dumps(result.to_data(), ensure_ascii=False))
        return
    console = Console(highlight=False)
    tables = math.ceil(len(result.rows) / max((console.width + 2) // (NARROWEST + 2), 1))
    beside = math.ceil(len(result.rows) / tables)
    for first in range(0, len(result.rows), beside):
        if first:
            console.print()
        console.print(_make_table(job, result.rows[first : first + beside]))
    grammar = "" if result.grammar is None else f", grammar stories:{result.grammar}"
    note(f"seed {result.seed}{grammar}")


def _make_table(job: "PromptJob", rows: "Sequence[SweepRow]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from pellucid.generation.sweep import STATISTICS

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=len(rows) > 1)
    for row in rows:
        table.add_column(Text(_describe(row)), ratio=1, overflow="fold")
    for texts in zip(*(map(job.text_of, row.completions) for row in rows), strict=False):
        table.add_row(*(Text(escape_controls(text.strip("\n"))) for text in texts), end_section=True)
        table.add_row(*[""] * len(rows))
    for name, label in STATISTICS.items():
        figures = [getattr(row, name) for row in rows]
        if any(figure is not None for figure in figures):
            table.add_row(*(Text(_format(name, label, figure), style="dim") for figure in figures))
    return table


def _describe(row: "SweepRow") -> str:
    from pellucid.generation.settings.resolve import format_value

    return " ".join(f"{name}={format_value(value)}" for name, value in row.settings.items())


def _format(name: str, label: str, figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{label} {figure:.2f}" if name == "mean_surprisal" else f"{label} {figure:.0%}"
