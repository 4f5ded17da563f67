"""The commands together."""

import os

import typer

from pellucid.cli.data import app as data
from pellucid.cli.explain import explain
from pellucid.cli.replay import replay
from pellucid.cli.tokenizer import app as tokenizer
from pellucid.cli.trace import trace

app = typer.Typer(
    name="pellucid",
    help="A language-model workbench in which every number can be seen, checked and reproduced.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (explain, trace, replay):
    app.command()(command)
app.add_typer(tokenizer)
app.add_typer(data)


def _version(asked: bool) -> None:
    if asked:
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
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="What a bug report needs, and exit."
    ),
) -> None:
    pass
