"""The page of all choices, and its pictures: written from what `pellucid choices` prints."""

import re
from collections.abc import Iterator
from pathlib import Path

from pellucid.config.cost import Cost, total
from pellucid.explanation.choice_pictures import family_figure, pictures
from pellucid.explanation.choices import (
    PRESET,
    Choice,
    ChoiceFamily,
    compare_costs,
    families,
    format_toml,
    preset_cost,
)
from pellucid.report.chart import Chart, Heatmap
from pellucid.report.svg import write_svg


def choices_page() -> Iterator[str]:
    yield "# Choices\n"
    yield (
        "Every choice that a model is made of: the kinds of each family, what they compute, who says so, "
        "what they cost. `pellucid choices` prints the list, `pellucid choices NAME` more about one.\n"
    )
    yield from (f"- [{family.name}](#{family.name}): {family.idea}" for family in families())
    for family in families():
        yield f"\n## {family.name}\n\n{family.idea}"
        for where, known in (("config", family.keys), ("recipe", family.recipe)):
            keys = ", ".join(f"`{key}` (default `{kind}`)" for key, kind in known.items())
            if keys:
                yield f"\nIn a {where}: {keys}."
        yield "\n| kind | idea | formula | source |\n|---|---|---|---|"
        for choice in family.choices:
            formula = f"`{choice.formula}`" if choice.formula else ""
            yield f"| `{choice.kind}` | {_cell(choice.idea)} | {_cell(formula)} | {_cell(choice.source)} |"
        yield from _costs(family)
        for name, shown in _pictures(family).items():
            yield f"\n![{family.name}: {shown[0][1].title}](choices/{name})"


def choices_pictures() -> dict[str, str]:
    """Returns every drawing by the name of its file."""
    drawn = {}
    for family in families():
        for name, shown in _pictures(family).items():
            plots = [(choice.kind, _settings(choice), picture) for choice, picture in shown]
            drawn[name] = write_svg(family_figure(family.name, plots)).decode()
    return drawn


def _settings(choice: Choice) -> str:
    return ", ".join(f"{name} {format_toml(value)}" for name, value in choice.settings.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _costs(family: ChoiceFamily) -> Iterator[str]:
    """Yields what the kinds cost, where they differ; those that cost what the default costs are only
    named."""
    if not family.keys:
        return
    shape, as_it_is = preset_cost()
    rows, same, not_here = [], [], []
    found = [(choice, beside) for choice in family.choices for beside in compare_costs(family, choice)]
    for choice, beside in sorted(found, key=lambda pair: list(family.keys).index(pair[1].key)):
        if beside.why:
            not_here.append(f"`{beside.key} = {choice.kind}` cannot be combined with it: {beside.why}")
        elif beside.parts:
            rows.append(f"| `{choice.to_toml(beside.key)}` | {_figures(total(beside.here))} |")
        else:
            same.append(f"`{beside.key} = {choice.kind}`")
    if rows:
        yield f"\nIn {PRESET}, one sequence of {shape.context_length:,} tokens forward, two bytes a number:"
        yield "\n| | parameters | GFLOP | activation MB | cache MB |\n|---|--:|--:|--:|--:|"
        yield f"| as it is | {_figures(total(as_it_is))} |"
        yield from rows
    if same:
        yield f"\nNo other cost in {PRESET}: {', '.join(same)}."
    for line in not_here:
        yield f"\nIn {PRESET} {line}"


def _figures(c: Cost) -> str:
    return (
        f"{c.parameters:,} | {c.flops / 1e9:,.1f} | "
        f"{c.activation_bytes / 1e6:,.1f} | {c.cache_bytes / 1e6:,.1f}"
    )


def _pictures(family: ChoiceFamily) -> dict[str, list[tuple[Choice, Chart | Heatmap]]]:
    """The pictures of a family by file: those of one title in one drawing."""
    found: dict[str, list[tuple[Choice, Chart | Heatmap]]] = {}
    for choice in family.choices:
        for picture in pictures(choice.value):
            slug = re.sub(r"[^a-z0-9]+", "-", f"{family.name} {picture.title}")
            found.setdefault(f"{slug}.svg", []).append((choice, picture))
    return found


def choices_files(docs: Path, made: str) -> dict[Path, str]:
    """Returns the page, beginning with how it was made, and its pictures, by path."""
    drawn = {docs / "choices" / name: text for name, text in choices_pictures().items()}
    return {docs / "choices.md": made + "\n".join(choices_page()) + "\n"} | drawn
