"""`pellucid inspect`: the convention card of a model, and what a wrong convention would cost."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Json, ModelName

if TYPE_CHECKING:
    from pellucid.cards.probe import Finding, Probe
    from pellucid.pretrained import Pretrained


def inspect(
    model: ModelName,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure what a wrong choice would do to the loss.")
    ] = False,
    text: Annotated[str | None, typer.Option(help="The text that the probe reads.")] = None,
    json: Json = False,
) -> None:
    """Everything about a model that its weights' shapes do not tell, and why each choice matters."""
    from dataclasses import asdict

    from pellucid.cards.conventions import card, lines
    from pellucid.errors import UsageError
    from pellucid.workbench import is_config_only, open_model, read_config

    if text is not None and not probe:
        raise UsageError("--text is what the probe reads: give --probe with it.")
    if is_config_only(model):
        if probe:
            raise UsageError(f"{model} is a config-only preset: without weights there is no loss to measure.")
        found, made = None, card(model, read_config(model))
    else:
        found = open_model(model)
        made = card(model if model == found.name else f"{model}: {found.name}", found.config, found)
    if not json:
        for line in lines(made, width=_width()):
            print(line, flush=True)
    done = _probed(found, text) if found and probe else None
    if json:
        from json import dumps

        about = asdict(made) | ({"probe": _data(done)} if done else {})
        print(dumps(about, ensure_ascii=False, indent=1))
    elif done:
        from pellucid.cards.probe import lines as measured

        print()
        for line in measured(done, width=_width()):
            print(line)
        for line in _beside_softmax(found, text) if found else ():
            print(line)


def _beside_softmax(found: "Pretrained", text: str | None) -> Iterator[str]:
    """For linear attention: how far its patterns are from those that softmax would make."""
    from pellucid.cards.attention_distance import table
    from pellucid.cards.probe import SAMPLE, case

    if found.config.attention.form == "linear" and found.tokenizer is not None:
        given = case(found.config, found.weights, found.tokenizer, text=SAMPLE if text is None else text)
        yield ""
        yield from table(found.config, given.weights, [list(given.ids)])


def _probed(found: "Pretrained", text: str | None) -> "Probe":
    from pellucid.cards.probe import ALTERNATIVES, SAMPLE, case
    from pellucid.cards.probe import probe as run
    from pellucid.errors import UsageError
    from pellucid.pretrained import parameter_count

    # float64 weights, a changed copy of some of them, and the values of one forward pass
    needed, here = 14 * parameter_count(found.config.parameters()), _memory()
    if here is not None and needed > here:
        raise UsageError(
            f"the probe computes in float64 and needs about {needed / 1e9:.0f} GB of memory for this model; "
            f"this machine has {here / 1e9:.0f} GB. Take a smaller model of the same family."
        )
    if found.tokenizer is None:
        raise UsageError(f"{found.name} has no tokenizer, so the probe has nothing to read a text with.")
    seen = 0

    def report(_: "Finding") -> None:
        nonlocal seen
        seen += 1
        if sys.stderr.isatty():
            print(f"\r{seen} of {len(ALTERNATIVES)} ", end="", file=sys.stderr, flush=True)

    done = run(
        case(found.config, found.weights, found.tokenizer, found.add_bos, SAMPLE if text is None else text),
        report,
    )
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    return done


def _data(done: "Probe") -> dict[str, Any]:
    import math

    from pellucid.cards.probe import remark

    return {
        "tokens": done.tokens,
        "loss": done.loss,
        "alternatives": [
            {
                "alternative": f.alternative,
                "loss": f.loss if f.loss is not None and math.isfinite(f.loss) else None,
                "remark": remark(done.loss, f),
            }
            for f in done.findings
        ],
        "not_applied": list(done.not_applied),
    }


def _memory() -> int | None:
    """The bytes of memory of this machine, where it says."""
    import os

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _width() -> int:
    """As wide as the terminal, within what is readable."""
    import shutil

    return min(max(shutil.get_terminal_size((110, 24)).columns, 80), 110)
