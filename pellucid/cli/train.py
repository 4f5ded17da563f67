"""`pellucid train`: text in, model out."""

import contextlib
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
            ".toml file. After them keys of the recipe to set: optimizer.lr=3e-4 out=runs/a. model=tiny is "
            "the shape of a preset; `pellucid list` shows them.",
            metavar="[TEXT...|RECIPE] [KEY=VALUE]...",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue a run; with steps=N also with one that is finished.", metavar="RUN"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="For texts: minutes that training may take; 10 if omitted. On a machine that is slower than "
            "measured the run makes fewer steps.",
            min=0.1,
            max=1e6,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the whole recipe and what it will cost; train nothing.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")] = False,
) -> None:
    """Train a model on your own texts or by a recipe: the newest is in OUT/model, the best in OUT/best.

    Ctrl-C finishes the step, saves, and prints how to continue; so do SIGTERM and closing the terminal.
    """
    from pellucid.base.errors import UsageError

    names, overrides = _split_arguments(what or [])
    if bool(names) == (resume is not None):
        is_key = overrides and not names
        hint = f" {overrides[0]!r} sets a key, and there is no file of that name." if is_key else ""
        raise UsageError(f"give texts, a recipe, or --resume RUN; one of them.{hint}")
    if resume is not None and minutes is not None:
        raise UsageError("--minutes plans a run for texts, and --resume continues a run that has its steps.")
    with _rendezvous() as ranks:
        if resume is not None:
            _continue_run(resume, overrides, plain, dry_run, ranks)
        else:
            _begin_run(names, overrides, minutes, plain, dry_run, ranks)


def _begin_run(
    names: list[str], overrides: list[str], minutes: float | None, plain: bool, dry_run: bool, ranks: "Ranks"
) -> None:
    from pellucid.training.machine import hint_threads
    from pellucid.training.request import make_request
    from pellucid.training.resume import begin
    from pellucid.training.saving.run_folder import RunFolder

    report = _print_line if ranks.is_main else _ignore
    recipe, notes, is_planned = make_request(names, overrides, minutes, ranks)
    for line in notes:
        report(line)
    if dry_run:
        _print_forecast(recipe, ranks)
        return
    folder = RunFolder(Path(recipe.out))
    with _lock(folder, ranks):
        run = begin(recipe, folder, report, ranks)
        for line in [] if is_planned else hint_threads(recipe, ranks):
            report(line)
        _follow(run, plain)


def _continue_run(path: Path, overrides: list[str], plain: bool, dry_run: bool, ranks: "Ranks") -> None:
    from pellucid.base.errors import UsageError
    from pellucid.training.resume import is_complete, recipe_to_resume, resume
    from pellucid.training.saving.run_folder import RECIPE, RunFolder

    if not (path / RECIPE).is_file():
        raise UsageError(f"{path} is not a run folder: it has no {RECIPE}.")
    folder = RunFolder(path)
    if dry_run:
        recipe = replace(recipe_to_resume(folder, overrides), out=str(path))  # it may have been moved
        _print_forecast(recipe, ranks, is_new=False)
        return
    state, step = folder.read_status()
    if state == "finished" and ranks.is_single_process and is_complete(folder, overrides):
        # a run of data.epochs takes no other steps
        is_extendable = not recipe_to_resume(folder, overrides).data.epochs
        has_checkpoint = folder.find_newest()[0] is not None
        print(_describe_finished(path, step, has_checkpoint, is_extendable))
        return
    report = _print_line if ranks.is_main else _ignore
    with _lock(folder, ranks):
        _follow(resume(folder, report, ranks, overrides), plain)


def _describe_finished(path: Path, step: int, has_checkpoint: bool, is_extendable: bool) -> str:
    if not has_checkpoint:
        return (
            f"{path} is finished, and has no checkpoint to continue from. start={path}/model begins another "
            "run from the weights of its model, where it has one."
        )
    more = f"For more steps: pellucid train --resume {shlex.quote(str(path))} steps={2 * max(step, 1)}"
    if not is_extendable:
        more = f"start={path}/model begins another run from its weights."
    return f"{path} is finished, at step {step:,}. Its model is in {path}/model. {more}"


