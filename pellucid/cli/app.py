"""The command line as a tree: every command with its name, options and examples."""

import os
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.main

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
    """How the help of all commands shows a command, and where it is if not under its own name."""

    panel: str
    line: str
    """What it does, in at most 60 characters."""
    module: str = ""
    function: str = ""
    """Its function, or the `typer.Typer` of a group."""


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
    "get": ListedCommand(
        "Models", "Download a model into the library, complete and verified", module="library"
    ),
    "list": ListedCommand(
        "Models",
        "List models: the library, what `get` knows, presets",
        module="library",
        function="list_models",
    ),
    "inspect": ListedCommand("Models", "Print a model's conventions, and what a wrong one costs"),
    "choices": ListedCommand("Models", "List every choice of a model, with formula and source"),
    "export": ListedCommand("Models", "Write a model for others: Hugging Face, GGUF, our own"),
    "import": ListedCommand(
        "Models", "Convert weights in pickles to safetensors, safely", module="export", function="import_"
    ),
    "quantize": ListedCommand("Models", "Quantize weights to 8 or 4 bits, and print the bill"),
    "generate": ListedCommand("Use", "Continue texts; with a ledger, say why each token"),
    "chat": ListedCommand("Use", "Talk with a model, by its own chat template"),
    "serve": ListedCommand("Use", "Serve a model over HTTP with OpenAI's API"),
    "explain": ListedCommand("See", "Show where a number came from, down to the weights"),
    "explore": ListedCommand("See", "Open a run in the browser, where every number opens"),
    "look": ListedCommand("See", "Show what happens inside a model as it reads"),
    "trace": ListedCommand("See", "Run the specification, and keep every number"),
    "replay": ListedCommand(
        "See", "Recompute every number of a trace or ledger file", module="trace", function="replay"
    ),
    "verify": ListedCommand("Check", "Say whether a model's numbers can be trusted"),
    "compare": ListedCommand("Check", "Find where two models differ: noise, or which bug"),
    "evaluate": ListedCommand("Measure", "Measure how well models predict texts"),
    "calibrate": ListedCommand("Measure", "Measure whether to believe a model's probabilities"),
    "train": ListedCommand("Train", "Train a model on your own texts, or by a recipe"),
    "runs": ListedCommand("Train", "List runs, and how each stands"),
    "plot": ListedCommand("Train", "Draw the curves of runs, one over the other"),
    "data": ListedCommand("Train", "Encode texts into token files, and show them", function="app"),
    "tokenizer": ListedCommand("Train", "Train, compare and explain tokenizers", function="app"),
    "learn": ListedCommand("Learn", "Read a lesson whose numbers come from a run"),
    "sheet": ListedCommand("Learn", "Make a worksheet to do by hand, from a run"),
    "mark": ListedCommand("Learn", "Mark a worksheet, each step from your own numbers"),
}
"""In the order of the help: models, what one does with them, and what one learns."""
EXAMPLES = {
    "get": ("pellucid get smollm2", "pellucid get hf:HuggingFaceTB/SmolLM2-135M"),
    "list": ("pellucid list", "pellucid list --json"),
    "inspect": ("pellucid inspect smollm2-135m", "pellucid inspect runs/a/model --probe"),
    "choices": ("pellucid choices masks", "pellucid choices rope_yarn"),
    "train": ("pellucid train my.txt --minutes 10 out=runs/a", "pellucid train task:copy --dry-run"),
    "generate": (
        'pellucid generate runs/a "Once upon a time" --max-new-tokens 20',
        'pellucid generate abcd "A B" --temperature 1 --seed 0 --ledger --ledger-file ledger.json',
    ),
    "chat": ("pellucid chat smollm2", 'pellucid chat smollm2 --system "Answer in one sentence."'),
    "serve": ("pellucid serve smollm2", "pellucid serve runs/a --port 0 --name my-model --slots 8"),
    "evaluate": (
        "pellucid evaluate runs/a my.txt --split paragraph",
        "pellucid evaluate runs/a my.txt --against smollm2 --limit 2kB -o evaluation.json",
    ),
    "calibrate": (
        "pellucid calibrate runs/a my.txt --split paragraph -o calibration.html",
        "pellucid calibrate runs/a my.txt --quantize Q4_0 --temperatures 0.7,1.5 --trace calibration.json",
    ),
    "quantize": (
        "pellucid quantize runs/a --bits 8 -o my-int8",
        "pellucid quantize runs/a --bits 4 --keep embed.weight --bill --on my.txt --tokens 200",
    ),
    "explain": (
        'pellucid explain abcd "A B" --at "probs[t=1,v=2]" --depth 2',
        "pellucid explain ledger.json --token 7",
    ),
    "explore": (
        'pellucid explore smollm2 "The cat sat on"',
        'pellucid explore abcd "A B" --target C --update sgd --export ab.html',
    ),
    "trace": (
        'pellucid trace abcd "A B" -o ab.json',
        'pellucid trace abcd "A B" --target C --update adamw --lr 0.1 -o abc.json',
    ),
    "look": (
        'pellucid look abcd "A B" --token C --against A',
        'pellucid look abcd "A B" --show attribution,search --path reference -o look.html',
    ),
    "learn": ("pellucid learn", "pellucid learn 13 --answers"),
    "replay": ("pellucid replay ab.json", "pellucid replay ledger.json --model abcd"),
    "sheet": (
        "pellucid sheet lesson-13 -o lesson-13.html",
        'pellucid sheet abcd "A B" --target C --focus "d.unembed.weight" --boxes 60 -o ab.md',
    ),
    "runs": ("pellucid runs", "pellucid runs runs/a --json"),
    "plot": ("pellucid plot runs/a", "pellucid plot runs/a -o a.html"),
    "mark": ("pellucid mark answered.md", "pellucid mark answered.md --hint 1"),
    "verify": ("pellucid verify abcd --quick --json", "pellucid verify --self"),
    "compare": ('pellucid compare abcd abcd "A B"', "pellucid compare abc.json ab.json"),
    "export": (
        "pellucid export runs/a --to pellucid -o my-model",
        "pellucid export runs/a --to pellucid --dtype bfloat16 -o my-small-model",
    ),
    "import": (
        "pellucid import checkpoint/ -o imported",
        "pellucid import checkpoint/pytorch_model.bin --dtype bfloat16 -o imported-bfloat16",
    ),
    "tokenizer train": (
        "pellucid tokenizer train my.txt --vocab-size 300 -o my-tokenizer",
        "pellucid tokenizer train my.txt --kind characters -o my-characters",
    ),
    "tokenizer encode": (
        'pellucid tokenizer encode my-tokenizer "Once upon a time"',
        'pellucid tokenizer encode my-tokenizer "Once upon a time" --json',
    ),
    "tokenizer decode": (
        "pellucid tokenizer decode my-tokenizer 79 110 99 101",
        'pellucid tokenizer encode my-tokenizer "Once" | pellucid tokenizer decode my-tokenizer',
    ),
    "tokenizer explain": (
        'pellucid tokenizer explain my-tokenizer "Once upon a time"',
        'pellucid tokenizer explain my-tokenizer "Once upon a time" --words 2',
    ),
    "tokenizer compare": (
        "pellucid tokenizer compare my-tokenizer bytes --on my.txt stories:tiny",
        "pellucid tokenizer compare my-tokenizer bytes --on my.txt --d-model 256 -o tokenizers.html",
    ),
    "data prepare": (
        "pellucid data prepare my.txt --tokenizer my-tokenizer -o my-tokens",
        "pellucid data prepare my.txt --tokenizer my-tokenizer --split line --validation 0.1 -o my-lines",
    ),
    "data show": ("pellucid data show my-tokens", "pellucid data show stories:easy --samples 1"),
}
"""Two examples for every command, printed in its help and on docs/commands.md; a test runs them all.

`my.txt` is any text, `runs/a` a run that the examples of `train` made, `answered.md` a sheet with answers."""


def command_tree(first: str = "") -> Any:
    """Returns the parser of the command line; the help of each command ends with its examples.

    Where `first`, the first argument, names a command, the parser has that command only."""
    names = [first] if first in COMMANDS else [*COMMANDS]
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
        command = getattr(import_module(f"pellucid.cli.{known.module or name}"), known.function or name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=known.line, rich_help_panel=known.panel)
        else:
            app.command(name, short_help=known.line, rich_help_panel=known.panel)(command)
    tree: Any = typer.main.get_command(app)
    tree.commands = {name: tree.commands[name] for name in names}
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
