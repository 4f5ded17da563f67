"""`pellucid train`: text in, model out."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.training.recipe import Recipe
    from pellucid.training.run import Run


def train(
    what: Annotated[
        str | None, typer.Argument(help="A text file or folder, a recipe's name, or a recipe's .toml file.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Argument(help="Keys of the recipe to set: optimizer.lr=3e-4 out=runs/a.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a run that was interrupted.", metavar="RUN")
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="For a text of your own: about how long the run may take.", min=0.1)
    ] = 10.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the whole recipe and what it will cost; train nothing.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")] = False,
) -> None:
    """Train a model, from a text of your own or by a recipe; the newest weights are in OUT/model.

    Ctrl-C finishes the step, saves, and says how to go on.
    """
    from pellucid.errors import AskedWrongly

    if (what is None) == (resume is None):
        raise AskedWrongly("give a text, a recipe, or --resume RUN; one of them.")
    if resume is not None:
        _go_on(resume, list(changes or []), plain)
        return
    assert what is not None
    recipe, reasons = _recipe(what, list(changes or []), minutes)
    for line in reasons:
        print(line)
    if dry_run:
        _forecast(recipe)
        return
    from pellucid.training.run import begin
    from pellucid.training.run_folder import RunFolder

    folder = RunFolder(Path(recipe.out))
    with folder.held():
        _follow(begin(recipe, folder, _say), plain)


def _go_on(path: Path, changes: list[str], plain: bool) -> None:
    from pellucid.errors import AskedWrongly
    from pellucid.training.run import resume
    from pellucid.training.run_folder import RunFolder

    if changes:
        raise AskedWrongly(
            f"{changes[0]!r}: a run goes on as it began; for another recipe begin another run."
        )
    if not (path / "recipe.toml").is_file():
        raise AskedWrongly(f"there is no run at {path}: it has no recipe.toml.")
    folder = RunFolder(path)
    with folder.held():
        _follow(resume(folder, _say), plain)


def _recipe(what: str, changes: list[str], minutes: float) -> tuple["Recipe", list[str]]:
    """The recipe that is asked for, and for a text of one's own why it is as it is."""
    from pellucid.training.recipe import Recipe, changed, recipes, table_of

    if what in recipes() or what.endswith(".toml"):
        return Recipe.from_dict(changed(table_of(what), changes)), []
    from pellucid.data import chat_records
    from pellucid.interop.named import config_of
    from pellucid.training.peak import peak
    from pellucid.training.plan import planned, tuned

    text = Path(what)
    if not text.exists():
        table_of(what)  # says which recipes there are
    asked = changed({}, changes)
    if start := str(asked.get("start", "")):
        how = "adapters" if asked.get("lora", {}).get("rank") else "full"
        records = sum(1 for _ in chat_records.read(what)) if chat_records.is_chat(what) else 0
        plan = tuned(_bytes(text), minutes, peak(), config_of(start), how, records)
    else:
        plan = planned(_bytes(text), minutes, peak())
    chosen = [f"{key}={value}" for key, value in plan.overrides.items()]
    table = {"out": f"runs/{text.stem or text.resolve().name}", "data": {"path": what}, "model": {}}
    return Recipe.from_dict(changed(table, [*chosen, *changes])), [*plan.reasons]


def _bytes(text: Path) -> int:
    files = [text] if text.is_file() else [file for file in text.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _forecast(recipe: "Recipe") -> None:
    from pellucid.training.peak import peak
    from pellucid.training.plan import forecast
    from pellucid.training.start import config_of, settled

    recipe, start = settled(recipe)
    print(recipe.to_toml())
    device = "cpu" if recipe.train.device == "auto" else recipe.train.device
    dtype = "float32" if recipe.train.dtype == "auto" else recipe.train.dtype
    config = config_of(recipe, start) if start else recipe.config(_vocabulary(recipe))
    for line in forecast(recipe, config, peak(device, dtype)).lines():
        print(line)


def _vocabulary(recipe: "Recipe") -> int:
    """How many tokens there will be: as asked, as the built-in text has, or as the text is worth."""
    from pellucid.training.plan import vocabulary_for
    from pellucid.training.source import open_source

    data = recipe.data
    if data.vocab_size:
        return data.vocab_size
    if not Path(data.path).exists():  # built in, or an error that says so
        return open_source(data, recipe.length, recipe.seed, Path(recipe.out) / "data").tokenizer.vocab_size
    return 256 if data.tokenizer in ("bytes", "characters") else vocabulary_for(_bytes(Path(data.path)))


def _say(line: str) -> None:
    print(line, flush=True)


def _follow(run: "Run", plain: bool) -> None:
    """Draw what happens until it ends, and say how to go on."""
    from pellucid.cli.live import PlainView, view
    from pellucid.training.peak import peak

    out, ended = run.folder.path, ""
    limit = peak(str(run.trainer.device), run.trainer.dtype)
    drawn = PlainView(str(out), limit) if plain else view(str(out), limit)
    with _signals(run) as received, drawn as seen:
        for event in run.events():
            seen(event)
            ended = getattr(event, "why", ended)
    if received:
        print(f"Saved. Go on with: pellucid train --resume {out}", file=sys.stderr)
        raise typer.Exit(130 if received[0] == signal.SIGINT else 143)
    if ended.startswith("stopped:"):
        print(f"{ended}. The weights before them are in {out}/model.", file=sys.stderr)
        raise typer.Exit(1)
    print(f'The model is in {out}/model. Try: pellucid generate {out}/model ""')


@contextlib.contextmanager
def _signals(run: "Run") -> Iterator[list[int]]:
    """The first Ctrl-C lets the step end and saves; the second leaves at once."""
    received: list[int] = []

    def asked(number: int, _: Any) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        run.trainer.wanted = "interrupted"

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
