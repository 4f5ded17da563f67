"""`pellucid explain`: where a number came from."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Digits, Only, Rate, Steps, Target, Update, training

if TYPE_CHECKING:
    from pellucid.explain.trace import Trace


def explain(
    model: Annotated[str, typer.Argument(help="A model's name, a .toml file, or a trace file (.json).")],
    prompt: Annotated[str | None, typer.Argument(help="The text to read.")] = None,
    at: Annotated[
        str | None,
        typer.Option(help="The number: NAME[t=1,v=2], or NAME for a whole value.", metavar="ADDRESS"),
    ] = None,
    depth: Annotated[int, typer.Option(help="How many steps to follow its operands.", min=0, max=1000)] = 3,
    top: Annotated[int, typer.Option(help="How many terms of a long sum to show.", min=1)] = 6,
    target: Target = None,
    update: Update = None,
    lr: Rate = 1.0,
    only: Only = "*",
    steps: Steps = 1,
    digits: Digits = 5,
    lines: Annotated[int, typer.Option(help="How long the text may be; 0: no limit.", min=0)] = 40,
    json: Annotated[bool, typer.Option("--json", help="Plain data, numbers in full.")] = False,
) -> None:
    """Where a number came from: its formula, the formula with its numbers, and so on for its operands.

    Without --at, every name with its shape. A preset without weights shows its parameters and cost.
    """
    from pellucid.explain import derive as views
    from pellucid.explain.address import parse
    from pellucid.explain.overview import overview, window

    trace = _trace(model, prompt, target, training(update, lr, only, steps))
    if trace is None:
        _print_cost(model, json)
        return
    name, index = parse(trace, at) if at else (None, None)
    if name is None:
        _say(_names(trace) if json else overview(trace), json)
    elif index is None:
        _say(_whole(trace, name) if json else window(trace, name, digits), json)
    else:
        root = views.derive(trace, at or "", depth, top)
        _say(views.as_data(root) if json else views.lines(root, digits, lines or None), json)


def _trace(model: str, prompt: str | None, target: str | None, settings: dict[str, Any]) -> "Trace | None":
    """The trace to explain, or None where the model is a shape without weights."""
    from pathlib import Path

    from pellucid.config import preset_text, presets
    from pellucid.errors import TokenError
    from pellucid.explain.trace_file import read
    from pellucid.workbench import load

    if model.endswith(".json"):
        if prompt is not None or target is not None or settings:
            raise TokenError("a trace file holds its own run; leave the prompt and its options away.")
        return read(Path(model))
    if model in presets() and "[weights]" not in preset_text(model):
        return None
    found = load(model)
    if prompt is None:
        raise TokenError(
            f"{model} needs a prompt, for example: pellucid explain {model} {_example(found)!r}."
        )
    return found.trace(prompt, target=target, backward=target is not None, **settings)


def _example(model: Any) -> str:
    return str(model.tokenizer.decode(list(range(min(2, model.config.vocab_size)))))


def _say(what: Any, json: bool) -> None:
    if json:
        from json import dumps

        print(dumps(what, ensure_ascii=False, indent=1))
    else:
        for line in what:
            print(line)


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


def _whole(trace: "Trace", name: str) -> dict[str, Any]:
    from pellucid.explain.trace_file import tensor_entry

    return {"name": name} | tensor_entry(trace, name)


def _print_cost(model: str, json: bool) -> None:
    from dataclasses import asdict

    from pellucid.config import preset
    from pellucid.cost import cost, total
    from pellucid.explain.overview import tree

    config = preset(model)
    costs = cost(config)
    everything = costs | {"total": total(costs)}
    if json:
        shapes = {name: list(shape) for name, shape in config.parameters().items()}
        _say({"parameters": shapes, "cost": {part: asdict(c) for part, c in everything.items()}}, json)
        return
    print(f"{model}: a shape without weights; its parameters:")
    _say(tree(config.parameters()), json)
    print(f"\none sequence of {config.context_length:,} tokens forward, two bytes a number:")
    print(f"{'part':<14}{'parameters':>18}{'GFLOP':>14}{'activation MB':>16}{'cache MB':>12}")
    for part, c in everything.items():
        print(
            f"{part:<14}{c.parameters:>18,}{c.flops / 1e9:>14,.1f}"
            f"{c.activation_bytes / 1e6:>16,.1f}{c.cache_bytes / 1e6:>12,.1f}"
        )
