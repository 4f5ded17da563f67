"""`pellucid look`: what happens inside a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Force, Json, ModelName, ModelOptions, OptionalPrompt, with_options

if TYPE_CHECKING:
    from pellucid.interpretability.tuned_lens import TunedLensFit

DEFAULT = "lens,attribution,attention"


@with_options
def look(
    model: ModelName,
    prompt: OptionalPrompt = None,
    show: Annotated[
        str,
        typer.Option(
            help="Views, separated by commas: lens, attribution, attention, heads, patching, paths, probes, "
            "geometry, search, diagnostics.",
            metavar="VIEW,...",
        ),
    ] = DEFAULT,
    token: Annotated[
        str | None,
        typer.Option(help="The token whose logit is followed, by its text or id; else the most likely one."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="A second token: the difference of the two logits is followed.")
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(help="The position that predicts, from 0; -1 is the last.", min=-(10**6), max=10**6),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="A head, LAYER.HEAD: its attention pattern is drawn.", metavar="L.H")
    ] = None,
    corrupted: Annotated[
        str | None, typer.Option(help="The other prompt of patching, with as many tokens.", metavar="PROMPT")
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="The token that follows the prompt, for patching.", metavar="TOKEN")
    ] = None,
    wrong: Annotated[
        str | None, typer.Option(help="The token that follows the other prompt.", metavar="TOKEN")
    ] = None,
    tuned: Annotated[
        Path | None,
        typer.Option(help="A tuned lens, FILE.safetensors, through which the lens reads.", metavar="FILE"),
    ] = None,
    fit_lens: Annotated[
        list[str] | None,
        typer.Option(help="Fit that lens first, on the beginning of this text; repeatable.", metavar="DATA"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A further setting of a view, such as top=20; a wrong KEY lists all; repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    path: Annotated[
        str, typer.Option(help="Who computes: eager (the fast engine) or reference (the specification).")
    ] = "eager",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write FILE.json, with every number, or a page, FILE.html, or a picture, .svg or .png; "
            "repeatable.",
            metavar="FILE",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write the attribution as a trace, FILE.json, which `pellucid explain` takes apart."
        ),
    ] = None,
    force: Force = False,
    *,
    engine: ModelOptions,
    json: Json = False,
) -> None:
    """Show what happens inside a model when it reads a prompt: which layer knows it, which head did it.

    Every view states its formula over recorded names, which `pellucid explain` takes apart.
    """
    from pellucid.base.errors import UsageError
    from pellucid.cli.console import rate_bar
    from pellucid.interpretability import look as looking
    from pellucid.interpretability.look_kinds import read_settings

    outputs = output or []
    looking.check_outputs(outputs, trace, force)
    if fit_lens and tuned is None:
        raise UsageError("--fit-lens writes a tuned lens: give --tuned FILE.safetensors for it.")
    named = {"token": token, "against": against, "position": position, "head": head}
    named |= {"corrupted": corrupted, "answer": answer, "wrong": wrong}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    kinds = [kind.strip() for kind in show.split(",") if kind.strip()]
    given |= read_settings(kinds, settings or ())
    opened = engine.open(model)
    with rate_bar("steps") as progress:
        lens: TunedLensFit | Path | None = tuned
        if fit_lens:
            lens = looking.fit_lens(opened, fit_lens, tuned, force=force, progress=progress)
        found = looking.look(opened, prompt, show=kinds, path=path, tuned=lens, progress=progress, **given)
    if trace is not None:
        looking.trace_look(opened, prompt, trace, force, **given)
    for file in outputs:
        found.save(file, force)
    if json:
        print(found.report().to_json(), end="")
        return
    if not outputs:
        print(found)
    for file in outputs:
        print(f"{file}: {', '.join(view.title for view in found.views)}")
    if trace is not None:
        print(f"{trace}: try pellucid explain {trace} --at attribution.sum")
