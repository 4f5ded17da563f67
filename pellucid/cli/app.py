"""The command line as a tree: every command with its name, options and examples."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

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

COMMANDS: dict[str, Callable[[], Any]] = {
    "get": lambda: import_module("pellucid.cli.get").get,
    "list": lambda: import_module("pellucid.cli.models").list_models,
    "inspect": lambda: import_module("pellucid.cli.inspect").inspect,
    "choices": lambda: import_module("pellucid.cli.choices").choices,
    "train": lambda: import_module("pellucid.cli.train").train,
    "generate": lambda: import_module("pellucid.cli.generate").generate,
    "chat": lambda: import_module("pellucid.cli.chat").chat,
    "serve": lambda: import_module("pellucid.cli.serve").serve,
    "evaluate": lambda: import_module("pellucid.cli.evaluate").evaluate,
    "calibrate": lambda: import_module("pellucid.cli.calibrate").calibrate,
    "quantize": lambda: import_module("pellucid.cli.quantize").quantize,
    "explain": lambda: import_module("pellucid.cli.explain").explain,
    "explore": lambda: import_module("pellucid.cli.explore").explore,
    "trace": lambda: import_module("pellucid.cli.trace").trace,
    "look": lambda: import_module("pellucid.cli.look").look,
    "learn": lambda: import_module("pellucid.cli.learn").learn,
    "replay": lambda: import_module("pellucid.cli.replay").replay,
    "sheet": lambda: import_module("pellucid.cli.sheet").sheet,
    "runs": lambda: import_module("pellucid.cli.runs").runs,
    "plot": lambda: import_module("pellucid.cli.plot").plot,
    "mark": lambda: import_module("pellucid.cli.mark").mark,
    "verify": lambda: import_module("pellucid.cli.verify").verify,
    "compare": lambda: import_module("pellucid.cli.compare").compare,
    "export": lambda: import_module("pellucid.cli.export").export,
    "import": lambda: import_module("pellucid.cli.import_").import_,
    "tokenizer": lambda: import_module("pellucid.cli.tokenizer").app,
    "data": lambda: import_module("pellucid.cli.data").app,
}
"""Where each command is: its function, or the `typer.Typer` of a group; in the order of the help. A module is
imported only where its command is run or shown."""


def command_tree(first: str = "") -> Any:
    """Returns the parser of the command line; the help of each command ends with its examples.

    Where `first`, the first argument, names a command, the parser has that command only."""
    tree = typer.main.get_command(make_app([first] if first in COMMANDS else COMMANDS))
    for name, command in leaf_commands(tree):
        command.epilog = "\n\n".join(["Examples:", *EXAMPLES[name]])
    _escape_markup(tree)
    return tree


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Returns the command line with the commands of these names."""
    app = typer.Typer(
        name="pellucid",
        help="A language-model workbench in which every number can be seen, checked and reproduced.",
        epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)  # with a callback, a command line of one command has its name as well
    for name in names:
        command = COMMANDS[name]()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
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
