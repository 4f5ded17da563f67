"""`pellucid inspect`: the convention card of a model, and what a wrong convention would cost."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Json, ModelName

if TYPE_CHECKING:
    from pellucid.cards.probe import AlternativeLoss, Probe
    from pellucid.pretrained import Pretrained


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

    from pellucid.cards.conventions import card, lines
    from pellucid.errors import UsageError
    from pellucid.workbench import is_config_only, open_model, read_config

    if text is not None and not probe:
        raise UsageError("--text is what the probe reads: give --probe with it.")
    if is_config_only(model):
        if probe:
            raise UsageError(f"{model} is a config-only preset: without weights there is no loss to measure.")
        found, shown = None, card(model, read_config(model))
    else:
        found = open_model(model)
        shown = card(model if model == found.name else f"{model}: {found.name}", found.config, found)
    if not json:
        for line in lines(shown, width=_width()):
            print(line, flush=True)
    done = _run_probe(found, text) if found and probe else None
    if json:
        from json import dumps

        about = asdict(shown) | ({"probe": _data(done)} if done else {})
        print(dumps(about, ensure_ascii=False, indent=1))
    elif done:
        from pellucid.cards.probe import lines as measured

        print()
        for line in measured(done, width=_width()):
            print(line)
        for line in _compare_with_softmax(found, text) if found else ():
            print(line)


def _compare_with_softmax(found: "Pretrained", text: str | None) -> Iterator[str]:
    """Yields, for linear attention, how far its patterns are from those of softmax."""
    from pellucid.cards.attention_distance import table
    from pellucid.cards.probe import SAMPLE, make_case

    if found.config.attention.form == "linear" and found.tokenizer is not None:
        given = make_case(found.config, found.weights, found.tokenizer, text=SAMPLE if text is None else text)
        yield ""
        yield from table(found.config, given.weights, [list(given.ids)])


def _run_probe(found: "Pretrained", text: str | None) -> "Probe":
    from pellucid.cards.probe import ALTERNATIVES, SAMPLE, make_case
    from pellucid.cards.probe import probe as run
    from pellucid.errors import UsageError
    from pellucid.format import format_bytes
    from pellucid.pretrained import parameter_count

    # float64 weights, a changed copy of some of them, and the values of one forward pass
    needed, here = 14 * parameter_count(found.config.parameters()), _memory()
    if here is not None and needed > here:
        raise UsageError(
            f"the probe computes in float64 and needs about {format_bytes(needed)} of memory for this model; "
            f"this machine has {format_bytes(here)}. Use a smaller model of the same family."
        )
    if found.tokenizer is None:
        raise UsageError(f"{found.name} has no tokenizer, so the probe cannot encode a text.")
    seen = 0

    def report(_: "AlternativeLoss") -> None:
        nonlocal seen
        seen += 1
        if sys.stderr.isatty():
            print(f"\r{seen} of {len(ALTERNATIVES)} ", end="", file=sys.stderr, flush=True)

    done = run(
        make_case(
            found.config, found.weights, found.tokenizer, found.add_bos, SAMPLE if text is None else text
        ),
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
    """Returns the bytes of memory of this machine, None where it is unknown."""
    import os

    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _width() -> int:
    """Returns the width of the terminal, from 80 to 110 columns."""
    import shutil

    return min(max(shutil.get_terminal_size((110, 24)).columns, 80), 110)
