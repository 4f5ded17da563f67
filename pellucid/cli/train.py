"""`pellucid train`: text in, model out."""

import contextlib
import glob
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.training.distributed.ranks import Ranks
    from pellucid.training.recipe import Recipe
    from pellucid.training.run import Run
    from pellucid.training.saving.run_folder import RunFolder


def train(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts (files, folders, patterns), or one recipe: its name (stories, task:copy) or its "
            ".toml file. After them keys of the recipe to set: optimizer.lr=3e-4 out=runs/a.",
            metavar="[TEXT...|RECIPE] [KEY=VALUE]...",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with a run; with steps=N also with one that is finished.", metavar="RUN"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="For texts: about how long the run may take; 10 if omitted.", min=0.1, max=1e6),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the whole recipe and what it will cost; train nothing.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")] = False,
) -> None:
    """Train a model, from texts of your own or by a recipe: the newest in OUT/model, the best in OUT/best.

    Ctrl-C finishes the step, saves, and says how to go on; so do SIGTERM and a terminal that is closed.
    """
    from pellucid.errors import UsageError

    texts, changes = _parted(what or [])
    if bool(texts) == (resume is not None):
        read = (
            f" {changes[0]!r} sets a key, and there is no file of that name." if changes and not texts else ""
        )
        raise UsageError(f"give texts, a recipe, or --resume RUN; one of them.{read}")
    if resume is not None and minutes is not None:
        raise UsageError(
            "--minutes plans a run for texts, and --resume goes on with a run that has its steps."
        )
    with _one_voice() as ranks:
        if resume is not None:
            _go_on(resume, changes, plain, dry_run, ranks)
            return
        say = _say if ranks.is_main else _say_nothing
        recipe, reasons = _recipe(texts, changes, minutes, ranks)
        for line in _renamed(texts, changes):
            say(line)
        for line in reasons:
            say(line)
        if dry_run:
            _forecast(recipe, ranks)
            return
        from pellucid.training.machine import hint_threads
        from pellucid.training.resume import begin
        from pellucid.training.saving.run_folder import RunFolder

        folder = RunFolder(Path(recipe.out))
        with _held(folder, ranks):
            run = begin(recipe, folder, say, ranks)
            for line in [] if reasons else hint_threads(recipe, ranks):
                say(line)
            _follow(run, plain)


def _go_on(path: Path, changes: list[str], plain: bool, dry_run: bool, ranks: "Ranks") -> None:
    from pellucid.errors import UsageError
    from pellucid.training.resume import is_complete, recipe_to_resume, resume
    from pellucid.training.saving.run_folder import RunFolder

    if not (path / "recipe.toml").is_file():
        raise UsageError(f"{path} is not the folder of a run: it has no recipe.toml.")
    folder = RunFolder(path)
    if dry_run:
        recipe = replace(recipe_to_resume(folder, changes), out=str(path))  # it may have been moved
        _forecast(recipe, ranks, is_new=False)
        return
    state, step = folder.status()
    if state == "finished" and ranks.is_single_process and is_complete(folder, changes):
        more = f"pellucid train --resume {shlex.quote(str(path))} steps={2 * max(step, 1)}"
        print(
            f"{path} is finished, at step {step:,}: nothing is left to do. Its model is in {path}/model. For "
            f"more steps: {more}"
        )
        return
    with _held(folder, ranks):
        _follow(resume(folder, _say if ranks.is_main else _say_nothing, ranks, changes), plain)


@contextlib.contextmanager
def _one_voice() -> "Iterator[Ranks]":
    """The ranks that were begun together, this one among them; where they fail, one tells why."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings would come from every rank
    from pellucid.cli import complain
    from pellucid.errors import PellucidError
    from pellucid.training.distributed.ranks import rendezvous

    with rendezvous() as ranks:
        try:
            yield ranks
        except PellucidError as error:
            if ranks.is_single_process:
                raise
            if ranks.is_first_to_report():
                complain(str(error))
            os._exit(error.exit_code)  # an orderly end would wait for ranks that may be lost


def _held(folder: "RunFolder", ranks: "Ranks") -> contextlib.AbstractContextManager[None]:
    """The first rank holds the folder for all."""
    return folder.held() if ranks.is_main else contextlib.nullcontext()


def _parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Texts or a recipe, and KEY=VALUE. A text with = in its name is one where it exists and no key is meant;
    ./NAME is always a text."""
    from pellucid.training.recipe import Recipe

    keys = {entry.name for entry in fields(Recipe)}
    changes = [
        argument
        for argument in arguments
        if "=" in argument
        and (argument.partition("=")[0].partition(".")[0] in keys or not os.path.exists(argument))
    ]
    return [argument for argument in arguments if argument not in changes], changes


