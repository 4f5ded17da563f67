"""`pellucid compare`: two runs, or anybody's arrays against ours; noise or bug, and where."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.options import Target

if TYPE_CHECKING:
    from pellucid.config import ModelConfig
    from pellucid.explain.trace import Trace
    from pellucid.judge.judge_run import RecordedValue
    from pellucid.judge.verdict import Replayed


def compare(
    a: Annotated[str, typer.Argument(help="Ours: a trace file (.json) or a model.", metavar="A")],
    b: Annotated[
        str, typer.Argument(help="Theirs: a trace, a model, or arrays (.npz, .safetensors).", metavar="B")
    ],
    prompt: Annotated[str | None, typer.Argument(help="The text that a model reads.")] = None,
    target: Target = None,
    names: Annotated[
        str | None,
        typer.Option(
            help="Their names to ours: hf, hf-gpt2, nanogpt, or a TOML file with lines such as "
            '"h.{l}.attn.q" = "blocks.{l}.attn.q".',
            metavar="TABLE",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="The type their run computed in; else that of their arrays.", metavar="TYPE"),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            help="How theirs orders the channels of q and k: halves (Hugging Face) or pairs (GGUF).",
            metavar="LAYOUT",
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Judge only values whose names fit.", metavar="PATTERN")] = "*",
    tolerance: Annotated[
        float | None,
        typer.Option(help="What counts as equal, relative to the largest entry.", min=0, max=1000),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Plain data, numbers in full.")] = False,
) -> None:
    """Is this number right? Each value of B, recomputed from B's own numbers by A's program.

    Equal, or noise (rounding explains it): exit code 0. BUG at a name, or different (each value follows from
    its inputs, and the weights are not the same): exit code 1. Cannot tell (too little is recorded): 0.
    """
    from pellucid.errors import UsageError
    from pellucid.judge.arrays_file import SUFFIXES
    from pellucid.judge.fitting import explain_bug
    from pellucid.judge.judge_run import judge_run

    if a.endswith(SUFFIXES) and not b.endswith(SUFFIXES):
        a, b = b, a  # arrays are always theirs
    _check(a, b, prompt, target, names, dtype, layout, tolerance)
    if a.endswith(SUFFIXES):
        _two_files(Path(a), Path(b), only, tolerance, json)
        return
    ours, config = _trace(a, prompt, target, layout)
    theirs, unmatched = _theirs(b, prompt, target, ours, names, dtype)
    if not any(_fits(name, only) for name in theirs):
        raise UsageError(f"no value that both have fits {only!r}; both have {', '.join(list(theirs)[:5])} ….")
    done = judge_run(ours, theirs, tolerance=tolerance, only=only)
    done = explain_bug(done, ours, theirs, config)
    if json:
        _print_json(done, unmatched)
    else:
        print(done)
        if unmatched:
            count = len(unmatched)
            print(f"  not compared, {count} name{'s' * (count > 1)} of theirs: {', '.join(unmatched[:5])}")
    if not done:
        raise typer.Exit(1)


def _fits(name: str, only: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(name, only)


def _check(
    a: str,
    b: str,
    prompt: str | None,
    target: str | None,
    names: str | None,
    dtype: str | None,
    layout: str | None,
    tolerance: float | None,
) -> None:
    """Options that go together, before anything is read."""
    from math import isnan

    from pellucid.errors import UsageError, did_you_mean
    from pellucid.judge.arrays_file import SUFFIXES
    from pellucid.judge.rounding import PRECISIONS

    models = [side for side in (a, b) if not side.endswith((".json", *SUFFIXES))]
    if models and prompt is None:
        raise UsageError(f'{models[0]} needs a prompt, for example: pellucid compare {a} {b} "A B".')
    if not models and (prompt is not None or target is not None):
        raise UsageError("files hold their own run: omit the prompt and --target.")
    if names and not b.endswith(SUFFIXES):
        raise UsageError("--names is for the arrays of another program, a .npz or .safetensors file.")
    if dtype is not None and dtype not in PRECISIONS:
        hint = did_you_mean(dtype, PRECISIONS)
        raise UsageError(f"no type called {dtype!r}; have {', '.join(PRECISIONS)}.{hint}")
    if layout not in (None, "halves", "pairs"):
        raise UsageError(f"no layout called {layout!r}; have halves, pairs.")
    if layout and (a not in models or not b.endswith(SUFFIXES)):
        raise UsageError(
            "--layout is for the arrays of another program, compared with a model; a trace has its own."
        )
    if tolerance is not None and isnan(tolerance):
        raise UsageError("--tolerance must be a number, for example 1e-6.")


def _trace(
    side: str, prompt: str | None, target: str | None, layout: str | None = None
) -> tuple["Trace", "ModelConfig | None"]:
    """A trace file, or a model's run and its config; with a `layout`, the same model with its RoPE in it."""
    from pellucid.workbench import load
    from pellucid.workbench.tracing import read_trace

    if side.endswith(".json"):
        return read_trace(side), None
    model = load(side)
    own = getattr(model.config.positions, "layout", None)
    if layout and own and own != layout:
        print(
            f"{side} holds its queries and keys in {own}: reordered to {layout}, which changes no score.",
            file=sys.stderr,
        )
        model = model.in_layout(layout)
    return model.trace(prompt or "", target=target, backward=target is not None), model.config


