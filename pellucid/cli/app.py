"""The command line as a tree: every command with its name, options and examples."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import typer
import typer.main

from pellucid.cli.chat import chat
from pellucid.cli.choices import choices
from pellucid.cli.compare import compare
from pellucid.cli.data import app as data
from pellucid.cli.evaluate import evaluate
from pellucid.cli.examples import EXAMPLES
from pellucid.cli.explain import explain
from pellucid.cli.export import export
from pellucid.cli.generate import generate
from pellucid.cli.get import get
from pellucid.cli.import_ import import_
from pellucid.cli.inspect import inspect
from pellucid.cli.learn import learn
from pellucid.cli.mark import mark
from pellucid.cli.models import list_models
from pellucid.cli.plot import plot
from pellucid.cli.replay import replay
from pellucid.cli.runs import runs
from pellucid.cli.sheet import sheet
from pellucid.cli.tokenizer import app as tokenizer
from pellucid.cli.trace import trace
from pellucid.cli.train import train
from pellucid.cli.verify import verify

EXIT_CODES = {
    0: "the command did what was asked",
    1: "a check failed",
    2: "the request was wrong (options, arguments, a file)",
    3: "a resource failed (disk, memory, network)",
    129: "ended by SIGHUP",
    130: "interrupted (Ctrl-C)",
    143: "ended by SIGTERM",
}

app = typer.Typer(
    name="pellucid",
    help="A language-model workbench in which every number can be seen, checked and reproduced.",
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "get": get,
    "list": list_models,
    "inspect": inspect,
    "choices": choices,
    "train": train,
    "generate": generate,
    "chat": chat,
    "evaluate": evaluate,
    "explain": explain,
    "trace": trace,
    "learn": learn,
    "replay": replay,
    "sheet": sheet,
    "runs": runs,
    "plot": plot,
    "mark": mark,
    "verify": verify,
    "compare": compare,
    "export": export,
    "import": import_,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(tokenizer)
app.add_typer(data)


def command_tree() -> Any:
    """Returns the parser of the whole command line; the help of each command ends with its examples."""
    tree = typer.main.get_command(app)
    for name, command in leaf_commands(tree):
        command.epilog = "\n\n".join(["Examples:", *EXAMPLES[name]])
    _escape_markup(tree)
    return tree


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


@app.callback()
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
