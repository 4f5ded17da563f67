"""`pellucid choices`: every choice that a model is made of, and one of them in detail."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Json

if TYPE_CHECKING:
    from pellucid.cards.choices import Beside, Choice, Family
    from pellucid.cli.console import Console
    from pellucid.cost import Cost

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
    """Every choice that a model is made of, with its source; of one also its formula, cost and picture."""
    import shutil

    from pellucid.cards.choices import chosen, families
    from pellucid.cli.console import Console

    asked = chosen(name) if name else [(family, choice) for family in families() for choice in family.choices]
    if json:
        from json import dumps

        print(dumps([_data(*pair) for pair in asked], ensure_ascii=False, indent=1))
        return
    console = Console(highlight=False, width=min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH))
    if name:
        for pair in asked:
            _details(console, *pair)
        return
    for family in families():
        _overview(console, family)
    console.print("`pellucid choices NAME` tells more about a family or a kind.", style="dim")


def _overview(console: "Console", family: "Family") -> None:
    _wrapped(console, (family.name, "bold"), f"  {family.idea}")
    for where, known in (("config", family.keys), ("recipe", family.recipe)):
        keys = ", ".join(f"{key} (default {kind})" for key, kind in known.items())
        if keys:
            _wrapped(console, (f"in a {where}: {keys}", "dim"))
    _rows(console, [(choice.kind, choice.idea, choice.source) for choice in family.choices])


def _rows(console: "Console", rows: list[tuple[str, str, str]]) -> None:
    """Names at the left; beside each what there is to say, and who says it; below where it is too wide."""
    indent = max([INDENT, *(len(name) + 4 for name, _, _ in rows)])
    for name, text, source in rows:
        below = max(map(len, text.splitlines()[1:]), default=0)  # of a table or a picture, under its title
        if below > console.width - indent:
            console.print(f"  {name}")
            _wrapped(console, text, name=" " * max(0, min(4, console.width - below)))
            continue
        _wrapped(console, text, (f"  {source}" * bool(source), "dim"), name=f"  {name}".ljust(indent))
    console.print()


def _wrapped(console: "Console", *pieces: str | tuple[str, str], name: str = "") -> None:
    """Pieces of text, some in a style, beside a name and wrapped under themselves."""
    from rich.text import Text

    for i, line in enumerate(Text.assemble(*pieces).wrap(console, console.width - len(name))):
        line.rstrip()
        console.print(Text(" " * len(name) if i else name) + line)


def _details(console: "Console", family: "Family", choice: "Choice") -> None:
    from pellucid.cards.choice_pictures import pictures
    from pellucid.cards.choices import beside_default, toml
    from pellucid.figures.text import write_text

    _wrapped(console, (f"{family.name}/{choice.kind}", "bold"), f"  {choice.idea}")
    rows = [("formula", choice.formula), ("source", choice.source)]
    settings = [f"{name}: {type(value).__name__} = {toml(value)}" for name, value in choice.settings.items()]
    rows.append(("settings", "\n".join(settings)))
    rows.append(("in a config", "\n".join(choice.written(key) for key in family.keys)))
    rows.append(("in a recipe", "\n".join(choice.written(key) for key in family.recipe)))
    rows += (("cost", "\n".join(_cost(beside, family, choice))) for beside in beside_default(family, choice))
    room = max(min(CURVE, console.width - SCALE - 4), 10)
    rows += (("picture", "\n".join(write_text(picture, room))) for picture in pictures(choice.value))
    _rows(console, [(name, text, "") for name, text in rows if text])


def _cost(beside: "Beside", family: "Family", choice: "Choice") -> Iterator[str]:
    from pellucid.cards.choices import PRESET
    from pellucid.cost import Cost, total

    usual = family.keys[beside.key]
    if beside.why:
        yield f"{beside.key} = {choice.kind} does not go with the rest of {PRESET}: {beside.why}"
    elif not beside.parts:
        yield f"{beside.key} = {choice.kind} costs what {usual} costs."
    else:
        yield f"{beside.key} = {choice.kind} beside {usual} in {PRESET}, {beside.length:,} tokens forward:"
        yield _aligned("", "parameters", "GFLOP", "activation MB", "cache MB")
        for part in beside.parts:
            yield _aligned(part, *_figures(beside.here[part], beside.usual[part]))
        yield _aligned("total", *_figures(total(beside.here), Cost())).replace("+", " ")


def _figures(here: "Cost", usual: "Cost") -> Iterator[str]:
    """What there is more or less of; = where nothing changes."""
    differences = (
        (here.parameters - usual.parameters, "+,"),
        ((here.flops - usual.flops) / 1e9, "+,.1f"),
        ((here.activation_bytes - usual.activation_bytes) / 1e6, "+,.1f"),
        ((here.cache_bytes - usual.cache_bytes) / 1e6, "+,.1f"),
    )
    return (format(more, form) if more else "=" for more, form in differences)


def _aligned(name: str, *figures: str) -> str:
    first, *rest = COLUMNS
    return name.ljust(first) + "".join(text.rjust(width) for text, width in zip(figures, rest, strict=True))


def _data(family: "Family", choice: "Choice") -> dict[str, Any]:
    from dataclasses import asdict

    from pellucid.cards.choices import PRESET, beside_default
    from pellucid.cost import total

    return {
        "family": family.name,
        "kind": choice.kind,
        "idea": choice.idea,
        "formula": choice.formula,
        "source": choice.source,
        "settings": choice.settings,
        "config": [choice.written(key) for key in family.keys],
        "recipe": [choice.written(key) for key in family.recipe],
        "default_of": [key for key, kind in (family.keys | family.recipe).items() if kind == choice.kind],
        "cost": [
            {"preset": PRESET, "tokens": beside.length, "key": beside.key}
            | ({"why_not": beside.why} if beside.why else asdict(total(beside.here)))
            for beside in beside_default(family, choice)
        ],
    }