def _layout(trace: "Trace") -> str | None:
    """How a run turned its queries and keys, if it did."""
    turned = (step for step in trace.tape.steps.values() if step.op.name == "rotate")
    return next((str(step.attrs.get("layout")) for step in turned), None)


def _theirs(
    b: str, prompt: str | None, target: str | None, ours: "Trace", names: str | None, dtype: str | None
) -> tuple[dict[str, "RecordedValue"], list[str]]:
    """The values of B under our names, and the names that have no counterpart."""
    from pellucid.judge.arrays_file import SUFFIXES, read
    from pellucid.judge.judge_run import RecordedValue, recorded_values
    from pellucid.judge.name_table import map_names, read_table

    table = read_table(names) if names is not None else None
    if b.endswith(SUFFIXES):
        arrays = read(Path(b))
    else:
        trace, _ = _trace(b, prompt, target, _layout(ours))
        _check_same_sizes(ours, trace)
        _same_length(ours, trace)
        arrays = recorded_values(trace)
    if dtype:
        arrays = {
            n: RecordedValue(x.value, dtype if x.value.dtype.kind == "f" else x.type)
            for n, x in arrays.items()
        }
    return map_names(arrays, ours, table)


def _check_same_sizes(ours: "Trace", theirs: "Trace") -> None:
    """Refuses two models of different sizes: no value of one can be recomputed by the other's program."""
    from pellucid.errors import UsageError
    from pellucid.judge.mismatch import model_sizes

    here, there = model_sizes(ours), model_sizes(theirs)
    if apart := [key for key in here if there.get(key, here[key]) != here[key]]:
        names = " and ".join(str(side.run.get("model", "a trace")) for side in (ours, theirs))
        raise UsageError(
            f"{names} have different sizes: "
            f"{', '.join(f'{key} is {here[key]:,} and {there[key]:,}' for key in apart)}. "
            "compare judges two runs of the same model; give two with the same sizes."
        )


def _same_length(ours: "Trace", theirs: "Trace") -> None:
    from pellucid.errors import UsageError

    if "ids" in ours.tape and "ids" in theirs.tape and ours.tape["ids"].shape != theirs.tape["ids"].shape:
        here, there = (side.tape["ids"].shape[-1] for side in (ours, theirs))
        texts = [" ".join(map(str, side.run.get("tokens", []))) for side in (theirs, ours)]
        raise UsageError(
            f"the two did not read the same text, {texts[0]!r} and {texts[1]!r}: "
            f"{there} tokens there, {here} here: another prompt, or a bos?"
        )


def _two_files(a: Path, b: Path, only: str, tolerance: float | None, json: bool) -> None:
    """Arrays against arrays: no program is known, so the plain difference."""
    from json import dumps

    from pellucid.errors import UsageError
    from pellucid.judge.arrays_file import read
    from pellucid.judge.mismatch import BETWEEN_ENGINES, find_first_mismatch

    first, second = ({n: x.value for n, x in read(side).items() if _fits(n, only)} for side in (a, b))
    shared = {name: value for name, value in first.items() if name in second}
    if not shared:
        raise UsageError(
            f"{a} and {b} have no name in common: {', '.join([*first][:3])}; {', '.join([*second][:3])}."
        )
    found = find_first_mismatch(second, shared, BETWEEN_ENGINES if tolerance is None else tolerance)
    if json:
        data = {
            "verdict": "different" if found else "equal",
            "values": len(shared),
            "departure": found and str(found),
        }
        print(dumps(data, ensure_ascii=False, indent=1))
    elif found:
        print(f"different (no program is known, so nothing can be said of noise)\n  {found}")
    else:
        print(f"equal: {len(shared)} values")
    if found:
        raise typer.Exit(1)


def _print_json(done: "Replayed", unmatched: list[str]) -> None:
    from json import dumps
    from math import isfinite

    def number(value: float) -> float | str:
        return value if isfinite(value) else str(value)

    data: dict[str, Any] = {
        "verdict": done.verdict,
        "at": done.bugs[0].place if done.bugs else None,
        "story": done.story or None,
        "explained_by": list(done.explained_by),
        "given_differently": [value.name for value in done.given_differently],
        "departure": done.departure and {
            "at": done.departs_at,
            "theirs": number(done.departure.got),
            "ours": number(done.departure.wanted),
        },
        "values": [
            {
                "name": value.name,
                "span_since": value.since,
                "at": value.address,
                "theirs": number(value.got),
                "from_their_inputs": number(value.wanted),
                "units": number(value.units),
                "allowed": value.allowed,
                "unit": f"a replay in {value.replayed}" if value.replayed else "u · Σ|terms|",
                "bug": value.is_bug,
            }
            for value in done.values
        ],
        "not_compared": unmatched,
    }  # fmt: skip
    print(dumps(data, ensure_ascii=False, indent=1))