@contextlib.contextmanager
def _rendezvous() -> "Iterator[Ranks]":
    """Yields the ranks that a launcher started; where they fail, one of them prints why."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings would come from every rank
    from pellucid.base.errors import PellucidError
    from pellucid.cli.signals import Terminated
    from pellucid.cli.terminal import print_error
    from pellucid.training.distributed.ranks import rendezvous

    with rendezvous() as ranks:
        try:
            yield ranks
        except PellucidError as error:
            if ranks.is_single_process:
                raise
            if ranks.is_first_to_report():
                print_error(str(error))
            os._exit(error.exit_code)  # an orderly end would wait for ranks that may be lost
        except Terminated as ended:
            if not ranks.is_single_process:
                os._exit(ended.code)
            raise


def _lock(folder: "RunFolder", ranks: "Ranks") -> contextlib.AbstractContextManager[None]:
    """Locks the folder on the main rank, for all ranks."""
    return folder.lock() if ranks.is_main else contextlib.nullcontext()


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the texts or the recipe, and the KEY=VALUE arguments.

    An argument with = is a text where such a file exists and no key of a recipe has that name; ./NAME is
    always a text.
    """
    from pellucid.training.recipe import Recipe

    keys = {entry.name for entry in fields(Recipe)}
    overrides = [
        argument
        for argument in arguments
        if "=" in argument
        and (argument.partition("=")[0].partition(".")[0] in keys or not os.path.exists(argument))
    ]
    return [argument for argument in arguments if argument not in overrides], overrides


def _print_forecast(recipe: "Recipe", ranks: "Ranks", is_new: bool = True) -> None:
    """Prints the whole recipe and its cost, after every check that a run makes before its first step."""
    from pellucid.training.forecast import check_recipe, describe_cost
    from pellucid.training.recipe.keys import add_comments
    from pellucid.training.start import warn_of_visible_targets

    if not ranks.is_main:
        return
    recipe, config = check_recipe(recipe, ranks, is_new)
    print(add_comments(recipe))
    for line in describe_cost(recipe, config, ranks):
        print(line)
    if warning := warn_of_visible_targets(config, recipe.length):
        print(warning)


def _print_line(line: str) -> None:
    """Prints a line. A closed pipe, such as that of `head`, or a full disk never ends a run."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _ignore(_: object) -> None:
    """Reports nothing: the main rank does."""


def _follow(run: "Run", plain: bool) -> None:
    """Shows the events of a run until it ends, then where its model is or how to continue."""
    from pellucid.base.errors import PellucidError
    from pellucid.cli.live import PlainView, view
    from pellucid.cli.signals import ENDING, on_first_signal
    from pellucid.training.events import EndReason, Evaluated
    from pellucid.training.history.log import read
    from pellucid.training.machine import find_peak
    from pellucid.training.saving.run_folder import LOG

    out, loss = run.folder.path, None
    live: Any = contextlib.nullcontext(_ignore)
    if run.ranks.is_main:
        peak = find_peak(str(run.state.device), run.state.dtype) * run.ranks.world
        live = PlainView(str(out), peak) if plain else view(str(out), peak)
        with contextlib.suppress(PellucidError):  # a damaged log costs no more than the past of the curve
            live.progress.remember(read(out / LOG))
    with on_first_signal(lambda _: run.request_stop(), *ENDING) as received, live as show:
        for event in run.events():
            show(event)
            if isinstance(event, Evaluated) and event.loss == event.loss:
                loss = event.loss
    code, message, stream = 0, _describe_end(run, loss), sys.stdout
    if received or run.end_reason is EndReason.INTERRUPTED:
        message = f"Saved. Continue with: pellucid train --resume {shlex.quote(str(out))}"
        code, stream = 128 + (received[0] if received else signal.SIGTERM), sys.stderr
    elif run.ended and run.end_reason is EndReason.NONFINITE:
        message = (
            f"{run.ended.message}. The weights before them are in {out}/model. Begin another run with a "
        )
        code, message, stream = 1, f"{message}smaller optimizer.lr, and another out.", sys.stderr
    if run.ranks.is_main:
        with contextlib.suppress(OSError):  # the terminal may be gone, and the run is saved
            for kept in run.folder.kept:
                print(f"{kept} holds a file that this run did not write; it was kept.", file=stream)
            print(message, file=stream, flush=True)
    if code:
        raise typer.Exit(code)


def _describe_end(run: "Run", loss: float | None) -> str:
    """Returns where the models are, and a command to try the newest with."""
    from pellucid.training.evaluate import example_prompt

    out, best = run.folder.path, run.folder.read_best()
    message = f"The model is in {out}/model"
    if loss is not None:
        message += f" (validation loss {loss:.4f})"
    if best is not None and best.loss is not None:
        is_newest = best.step == run.state.meters.step
        message += f"; the best, of step {best.step:,} ({best.loss:.4f}), is in {out}/best" * (not is_newest)
        message += ", the best of this run" * is_newest
    prompt = example_prompt(run.state.model, run.state.source, run.recipe.evaluation)
    if not prompt:
        return f"{message}."
    chat = ["--chat"] if run.state.source.opening else []  # its prompts are what a user says
    return f"{message}. Try: {shlex.join(['pellucid', 'generate', f'{out}/model', *chat, prompt])}"
