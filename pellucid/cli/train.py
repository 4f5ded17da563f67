"""`pellucid train`: text in, model out."""

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.config import ModelConfig
    from pellucid.training.distributed.ranks import Ranks
    from pellucid.training.recipe import Recipe
    from pellucid.training.run import Run
    from pellucid.training.saving.run_folder import RunFolder


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A text file or folder, a recipe's name (stories, task:copy), or a recipe's .toml file."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Argument(help="Keys of the recipe to set: optimizer.lr=3e-4 out=runs/a.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with a run; with steps=N also with one that is finished.", metavar="RUN"),
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="For a text of your own: about how long the run may take.", min=0.1)
    ] = 10.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the whole recipe and what it will cost; train nothing.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live view.")] = False,
) -> None:
    """Train a model, from a text of your own or by a recipe: the newest in OUT/model, the best in OUT/best.

    Ctrl-C finishes the step, saves, and says how to go on; so do SIGTERM and a terminal that is closed.
    """
    from pellucid.errors import UsageError

    if resume is not None and what is not None and "=" in what:
        changes, what = [what, *(changes or [])], None
    if (what is None) == (resume is None):
        raise UsageError("give a text, a recipe, or --resume RUN; one of them.")
    with _one_voice() as ranks:
        if resume is not None:
            _go_on(resume, list(changes or []), plain, dry_run, ranks)
            return
        assert what is not None
        recipe, reasons = _recipe(what, list(changes or []), minutes, ranks)
        say = _say if ranks.first else _say_nothing
        for line in reasons:
            say(line)
        if dry_run:
            _forecast(recipe, ranks)
            return
        from pellucid.training.run import begin
        from pellucid.training.saving.run_folder import RunFolder

        folder = RunFolder(Path(recipe.out))
        with _held(folder, ranks):
            _follow(begin(recipe, folder, say, ranks), plain)


def _go_on(path: Path, changes: list[str], plain: bool, dry_run: bool, ranks: "Ranks") -> None:
    from pellucid.errors import UsageError
    from pellucid.training.recipe import Recipe, changed
    from pellucid.training.run import complete, resume
    from pellucid.training.saving.run_folder import RunFolder

    if not (path / "recipe.toml").is_file():
        raise UsageError(f"{path} is not the folder of a run: it has no recipe.toml.")
    folder = RunFolder(path)
    if dry_run:
        _forecast(Recipe.from_dict(changed(folder.recipe(), changes)), ranks)
        return
    state, step = folder.status()
    if state == "finished" and ranks.alone and complete(folder, changes):
        more = f"pellucid train --resume {shlex.quote(str(path))} steps={2 * max(step, 1)}"
        print(
            f"{path} is finished, at step {step:,}: nothing is left to do. Its model is in {path}/model. For "
            f"more steps: {more}"
        )
        return
    with _held(folder, ranks):
        _follow(resume(folder, _say if ranks.first else _say_nothing, ranks, changes), plain)


@contextlib.contextmanager
def _one_voice() -> "Iterator[Ranks]":
    """The ranks that were begun together, this one among them; where they fail, one tells why."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings would come from every rank
    from pellucid.errors import PellucidError
    from pellucid.training.distributed.ranks import meet

    with meet() as ranks:
        try:
            yield ranks
        except PellucidError as error:
            if ranks.alone:
                raise
            if ranks.speaks():
                print(f"pellucid: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)  # an orderly end would wait for ranks that may be lost


def _held(folder: "RunFolder", ranks: "Ranks") -> contextlib.AbstractContextManager[None]:
    """The first rank holds the folder for all."""
    return folder.held() if ranks.first else contextlib.nullcontext()


def _recipe(what: str, changes: list[str], minutes: float, ranks: "Ranks") -> tuple["Recipe", list[str]]:
    """The recipe that is asked for, and for a text of one's own why it is as it is."""
    from pellucid.training.recipe import Recipe, changed, is_shipped, table_of

    if is_shipped(what) or what.endswith(".toml"):
        return Recipe.from_dict(changed(table_of(what), changes)), []
    from pellucid.data import chat_records
    from pellucid.errors import UsageError
    from pellucid.interop.named import config_of
    from pellucid.training.loop import device_of
    from pellucid.training.plan import machine_memory, planned, tuned

    text = Path(what)
    if not text.exists():
        table_of(what)  # says which recipes there are

    if other := next((change for change in changes if change.startswith("data.path=")), ""):
        raise UsageError(f"{what} and {other} are two texts, and one run learns from one: name one of them.")

    def plan() -> tuple[dict[str, Any], tuple[str, ...]]:
        asked = changed({}, changes)
        train = asked.get("train", {})
        limit = _peak(train) * ranks.world
        if start := str(asked.get("start", "")):
            how = "adapters" if asked.get("lora", {}).get("rank") else "full"
            records = sum(1 for _ in chat_records.read(what)) if chat_records.is_chat(what) else 0
            made = tuned(_bytes(text), minutes, limit, config_of(start), how, records)
        else:
            memory = machine_memory(str(device_of(str(train.get("device", "auto")))))
            made = planned(_bytes(text), minutes, limit, memory)
        return made.overrides, made.reasons

    overrides, reasons = ranks.first_alone(plan)
    chosen = [f"{key}={value}" for key, value in overrides.items()]
    table = {"out": f"runs/{text.stem or text.resolve().name}", "data": {"path": what}, "model": {}}
    instead = [change for change in changes if change.partition("=")[0] in overrides]
    asked = [f"instead of some of this, as you ask: {' '.join(instead)}"] * bool(instead)
    return Recipe.from_dict(changed(table, [*chosen, *changes])), [*reasons, *asked]


