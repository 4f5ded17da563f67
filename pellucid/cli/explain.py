"""`pellucid explain`: where a number came from."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import (
    Digits,
    Json,
    Only,
    OptionalPrompt,
    Rate,
    Steps,
    Target,
    Update,
    prompt_of,
    training,
)

if TYPE_CHECKING:
    from pellucid.explain.derive import Derivation
    from pellucid.explain.table import Slice
    from pellucid.explain.trace import Trace


def explain(
    model: Annotated[
        str,
        typer.Argument(
            help="A model's folder, .gguf or .toml file or name; a trace file (.json); or a run's folder: "
            "with a prompt its newest model, without one its steps."
        ),
    ],
    prompt: OptionalPrompt = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="A number, NAME[t=1,v=2]; a table, NAME[t=1] or NAME; a place by its token, NAME[t=it]; "
            "of a run, NAME@k after update k.",
            metavar="ADDRESS",
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="How many steps to follow its operands.", min=0, max=1000)] = 3,
    top: Annotated[
        int,
        typer.Option(
            help="How many terms of a long sum to show, and of the largest entries of a folded table.",
            min=1,
            max=100_000,
        ),
    ] = 6,
    target: Target = None,
    update: Update = None,
    lr: Rate = 1.0,
    only: Only = "*",
    steps: Steps = 1,
    digits: Digits = 5,
    lines: Annotated[
        int, typer.Option(help="How long the text may be; 0: no limit.", min=0, max=1_000_000)
    ] = 40,
    raw_tokens: Annotated[
        bool, typer.Option("--raw-tokens", help="Tokens as the tokenizer's file writes them: Ġcat, not ·cat.")
    ] = False,
    json: Json = False,
) -> None:
    """Where a number came from: its formula, the formula with its numbers, and so on for its operands.

    Without --at, every name with its shape. A config-only preset shows its parameters and cost. Of a run,
    the step is made again to the bit: gradient, clipping, moments, decay and rate of one weight's update.
    """
    settings = training(update, lr, only, steps)
    if prompt is None and target is None and not settings and (Path(model) / "recipe.toml").is_file():
        from pellucid.cli.explain_run import explained

        said, most = explained(model, at, depth, top, digits, lines, json, raw_tokens)
        _say(said, json, most)
        return
    trace = _trace(model, prompt, target, settings, at, raw_tokens)
    if trace is None:
        _say(_cost_data(model) if json else _cost(model), json)
    elif at is None:
        from pellucid.explain.overview import overview

        _say(_names(trace) if json else overview(trace), json, lines)
    else:
        from pellucid.explain.derive import explain

        found = explain(trace, at, depth, top, None if json else lines or None)
        asked = at.partition("[")[0].strip()
        if found.name != asked and not json:
            print(f"{asked} is another name of {found.name}.")
        _say(data_of(found) if json else text_of(found, digits), json)


def text_of(found: "Derivation | Slice", digits: int) -> Iterable[str]:
    """A derivation or a table as lines, which name the options of this command where they are cut."""
    from pellucid.explain import derive, table
    from pellucid.explain.table import IN_A_SHELL

    if isinstance(found, table.Slice):
        return table.text(found, digits, more=IN_A_SHELL)
    return derive.lines(found, digits, IN_A_SHELL)


def data_of(found: "Derivation | Slice") -> dict[str, Any]:
    """A derivation or a table as plain data, numbers in full."""
    from pellucid.explain import derive, table

    return table.as_data(found) if isinstance(found, table.Slice) else derive.as_data(found)


def _trace(
    model: str,
    prompt: str | None,
    target: str | None,
    settings: dict[str, Any],
    at: str | None,
    raw_tokens: bool,
) -> "Trace | None":
    """The trace to explain, or None where the model is a config-only preset."""
    from pellucid.errors import UsageError
    from pellucid.workbench import is_config_only, load

    if model.endswith(".json"):
        if prompt is not None or target is not None or settings:
            raise UsageError("a trace file holds its own run; omit the prompt and its options.")
        if raw_tokens:
            raise UsageError("a trace file holds its tokens as it shows them; omit --raw-tokens.")
        from pellucid.workbench.tracing import read_trace

        return read_trace(model)
    if is_config_only(model):
        if prompt is not None or at is not None:
            raise UsageError(
                f"{model} is a config-only preset, so there are no numbers to explain: "
                f'`pellucid explain {model}` shows its parts and cost, `pellucid explain abcd "A B"` numbers.'
            )
        return None
    found = load(model)
    if prompt is None:
        known, some = found.pretrained.tokenizer, list(range(min(2, found.config.vocab_size)))
        example = known.decode(some) if known else str(some)
        raise UsageError(f"{model} needs a prompt, for example: pellucid explain {model} {example!r}.")
    reads, wants = prompt_of(found, prompt), prompt_of(found, target)
    trace = found.trace(reads, target=wants, backward=target is not None, **settings)
    if not raw_tokens:
        return trace
    from dataclasses import replace

    from pellucid.workbench.labels import labels

    ids, vocab_size = trace.run["ids"][0], found.config.vocab_size
    return replace(trace, labels=labels(found.pretrained.tokenizer, vocab_size, ids, raw=True))


def _say(what: Any, json: bool, most: int | None = None) -> None:
    if json:
        from json import dumps

        print(dumps(what, ensure_ascii=False, indent=1))
        return
    told = list(what)
    for line in told[: most or None]:
        print(line)
    if most and len(told) > most:
        print(f"… {len(told) - most} more lines: --lines 0")


def _names(trace: "Trace") -> list[dict[str, Any]]:
    tape = trace.tape
    return [
        {
            "name": name,
            "shape": list(value.shape),
            "axes": list(trace.about(name).axes),
            "role": tape.roles[name],
        }
        for name, value in tape.values.items()
    ]


def _cost(model: str) -> Iterable[str]:
    from pellucid.cost import table
    from pellucid.explain.overview import tree
    from pellucid.workbench import read_config

    config = read_config(model)
    yield f"{model}: config-only preset; its parameters:"
    yield from tree(config.parameters())
    yield ""
    yield from table(config)


def _cost_data(model: str) -> dict[str, Any]:
    from dataclasses import asdict

    from pellucid.cost import cost, total
    from pellucid.workbench import read_config

    config = read_config(model)
    costs = cost(config)
    shapes = {name: list(shape) for name, shape in config.parameters().items()}
    return {
        "parameters": shapes,
        "cost": {part: asdict(c) for part, c in (costs | {"total": total(costs)}).items()},
    }
