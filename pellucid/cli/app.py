"""The command line as a tree: every command with its name, options and examples."""

import os
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.main

from pellucid.cli.examples import EXAMPLES

EXIT_CODES = {
    0: "the command did what was asked",
    1: "a check failed (verify, replay, compare, mark, explain)",
    2: "the request was wrong (options, arguments, a file)",
    3: "a resource failed (disk, memory, network, the engine of serve)",
    129: "ended by SIGHUP",
    130: "interrupted (Ctrl-C)",
    143: "ended by SIGTERM (serve and explore: 0)",
}


class ListedCommand(NamedTuple):
    """Where a command is, and how the help of all commands shows it."""

    module: str
    function: str
    """Its function, or the `typer.Typer` of a group."""
    panel: str
    line: str
    """What it does, in at most 60 characters."""

    def load(self) -> Any:
        """Returns the function or group; its module is imported only where it is run or shown."""
        return getattr(import_module(f"pellucid.cli.{self.module}"), self.function)


FIRST = (
    'pellucid explain abcd "A B" --at "probs[t=1,v=2]"',
    "pellucid train my.txt --minutes 5 out=runs/a",
    'pellucid generate runs/a "Once upon a time" --ledger',
)
"""The examples under the help of all commands."""
SHORT_EXIT_CODES = (
    "Exit codes: 0 done, 1 a check failed, 2 a wrong request, 3 a resource failed, 129, 130, 143 a signal."
)
COMMANDS = {
    "get": ListedCommand("get", "get", "Models", "Download a model into the library, complete and verified"),
    "list": ListedCommand(
        "models", "list_models", "Models", "List models: the library, what `get` knows, presets"
    ),
    "inspect": ListedCommand(
        "inspect", "inspect", "Models", "Print a model's conventions, and what a wrong one costs"
    ),
    "choices": ListedCommand(
        "choices", "choices", "Models", "List every choice of a model, with formula and source"
    ),
    "export": ListedCommand(
        "export", "export", "Models", "Write a model for others: Hugging Face, GGUF, our own"
    ),
    "import": ListedCommand(
        "import_", "import_", "Models", "Convert weights in pickles to safetensors, safely"
    ),
    "quantize": ListedCommand(
        "quantize", "quantize", "Models", "Quantize weights to 8 or 4 bits, and print the bill"
    ),
    "generate": ListedCommand(
        "generate", "generate", "Use", "Continue texts; with a ledger, say why each token"
    ),
    "chat": ListedCommand("chat", "chat", "Use", "Talk with a model, by its own chat template"),
    "serve": ListedCommand("serve", "serve", "Use", "Serve a model over HTTP with OpenAI's API"),
    "explain": ListedCommand(
        "explain", "explain", "See", "Show where a number came from, down to the weights"
    ),
    "explore": ListedCommand(
        "explore", "explore", "See", "Open a run in the browser, where every number opens"
    ),
    "look": ListedCommand("look", "look", "See", "Show what happens inside a model as it reads"),
    "trace": ListedCommand("trace", "trace", "See", "Run the specification, and keep every number"),
    "replay": ListedCommand("replay", "replay", "See", "Recompute every number of a trace or ledger file"),
    "verify": ListedCommand("verify", "verify", "Check", "Say whether a model's numbers can be trusted"),
    "compare": ListedCommand(
        "compare", "compare", "Check", "Find where two models differ: noise, or which bug"
    ),
    "evaluate": ListedCommand("evaluate", "evaluate", "Measure", "Measure how well models predict texts"),
    "calibrate": ListedCommand(
        "calibrate", "calibrate", "Measure", "Measure whether to believe a model's probabilities"
    ),
    "train": ListedCommand("train", "train", "Train", "Train a model on your own texts, or by a recipe"),
    "runs": ListedCommand("runs", "runs", "Train", "List runs, and how each stands"),
    "plot": ListedCommand("plot", "plot", "Train", "Draw the curves of runs, one over the other"),
    "data": ListedCommand("data", "app", "Train", "Encode texts into token files, and show them"),
    "tokenizer": ListedCommand("tokenizer", "app", "Train", "Train, compare and explain tokenizers"),
    "learn": ListedCommand("learn", "learn", "Learn", "Read a lesson whose numbers come from a run"),
    "sheet": ListedCommand("sheet", "sheet", "Learn", "Make a worksheet to do by hand, from a run"),
    "mark": ListedCommand("mark", "mark", "Learn", "Mark a worksheet, each step from your own numbers"),
}
"""In the order of the help: models, what one does with them, and what one learns."""


def command_tree(first: str = "") -> Any:
    """Returns the parser of the command line; the help of each command ends with its examples.

    Where `first`, the first argument, names a command, the parser has that command only."""
    names = [first] if first in COMMANDS else [*COMMANDS]
    tree: Any = typer.main.get_command(make_app(names))
    tree.commands = {name: tree.commands[name] for name in names}
    for name, command in leaf_commands(tree):
        command.epilog = "\n\n".join(["Examples:", *EXAMPLES[name]])
    _escape_markup(tree)
    return tree


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Returns the command line with the commands of these names."""
    app = typer.Typer(
        name="pellucid",
        help="A language-model workbench in which every number can be seen, checked and reproduced.",
        epilog="\n\n".join(["Examples:", *FIRST, SHORT_EXIT_CODES]),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)  # with a callback, a command line of one command has its name as well
    for name in names:
        known = COMMANDS[name]
        command = known.load()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=known.line, rich_help_panel=known.panel)
        else:
            app.command(name, short_help=known.line, rich_help_panel=known.panel)(command)
    return app


def leaf_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every command with its full name, those of groups too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaf_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _escape_markup(command: Any) -> None:
    """Lets brackets in help texts, such as NAME[t=1,v=2], be brackets and not rich's markup."""
    for holder in (command, *command.params):
        for name in ("help", "epilog"):
            if words := getattr(holder, name, None):
                setattr(holder, name, re.sub(r"(\[[a-z#/@])", r"\\\1", words))
    for inner in getattr(command, "commands", {}).values():
        _escape_markup(inner)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        import platform
        from importlib import metadata

        from pellucid import __version__

        print(f"pellucid {__version__}")
        print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
        for package in ("numpy", "torch", "safetensors", "tokenizers", "tiktoken"):
            try:
                print(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                print(f"{package} not installed")
        _print_machine()
        raise typer.Exit


def _print_machine() -> None:
    """Prints what the numbers and their speed depend on besides versions."""
    import shutil

    import torch

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device"
    print(f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {cuda}")
    print(f"compiler {shutil.which('c++') or shutil.which('g++') or 'none, so no torch.compile on the CPU'}")


def _root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the versions and the machine, as a bug report needs them.",
    ),
) -> None:
    pass
