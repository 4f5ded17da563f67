"""`pellucid choices`: every choice of a model, and one of them in detail."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import Json
from pellucid.cli.terminal import count_columns, print_json

if TYPE_CHECKING:
    from pellucid.cli.console import Console
    from pellucid.config.cost import Cost
    from pellucid.explanation.choices import Choice, ChoiceFamily, CostComparison

WIDTH, INDENT = 100, 18
CURVE, SCALE = 56, 10
"""Columns of a curve at most, and of the scale beside it."""
COLUMNS = (13, 12, 9, 14, 9)
"""Of the table of costs."""


def choices(
    name: Annotated[
        str | None, typer.Argument(help="A family (masks), a kind (rope), or both (outputs/linear).")
    ] = None,
    json: Json = False,
) -> None:
    """List every choice of a model with its source; of one, also its formula, cost and picture."""
    from pellucid.cli.console import Console
    from pellucid.explanation.choices import describe_choice, families, find_choices

    asked = (
        find_choices(name)
        if name
        else [(family, choice) for family in families() for choice in family.choices]
    )
    if json:
        print_json([describe_choice(*pair) for pair in asked])
        return
    console = Console(highlight=False, width=count_columns(0, WIDTH, WIDTH))
    if name:
        for pair in asked:
            _print_details(console, *pair)
        return
    for family in families():
        _print_overview(console, family)
    console.print("`pellucid choices NAME` shows a family or a kind in detail.", style="dim")


def _print_overview(console: "Console", family: "ChoiceFamily") -> None:
    _print_wrapped(console, (family.name, "bold"), f"  {family.idea}")
    for where, known in (("config", family.keys), ("recipe", family.recipe)):
        keys = ", ".join(f"{key} (default {kind})" for key, kind in known.items())
        if keys:
            _print_wrapped(console, (f"in a {where}: {keys}", "dim"))
    _print_rows(console, [(choice.kind, choice.idea, choice.source) for choice in family.choices])


def _print_rows(console: "Console", rows: list[tuple[str, str, str]]) -> None:
    """Prints names at the left, and beside each its text and source; below it where a table is too wide."""
    indent = max([INDENT, *(len(name) + 4 for name, _, _ in rows)])
    for name, text, source in rows:
        below = max(map(len, text.splitlines()[1:]), default=0)  # of a table or a picture, under its title
        if below > console.width - indent:
            console.print(f"  {name}")
            _print_wrapped(console, text, name=" " * max(0, min(4, console.width - below)))
            continue
        _print_wrapped(console, text, (f"  {source}" * bool(source), "dim"), name=f"  {name}".ljust(indent))
    console.print()


def _print_wrapped(console: "Console", *pieces: str | tuple[str, str], name: str = "") -> None:
    """Prints pieces of text, some in a style, wrapped beside a name."""
    from rich.text import Text

    for i, line in enumerate(Text.assemble(*pieces).wrap(console, console.width - len(name))):
        line.rstrip()
        console.print(Text(" " * len(name) if i else name) + line)


def _print_details(console: "Console", family: "ChoiceFamily", choice: "Choice") -> None:
    from pellucid.explanation.choice_pictures import pictures
    from pellucid.explanation.choices import compare_costs, format_toml
    from pellucid.report.text import write_text

    _print_wrapped(console, (f"{family.name}/{choice.kind}", "bold"), f"  {choice.idea}")
    rows = [("formula", choice.formula), ("source", choice.source)]
    settings = [
        f"{name}: {type(value).__name__}"
        + (", required" if name in choice.required_settings else f" = {format_toml(value)}")
        for name, value in choice.settings.items()
    ]
    rows.append(("settings", "\n".join(settings)))
    rows.append(("in a config", "\n".join(choice.to_toml(key) for key in family.keys)))
    rows.append(("in a recipe", "\n".join(choice.to_toml(key) for key in family.recipe)))
    rows += (("cost", "\n".join(_cost(costs, family, choice))) for costs in compare_costs(family, choice))
    room = max(min(CURVE, console.width - SCALE - 4), 10)
    rows += (("picture", "\n".join(write_text(picture, room))) for picture in pictures(choice.value))
    _print_rows(console, [(name, text, "") for name, text in rows if text])


def _cost(costs: "CostComparison", family: "ChoiceFamily", choice: "Choice") -> Iterator[str]:
    from pellucid.config.cost import Cost, total
    from pellucid.explanation.choices import PRESET

    usual = family.keys[costs.key]
    if costs.why:
        yield f"{costs.key} = {choice.kind} cannot be combined with {PRESET}: {costs.why}"
    elif not costs.parts:
        yield f"{costs.key} = {choice.kind} costs as much as {usual}."
    else:
        yield f"{costs.key} = {choice.kind} instead of {usual} in {PRESET}, {costs.length:,} tokens forward:"
        yield _align("", "parameters", "GFLOP", "activation MB", "cache MB")
        for part in costs.parts:
            yield _align(part, *_figures(costs.here[part], costs.usual[part]))
        yield _align("total", *_figures(total(costs.here), Cost())).replace("+", " ")


def _figures(here: "Cost", usual: "Cost") -> Iterator[str]:
    """Yields the differences in cost; = where nothing changes."""
    differences = (
        (here.parameters - usual.parameters, "+,"),
        ((here.flops - usual.flops) / 1e9, "+,.1f"),
        ((here.activation_bytes - usual.activation_bytes) / 1e6, "+,.1f"),
        ((here.cache_bytes - usual.cache_bytes) / 1e6, "+,.1f"),
    )
    return (format(more, form) if more else "=" for more, form in differences)


def _align(name: str, *figures: str) -> str:
    first, *rest = COLUMNS
    return name.ljust(first) + "".join(text.rjust(width) for text, width in zip(figures, rest, strict=True))