def _peak(asked: Mapping[str, Any]) -> float:
    """That of the device and type in which the run will be."""
    from pellucid.training.loop import device_of, dtype_on
    from pellucid.training.peak import peak

    device, weights = device_of(str(asked.get("device", "auto"))), str(asked.get("weights", "float32"))
    return peak(str(device), dtype_on(device, str(asked.get("dtype", "auto")), weights))


def _bytes(text: Path) -> int:
    """Of the files that will be read: in a folder of texts, pictures and programs are not."""
    from pellucid.data.manifest import NAME, PROGRESS
    from pellucid.text.corpus.sources import files

    if (text / NAME).is_file() or (text / PROGRESS).is_file():  # token files, made already
        return sum(file.stat().st_size for file in text.rglob("*") if file.is_file())
    return sum(os.path.getsize(file) for file in files([text]) if os.path.isfile(file))


def _forecast(recipe: "Recipe", ranks: "Ranks") -> None:
    from pellucid.training.loop import device_of, dtype_on
    from pellucid.training.plan import forecast
    from pellucid.training.recipe_keys import commented
    from pellucid.training.start import config_of, settled

    if not ranks.first:
        return
    recipe, start = settled(recipe)
    print(commented(recipe))
    asked = recipe.train
    dtype = dtype_on(device_of(asked.device), asked.dtype, asked.weights)  # auto has no width
    recipe = replace(recipe, train=replace(asked, dtype=dtype))
    config = config_of(recipe, start) if start else recipe.config(_vocabulary(recipe))
    for line in forecast(recipe, config, _peak(vars(recipe.train)) * ranks.world).lines():
        print(line)
    if ranks.world > 1:
        print(_share(recipe, config, ranks))


def _share(recipe: "Recipe", config: "ModelConfig", ranks: "Ranks") -> str:
    """What one of several ranks will hold and send."""
    from pellucid.explain.conventions import readable_bytes
    from pellucid.training.distributed.scaling import share
    from pellucid.training.loop import rows_of_a_rank

    asked = recipe.train
    made = share(
        config,
        asked.parallel,
        ranks.world,
        rows_of_a_rank(recipe, ranks.world) // asked.accumulate,
        optimizer=recipe.optimizer.kind,
        width=2 if asked.dtype == "bfloat16" else 4,
        accumulate=asked.accumulate,
        recompute=asked.recompute == "yes",
    )
    return (
        f"on each rank      {readable_bytes(made.total)}, and {readable_bytes(made.sent)} sent in each step, "
        f"with {ranks.world} ranks"
    )


def _vocabulary(recipe: "Recipe") -> int:
    """How many tokens there will be: as asked, as the built-in text has, or as the text is worth."""
    from pellucid.training.plan import vocabulary_for
    from pellucid.training.sources.source import open_source

    data = recipe.data
    if data.vocab_size:
        return data.vocab_size
    if not Path(data.path).exists():  # built in, or an error that says so
        return open_source(data, recipe.length, recipe.seed, Path(recipe.out) / "data").tokenizer.vocab_size
    return 256 if data.tokenizer in ("bytes", "characters") else vocabulary_for(_bytes(Path(data.path)))


def _say(line: str) -> None:
    print(line, flush=True)


def _say_nothing(line: str) -> None:
    """What the first rank says already."""


def _follow(run: "Run", plain: bool) -> None:
    """Draw what happens until it ends, and say how to go on."""
    from pellucid.cli.live import PlainView, view
    from pellucid.training.events import Evaluated
    from pellucid.training.peak import peak

    out, ended, loss = run.folder.path, "", None
    drawn: Any = contextlib.nullcontext(_see_nothing)
    if run.ranks.first:
        limit = peak(str(run.trainer.device), run.trainer.dtype) * run.ranks.world
        drawn = PlainView(str(out), limit) if plain else view(str(out), limit)
    with _signals(run) as received, drawn as seen:
        for event in run.events():
            seen(event)
            ended = getattr(event, "why", ended)
            if isinstance(event, Evaluated) and event.loss == event.loss:
                loss = event.loss
    code, words, stream = 0, _ending(run, loss), sys.stdout
    if received or ended == "interrupted":
        words, stream = f"Saved. Go on with: pellucid train --resume {shlex.quote(str(out))}", sys.stderr
        code = 128 + (received[0] if received else signal.SIGTERM)
    elif ended.startswith("stopped:"):
        words = f"{ended}. The weights before them are in {out}/model. Begin another run with a smaller "
        code, words, stream = 1, f"{words}optimizer.lr, and another out.", sys.stderr
    if run.ranks.first:
        with contextlib.suppress(OSError):  # the terminal may be gone, and the run is saved
            for kept in run.folder.kept:
                print(f"{kept} holds a file that this run did not write; it was kept.", file=stream)
            print(words, file=stream, flush=True)
    if code:
        raise typer.Exit(code)


def _ending(run: "Run", loss: float | None) -> str:
    """Where the models are, and a command to try the newest with."""
    from pellucid.training.validation import beginning

    out, best = run.folder.path, run.folder.best()
    words = f"The model is in {out}/model"
    if loss is not None:
        words += f" (validation loss {loss:.4f})"
    if best is not None and best.loss is not None:
        here = best.step == run.trainer.at
        words += f"; the best, of step {best.step:,} ({best.loss:.4f}), is in {out}/best" * (not here)
        words += ", the best of this run" * here
    text = beginning(run.trainer.model, run.trainer.source, run.recipe.evaluation)
    if not text:
        return f"{words}."
    chat = ["--chat"] if run.trainer.source.opening else []  # its prompts are what a user says
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
        run.trainer.wanted = "interrupted"

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