def _recipe(
    texts: list[str], changes: list[str], minutes: float | None, ranks: "Ranks"
) -> tuple["Recipe", list[str]]:
    """The recipe that is asked for, and for texts the reasons of the plan."""
    from pellucid.errors import UsageError
    from pellucid.training import plan_texts
    from pellucid.training.recipe import Recipe
    from pellucid.training.recipe.overrides import override
    from pellucid.training.recipe.shipped import is_shipped, read_table

    alone = len(texts) == 1
    recipe = next((text for text in texts if text.endswith(".toml") or is_shipped(text)), None)
    if recipe is not None and (alone or not os.path.exists(recipe) or recipe.endswith(".toml")):
        if not alone:
            other = next(text for text in texts if text != recipe) if len(set(texts)) > 1 else recipe
            raise UsageError(
                f"{recipe} is a recipe, and a run has one recipe: omit {other}, or set data.path={other}."
            )
        if minutes is not None:
            raise UsageError(
                f"--minutes plans a run for texts, and {recipe} is a recipe: set steps=… instead; --dry-run "
                "says how long that takes."
            )
        return Recipe.from_dict(override(read_table(recipe), changes)), []
    for text in texts:
        if not os.path.exists(text) and not glob.has_magic(text):
            read_table(text)  # says which recipes there are
    return plan_texts.plan_recipe(texts, changes, plan_texts.MINUTES if minutes is None else minutes, ranks)


def _renamed(texts: list[str], changes: list[str]) -> list[str]:
    """Keys of the previous version, each with its new name."""
    from pellucid.training.recipe.renamed_keys import describe_renamed
    from pellucid.training.recipe.shipped import read_table

    is_file = len(texts) == 1 and texts[0].endswith(".toml")
    return describe_renamed(read_table(texts[0]) if is_file else {}, changes)


def _forecast(recipe: "Recipe", ranks: "Ranks", is_new: bool = True) -> None:
    """Print the whole recipe and its cost, after every check that a run makes before its first step."""
    from pellucid.training.forecast import check_recipe, describe_cost
    from pellucid.training.recipe.keys import add_comments

    if not ranks.is_main:
        return
    recipe, config = check_recipe(recipe, ranks, is_new)
    print(add_comments(recipe))
    for line in describe_cost(recipe, config, ranks):
        print(line)


def _say(line: str) -> None:
    """Print a line. A reader that has left, such as `head`, or a full disk never ends a run."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _say_nothing(line: str) -> None:
    """What the first rank says already."""


def _follow(run: "Run", plain: bool) -> None:
    """Draw what happens until it ends, and say how to go on."""
    from pellucid.cli.live import PlainView, view
    from pellucid.training.events import EndReason, Evaluated
    from pellucid.training.machine import measure_peak

    out, loss = run.folder.path, None
    drawn: Any = contextlib.nullcontext(_see_nothing)
    if run.ranks.is_main:
        limit = measure_peak(str(run.state.device), run.state.dtype) * run.ranks.world
        drawn = PlainView(str(out), limit) if plain else view(str(out), limit)
    with _signals(run) as received, drawn as seen:
        for event in run.events():
            seen(event)
            if isinstance(event, Evaluated) and event.loss == event.loss:
                loss = event.loss
    code, words, stream = 0, _ending(run, loss), sys.stdout
    if received or run.end_reason is EndReason.INTERRUPTED:
        words, stream = f"Saved. Go on with: pellucid train --resume {shlex.quote(str(out))}", sys.stderr
        code = 128 + (received[0] if received else signal.SIGTERM)
    elif run.ended and run.end_reason is EndReason.NONFINITE:
        words = f"{run.ended.message}. The weights before them are in {out}/model. Begin another run with a "
        code, words, stream = 1, f"{words}smaller optimizer.lr, and another out.", sys.stderr
    if run.ranks.is_main:
        with contextlib.suppress(OSError):  # the terminal may be gone, and the run is saved
            for kept in run.folder.kept:
                print(f"{kept} holds a file that this run did not write; it was kept.", file=stream)
            print(words, file=stream, flush=True)
    if code:
        raise typer.Exit(code)


def _ending(run: "Run", loss: float | None) -> str:
    """Where the models are, and a command to try the newest with."""
    from pellucid.training.evaluate import example_prompt

    out, best = run.folder.path, run.folder.best()
    words = f"The model is in {out}/model"
    if loss is not None:
        words += f" (validation loss {loss:.4f})"
    if best is not None and best.loss is not None:
        here = best.step == run.state.meters.step
        words += f"; the best, of step {best.step:,} ({best.loss:.4f}), is in {out}/best" * (not here)
        words += ", the best of this run" * here
    text = example_prompt(run.state.model, run.state.source, run.recipe.evaluation)
    if not text:
        return f"{words}."
    chat = ["--chat"] if run.state.source.opening else []  # its prompts are what a user says
    return f"{words}. Try: {shlex.join(['pellucid', 'generate', f'{out}/model', *chat, text])}"


def _see_nothing(_: object) -> None:
    """What the first rank shows already."""


@contextlib.contextmanager
def _signals(run: "Run") -> Iterator[list[int]]:
    """The first signal lets the step end and saves; the second Ctrl-C or SIGTERM leaves at once.

    A closed terminal sends SIGHUP, its shell often a second one, so that never leaves at once; under nohup it
    stays ignored.
    """
    received: list[int] = []

    def asked(number: int, _: Any) -> None:
        if number != signal.SIGHUP and any(before != signal.SIGHUP for before in received):
            os._exit(128 + number)
        received.append(number)
        run.request_stop()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
